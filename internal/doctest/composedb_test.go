package doctest_test

import (
	"context"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/devpg"
	"github.com/a2ad/a2ad/internal/slowtest"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// Secrets and logins are created as compose does, in a PostgreSQL with compose's settings. The migration works with
// one login, the server with the other.
func TestComposeDatabase(t *testing.T) {
	t.Parallel()
	slowtest.Only(t, slowtest.Docs)
	c := readCompose(t)
	params := map[string]string{"listen_addresses": "127.0.0.1"}
	_, port, _ := strings.Cut(freePort(t), ":")
	params["port"] = port
	for _, arg := range c.Services["postgres"].Command {
		if name, value, ok := strings.Cut(arg, "="); ok && name != "shared_buffers" {
			params[name] = value
		}
	}
	srv := storetest.NewServer(t, params)
	admin := srv.URL("postgres")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := srv.EnsureDatabase(ctx, "a2ad"); err != nil {
		t.Fatal(err)
	}
	for name, want := range params {
		var got string
		query := "SELECT setting || coalesce(unit, '') FROM pg_settings WHERE name = $1"
		if name == "fsync" || name == "synchronous_commit" || name == "full_page_writes" {
			t.Errorf("%s is not to be touched", name)
		}
		if err := scan(ctx, admin, &got, query, name); err != nil {
			t.Errorf("PostgreSQL does not have %s=%s: %v", name, want, err)
		}
	}

	secrets := t.TempDir()
	for range 2 { // existing secrets are kept
		if out, err := exec.Command("sh", filepath.Join(root, "deploy", "compose", "make-secrets.sh"),
			secrets).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	read := func(path string) string {
		data, err := os.ReadFile(filepath.Join(secrets, path))
		if err != nil || len(data) == 0 {
			t.Fatalf("secret %s: %q, %v", path, data, err)
		}
		if info, err := os.Stat(filepath.Join(secrets, path)); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("other users can read %s: %v, %v", path, info.Mode(), err)
		}
		return string(data)
	}
	makeLogins(t, admin, port, secrets)
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	// dsn is the URL that compose gives a container, with the local address.
	dsn := func(path string) string {
		return strings.Replace(read(path), "@postgres:5432/", "@127.0.0.1:"+port+"/", 1)
	}
	migrate, server := dsn("migrate/database-url"), dsn("server/database-url")
	a2ad := func(dsn string, args ...string) (string, error) {
		cmd := exec.Command(binary, args...)
		cmd.Env = []string{"A2AD_DATABASE_URL=" + dsn, "A2AD_KEYS=" + read("server/keys")}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := a2ad(server, "migrate", "up"); err == nil {
		t.Errorf("the server's login may migrate:\n%s", out)
	}
	if out, err := a2ad(migrate, "migrate", "up"); err != nil {
		t.Fatalf("migrate up: %v\n%s", err, out)
	}
	if out, err := a2ad(server, "apikey", "create", "--tenant", "acme", "--owner", "me", "--scopes",
		"tasks:read"); err != nil {
		t.Errorf("the server's login may not work: %v\n%s", err, out)
	}
	for _, statement := range []string{"DROP TABLE a2a.tasks", "CREATE TABLE a2a.t (i int)", "CREATE ROLE r",
		"SET ROLE a2a_owner"} {
		if err := scan(ctx, server, nil, statement); err == nil {
			t.Errorf("the server's login may %s", statement)
		}
	}
	var sees bool
	if err := scan(ctx, server, &sees, "SELECT pg_has_role('pg_read_all_stats', 'USAGE')"); err != nil || !sees {
		t.Errorf("the server's login does not see old transactions of other users: %v", err)
	}
	var super bool
	if err := scan(ctx, migrate, &super,
		"SELECT rolsuper OR rolcreaterole FROM pg_roles WHERE rolname = current_user"); err != nil || super {
		t.Errorf("the migration's login is too mighty: %v, %v", super, err)
	}
}

// makeLogins does what the PostgreSQL container does with an empty volume, and returns the environment of its
// programs.
func makeLogins(t *testing.T, admin, port, secrets string) []string {
	t.Helper()
	bin, err := devpg.FindBinaries(os.Getenv("A2AD_PG_BINDIR"))
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(admin)
	if err != nil {
		t.Fatal(err)
	}
	user := u.User.Username()
	if user == "" {
		user = u.Query().Get("user")
	}
	cmd := exec.Command("sh", filepath.Join(root, "deploy", "compose", "logins.sh"))
	cmd.Env = []string{
		"PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH"),
		"A2AD_SECRETS=" + filepath.Join(secrets, "postgres"),
		"PGHOST=127.0.0.1", "PGPORT=" + port, "POSTGRES_USER=" + user, "POSTGRES_DB=a2ad",
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("logins.sh: %v: %s", err, out)
	}
	return cmd.Env
}

// dockerHere stands in for docker in the blocks of TestComposeRestore: PostgreSQL's programs run locally, and volumes
// are below $VOLUMES.
const dockerHere = `#!/bin/sh
set -eu
shift # compose
case "$1 $2 $3" in
"exec -T postgres") shift 3; "$@" ;;
"cp a2ad-1:/run/secrets/server/keys "*) cp "$VOLUMES/server/keys" "$3" ;;
"run --rm -T")
	test "$4 $5 $6 $7 $8" = "--no-deps --entrypoint sh secrets -c"
	sh -c "$(echo "$9" | sed "s,/secrets/,$VOLUMES/,")" ;;
"up --detach --wait"*) ;;
*) echo "docker compose $*?" >&2; exit 1 ;;
esac
`

// The documented backup with Compose gives another installation the tasks and the key.
func TestComposeRestore(t *testing.T) {
	t.Parallel()
	slowtest.Only(t, slowtest.Docs)
	var commands []string
	for _, b := range blocks(t, "docs/how-to/back-up.md") {
		if b.lang == "sh" && strings.HasSuffix(b.arg, t.Name()) {
			commands = append(commands, b.text)
		}
	}
	if len(commands) != 2 {
		t.Fatalf("the document has %d blocks", len(commands))
	}
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	here := t.TempDir() // the directory in which the commands are pasted
	if err := os.WriteFile(filepath.Join(here, "docker"), []byte(dockerHere), 0o755); err != nil {
		t.Fatal(err)
	}
	var keys []string
	for i, command := range commands {
		_, port, _ := strings.Cut(freePort(t), ":")
		srv := storetest.NewServer(t, map[string]string{"listen_addresses": "127.0.0.1", "port": port})
		if _, err := srv.EnsureDatabase(ctx, "a2ad"); err != nil {
			t.Fatal(err)
		}
		const superuser = "DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_roles " +
			"WHERE rolname = 'postgres') THEN CREATE ROLE postgres LOGIN SUPERUSER; END IF; END $$"
		// the name of the superuser in the container
		if err := scan(ctx, srv.URL("postgres"), nil, superuser); err != nil {
			t.Fatal(err)
		}
		secrets := t.TempDir()
		if out, err := exec.Command("sh", filepath.Join(root, "deploy", "compose", "make-secrets.sh"),
			secrets).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		env := makeLogins(t, srv.URL("postgres"), port, secrets)
		read := func(path string) string {
			data, err := os.ReadFile(filepath.Join(secrets, path))
			if err != nil {
				t.Fatal(err)
			}
			return strings.Replace(string(data), "@postgres:5432/", "@127.0.0.1:"+port+"/", 1)
		}
		run := func(name string, args ...string) string {
			t.Helper()
			cmd := exec.CommandContext(ctx, name, args...)
			cmd.Dir = here
			cmd.Env = append([]string{"VOLUMES=" + secrets, "A2AD_KEYS=" + read("server/keys"),
				"A2AD_DATABASE_URL=" + read("server/database-url")}, env...)
			cmd.Env = append(cmd.Env, strings.Replace(env[0], "PATH=", "PATH="+here+string(os.PathListSeparator), 1))
			if name == binary && args[0] == "migrate" {
				cmd.Env = append(cmd.Env, "A2AD_DATABASE_URL="+read("migrate/database-url"))
			}
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%s %q: %v\n%s", name, args, err, out)
			}
			return string(out)
		}
		if i == 0 {
			run(binary, "migrate", "up")
			run(binary, "apikey", "create", "--tenant", "acme", "--owner", "me")
		}
		run("sh", "-euc", command)
		if out := run(binary, "apikey", "ls"); !strings.Contains(out, "acme/me") {
			t.Errorf("installation %d has no key: %s", i, out)
		}
		run(binary, "migrate", "up") // compose does so at every start
		keys = append(keys, read("server/keys"))
	}
	if keys[0] != keys[1] {
		t.Error("the new installation has not the A2AD_KEYS of the old one")
	}
}

// scan runs a statement on a new connection, and reads one value if dest is given.
func scan(ctx context.Context, dsn string, dest any, sql string, args ...any) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if dest == nil {
		_, err = conn.Exec(ctx, sql, args...)
		return err
	}
	return conn.QueryRow(ctx, sql, args...).Scan(dest)
}

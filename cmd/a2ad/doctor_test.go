package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/config"
	"github.com/a2ad/a2ad/internal/doctor"
	"github.com/a2ad/a2ad/internal/seal"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/term"
)

// levels returns the findings of `a2ad doctor -o json`, as "level check", with their texts.
func (i *invocation) levels(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for line := range strings.Lines(i.stdout) {
		var x doctor.Finding
		if err := json.Unmarshal([]byte(line), &x); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if x.Level == doctor.LevelFault && x.Fix == "" && x.Check != "settings" && x.Check != "database" &&
			x.Check != "admin" {
			t.Errorf("this finding does not say what to do: %s", line)
		}
		found[x.Level+" "+x.Check] += x.Text + "\n"
	}
	return found
}

// varying is what may differ between two checks of one database.
var varying = regexp.MustCompile(`round trip [^"\n]+|\d+ servers? \([^"\n]+`)

func databaseSetting(t *testing.T, url, change string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), change); err != nil {
		t.Fatalf("%s: %v", change, err)
	}
}

// TestDoctorFindsPlantedFaults plants one fault after another into a good database.
func TestDoctorFindsPlantedFaults(t *testing.T) {
	t.Parallel()
	good := storetest.NewOn(t, storetest.NewServer(t, map[string]string{"archive_mode": "on"})).URL
	i := invocation{env: []string{"A2AD_DATABASE_URL=" + good}}
	i.run(t, "doctor", "--offline", "-o", "json")
	found := i.levels(t)
	for what := range found {
		if strings.HasPrefix(what, doctor.LevelFault) ||
			strings.HasPrefix(what, doctor.LevelWarning) && what != "warning login" {
			t.Errorf("a good database: %s: %s", what, found[what])
		}
	}
	if i.code != exitWarnings || found["warning login"] == "" { // because the tests log in as a superuser
		t.Errorf("a good database: exit code %d\n%s%s", i.code, i.stdout, i.stderr)
	}
	const database = "DO $$ BEGIN EXECUTE format('ALTER DATABASE %%I %s', current_database()); END $$"
	for _, tc := range []struct{ want, plant, mend string }{
		{"fault durability", fmt.Sprintf(database, "SET synchronous_commit = off"),
			fmt.Sprintf(database, "RESET synchronous_commit")},
		{"fault isolation", fmt.Sprintf(database, "SET default_transaction_isolation = ''serializable''"),
			fmt.Sprintf(database, "RESET default_transaction_isolation")},
		{"fault row security", fmt.Sprintf(database, "SET row_security = off"),
			fmt.Sprintf(database, "RESET row_security")},
		{"warning timeouts", fmt.Sprintf(database, "SET idle_session_timeout = ''1min''"),
			fmt.Sprintf(database, "RESET idle_session_timeout")},
		{"fault connections", fmt.Sprintf(database, "CONNECTION LIMIT 5"),
			fmt.Sprintf(database, "CONNECTION LIMIT -1")},
		{"fault autovacuum", "ALTER TABLE a2a.task_ready SET (autovacuum_enabled = false)",
			"ALTER TABLE a2a.task_ready RESET (autovacuum_enabled)"},
		{"fault roles", "ALTER ROLE a2a_app BYPASSRLS", "ALTER ROLE a2a_app NOBYPASSRLS"},
		{"fault rights", "GRANT INSERT ON a2a.tasks TO a2a_app", "REVOKE INSERT ON a2a.tasks FROM a2a_app"},
		{"fault rights", "REVOKE SELECT ON a2a.messages FROM a2a_worker", "GRANT SELECT ON a2a.messages TO a2a_worker"},
		{"fault schema", "UPDATE public.a2a_goose_version SET is_applied = false WHERE version_id > 5",
			"UPDATE public.a2a_goose_version SET is_applied = true"},
		{"warning schema", "INSERT INTO public.a2a_goose_version (version_id, is_applied) VALUES (99999, true)",
			"DELETE FROM public.a2a_goose_version WHERE version_id = 99999"},
		{"fault schema", "UPDATE a2a.schema_floor SET version = 99999", "UPDATE a2a.schema_floor SET version = 0"},
		{"note timeouts", fmt.Sprintf(database, "SET idle_in_transaction_session_timeout = 0"),
			fmt.Sprintf(database, "RESET idle_in_transaction_session_timeout")},
		{"fault read-only", fmt.Sprintf(database, "SET default_transaction_read_only = on"), "BEGIN READ WRITE; " +
			fmt.Sprintf(database, "RESET default_transaction_read_only") + "; COMMIT"},
	} {
		databaseSetting(t, good, tc.plant)
		i.run(t, "doctor", "--offline", "-o", "json")
		if i.levels(t)[tc.want] == "" || strings.HasPrefix(tc.want, doctor.LevelFault) != (i.code == exitFaults) {
			t.Errorf("%s: exit code %d, no %s:\n%s", tc.plant, i.code, tc.want, i.stdout)
		}
		if strings.HasSuffix(tc.want, "connections") && !strings.Contains(i.stdout, "CONNECTION LIMIT -1") {
			t.Errorf("%s: the fix is missing:\n%s", tc.plant, i.stdout)
		}
		databaseSetting(t, good, tc.mend)
	}
	// A new login, which is no superuser and no member of a role.
	databaseSetting(t, good, "CREATE ROLE plain LOGIN PASSWORD 'plain'")
	plain := strings.Replace(good, "://postgres", "://plain:plain", 1)
	if at := strings.Index(good, "@"); at > 0 {
		plain = "postgres://plain:plain" + good[at:]
	}
	i.env = []string{"A2AD_DATABASE_URL=" + plain}
	i.run(t, "doctor", "--offline", "-o", "json")
	if found := i.levels(t); i.code != exitFaults ||
		!strings.Contains(found["fault roles"], "cannot switch to the role a2a_app") {
		t.Errorf("a login without rights: exit code %d\n%s", i.code, i.stdout)
	}
	databaseSetting(t, good, "GRANT a2a_app, a2a_worker, pg_read_all_stats TO plain")
	if i.run(t, "doctor", "--offline"); i.code != exitOK || !strings.HasSuffix(i.stdout, "0 faults, 0 warnings\n") {
		t.Errorf("a good login: exit code %d\n%s", i.code, i.stdout)
	}
	if i.run(t, "doctor", "--offline", "--quiet"); i.stdout != "0 faults, 0 warnings\n" {
		t.Errorf("quiet: %s", i.stdout)
	}
	for _, change := range []string{
		"ALTER SYSTEM SET archive_command = 'false'", "SELECT pg_reload_conf()", "SELECT pg_switch_wal()",
	} {
		databaseSetting(t, good, change)
	}
	// PostgreSQL notifies no client of a failed try, so the test polls until the archiver has tried.
	for began := time.Now(); ; {
		i.run(t, "doctor", "--offline", "-o", "json")
		if i.levels(t)["warning archive"] != "" {
			break
		}
		if time.Since(began) > 5*time.Minute {
			t.Fatalf("WAL is not archived, and the doctor says\n%s", i.stdout)
		}
	}
}

func TestDoctorWithoutADatabase(t *testing.T) {
	t.Parallel()
	i := invocation{env: []string{"A2AD_DATABASE_URL=postgres://ann:secret@127.0.0.1:1/x"}}
	i.run(t, "doctor", "--offline", "-o", "json")
	if found := i.levels(t); i.code != exitFaults || found["fault database"] == "" ||
		strings.Contains(i.stdout, "secret") {
		t.Errorf("no server: exit code %d\n%s", i.code, i.stdout)
	}
	i.env = []string{"A2AD_DATABASE_URL=" + storetest.NewEmpty(t).URL}
	i.run(t, "doctor", "--offline", "-o", "json")
	if found := i.levels(t); i.code != exitFaults || !strings.Contains(found["fault schema"], "there is no schema") {
		t.Errorf("no schema: exit code %d\n%s", i.code, i.stdout)
	}
	i.env = []string{"A2AD_LEASE_TTL=3", "A2AD_DATA_DIR=" + filepath.Join(t.TempDir(), "none")}
	i.run(t, "doctor", "--offline", "-o", "json")
	if found := i.levels(t); i.code != exitFaults || !strings.Contains(found["fault settings"], "A2AD_LEASE_TTL") ||
		!strings.Contains(found["fault database"], "there is no database") {
		t.Errorf("faulty settings: exit code %d\n%s", i.code, i.stdout)
	}
}

// TestDoctorLooksForTheServer checks the findings for a good server, a bad one, and none.
func TestDoctorLooksForTheServer(t *testing.T) {
	t.Parallel()
	ready, name := true, "words"
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/.well-known/agent-card.json":
			fmt.Fprintf(w, `{"name": %q, "url": "http://%s/"}`, name, r.Host)
		case r.URL.Path == "/readyz" && ready:
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer srv.Close()
	at := strings.TrimPrefix(srv.URL, "http://")
	i := invocation{env: []string{"A2AD_DATABASE_URL=postgres://127.0.0.1:1/x", "A2AD_LISTEN=" + at,
		"A2AD_ADMIN_LISTEN=127.0.0.1:" + at[strings.LastIndex(at, ":")+1:], "A2AD_PUBLIC_URL=" + srv.URL}}
	check := func() map[string]string {
		i.run(t, "doctor", "-o", "json")
		return i.levels(t)
	}
	i.env[2] = "A2AD_ADMIN_LISTEN=localhost:" + at[strings.LastIndex(at, ":")+1:] // the same port under another name
	if found := check(); found["ok api"] == "" || found["ok admin"] == "" || found["ok public url"] == "" {
		t.Errorf("a good server: %v", found)
	}
	ready, name = false, ""
	if found := check(); found["fault api"] == "" || found["fault admin"] == "" || found["fault public url"] == "" {
		t.Errorf("a bad server: %v", found)
	}
	i.env[3] = "A2AD_PUBLIC_URL=http://a2ad.invalid"
	srv.Close()
	found := check()
	if found["warning api"] == "" || found["warning admin"] == "" || found["fault public url"] == "" ||
		!strings.Contains(found["warning public url"], "not https") {
		t.Errorf("no server: %v", found)
	}
	i.env[1], i.env[3] = "A2AD_LISTEN=0.0.0.0:1", "A2AD_PUBLIC_URL="
	if found := check(); found["warning public url"] == "" {
		t.Errorf("no public URL: %v", found)
	}
}

func TestDoctorChecksAgentFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "bad.yaml"), []byte("name: bad/name\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	i := invocation{env: []string{"A2AD_DATABASE_URL=postgres://127.0.0.1:1/x", "A2AD_AGENTS=" + dir}}
	i.run(t, "doctor", "--offline", "-o", "json")
	if found := i.levels(t); !strings.Contains(found["fault agents"], "bad.yaml") {
		t.Errorf("%s", i.stdout)
	}
}

// TestDoctorOfAServer: a server checks its own installation, and the command shows and counts what it has found.
func TestDoctorOfAServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	keys := seal.Generate("k2")
	app, cfg := &App{}, config.Config{}
	if _, faults := config.Load(config.SettingsOf(&cfg, false), nil, config.ReadEnviron(w.env)); len(faults) > 0 {
		t.Fatal(faults)
	}
	check := app.checkInstallation(false)
	srv := w.serve(func(c *admin.Config) {
		c.Doctor = func(ctx context.Context, offline bool) []admin.Finding { return check(ctx, &cfg, offline) }
	})
	near := invocation{env: w.env}
	far := invocation{env: []string{"A2AD_API_KEY=secret", "A2AD_SERVER=" + srv.URL}}
	for _, args := range [][]string{{"doctor", "--offline", "-o", "json"}, {"doctor", "--offline", "--quiet"}} {
		near.run(t, args...)
		if far.run(t, args...); far.code != near.code || len(far.stdout) < 20 ||
			varying.ReplaceAllString(far.stdout, "") != varying.ReplaceAllString(near.stdout, "") {
			t.Errorf("%v: exit code %d\n%s%s\nwith the settings: exit code %d\n%s%s",
				args, far.code, far.stdout, far.stderr, near.code, near.stdout, near.stderr)
		}
	}
	ring, err := seal.Parse(keys)
	if err != nil {
		t.Fatal(err)
	}
	cfg.DatabaseURL, cfg.Keys = config.NewSecret("postgres://ann:passw0rd@127.0.0.1:1/x"), ring
	_, key, _ := strings.Cut(keys, ":")
	if far.run(t, "doctor", "--offline"); far.code != exitFaults || strings.Contains(far.stdout, "passw0rd") ||
		strings.Contains(far.stdout, key) {
		t.Errorf("no database: exit code %d\n%s%s", far.code, far.stdout, far.stderr)
	}
	far.env[0] = "A2AD_API_KEY=wrong"
	if far.run(t, "doctor"); far.code != exitFaults || far.stdout != "" || far.stderr == "" {
		t.Errorf("a wrong key: exit code %d\n%s%s", far.code, far.stdout, far.stderr)
	}
}

// TestDoctorScreens shows what a person sees, without and with colors.
func TestDoctorScreens(t *testing.T) {
	t.Parallel()
	all := doctor.Findings{
		{Check: "settings", Level: doctor.LevelOK, Text: "the settings are valid"},
		{Check: "keys", Level: doctor.LevelNote, Text: "A2AD_KEYS is not set: webhooks with a token are refused",
			Fix: "Set A2AD_KEYS."},
		{
			Check: "durability", Level: doctor.LevelFault,
			Text: "synchronous_commit is off: a crash loses commits that were acknowledged",
			Fix:  `ALTER DATABASE "a2ad" RESET synchronous_commit`,
		},
		{
			Check: "sessions", Level: doctor.LevelWarning,
			Text: "process 4711 (bob, p\x1bsql) has been idle in a transaction for 7m0s",
			Fix:  "Find out what it does, then SELECT pg_terminate_backend(4711)",
		},
	}
	for name, console := range map[string]term.Console{"doctor": {}, "doctor-colors": {Color: true},
		"doctor-narrow": {Columns: 60}} {
		var out strings.Builder
		console.Stdout = &out
		code := finish(t.Context(), &App{}, new(DoctorCmd).print(&App{Console: console}, all))
		golden(t, name, fmt.Sprintf("%s[exit code %d]\n", out.String(), code))
	}
}

package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// serverLogin is the login of replicas behind a pooler.
const serverLogin = "a2ad_server"

// pooler is PgBouncer in front of a database.
type pooler struct {
	at      string
	crashed atomic.Bool
}

// startPooler creates a database, and starts a PgBouncer that offers it in each of its modes, with these settings in
// addition to the defaults.
func startPooler(t *testing.T, settings ...string) (c *cluster, p *pooler) {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		if os.Getenv("CI") != "" { // .ci/run installs it
			t.Fatal(err)
		}
		t.Skipf("this needs PgBouncer: %v", err)
	}
	srv, host, port := primary(t, nil)
	db := storetest.NewOn(t, srv)
	name, err := pgx.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	p = &pooler{at: freePort(t)}
	_, listen, _ := net.SplitHostPort(p.at)
	var conf strings.Builder
	conf.WriteString("[databases]\n")
	for _, mode := range []string{"session", "transaction", "statement"} {
		fmt.Fprintf(&conf, "%s = host=%s port=%s dbname=%s pool_mode=%s\n", mode, host, port, name.Database, mode)
	}
	fmt.Fprintf(&conf,
		"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %s\nunix_socket_dir =\nauth_type = trust\n"+
			"auth_file = users.txt\nadmin_users = %s\n%s\n", listen, serverLogin, strings.Join(settings, "\n"))
	dir := t.TempDir()
	for file, text := range map[string]string{"pgbouncer.ini": conf.String(),
		"users.txt": fmt.Sprintf("%q \"\"\n%q \"\"\n", serverLogin, name.User)} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"pgbouncer.ini"}
	if os.Geteuid() == 0 { // PgBouncer does not run as root
		args = []string{"--user", "nobody", "pgbouncer.ini"}
	}
	var log bytes.Buffer
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for crashed := true; crashed && ctx.Err() == nil; {
			cmd := exec.CommandContext(ctx, program, args...)
			cmd.Dir = dir
			cmd.Stdout, cmd.Stderr = &log, &log
			_ = cmd.Run() // it is killed, or the log says why it ended
			// A fault of PgBouncer 1.18: a cancel request whose client is gone may end the whole process.
			crashed = bytes.Contains(log.Bytes(), []byte("bad client state"))
			p.crashed.Store(crashed)
		}
	}()
	t.Cleanup(func() {
		stop()
		<-stopped
		if t.Failed() {
			t.Logf("PgBouncer says:\n%s", log.String())
		}
	})
	until(t, "PgBouncer listens", func() bool {
		conn, err := net.Dial("tcp", p.at)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	c = clusterOn(t, db) // ends before the pooler does
	if _, err := c.db.Exec(bounded(t), "CREATE ROLE "+serverLogin+
		" LOGIN IN ROLE a2a_app, a2a_worker, pg_read_all_stats"); err != nil {
		t.Fatal(err)
	}
	return c, p
}

// url is the database's URL through the pooler.
func (p *pooler) url(mode string) string {
	return fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", serverLogin, p.at, mode)
}

// set changes a setting of the running pooler.
func (p *pooler) set(t *testing.T, name, value string) {
	t.Helper()
	ctx := bounded(t)
	conn, err := pgconn.Connect(ctx, p.url("pgbouncer")) // the pooler's console
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, fmt.Sprintf("SET %s = '%s'", name, value)).ReadAll(); err != nil {
		t.Fatal(err)
	}
}

// doctor returns the findings of the doctor for a URL: level and check, and the text.
func (c *cluster) doctor(url string) map[string]string {
	c.t.Helper()
	out, notes, _ := c.operate([]string{"A2AD_DATABASE_URL=" + url}, "doctor", "--offline", "-o", "json")
	found := map[string]string{}
	for line := range strings.Lines(out) {
		var x struct{ Check, Level, Text string }
		if err := json.Unmarshal([]byte(line), &x); err != nil {
			c.t.Fatalf("%v: %s%s", err, out, notes)
		}
		found[x.Level+" "+x.Check] += x.Text
	}
	return found
}

// In PgBouncer's default mode replicas work as without it: wake-ups arrive, connections have their roles and limits,
// and the sessions of a killed replica end.
func TestSessionPoolerWorks(t *testing.T) {
	t.Parallel()
	c, p := startPooler(t, "default_pool_size = 60") // three replicas
	env := []string{"A2AD_DATABASE_URL=" + p.url("session"), "A2AD_POLL_INTERVAL=1h", "A2AD_STATEMENT_TIMEOUT=70s",
		"A2AD_LEASE_TTL=1h", "A2AD_RESCUE_GRACE=1s"}
	a, b := c.start("a", append(env, "A2AD_WORKERS=0")...), c.start("b", env...)
	t.Cleanup(func() {
		if p.crashed.Load() { // and has cut connections of requests
			a.log.expectErrors()
			b.log.expectErrors()
		}
	})
	g := newGate(t)
	task := submit(t, c.client(a, "script"),
		play(`{"op":"chunk","id":"a","n":3},`+g.op()+`,{"op":"chunk","id":"b","n":3}`))
	events := follow(t, c.client(a, "script").Resubscribe(bounded(t), task, client.StreamOptions{}),
		func(ev client.Event) bool {
			if atLast(ev, "a", 2) {
				g.open() // needs the wake-up: the replica does not poll
			}
			return false
		})
	endsWith(t, events, a2a.StateCompleted)
	l := c.startLoad(4, a, b)
	l.progress(20)
	l.finish()
	if found := c.doctor(p.url("session")); found["ok pooler"] == "" || found["ok roles"] == "" {
		t.Errorf("the doctor finds %q", found)
	}
	g = newGate(t)
	task = submit(t, c.client(a, "script"), play(g.op()+`,{"op":"complete"}`))
	g.await(0)
	b.kill()
	g.open()
	c.start("c", env...)
	c.awaitState(task, "COMPLETED")
}

// A pooler that shares connections between transactions or statements is refused, whatever it does with prepared
// statements. Every command says why, and no connection keeps a role for its next user.
func TestTransactionPoolerIsRefused(t *testing.T) {
	t.Parallel()
	c, p := startPooler(t)
	for _, url := range []string{p.url("transaction"), p.url("transaction") + "&default_query_exec_mode=exec",
		p.url("statement")} {
		for _, args := range [][]string{{"serve"}, {"migrate", "up"}, {"task", "ls"}} {
			_, notes, code := c.operate(append(c.env("refused"), "A2AD_DATABASE_URL="+url), args...)
			if code != 1 || !strings.Contains(notes, "pool_mode = session") {
				t.Errorf("%s: a2ad %q: exit code %d, %s", url, args, code, notes)
			}
		}
		found := c.doctor(url)
		if !strings.Contains(found["fault pooler"], "shares connections between transactions") ||
			found["warning unread"] != "" || found["warning keys"] != "" {
			t.Errorf("%s: the doctor finds %q", url, found)
		}
	}
	cfg, err := pgx.ParseConfig(p.url("transaction"))
	if err != nil {
		t.Fatal(err)
	}
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
	conn, err := pgx.ConnectConfig(bounded(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(bounded(t))
	var role, path string
	if err := conn.QueryRow(bounded(t), "SELECT current_user::text, current_setting('search_path')").Scan(&role,
		&path); err != nil || role != serverLogin || path == "pg_catalog" {
		t.Errorf("the next user is %s, with search_path %s: %v", role, path, err)
	}
	if n := one[int](c, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"); n != 0 {
		t.Errorf("%d locks are left", n)
	}
}

// The session pool is too small for one replica. The server waits until the pooler has room, and other commands fail.
// All of them name the pooler's setting.
func TestFullPoolerIsReported(t *testing.T) {
	t.Parallel()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	const advice = "default_pool_size"
	c, p := startPooler(t, "default_pool_size = 1")
	url, short := "A2AD_DATABASE_URL="+p.url("session"), "A2AD_POOL_TIMEOUT=2s"
	for _, args := range [][]string{{"migrate", "up"}, {"task", "ls"}} {
		if _, notes, code := c.operate([]string{url, short}, args...); code != 1 || !strings.Contains(notes, advice) {
			t.Errorf("a2ad %q: exit code %d, %s", args, code, notes)
		}
	}
	r := spawn(t, "early", c.env("early", "A2AD_ADMIN_LISTEN=127.0.0.1:0", url, short))
	c.replicas = append(c.replicas, r)
	r.awaitWaiting(advice)
	r.checkWaiting(advice)
	p.set(t, advice, "20")
	r.awaitReady()
	r.stop()
}

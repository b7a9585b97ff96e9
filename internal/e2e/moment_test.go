package e2e_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
	"github.com/a2ad/a2ad/internal/devpg"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// owned creates a directory for the user that runs a server, and returns that user, or nil if it is this process's.
func owned(t *testing.T, srv *devpg.Server) (dir string, as *syscall.Credential) {
	t.Helper()
	dir, err := os.MkdirTemp("", "a2ad-moment-") // other users cannot enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // in the temporary directory: leftovers do no harm
	info, err := os.Stat(filepath.Join(srv.Dir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && int(owner.Uid) != os.Geteuid() {
		as = &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}
		if err := os.Chown(dir, int(owner.Uid), int(owner.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	return dir, as
}

// asAdministrator runs statements of the documents one by one, because some may not run in a transaction.
func asAdministrator(t *testing.T, url, block string) {
	t.Helper()
	conn, err := pgx.Connect(bounded(t), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(bounded(t))
	for statement := range strings.SplitSeq(block, ";\n") {
		if _, err := conn.Exec(bounded(t), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// stopped is the log line about the first transaction after the moment, which may have been rolled back.
var stopped = regexp.MustCompile(`recovery stopping before (commit|abort) of transaction`)

// A server under load is archived and copied as the documentation of backups says. Everything is destroyed, then
// recovered to the moment before, and served. Everything acknowledged before the moment exists, nothing later does,
// and running tasks run again.
func TestRestoreToAPointInTime(t *testing.T) {
	t.Parallel()
	needPrograms(t, "pg_basebackup", "psql")
	statements, commands := documented(t, "back-up.md")
	if len(statements) != 3 || len(commands) != 2 {
		t.Fatalf("the document has %d and %d blocks", len(statements), len(commands))
	}
	srv := storetest.NewServer(t, nil)
	dir, as := owned(t, srv)
	here := func(block string) string { return strings.ReplaceAll(block, "/var/backups/a2ad", dir) }
	shell(t, "mkdir wal", dir, as)
	db := storetest.NewOn(t, srv)
	asAdministrator(t, db.URL, here(statements[0]))
	if err := srv.Restart(bounded(t)); err != nil {
		t.Fatal(err)
	}

	var moment time.Time
	var running string
	before, after := map[string]string{}, map[string]string{} // acknowledged: Idempotency-Key to task
	g := newGate(t)
	t.Run("until then", func(t *testing.T) {
		c := clusterOn(t, db)
		a, b := c.start("a"), c.start("b")
		l := c.startLoad(4, a, b)
		l.progress(10)
		shell(t, here(commands[0]), dir, as, "REPLICATION_URL="+srv.URL("postgres"))
		l.progress(20) // only in the archive
		running = submit(t, c.client(a, "script"), play(`{"op":"chunk","id":"a","n":3},`+g.op()+`,{"op":"complete"}`))
		c.runner(running)
		g.await(0)
		l.acked.Range(func(key, task any) bool { before[key.(string)] = task.(string); return true })
		moment = one[time.Time](c, `SELECT clock_timestamp()`)
		l.progress(20)
		g.open()
		l.finish()
		l.acked.Range(func(key, task any) bool { after[key.(string)] = task.(string); return true })
	})
	if t.Failed() {
		return
	}
	asAdministrator(t, db.URL, "TRUNCATE a2a.tasks CASCADE;\nSELECT pg_switch_wal()")
	if err := srv.Stop(bounded(t)); err != nil { // the archiver finishes
		t.Fatal(err)
	}

	home := filepath.Join(dir, "pg")
	shell(t, "mkdir pg && chmod 700 pg\n"+here(commands[1]), dir, as, "PGDATA="+filepath.Join(home, "data"),
		"MOMENT="+moment.Format("2006-01-02 15:04:05.999999-07"))
	restored, err := devpg.Start(bounded(t), devpg.Config{Dir: home, BinDir: os.Getenv("A2AD_PG_BINDIR")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := restored.Stop(bounded(t)); err != nil {
			t.Error(err)
		}
	})
	name, err := pgx.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := clusterOn(t, &storetest.DB{URL: restored.URL(name.Database)})
	until(t, "it accepts writes",
		func() bool { return !one[bool](c, strings.TrimSuffix(strings.TrimSpace(statements[1]), ";")) })
	asAdministrator(t, restored.URL(name.Database), statements[2])
	until(t, "the archive has WAL of the new history", func() bool {
		files, err := filepath.Glob(filepath.Join(dir, "wal", "00000002*[0-9A-F]"))
		return err == nil && len(files) > 0
	})
	if log, err := srvLog(restored.LogFile()); err != nil || !stopped.MatchString(log) {
		t.Errorf("the log does not say where recovery stopped: %v\n%s", err, log)
	}

	there := func(key, task string) int {
		return one[int](c, `SELECT count(*) FROM audit.message WHERE idem_key = $1 AND task_id::text = $2`, key, task)
	}
	for key, task := range before {
		if n := there(key, task); n != 1 {
			t.Errorf("%s was acknowledged as task %s before the moment, and exists %d times", key, task, n)
		}
	}
	if late := one[int](c, `SELECT count(*) FROM audit.event WHERE committed_at > $1`, moment); late > 0 {
		t.Errorf("%d events are from after the moment", late)
	}
	lost := 0
	for key, task := range after {
		if _, ok := before[key]; !ok && there(key, task) == 0 {
			lost++
		}
	}
	if lost == 0 || len(before) == 0 {
		t.Errorf("%d were acknowledged before the moment, and %d later ones are missing: the fault did not happen",
			len(before), lost)
	}
	if state := c.state(running); state != "WORKING" {
		t.Errorf("the running task is %s", state)
	}
	r := c.start("r")
	c.awaitState(running, "COMPLETED")
	if got, err := c.client(r, "echo").Send(bounded(t), client.SendParams{Message: say("go on")}); err != nil ||
		got.State != a2a.StateCompleted {
		t.Errorf("a new task: %s, %v", got.Raw, err)
	}
}

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
	"github.com/a2ad/a2ad/internal/devpg"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// primary starts a PostgreSQL that others can copy, and returns its address.
func primary(t *testing.T, params map[string]string) (srv *devpg.Server, host, port string) {
	t.Helper()
	host, port, err := net.SplitHostPort(freePort(t))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{"listen_addresses": host, "port": port}
	for name, value := range params {
		all[name] = value
	}
	return storetest.NewServer(t, all), host, port
}

// standby copies a running server and starts the copy as its standby.
func standby(t *testing.T, of *devpg.Server, conninfo, port string) *devpg.Server {
	t.Helper()
	dir, err := os.MkdirTemp("", "a2ad-standby-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // in the temporary directory: leftovers do no harm
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(dir, "pg")
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	copyRunning(t, of, conninfo, filepath.Join(home, "data"))
	info, err := os.Stat(filepath.Join(of.Dir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	// The test may run as root, but PostgreSQL never does: its user must own the copy.
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && int(owner.Uid) != os.Geteuid() {
		err := filepath.WalkDir(home, func(path string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return os.Lchown(path, int(owner.Uid), int(owner.Gid))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	srv, err := devpg.Start(bounded(t), devpg.Config{
		Dir: home, BinDir: os.Getenv("A2AD_PG_BINDIR"),
		Params: map[string]string{"listen_addresses": "127.0.0.1", "port": port},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Stop(bounded(t)); err != nil {
			t.Error(err)
		}
	})
	return srv
}

// copyRunning makes data a standby of a running server, with the functions of the low-level backup API. It does the
// work of pg_basebackup, which many PostgreSQL packages lack.
func copyRunning(t *testing.T, of *devpg.Server, conninfo, data string) {
	t.Helper()
	ctx := bounded(t)
	conn, err := pgx.Connect(ctx, of.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "SELECT pg_backup_start('standby', fast => true)"); err != nil {
		t.Fatal(err)
	}
	copyData(t, filepath.Join(of.Dir(), "data"), data)
	var label string
	if err := conn.QueryRow(ctx,
		"SELECT labelfile FROM pg_backup_stop(wait_for_archive => false)").Scan(&label); err != nil {
		t.Fatal(err)
	}
	settings, err := os.ReadFile(filepath.Join(data, "postgresql.auto.conf"))
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"backup_label": label, "standby.signal": "",
		"postgresql.auto.conf": fmt.Sprintf("%s\nprimary_conninfo = '%s'\n", settings, conninfo),
	} {
		if err := os.WriteFile(filepath.Join(data, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// copyData copies the directory of a running server, without the WAL, which the standby streams. Files may vanish
// meanwhile; the WAL restores what matters in them.
func copyData(t *testing.T, from, to string) {
	t.Helper()
	source := os.DirFS(from)
	err := fs.WalkDir(source, ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case d.IsDir():
			return os.Mkdir(filepath.Join(to, path), 0o700)
		case path == "postmaster.pid" || filepath.Dir(path) == "pg_wal" || !d.Type().IsRegular():
			return nil
		}
		content, err := fs.ReadFile(source, path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		} else if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, path), content, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// pair is a primary and its standby, behind one URL.
type pair struct {
	t             *testing.T
	first, second *devpg.Server
	url, db       string
	port          string // of the standby
}

// newPair starts a primary with these parameters of PostgreSQL, and its standby.
func newPair(t *testing.T, params map[string]string) *pair {
	t.Helper()
	first, host, port := primary(t, params)
	name, err := pgxpool.ParseConfig(storetest.NewOn(t, first).URL)
	if err != nil {
		t.Fatal(err)
	}
	db, user := name.ConnConfig.Database, name.ConnConfig.User
	_, port2, err := net.SplitHostPort(freePort(t))
	if err != nil {
		t.Fatal(err)
	}
	return &pair{
		t: t, first: first, second: standby(t, first, "host="+host+" port="+port+" user="+user+" application_name=s2",
			port2), db: db, port: port2,
		url: "postgres://" + user + "@" + host + ":" + port + "," + host + ":" + port2 + "/" + db +
			"?target_session_attrs=read-write",
	}
}

// exec runs a statement on one of the two, as its superuser.
func (p *pair) exec(on *devpg.Server, statement string) {
	p.t.Helper()
	conn, err := pgx.Connect(bounded(p.t), on.URL(p.db))
	if err != nil {
		p.t.Fatal(err)
	}
	defer conn.Close(bounded(p.t))
	if _, err := conn.Exec(bounded(p.t), statement); err != nil {
		p.t.Fatalf("%s: %v", statement, err)
	}
}

// failOver kills the primary and promotes its standby.
func (p *pair) failOver() {
	p.t.Helper()
	if err := p.first.Kill(syscall.SIGKILL); err != nil {
		p.t.Fatal(err)
	}
	p.exec(p.second, `SELECT pg_promote(true)`)
}

// synchronize makes each commit wait for the standby.
func (p *pair) synchronize(c *cluster) {
	c.t.Helper()
	p.exec(p.first, `ALTER SYSTEM SET synchronous_standby_names = 's2'`)
	p.exec(p.first, `SELECT pg_reload_conf()`)
	until(c.t, "the standby is synchronous", func() bool {
		return one[int](c, `SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'`) == 1
	})
}

// caughtUp waits until the standby has replayed everything so far.
func (p *pair) caughtUp(c *cluster) {
	p.t.Helper()
	now := one[string](c, `SELECT pg_current_wal_lsn()::text`)
	until(p.t, "the standby has received everything so far", func() bool {
		return one[bool](c, `SELECT coalesce(bool_and(replay_lsn >= $1::pg_lsn), false) FROM pg_stat_replication`, now)
	})
}

// The primary is killed while clients are busy, and its standby is promoted. Everything acknowledged exists, with the
// same event ids, and the same replicas continue.
func TestFailoverToASynchronousStandbyLosesNothing(t *testing.T) {
	t.Parallel()
	p := newPair(t, nil)
	c := clusterOn(t, &storetest.DB{URL: p.url})
	c.cutOK = true // a stream whose log cannot be read ends, and is resumed
	p.synchronize(c)
	a, b := c.start("a"), c.start("b")
	l := c.startLoad(8, a, b)
	l.progress(30)
	a.log.expectErrors()
	b.log.expectErrors()
	p.failOver()
	c.db.Reset()
	logTook(t, "the first answers after the failover", l.progress(8))
	l.progress(30)
	for _, r := range []*replica{a, b} {
		if !r.running() {
			t.Errorf("%s ended with the primary", r.name)
		}
	}
	l.finish()
	if got := one[string](c, `SELECT current_setting('port')`); got != p.port {
		t.Errorf("the fault did not happen: the database is at port %s, not %s", got, p.port)
	}
}

// The standby lags when the primary dies, and what it has not received is lost. A client that has seen it and resumes
// gets a gap, and never gets other events under numbers it has seen.
func TestFailoverThatLosesEventsReportsAGap(t *testing.T) {
	t.Parallel()
	p := newPair(t, nil)
	c := clusterOn(t, &storetest.DB{URL: p.url})
	a, b := c.start("a"), c.start("b")
	// Not a client of the cluster: what it sees is lost, which the checkers do not accept.
	reader := func(r *replica) *client.Client {
		return &client.Client{URL: r.base + "/agents/script", HTTP: &http.Client{Transport: c.http}, Retry: c.retry}
	}
	g := newGate(t)
	task := submit(t, c.client(a, "script"),
		play(`{"op":"chunk","id":"a","n":3},`+g.op()+`,{"op":"chunk","id":"b","n":5},{"op":"complete","text":"done"}`))
	follow(t, reader(a).Resubscribe(bounded(t), task, client.StreamOptions{}),
		func(ev client.Event) bool { return atLast(ev, "a", 2) })
	p.caughtUp(c)
	sender := one[int32](c, `SELECT pid FROM pg_stat_replication`)
	if err := syscall.Kill(int(sender), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	until(t, "the sender is in state T", func() bool { return procState(int(sender)) == "T" })

	g.open()
	lost := follow(t, reader(b).Resubscribe(bounded(t), task, client.StreamOptions{}), nil)
	endsWith(t, lost, a2a.StateCompleted)
	a.log.expectErrors()
	b.log.expectErrors()
	if err := syscall.Kill(int(sender), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.failOver()
	c.db.Reset()
	until(t, "the task runs again", func() bool {
		n, err := query[int](c, `SELECT count(*) FROM audit.attempt WHERE task_id::text = $1`, task)
		return err == nil && n == 2
	})
	c.awaitState(task, "COMPLETED")
	for _, r := range []*replica{a, b} {
		events := follow(t, reader(r).Resubscribe(bounded(t), task,
			client.StreamOptions{LastEventID: lost[len(lost)-1].ID}), nil)
		if len(events) == 0 || !events[0].Gap {
			t.Errorf("%s continues after %s, which is lost, without a gap: %+v", r.name, lost[len(lost)-1].ID, events)
			continue
		}
		endsWith(t, events, a2a.StateCompleted)
		if diff := cmp.Diff(chunkTexts("b", 5), chunks(events, "b")); diff != "" {
			t.Errorf("chunks of %s (-want +got):\n%s", r.name, diff)
		}
	}
}

package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
	"github.com/a2ad/a2ad/internal/devpg"
	"github.com/a2ad/a2ad/internal/seal"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// pgBackRest runs the blocks of the documentation for a server of a test.
type pgBackRest struct {
	t    *testing.T
	dir  string // holds the configuration, the repository and logs
	as   *syscall.Credential
	data string // data directory of the server
	env  []string
}

// here puts the paths of the test into a block of the documentation.
func (p *pgBackRest) here(block string) string {
	return strings.NewReplacer(
		"pgbackrest --stanza", "pgbackrest --config="+p.dir+"/pgbackrest.conf --log-level-console=warn --stanza",
		"/etc/pgbackrest.conf", p.dir+"/pgbackrest.conf",
		"/var/lib/pgbackrest", p.dir+"/repository",
		"/var/log/pgbackrest", p.dir+"/log\nlock-path="+p.dir+"/lock",
		"/var/lib/postgresql/15/main", p.data,
	).Replace(block)
}

// run executes a block for the server of the test.
func (p *pgBackRest) run(block string, env ...string) {
	p.t.Helper()
	shell(p.t, p.here(block), p.dir, p.as, append(env, p.env...)...)
}

// needPgBackRest skips a test where the program is missing.
func needPgBackRest(t *testing.T) {
	t.Helper()
	needPrograms(t, "psql") // pgBackRest of a distribution supports the PostgreSQL of that distribution
	if _, err := exec.LookPath("pgbackrest"); err != nil {
		if os.Getenv("CI") != "" { // .ci/run installs it
			t.Fatal(err)
		}
		t.Skipf("this needs pgBackRest (Debian: apt-get install pgbackrest): %v", err)
	}
}

// acknowledged returns what the server has confirmed to the load so far: Idempotency-Key to task.
func (l *load) acknowledged() map[string]string {
	all := map[string]string{}
	l.acked.Range(func(key, task any) bool { all[key.(string)] = task.(string); return true })
	return all
}

// missing returns how many acknowledged requests have no message with their key on their task.
func (c *cluster) missing(acked map[string]string) (n int) {
	c.t.Helper()
	for key, task := range acked {
		if one[int](c, `SELECT count(*) FROM audit.message WHERE idem_key = $1 AND task_id::text = $2`,
			key, task) != 1 {
			n++
		}
	}
	return n
}

// archived waits until the archive has everything that was committed so far.
func (c *cluster) archived() {
	c.t.Helper()
	wal := one[string](c, `SELECT pg_walfile_name(pg_switch_wal())`)
	until(c.t, "the archive has "+wal, func() bool {
		return one[bool](c, `SELECT coalesce(last_archived_wal >= $1, false) FROM pg_stat_archiver`, wal)
	})
}

// A server under load is archived and backed up with pgBackRest as the documentation says, and destroyed. A rehearsal
// restores all of the archive, and then the server is restored to a moment. Each time everything acknowledged before
// exists. After the moment nothing does: leases expire, webhooks continue, and clients get a gap or repeat their sends.
func TestRestoreWithPgBackRest(t *testing.T) {
	t.Parallel()
	needPgBackRest(t)
	statements, commands := documented(t, "back-up.md")
	if len(statements) != 1 || len(commands) != 6 {
		t.Fatalf("the document has %d and %d blocks", len(statements), len(commands))
	}
	configure, first, next, restoreAll, restoreMoment, afterwards :=
		commands[0], commands[1], commands[2], commands[3], commands[4], commands[5]
	srv := storetest.NewServer(t, nil)
	dir, as := owned(t, srv)
	db := storetest.NewOn(t, srv)
	name, err := pgx.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	p := &pgBackRest{t: t, dir: dir, as: as, data: filepath.Join(srv.Dir(), "data"), env: []string{
		"PGBACKREST_PG1_SOCKET_PATH=" + name.Host, "PGBACKREST_PG1_USER=" + name.User}}
	p.run("mkdir repository log lock\n" + configure)
	asAdministrator(t, db.URL, p.here(statements[0]))
	if err := srv.Restart(bounded(t)); err != nil {
		t.Fatal(err)
	}
	p.run(first)

	var moment time.Time
	var hooked string
	var seen client.Event                           // the last event of the hooked task
	var before, certain, repeated map[string]string // acknowledged: before the moment, in the archive, after the moment
	keys, sink, g := seal.Generate("k1"), newHookSink(t, nil), newGate(t)
	t.Run("until then", func(t *testing.T) {
		p.t = t
		c := clusterOn(t, db)
		a, b := c.start("a", hooking(keys)...), c.start("b", hooking(keys)...)
		l := c.startLoad(4, a, b)
		l.progress(10)
		p.run(next)
		l.progress(10) // only in the archive
		apiKey := c.apiKey("acme", "ann", "tasks:read")
		hooked = c.sendHooked(a, `{"url":"`+sink.URL+`/x"}`,
			`{"op":"chunk","id":"a","n":3},`+g.op()+`,{"op":"chunk","id":"b","n":3},{"op":"complete"}`)
		c.runner(hooked)
		g.await(0)
		before = l.acknowledged()
		moment = one[time.Time](c, `SELECT clock_timestamp()`)
		l.progress(10)
		c.must("apikey", "revoke", strings.Split(apiKey, "_")[2])
		repeated = map[string]string{"repeat": c.sendKeyed(a, "repeat")}
		g.open()
		events := follow(t, c.client(a, "script").Resubscribe(bounded(t), hooked, client.StreamOptions{}), nil)
		seen = events[len(events)-1]
		until(t, "its webhook is delivered", func() bool {
			return one[int](c, `SELECT count(*) FROM audit.delivery WHERE state = 'pending'`) == 0
		})
		certain = l.acknowledged()
		c.archived()
		l.progress(5)
		l.finish()
	})
	if t.Failed() {
		return
	}
	p.t = t
	if err := srv.Kill(syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	p.run("rm -rf " + p.data)

	t.Run("all of the archive", func(t *testing.T) {
		p.t = t
		home := filepath.Join(dir, "rehearsal")
		p.run("mkdir -m 700 rehearsal\n" + strings.TrimSuffix(restoreAll, "restore") +
			"--archive-mode=off --pg1-path=" + filepath.Join(home, "data") + " restore")
		rehearsal, err := devpg.Start(bounded(t), devpg.Config{Dir: home, BinDir: os.Getenv("A2AD_PG_BINDIR")})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := rehearsal.Stop(bounded(t)); err != nil {
				t.Error(err)
			}
		})
		c := clusterOn(t, &storetest.DB{URL: rehearsal.URL(name.Database)})
		c.awaitWrites()
		if n := c.missing(certain) + c.missing(repeated); n > 0 {
			t.Errorf("%d of %d requests that the archive holds are missing", n, len(certain)+len(repeated))
		}
		if state := c.state(hooked); state != "COMPLETED" {
			t.Errorf("the task with a webhook is %s, and had ended", state)
		}
		r := c.start("rehearsal", hooking(keys)...)
		c.sends(r)
	})

	if p.t = t; t.Failed() {
		return
	}
	p.run(restoreMoment, "MOMENT="+moment.Format("2006-01-02 15:04:05.999999-07"))
	if err := srv.Restart(bounded(t)); err != nil {
		t.Fatal(err)
	}
	c := clusterOn(t, db)
	c.awaitWrites()
	p.run(afterwards)
	if log, err := srvLog(srv.LogFile()); err != nil || !stopped.MatchString(log) {
		t.Errorf("the log does not say where recovery stopped: %v\n%s", err, log)
	}
	if n := c.missing(before); n > 0 || len(before) == 0 {
		t.Errorf("%d of %d requests are missing that were acknowledged before the moment", n, len(before))
	}
	if late := one[int](c, `SELECT count(*) FROM audit.event WHERE committed_at > $1`, moment); late > 0 {
		t.Errorf("%d events are from after the moment", late)
	}
	if c.missing(repeated) == 0 || c.missing(certain) == 0 {
		t.Error("requests from after the moment exist: the fault did not happen")
	}
	if state := c.state(hooked); state != "WORKING" {
		t.Errorf("the running task is %s", state)
	}
	c.continues(hooked, seen, sink, keys)
	if n := one[int](c, `SELECT count(*) FROM a2a.api_keys WHERE revoked_at IS NULL`); n != 1 {
		t.Errorf("%d API keys are valid, want the one that was revoked after the moment", n)
	}
}

// continues checks what the documentation says about leases, webhooks and clients after a restore.
func (c *cluster) continues(hooked string, seen client.Event, sink *hookSink, keys string) {
	c.t.Helper()
	delivered := len(sink.all())
	r := c.start("r", append(hooking(keys), "A2AD_ADMIN_LISTEN=127.0.0.1:0")...)
	c.awaitState(hooked, "COMPLETED")
	if attempts := c.attempts(hooked); len(attempts) != 2 || !strings.HasSuffix(attempts[0], " expired") {
		c.t.Errorf("the attempts are %q, want one whose lease expired, and one more", attempts)
	}
	again := follow(c.t, (&client.Client{URL: r.base + "/agents/script", Retry: c.retry}).Resubscribe(bounded(c.t),
		hooked, client.StreamOptions{LastEventID: seen.ID}), nil)
	if len(again) == 0 || !again[0].Gap {
		c.t.Errorf("a resume after %s, which is not in the backup, does not report the gap: %v", seen.ID, again)
	}
	c.awaitDelivered()
	if len(sink.all()) == delivered {
		c.t.Error("no webhook of the restored task was delivered")
	}
	if task := c.sendKeyed(r, "repeat"); c.missing(map[string]string{"repeat": task}) > 0 {
		c.t.Errorf("a repeated send made no task: %s", task)
	}
	c.sends(r)
	out, notes, _ := c.operate(r.env, "doctor") // it warns of the superuser
	if !strings.Contains(out, "\n0 faults, 1 warning\n") {
		c.t.Errorf("the doctor of the restored server finds: %s%s", out, notes)
	}
}

// sends checks that a replica runs a new task.
func (c *cluster) sends(r *replica) {
	c.t.Helper()
	got, err := c.client(r, "echo").Send(bounded(c.t), client.SendParams{Message: say("go on")})
	if err != nil || got.State != a2a.StateCompleted {
		c.t.Errorf("a new task: %s, %v", got.Raw, err)
	}
}

// sendKeyed sends a message with an Idempotency-Key and returns its task.
func (c *cluster) sendKeyed(r *replica, key string) string {
	c.t.Helper()
	got, err := c.client(r, "echo").Send(bounded(c.t), client.SendParams{Message: say(key), IdempotencyKey: key})
	if err != nil || got.State != a2a.StateCompleted {
		c.t.Fatalf("send with the key %q: %s, %v", key, got.Raw, err)
	}
	return got.TaskID
}

// awaitWrites waits until recovery has ended.
func (c *cluster) awaitWrites() {
	c.t.Helper()
	until(c.t, "it accepts writes", func() bool { return !one[bool](c, "SELECT pg_is_in_recovery()") })
}

package e2e_test

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

func TestPostgresCrashUnderLoad(t *testing.T) {
	t.Parallel()
	srv := storetest.NewServer(t, nil)
	c := clusterOn(t, storetest.NewOn(t, srv))
	c.cutOK = true // a stream whose log cannot be read ends, and is resumed
	a, b := c.start("a"), c.start("b")
	l := c.startLoad(8, a, b)
	l.progress(20)
	for range 2 {
		a.log.expectErrors()
		b.log.expectErrors()
		if err := srv.Kill(syscall.SIGQUIT); err != nil {
			t.Fatal(err)
		}
		select {
		case <-srv.Exited():
		default:
			t.Fatal("PostgreSQL survived")
		}
		if err := srv.Restart(bounded(t)); err != nil {
			t.Fatal(err)
		}
		c.db.Reset()
		logTook(t, "the first answers after the crash", l.progress(8))
		l.progress(20)
	}
	for _, r := range []*replica{a, b} {
		if !r.running() {
			t.Errorf("%s ended with the database", r.name)
		}
	}
	l.finish()
	log, err := srvLog(srv.LogFile())
	if err != nil || strings.Count(log, "automatic recovery in progress")+
		strings.Count(log, "database system was not properly shut down") < 2 {
		t.Errorf("PostgreSQL did not recover from two crashes: %v", err)
	}
}

// backends returns the pids of a replica's connections of one role.
func (c *cluster) backends(r *replica, role string) []int32 {
	c.t.Helper()
	return column[int32](c,
		`SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1`,
		"a2ad-"+r.name+"-"+role)
}

// terminate ends a backend and returns when it has ended.
func (c *cluster) terminate(pid int32) {
	c.t.Helper()
	if !one[bool](c, `SELECT pg_terminate_backend($1, 10000)`, pid) {
		c.t.Fatalf("backend %d does not end", pid)
	}
}

// The listener is killed repeatedly: the poll finds events without a wake-up. Nothing else would.
func TestEventsArriveWithoutAListener(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, _ := c.start("a", "A2AD_WORKERS=0"), c.start("b")
	kills := 0
	task := submit(t, c.client(a, "script"), play(thirtyChunks))
	var slowest time.Duration
	events := follow(t, c.client(a, "script").Resubscribe(bounded(t), task, client.StreamOptions{}),
		func(ev client.Event) bool {
			for _, pid := range c.backends(a, "listener") {
				c.terminate(pid)
				kills++
			}
			if ev.Kind != client.KindTask {
				at := one[time.Time](c, `SELECT committed_at FROM audit.event WHERE task_id::text = $1 AND seq = $2`,
					task,
					ev.Seq)
				slowest = max(slowest, time.Since(at))
			}
			return false
		})
	endsWith(t, events, a2a.StateCompleted)
	if kills == 0 {
		t.Fatal("there was no listener to kill")
	}
	t.Logf("%d listeners killed", kills)
	logTook(t, "an event", slowest)
	until(t, "the listener is back", func() bool { return len(c.backends(a, "listener")) == 1 })
}

// The poll is turned off, so that only wake-ups remain.
func TestListenerReconnects(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, _ := c.start("a", "A2AD_WORKERS=0", "A2AD_POLL_INTERVAL=1h"), c.start("b")
	begin := newGate(t)
	task := submit(t, c.client(a, "script"), play(begin.op()+","+thirtyChunks))
	killed := false
	events := follow(t, c.client(a, "script").Resubscribe(bounded(t), task, client.StreamOptions{}),
		func(ev client.Event) bool {
			begin.open()
			if !killed && atChunk("a", 5)(ev) {
				killed = true
				list := c.backends(a, "listener")
				if len(list) != 1 {
					t.Fatalf("%d listeners, want 1", len(list))
				}
				c.terminate(list[0])
			}
			return false
		})
	endsWith(t, events, a2a.StateCompleted)
	if !killed {
		t.Fatal("the script was over before the kill")
	}
	if diff := cmp.Diff(padded("a", 30), chunks(events, "a")); diff != "" {
		t.Errorf("chunks (-want +got):\n%s", diff)
	}
}

// The writer is killed after its commits and before it sends their wake-ups. It is killed when the poll of the other
// replica has found them: nothing else would.
func TestEventsArriveWhenTheWakeUpIsLost(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a", "A2AD_WORKERS=0"), c.start("b", "A2AD_WAKE_INTERVAL=1h")
	wakes := c.listen()
	// The first wake-up is sent at once, and the next an hour later.
	if _, err := c.client(b, "echo").Send(bounded(t), client.SendParams{Message: say("first")}); err != nil {
		t.Fatal(err)
	}
	g := newGate(t)
	ops := `{"op":"chunk","id":"a","n":10,"every_ms":100},` + g.op()
	task := submit(t, c.client(b, "script"), play(ops))
	var slowest time.Duration
	events := follow(t, c.client(a, "script").Resubscribe(bounded(t), task, client.StreamOptions{}),
		func(ev client.Event) bool {
			if ev.Kind == client.KindArtifact {
				at := one[time.Time](c, `SELECT committed_at FROM audit.event WHERE task_id::text = $1 AND seq = $2`,
					task,
					ev.Seq)
				slowest = max(slowest, time.Since(at))
			}
			if len(chunks([]client.Event{ev}, "a")) > 0 && atLast(ev, "a", 9) && b.running() {
				b.kill()
				g.open()
				c.start("c")
			}
			return false
		})
	endsWith(t, events, a2a.StateCompleted)
	logTook(t, "an event without a wake-up", slowest)
	if diff := cmp.Diff(chunkTexts("a", 10), chunks(events, "a")); diff != "" {
		t.Errorf("chunks (-want +got):\n%s", diff)
	}
	for _, w := range wakes() {
		if strings.HasPrefix(w, "b ") && strings.Contains(w, task) {
			t.Errorf("the fault did not happen: a wake-up was sent: %s", w)
		}
	}
}

// atLast reports whether ev shows chunk k, as an event or in a snapshot.
func atLast(ev client.Event, id string, k int) bool {
	texts := chunks([]client.Event{ev}, id)
	return len(texts) > 0 && strings.HasPrefix(texts[len(texts)-1], chunkText(id, k))
}

// listen collects the wake-ups that pass through the database until the returned function is called.
func (c *cluster) listen() (wakes func() []string) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(bounded(c.t))
	conn, err := pgx.Connect(ctx, c.url)
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := conn.Exec(ctx, `LISTEN a2ad`); err != nil {
		c.t.Fatal(err)
	}
	var list []string
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer conn.Close(context.WithoutCancel(ctx))
		for {
			n, err := conn.WaitForNotification(ctx)
			if err != nil {
				return
			}
			list = append(list, n.Payload)
		}
	}()
	c.t.Cleanup(func() { cancel(); <-done })
	return func() []string {
		cancel()
		<-done
		return list
	}
}

// A replica accepts requests, and its wake-ups reach no other replica. The poll finds the work, and a renewal the
// cancel: nothing else would.
func TestWorkIsFoundWithoutAWakeUp(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a", "A2AD_WORKERS=0", "A2AD_WAKE_INTERVAL=1h"), c.start("b")
	// The first wake-up is sent at once, and the next an hour later.
	if _, err := c.client(a, "echo").Send(bounded(t), client.SendParams{Message: say("first")}); err != nil {
		t.Fatal(err)
	}
	var tasks []string
	for range 5 {
		tasks = append(tasks, send(t, c.client(a, "echo"), say("found")).TaskID)
	}
	waits := column[float64](c, `
		SELECT extract(epoch FROM a.claimed_at - t.created_at)::float8 FROM audit.attempt a JOIN audit.task t
		ON t.id = a.task_id WHERE t.id::text = ANY($1) ORDER BY 1`, tasks)
	logTook(t, "a claim without a wake-up", time.Duration(waits[len(waits)-1]*float64(time.Second)))
	task := submit(t, c.client(a, "script"), play(`{"op":"hang"}`))
	c.runner(task)
	if _, err := c.client(a, "script").Cancel(bounded(t), task); err != nil {
		t.Fatal(err)
	}
	canceled := time.Now()
	b.awaitLog("run", func(l logLine) bool { return l.str("task_id") == task && l.str("outcome") == "canceled" })
	logTook(t, "the end of an agent whose cancel had no wake-up", time.Since(canceled))
}

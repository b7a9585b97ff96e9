package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// load is clients that send and follow, each with keys of its own, until they are told to stop.
type load struct {
	c     *cluster
	acked sync.Map // Idempotency-Key -> task id
	done  atomic.Int64
	stop  context.CancelFunc
	wg    sync.WaitGroup
}

// replicas are the ones that a load may go to.
type replicas struct {
	mu   sync.Mutex
	list []*replica // guarded by mu
}

func (s *replicas) at(i int) *replica {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list[i%len(s.list)]
}

func (s *replicas) replace(i int, r *replica) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list[i] = r
}

func (c *cluster) startLoad(clients int, list ...*replica) *load {
	c.t.Helper()
	return c.startLoadOn(clients, &replicas{list: list})
}

// startLoadOn starts clients that draw from a seed, which a failure shows.
func (c *cluster) startLoadOn(clients int, set *replicas) *load {
	c.t.Helper()
	ctx, cancel := context.WithCancel(bounded(c.t))
	l := &load{c: c, stop: cancel}
	seed := rand.Uint64()
	c.t.Logf("seed %d", seed)
	for i := range clients {
		draw := rand.New(rand.NewPCG(seed, uint64(i)))
		cl := c.roamer("script", func(n int) *replica { return set.at(i + n) })
		l.wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				if err := l.act(cl, draw, fmt.Sprintf("client %d, request %d", i, n)); err != nil {
					c.t.Errorf("client %d, request %d: %v", i, n, err)
					return
				}
				l.done.Add(1)
			}
		})
	}
	c.t.Cleanup(cancel)
	return l
}

// act sends one message with a key until it is acknowledged, and sees its task to the end. What
// fails for a while is tried again; what is refused is an error.
func (l *load) act(cl *client.Client, draw *rand.Rand, key string) error {
	ctx := context.WithoutCancel(bounded(l.c.t)) // begun is finished
	p := client.SendParams{Message: play(fmt.Sprintf(`{"op":"chunk","id":"a","n":%d,"every_ms":%d}`, 1+draw.IntN(5), draw.IntN(40))), IdempotencyKey: key}
	p.Message.ID = client.NewMessageID()
	if draw.IntN(2) == 0 {
		var events []client.Event
		err := l.patiently(func() (err error) {
			o := client.StreamOptions{}
			if len(events) > 0 {
				o.LastEventID = events[len(events)-1].ID
			}
			more, err := collect(cl.Stream(ctx, p, o), nil)
			events = append(events, more...)
			return err
		})
		if err != nil {
			return fmt.Errorf("behind %d events: %w", len(events), err)
		}
		last := events[len(events)-1]
		if last.State != a2a.StateCompleted || !last.Final {
			return fmt.Errorf("the stream ends with %s", last.Raw)
		}
		l.acked.Store(key, last.TaskID)
		return nil
	}
	return l.patiently(func() error {
		got, err := cl.Send(ctx, p)
		switch {
		case err != nil:
			return err
		case got.State != a2a.StateCompleted:
			return fmt.Errorf("the task is %s", got.State)
		}
		l.acked.Store(key, got.TaskID)
		return nil
	})
}

// patiently repeats what a fault may have broken.
func (l *load) patiently(f func() error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); ; <-tick.C {
		err := f()
		var refused *client.Error
		if err == nil || time.Now().After(end) || errors.As(err, &refused) && !refused.Temporary() && refused.Code != -32603 {
			return err
		}
	}
}

// progress waits until n more requests are done, and returns how long that took.
func (l *load) progress(n int64) time.Duration {
	l.c.t.Helper()
	start, from := time.Now(), l.done.Load()
	until(l.c.t, "the load goes on", func() bool { return l.done.Load() >= from+n || l.c.t.Failed() })
	return time.Since(start)
}

// finish lets the clients finish what they have begun, and checks that everything acknowledged
// is there.
func (l *load) finish() {
	l.c.t.Helper()
	l.stop()
	l.wg.Wait()
	n := 0
	l.acked.Range(func(key, task any) bool {
		n++
		if got := one[int](l.c, `SELECT count(*) FROM audit.message WHERE idem_key = $1 AND task_id::text = $2`, key, task); got != 1 {
			l.c.t.Errorf("%s was acknowledged as task %s and is there %d times", key, task, got)
		}
		return true
	})
	l.c.t.Logf("%d requests acknowledged", n)
}

func TestPostgresCrashUnderLoad(t *testing.T) {
	t.Parallel()
	srv := storetest.NewServer(t, nil)
	c := clusterOn(t, storetest.NewOn(t, srv))
	c.cutOK = true // a stream whose log cannot be read ends, and is taken up again
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
		within(t, "the first answers after the crash", l.progress(8), 5*time.Second)
		l.progress(20)
	}
	for _, r := range []*replica{a, b} {
		if !r.running() {
			t.Errorf("%s ended with the database", r.name)
		}
	}
	l.finish()
	log, err := srvLog(srv.LogFile())
	if err != nil || strings.Count(log, "automatic recovery in progress")+strings.Count(log, "database system was not properly shut down") < 2 {
		t.Errorf("PostgreSQL did not recover from two crashes: %v", err)
	}
}

// backends returns the pids of a replica's connections of one role.
func (c *cluster) backends(r *replica, role string) []int32 {
	c.t.Helper()
	return column[int32](c, `SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1`, "a2ad-"+r.name+"-"+role)
}

// terminate ends a backend and returns when it is gone.
func (c *cluster) terminate(pid int32) {
	c.t.Helper()
	if !one[bool](c, `SELECT pg_terminate_backend($1, 10000)`, pid) {
		c.t.Fatalf("backend %d does not end", pid)
	}
}

// TestEventsArriveWithoutAListener kills the listener again and again: the poll brings what no
// wake tells of.
func TestEventsArriveWithoutAListener(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, _ := c.start("a", "A2AD_WORKERS=0"), c.start("b")
	kills := 0
	task := submit(t, c.client(a, "script"), play(thirtyChunks))
	var slowest time.Duration
	events := follow(t, c.client(a, "script").Resubscribe(bounded(t), task, client.StreamOptions{}), func(ev client.Event) bool {
		for _, pid := range c.backends(a, "listener") {
			c.terminate(pid)
			kills++
		}
		if ev.Kind != client.KindTask {
			at := one[time.Time](c, `SELECT committed_at FROM audit.event WHERE task_id::text = $1 AND seq = $2`, task, ev.Seq)
			slowest = max(slowest, time.Since(at))
		}
		return false
	})
	endsWith(t, events, a2a.StateCompleted)
	if kills == 0 {
		t.Fatal("there was no listener to kill")
	}
	t.Logf("%d listeners killed, slowest event after %s", kills, slowest)
	within(t, "an event", slowest, time.Second)
	until(t, "the listener is back", func() bool { return len(c.backends(a, "listener")) == 1 })
}

// TestListenerComesBack takes the poll away, so that only wakes are left.
func TestListenerComesBack(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, _ := c.start("a", "A2AD_WORKERS=0", "A2AD_POLL_INTERVAL=1h"), c.start("b")
	task := submit(t, c.client(a, "script"), play(thirtyChunks))
	killed := false
	events := follow(t, c.client(a, "script").Resubscribe(bounded(t), task, client.StreamOptions{}), func(ev client.Event) bool {
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

// TestEventsArriveWhenTheWakeIsLost has a writer that is killed after its commits and before any
// wake for them goes out.
func TestEventsArriveWhenTheWakeIsLost(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a", "A2AD_WORKERS=0"), c.start("b", "A2AD_WAKE_INTERVAL=1h")
	wakes := c.listen()
	// The first wake goes out at once, and the next an hour later.
	if _, err := c.client(b, "echo").Send(bounded(t), client.SendParams{Message: say("first")}); err != nil {
		t.Fatal(err)
	}
	g := newGate(t)
	ops := `{"op":"chunk","id":"a","n":3,"every_ms":50},` + g.op()
	task := submit(t, c.client(b, "script"), play(ops))
	var slowest time.Duration
	events := follow(t, c.client(a, "script").Resubscribe(bounded(t), task, client.StreamOptions{}), func(ev client.Event) bool {
		if ev.Kind == client.KindArtifact {
			at := one[time.Time](c, `SELECT committed_at FROM audit.event WHERE task_id::text = $1 AND seq = $2`, task, ev.Seq)
			slowest = max(slowest, time.Since(at))
		}
		if len(chunks([]client.Event{ev}, "a")) > 0 && atLast(ev, "a", 2) && b.running() {
			b.kill()
			g.open()
			c.start("c")
		}
		return false
	})
	endsWith(t, events, a2a.StateCompleted)
	within(t, "an event without a wake", slowest, time.Second)
	if diff := cmp.Diff(chunkTexts("a", 3), chunks(events, "a")); diff != "" {
		t.Errorf("chunks (-want +got):\n%s", diff)
	}
	for _, w := range wakes() {
		if strings.HasPrefix(w, "b ") && strings.Contains(w, task) {
			t.Errorf("the fault did not happen: a wake went out: %s", w)
		}
	}
}

// atLast reports whether ev shows chunk k, by itself or in a snapshot.
func atLast(ev client.Event, id string, k int) bool {
	texts := chunks([]client.Event{ev}, id)
	return len(texts) > 0 && strings.HasPrefix(texts[len(texts)-1], chunkText(id, k))
}

// listen gathers the wakes that go over the database until its result is called.
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

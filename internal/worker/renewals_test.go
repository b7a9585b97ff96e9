package worker_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/worker"
)

// stuck is a tracer that delays every statement of one name until the test frees it.
type stuck struct {
	name  string
	begun atomic.Int64
	open  chan struct{}
	free  func()
}

func newStuck(name string) *stuck {
	s := &stuck{name: name, open: make(chan struct{})}
	s.free = sync.OnceFunc(func() { close(s.open) })
	return s
}

func (s *stuck) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.Contains(data.SQL, "name: "+s.name+" ") {
		s.begun.Add(1)
		<-s.open
	}
	return ctx
}

func (*stuck) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// Each run ends by its own timer, even if no renewal returns.
func TestRunsEndWhenRenewalsHang(t *testing.T) {
	t.Parallel()
	s := newStuck("LeaseRenew")
	defer s.free() // before the pool is stopped
	f := newFixture(t, func(c *store.Config) { c.Tracer = s })
	var agents []worker.Agent
	gates := make(map[string]*gate)
	for name, ttl := range map[string]time.Duration{
		"a": 6 * time.Second, "b": 7 * time.Second, "c": 8 * time.Second, // a run must begin in this time
	} {
		gates[name] = newGate()
		agents = append(agents, agent(name, gates[name], a2a.Limits{LeaseTTL: ttl}))
	}
	// The attempts that follow wait at their gates until the drain ends.
	p := f.start(config(func(c *worker.Config) { c.Drain = time.Millisecond }, agents...))
	for name := range gates {
		f.submit(name, "x")
	}
	for name, g := range gates {
		receive(t, "run of "+name, g.started)
		wantCause(t, executor.ErrLeaseLost, receive(t, "end of "+name, g.ended))
	}
	if s.begun.Load() == 0 {
		t.Error("no renewal began")
	}
	s.free()
	p.stop()
}

// A lease whose row is locked is renewed later, and the others are renewed in the meantime.
func TestRenewalsDoNotWaitForALockedLease(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *store.Config) { c.LockTimeout = time.Hour })
	g := newGate()
	const ttl = 9 * time.Second
	// The next attempt at the locked one waits at its gate until the drain ends.
	p := f.start(config(func(c *worker.Config) { c.Limits.LeaseTTL, c.Drain = ttl, time.Millisecond }, agent("a", g)))
	locked, other := f.submit("a", "locked"), f.submit("a", "other")
	receive(t, "run", g.started)
	receive(t, "run", g.started)
	release := f.hold("SELECT FROM a2a.task_leases WHERE task_id = $1 FOR UPDATE", locked)
	wantCause(t, executor.ErrLeaseLost, receive(t, "end of the locked one", g.ended)) // its lease was not renewed
	if !value[bool](f, "SELECT lease_until > clock_timestamp() FROM a2a.task_leases WHERE task_id = $1", other) {
		t.Error("the other lease was not renewed")
	}
	release()
	send(t, g.next, []a2a.Event{status(a2a.StateCompleted)})
	f.waitState(other, a2a.StateCompleted)
	p.stop()
}

// silentOnce is a tracer that delays the first statement of one name until its context ends.
type silentOnce struct {
	name string
	once atomic.Bool
}

func (s *silentOnce) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.Contains(data.SQL, "name: "+s.name+" ") && !s.once.Swap(true) {
		<-ctx.Done()
	}
	return ctx
}

func (*silentOnce) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A renewal without an answer ends no run: there is time for another one.
func TestRenewalWithoutAnAnswerIsRepeatedInTime(t *testing.T) {
	t.Parallel()
	s := &silentOnce{name: "LeaseRenew"}
	f := newFixture(t, func(c *store.Config) { c.Tracer = s })
	g := newGate()
	const ttl = 9 * time.Second // a run ends after two thirds of it without a renewal
	p := f.start(config(func(c *worker.Config) { c.Limits.LeaseTTL = ttl }, agent("a", g)))
	task := f.submit("a", "x")
	receive(t, "run", g.started)
	f.waitQuery(
		"SELECT lease_until > claimed_at + interval '11 seconds' OR lease_until < clock_timestamp() " +
			"FROM a2a.task_leases JOIN a2a.task_attempts USING (task_id)",
	)
	if !s.once.Load() || len(g.ended) > 0 {
		t.Fatalf("a renewal went without an answer: %t; runs that ended: %d", s.once.Load(), len(g.ended))
	}
	send(t, g.next, []a2a.Event{status(a2a.StateCompleted)})
	f.waitState(task, a2a.StateCompleted)
	p.stop()
	same(t, "outcomes", []string{"completed"}, f.outcomes(task))
}

// The reason for a lost lease is read separately: renewals of other leases do not wait for it.
func TestRenewalsDoNotWaitForTheReasonOfALostLease(t *testing.T) {
	t.Parallel()
	s := newStuck("TaskStates")
	defer s.free() // before the pool is stopped
	f := newFixture(t, func(c *store.Config) { c.Tracer = s })
	g := newGate()
	const ttl = 9 * time.Second
	p := f.start(config(func(c *worker.Config) { c.Limits.LeaseTTL = ttl }, agent("a", g)))
	canceled, other := f.submit("a", "canceled"), f.submit("a", "other")
	receive(t, "run", g.started)
	receive(t, "run", g.started)
	if _, err := f.Tasks.Cancel(t.Context(), ann, "a", canceled); err != nil {
		t.Fatal(err)
	}
	// The canceled run ends by its lease timer, because the reason cannot be read. The other lease was renewed by then.
	wantCause(t, executor.ErrLeaseLost, receive(t, "end of the canceled one", g.ended))
	if !value[bool](
		f,
		"SELECT lease_until > claimed_at + make_interval(secs => $2) "+
			"FROM a2a.task_leases JOIN a2a.task_attempts USING (task_id) WHERE task_id = $1",
		other,
		ttl.Seconds()+0.1,
	) {
		t.Error("the other lease was not renewed")
	}
	s.free()
	send(t, g.next, []a2a.Event{status(a2a.StateCompleted)})
	f.waitState(other, a2a.StateCompleted)
	p.stop()
}

// send sends a value that must be received.
func send[T any](t testing.TB, c chan<- T, v T) {
	t.Helper()
	select {
	case c <- v:
	case <-time.After(5 * time.Minute):
		t.Fatal("the value was not received")
	}
}

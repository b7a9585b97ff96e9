package worker_test

import (
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/worker"
)

// A worker that cannot renew a lease ends the run by its own clock, while the lease still keeps others out.
func TestRunEndsByItselfWithoutRenewals(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *store.Config) { c.LockTimeout = 20 * time.Millisecond })
	g := newGate()
	const ttl = 3 * time.Second
	p := f.start(config(func(c *worker.Config) { c.Limits.LeaseTTL = ttl }, agent("a", g)))
	task := f.submit("a", "x")
	receive(t, "run", g.started)
	release := f.hold("LOCK TABLE a2a.task_leases") // no renewal succeeds, and none learns that the lease is lost
	before := time.Now()
	wantCause(t, executor.ErrLeaseLost, receive(t, "end", g.ended))
	t.Logf("the run continued for %v, with a lease of %v", time.Since(before), ttl)
	p.drain() // the run releases the task, which must not begin another run
	release()
	p.stop()
	if n := len(f.events(task)); n != 0 {
		t.Errorf("%d events were written", n)
	}
}

// A claim or the read of its input may be slow: the lease counts from before the claim.
func TestLeaseIsCountedFromBeforeTheClaim(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *store.Config) { c.LockTimeout, c.StatementTimeout = time.Hour, time.Hour })
	g := newGate()
	const ttl = 300 * time.Millisecond
	task := f.submit("a", "x")
	// The claim does not read messages, the input does.
	release := f.hold("LOCK TABLE a2a.messages IN ACCESS EXCLUSIVE MODE")
	p := f.start(config(func(c *worker.Config) { c.Limits.LeaseTTL, c.Limits.MaxAttempts = ttl, 1 }, agent("a", g)))
	f.waitQuery("SELECT EXISTS (SELECT FROM a2a.task_leases WHERE lease_until < clock_timestamp())")
	release()
	p.stop() // returns when the claimed task was handled
	if len(g.started) != 0 {
		t.Error("the run began although its lease was over")
	}
	if n := len(f.events(task)); n != 0 {
		t.Errorf("%d events were written", n)
	}
	stats, _ := p.Stats()
	same(t, "stats", worker.Stats{Claimed: 1, Lost: 1}, stats)
}

func TestRenewalKeepsALongRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	g := newGate()
	const ttl = 15 * time.Second // long enough for renewals on a busy machine
	p := f.start(config(func(c *worker.Config) { c.Limits.LeaseTTL = ttl }, agent("a", g)))
	task := f.submit("a", "x")
	receive(t, "run", g.started)
	claimed := value[time.Time](f, "SELECT lease_until FROM a2a.task_leases")
	f.waitQuery(
		"SELECT (SELECT lease_until FROM a2a.task_leases) > " +
			"(SELECT claimed_at + interval '16 seconds' FROM a2a.task_attempts)",
	)
	if n, err := f.Tasks.Rescue(t.Context(), nil, tasks.Policy{MaxAttempts: 1}, 10); n != 0 || err != nil {
		t.Errorf("rescue = %d, %v while the run renews", n, err)
	}
	if now := value[time.Time](f, "SELECT lease_until FROM a2a.task_leases"); !now.After(claimed) {
		t.Errorf("the lease ends at %v, ended at %v when claimed", now, claimed)
	}
	g.next <- []a2a.Event{status(a2a.StateCompleted)}
	f.waitState(task, a2a.StateCompleted)
	p.stop()
}

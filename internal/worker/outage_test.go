package worker_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/slowtest"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/worker"
)

// submitMany submits n tasks of agent a.
func (f *fixture) submitMany(what string, n int) (ids []a2a.ID) {
	f.t.Helper()
	for i := range n {
		ids = append(ids, f.submit("a", fmt.Sprint(what, i)))
	}
	return ids
}

// waitAll waits until all these tasks have completed, and returns how long that took.
func (f *fixture) waitAll(ids []a2a.ID) time.Duration {
	f.t.Helper()
	began := time.Now()
	for _, id := range ids {
		f.waitState(id, a2a.StateCompleted)
	}
	return time.Since(began)
}

// noAttemptCounted checks that all tasks completed in their first attempt.
func (f *fixture) noAttemptCounted(tasks int) {
	f.t.Helper()
	const ended = "SELECT count(*) FROM a2a.task_attempts WHERE outcome NOT IN ('unreachable', 'completed')"
	if n := value[int](f, ended); n != 0 {
		f.t.Errorf("%d attempts were counted that did not complete, want 0", n)
	}
	const first = "SELECT count(*) FROM a2a.task_attempts WHERE outcome = 'completed' AND attempt = 1"
	if n := value[int](f, first); n != tasks {
		f.t.Errorf("%d of %d tasks completed in their first attempt", n, tasks)
	}
}

// An agent is down for ten minutes while 1,000 tasks wait. No task fails and no attempt is counted. Once it is back,
// the tasks run without waiting for the ends of their delays. The minutes pass in the database, while the replica
// restarts: moving all stored times is not atomic for transactions that run meanwhile.
func TestOutageOfTenMinutesLosesNothing(t *testing.T) {
	t.Parallel()
	slowtest.Only(t, slowtest.Crash)
	const n = 1000
	f := newFixture(t)
	clock := &storetest.Fixture{T: t, SQL: f.sql}
	agent := newFlaky()
	agent.runs, agent.tried = make(chan executor.Run, 3*n), make(chan struct{}, 100_000)
	alone := f.submitMany("alone", n)
	began := time.Now()
	start := func() running { return f.start(config(probing, agent.agent("a", a2a.Limits{MaxAttempts: 1}))) }
	p := start()
	f.waitAll(alone)
	took := time.Since(began)

	agent.away.Store(true)
	waiting := f.submitMany("waiting", n)
	for range 20 {
		for range 3 {
			receive(t, "try", agent.tried)
		}
		p.stop()
		for len(agent.tried) > 0 {
			<-agent.tried
		}
		clock.SetClockBack(-30 * time.Second)
		p = start()
	}
	if failed := value[int](f, "SELECT count(*) FROM a2a.tasks WHERE state = a2a.state_failed()"); failed != 0 {
		t.Errorf("%d tasks failed in ten minutes without the agent, want 0", failed)
	}
	const lasts = "SELECT extract(epoch FROM clock_timestamp() - min(unreachable_since))::int FROM a2a.task_attempts"
	if seconds := value[int](f, lasts); seconds < 600 {
		t.Errorf("the outage lasts %d s, want ten minutes", seconds)
	}
	// A task that waits for the end of its delay, and not for the end of the outage, would wait for days.
	p.stop()
	f.exec(`WITH ready AS (
			UPDATE a2a.task_ready SET run_at = run_at + interval '3 days' WHERE reason = 'agent unreachable'
			RETURNING task_id, run_at
		) UPDATE a2a.tasks SET ready_at = ready.run_at FROM ready WHERE id = ready.task_id`)
	p = start()
	agent.away.Store(false)
	back := f.waitAll(waiting)
	t.Logf("%d tasks took %s alone and %s after the outage", n, took, back)
	p.stop()
	f.noAttemptCounted(2 * n)
}

// An agent that is up for a few runs and down for a few neither loses a task nor costs one an attempt.
func TestFlappingAgentCostsNoAttempt(t *testing.T) {
	t.Parallel()
	const n, phase = 100, 6 // six runs find it up, the next six find it down
	f := newFixture(t)
	var runs atomic.Int64
	flapping := agentFunc(func(_ context.Context, _ executor.Run, yield func(a2a.Event, error) bool) {
		if runs.Add(1)/phase%2 == 1 {
			yield(nil, executor.Unreachable(errors.New("the agent refuses connections")))
			return
		}
		yield(status(a2a.StateCompleted), nil)
	})
	p := f.start(config(probing, agent("a", flapping, a2a.Limits{MaxAttempts: 1})))
	other := f.start(config(func(c *worker.Config) { probing(c); c.Worker = "r2" },
		agent("a", flapping, a2a.Limits{MaxAttempts: 1})))
	f.waitAll(f.submitMany("x", n))
	p.stop()
	other.stop()
	f.noAttemptCounted(n)
}

package worker_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/worker"
)

func TestConcurrencyIsBounded(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name        string
		slots       int
		concurrency int
		want        int
	}{
		{"by the slots", 3, 0, 3},
		{"by the agent", 8, 2, 2},
		{"by the slots before the agent", 2, 5, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			g := newGate()
			var taskList []a2a.ID
			for i := range 6 {
				taskList = append(taskList, f.submit("a", fmt.Sprint(i)))
			}
			p := f.start(
				config(
					func(c *worker.Config) { c.Slots = tt.slots },
					agent("a", g, a2a.Limits{Concurrency: tt.concurrency}),
				),
			)
			for range tt.want {
				receive(t, "run", g.started)
			}
			for range len(taskList) - tt.want { // each end lets one more begin
				if n := g.working.Load(); n != int64(tt.want) {
					t.Errorf("%d at work, want %d", n, tt.want)
				}
				g.next <- []a2a.Event{status(a2a.StateCompleted)}
				receive(t, "run", g.started)
			}
			for range tt.want {
				g.next <- []a2a.Event{status(a2a.StateCompleted)}
			}
			for _, task := range taskList {
				f.waitState(task, a2a.StateCompleted)
			}
			p.stop()
		})
	}
}

// An agent at its concurrency limit does not delay another one.
func TestBusyAgentDoesNotUseAllSlots(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	busy, other := newGate(), newGate()
	for i := range 4 {
		f.submit("busy", fmt.Sprint(i))
	}
	p := f.start(config(nil, agent("busy", busy, a2a.Limits{Concurrency: 2}), agent("other", other)))
	receive(t, "run", busy.started)
	receive(t, "run", busy.started)
	task := f.submit("other", "x")
	receive(t, "run of the other", other.started)
	other.next <- []a2a.Event{status(a2a.StateCompleted)}
	f.waitState(task, a2a.StateCompleted)
	for range 4 {
		busy.next <- []a2a.Event{status(a2a.StateCompleted)}
	}
	p.stop()
}

func TestStopLetsRunsFinishDuringTheDrain(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	g := newGate()
	p := f.start(config(func(c *worker.Config) { c.Slots = 1 }, agent("a", g)))
	task, waiting := f.submit("a", "x"), f.submit("a", "y")
	receive(t, "run", g.started)
	done := make(chan struct{})
	go func() { p.stop(); close(done) }()
	g.next <- []a2a.Event{chunk("x", "1")}
	g.next <- []a2a.Event{status(a2a.StateCompleted)}
	select {
	case <-g.started: // claimed while the stop was on its way
		g.next <- []a2a.Event{status(a2a.StateInputRequired)}
		receive(t, "stop", done)
	case <-done:
	}
	same(t, "outcomes", []string{"completed"}, f.outcomes(task))
	// Nothing was claimed after the stop.
	if s := f.snapshot(waiting).Status.State; s != a2a.StateSubmitted && s != a2a.StateInputRequired {
		t.Errorf("the task that waits is %s", s)
	}
	if n := value[int](f, "SELECT count(*)::int FROM a2a.task_leases"); n != 0 {
		t.Errorf("%d leases are left after the stop", n)
	}
}

func TestStopReleasesTasksAfterTheDrain(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	g := newGate()
	p := f.start(config(func(c *worker.Config) { c.Drain = time.Millisecond }, agent("a", g)))
	task := f.submit("a", "x")
	receive(t, "run", g.started)
	g.next <- []a2a.Event{&a2a.Checkpoint{Body: a2a.Raw(`1`)}, chunk("x", "kept")}
	f.waitFor(task, "an artifact", func(t *a2a.Task) bool { return len(t.Artifacts) == 1 })
	p.stop()
	wantCause(t, executor.ErrShutdown, receive(t, "end", g.ended))
	same(t, "outcomes", []string{"released"}, f.outcomes(task))
	stats, _ := p.Stats()
	same(t, "stats", worker.Stats{Claimed: 1, Released: 1}, stats)
	if s := f.snapshot(task).Status.State; s != a2a.StateWorking {
		t.Errorf("the task is %s, want working", s)
	}
	// The next process continues where this one stopped, and the attempt does not count.
	next := f.start(config(nil, agent("a", g)))
	run := receive(t, "run of the next process", g.started)
	if run.Attempt != 1 || string(run.Checkpoint) != "1" || run.Epoch < 3 {
		t.Errorf("attempt %d with checkpoint %s and epoch %d, want 1, 1 and 3", run.Attempt, run.Checkpoint, run.Epoch)
	}
	g.next <- []a2a.Event{status(a2a.StateCompleted)}
	f.waitState(task, a2a.StateCompleted)
	next.stop()
}

// waitQuery waits until a query is true. The test has locked what a snapshot would read.
func (f *fixture) waitQuery(query string) {
	f.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !value[bool](f, query) {
		select {
		case <-tick.C:
		case <-f.t.Context().Done():
			f.t.Fatalf("not true: %s", query)
		}
	}
}

// A claimed task that cannot be read because its rows are locked is released. If the read is too slow, the task is
// retried later, as if its agent had failed: the task may be too large.
func TestUnreadableTasksAreRetried(t *testing.T) {
	t.Parallel()
	for outcome, limit := range map[string]func(c *store.Config){
		"released": func(c *store.Config) { c.LockTimeout = 20 * time.Millisecond },
		"retry":    func(c *store.Config) { c.LockTimeout, c.StatementTimeout = time.Minute, 3*time.Second },
	} {
		t.Run(outcome, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, limit)
			task := f.submit("a", "x")
			release := f.hold("LOCK TABLE a2a.messages IN ACCESS EXCLUSIVE MODE")
			p := f.start(
				config(
					func(c *worker.Config) { c.Limits.MaxAttempts = 1000 },
					agent("a", say(status(a2a.StateCompleted))),
				),
			)
			f.waitOutcomes(task, 1)
			release()
			f.waitState(task, a2a.StateCompleted)
			p.stop()
			if out := f.outcomes(task); out[0] != outcome || out[len(out)-1] != "completed" {
				t.Errorf("outcomes %v", out)
			}
		})
	}
}

func TestPoolWithoutSlotsOnlyWaits(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	task := f.submit("a", "x")
	p := f.start(config(func(c *worker.Config) { c.Slots = 0 }, agent("a", say(status(a2a.StateCompleted)))))
	if !p.Healthy() {
		t.Error("a pool without slots is not healthy")
	}
	p.stop()
	if s := f.snapshot(task).Status.State; s != a2a.StateSubmitted {
		t.Errorf("the task is %s", s)
	}
}

func TestPoolIsUnhealthyWhileItCannotClaim(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *store.Config) { c.LockTimeout = 10 * time.Millisecond })
	release := f.hold("LOCK TABLE a2a.task_ready IN ACCESS EXCLUSIVE MODE")
	var runs atomic.Int32
	p := f.start(
		config(
			func(c *worker.Config) { c.Poll = 5 * time.Millisecond },
			agent("a", agentFunc(func(_ context.Context, _ executor.Run, yield func(a2a.Event, error) bool) {
				runs.Add(1)
				yield(status(a2a.StateCompleted), nil)
			})),
		),
	)
	if p.Healthy() {
		t.Error("healthy before the first claim")
	}
	release()
	f.waitState(f.submit("a", "x"), a2a.StateCompleted)
	if !p.Healthy() {
		t.Error("not healthy after a claim")
	}
	p.stop()
}

func TestPoliciesFollowTheAgents(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	agents := []worker.Agent{agent("a", say()), agent("b", say(), a2a.Limits{MaxAttempts: 7}), agent("c", say())}
	agents[1].OnLostLease, agents[2].OnLostLease = a2a.LostLeaseFail, a2a.LostLeaseInputRequired
	p := worker.New(f.Tasks, f.hub, config(nil, agents...))
	same(t, "policies", []tasks.Policy{
		{
			Agent:       "a",
			Fate:        "retry",
			MaxAttempts: 3,
		},
		{Agent: "b", Fate: "fail", MaxAttempts: 7},
		{Agent: "c", Fate: "input-required", MaxAttempts: 3},
	}, p.Policies())
}

// lateHub is a hub that reports which keys are subscribed to.
type lateHub struct {
	worker.Hub
	registered chan string
}

func (h *lateHub) Wait(key string) (<-chan struct{}, func()) {
	wake, stop := h.Hub.Wait(key)
	h.registered <- key
	return wake, stop
}

func (h *lateHub) Watch(key string, wake func()) func() {
	stop := h.Hub.Watch(key, wake)
	h.registered <- key
	return stop
}

// The pool must subscribe before its first poll. Otherwise tasks that are submitted in between wait for the next poll.
func TestPoolSubscribesBeforeItsFirstPoll(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	release := f.hold("LOCK TABLE a2a.task_ready IN ACCESS EXCLUSIVE MODE") // the first poll waits here
	hub := &lateHub{Hub: f.hub, registered: make(chan string, 10)}
	p := worker.New(f.Tasks, hub, config(nil, agent("a", say()), agent("b", say())))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	f.waitBlocked()
	var keys []string
	for range len(hub.registered) {
		keys = append(keys, <-hub.registered)
	}
	same(
		t,
		"keys that are subscribed to at the first poll",
		[]string{"cancel:r1", "cancels", "ready:a", "ready:b"},
		keys,
	)
	release()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func (f *fixture) waitBlocked() {
	f.t.Helper()
	f.waitQuery(
		"SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')",
	)
}

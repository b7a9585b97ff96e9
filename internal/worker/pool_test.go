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
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/worker"
)

func TestFollowUpToAWorkingTaskIsTheNextTurn(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	g := newGate()
	p := f.start(config(nil, agent("a", g)))
	task := f.submit("a", "first")
	receive(t, "run", g.started)
	f.followUp("a", task, "second")
	g.next <- []a2a.Event{status(a2a.StateCompleted, "done with the first")}
	run := receive(t, "next turn", g.started)
	same(t, "messages", []a2a.Message{message("second")}, run.Messages)
	if run.Attempt != 1 || run.Task.Status.State != a2a.StateWorking {
		t.Errorf("the next turn is attempt %d of a task that is %s", run.Attempt, run.Task.Status.State)
	}
	said, fresh := executor.Conversation(run)
	if len(said) != 2 || fresh != 1 {
		t.Errorf("the conversation has %d messages, new from %d, want 2 and 1", len(said), fresh)
	}
	g.next <- []a2a.Event{status(a2a.StateCompleted)}
	f.waitState(task, a2a.StateCompleted)
	p.stop()
	same(t, "events", []a2a.Event{
		status(a2a.StateWorking, "done with the first"), status(a2a.StateWorking), status(a2a.StateCompleted),
	}, f.events(task))
}

func TestConversationGoesOnOverTurns(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := f.start(config(nil, agent("a", agentFunc(func(_ context.Context, run executor.Run, yield func(a2a.Event, error) bool) {
		if n := len(run.Task.History); n < 5 {
			yield(status(a2a.StateInputRequired, fmt.Sprint("question ", n)), nil)
			return
		}
		yield(status(a2a.StateCompleted, "thanks"), nil)
	}))))
	task := f.submit("a", "one")
	f.waitState(task, a2a.StateInputRequired)
	f.followUp("a", task, "two")
	f.waitFor(task, "a second question", func(t *a2a.Task) bool { return t.Status.State == a2a.StateInputRequired && len(t.History) == 3 })
	f.followUp("a", task, "three")
	got := f.waitState(task, a2a.StateCompleted)
	var said []string
	for _, m := range got.History {
		said = append(said, m.Parts[0].Text)
	}
	same(t, "history", []string{"one", "question 1", "two", "question 3", "three"}, said)
	p.stop()
}

func TestCheckpointIsSavedWithTheEventThatFollows(t *testing.T) {
	t.Parallel()
	cp := func(s string) a2a.Event { return &a2a.Checkpoint{Body: a2a.Raw(s)} }
	fail := errors.New("again")
	tests := []struct {
		name   string
		events []a2a.Event
		want   string // of the second attempt
	}{
		{"none", []a2a.Event{chunk("x", "1")}, ""},
		{"followed by an event", []a2a.Event{cp(`{"n": 1.0}`), chunk("x", "1")}, `{"n": 1.0}`},
		{"followed by nothing", []a2a.Event{chunk("x", "1"), cp(`1`)}, ""},
		{"the one before was followed", []a2a.Event{cp(`1`), chunk("x", "1"), cp(`2`)}, "1"},
		{"two in a row, followed", []a2a.Event{cp(`1`), cp(`2`), chunk("x", "1")}, "2"},
		{"two in a row, followed by nothing", []a2a.Event{cp(`1`), cp(`2`)}, "1"},
		{"three in a row, followed by nothing", []a2a.Event{chunk("x", "1"), cp(`1`), cp(`2`), cp(`3`)}, "2"},
		{"several events", []a2a.Event{cp(`1`), chunk("x", "1"), cp(`2`), chunk("x", "2"), chunk("x", "3")}, "2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			got := make(chan string, 1)
			p := f.start(config(nil, agent("a", agentFunc(func(ctx context.Context, run executor.Run, yield func(a2a.Event, error) bool) {
				if run.Attempt == 1 {
					failing(fail, tt.events...)(ctx, run, yield)
					return
				}
				got <- string(run.Checkpoint)
				yield(status(a2a.StateCompleted), nil)
			}))))
			task := f.submit("a", "x")
			if cp := receive(t, "second attempt", got); cp != tt.want {
				t.Errorf("checkpoint %s, want %s", cp, tt.want)
			}
			f.waitState(task, a2a.StateCompleted)
			p.stop()
		})
	}
}

// savedWithItsEvent tells whether one transaction wrote a task's checkpoint and its newest chunk.
const savedWithItsEvent = `
	SELECT c.xmin = e.xmin FROM a2a.task_checkpoints c JOIN a2a.task_events e ON e.task_id = c.task_id
	WHERE c.task_id::text = $1 AND e.artifact_id IS NOT NULL
	ORDER BY e.seq DESC LIMIT 1`

// A checkpoint and its event are in the same transaction: one that was saved tells what stands in the log.
func TestCheckpointAgreesWithTheLog(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const steps = 40
	p := f.start(config(func(c *worker.Config) { c.Limits.MaxAttempts = steps }, agent("a", agentFunc(func(_ context.Context, run executor.Run, yield func(a2a.Event, error) bool) {
		at, together := 0, false
		if run.Checkpoint != nil {
			if _, err := fmt.Sscan(string(run.Checkpoint), &at); err != nil {
				yield(nil, executor.Permanent(err))
				return
			}
			if err := f.sql.QueryRow(f.ctx, savedWithItsEvent, run.Task.ID.String()).Scan(&together); err != nil || !together {
				t.Errorf("checkpoint %d was written with its event: %t, %v", at, together, err)
			}
		}
		for ; at < steps; at++ {
			if at%7 == 3 && run.Attempt < at {
				break // dies between two steps
			}
			if !yield(&a2a.Checkpoint{Body: a2a.Raw(fmt.Sprint(at + 1))}, nil) || !yield(chunk("x", fmt.Sprint(at)), nil) {
				return
			}
		}
		if at == steps {
			yield(status(a2a.StateCompleted), nil)
			return
		}
		yield(nil, errors.New("died"))
	}))))
	got := f.waitState(f.submit("a", "x"), a2a.StateCompleted)
	for i, part := range got.Artifacts[0].Parts {
		if part.Text != fmt.Sprint(i) {
			t.Fatalf("part %d is %q", i, part.Text)
		}
	}
	if n := len(got.Artifacts[0].Parts); n != steps {
		t.Errorf("%d parts, want %d", n, steps)
	}
	p.stop()
}

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
			var tasks []a2a.ID
			for i := range 6 {
				tasks = append(tasks, f.submit("a", fmt.Sprint(i)))
			}
			p := f.start(config(func(c *worker.Config) { c.Slots = tt.slots }, agent("a", g, a2a.Limits{Concurrency: tt.concurrency})))
			for range tt.want {
				receive(t, "run", g.started)
			}
			for range len(tasks) - tt.want { // each end lets one more begin
				if n := g.working.Load(); n != int64(tt.want) {
					t.Errorf("%d at work, want %d", n, tt.want)
				}
				g.next <- []a2a.Event{status(a2a.StateCompleted)}
				receive(t, "run", g.started)
			}
			for range tt.want {
				g.next <- []a2a.Event{status(a2a.StateCompleted)}
			}
			for _, task := range tasks {
				f.waitState(task, a2a.StateCompleted)
			}
			p.stop()
		})
	}
}

// An agent whose runs are all taken does not hold up another.
func TestBusyAgentLeavesSlotsToOthers(t *testing.T) {
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

func TestManyEventsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var events []a2a.Event
	for i := range 500 {
		events = append(events, chunk("x", fmt.Sprint(i)))
		if i%50 == 0 {
			events = append(events, status(a2a.StateWorking, fmt.Sprint(i)))
		}
	}
	events = append(events, status(a2a.StateCompleted, "end"))
	p := f.start(config(nil, agent("a", say(events...))))
	var tasks []a2a.ID
	for i := range 3 {
		tasks = append(tasks, f.submit("a", fmt.Sprint(i)))
	}
	for _, task := range tasks {
		f.waitState(task, a2a.StateCompleted)
		same(t, "events", events, f.events(task))
	}
	if n := value[int](f, "SELECT count(DISTINCT xid)::int FROM a2a.task_events"); n > 600 {
		t.Errorf("%d transactions for 1,500 events: nothing was batched", n)
	}
	p.stop()
}

func TestStopLetsRunsEndWithinTheDrain(t *testing.T) {
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
		t.Errorf("%d leases are held after the stop", n)
	}
}

func TestStopGivesBackWhatOutlastsTheDrain(t *testing.T) {
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
	// The next process goes on where this one stopped, and the attempt does not count.
	next := f.start(config(nil, agent("a", g)))
	run := receive(t, "run of the next process", g.started)
	if run.Attempt != 1 || string(run.Checkpoint) != "1" || run.Epoch < 3 {
		t.Errorf("attempt %d with checkpoint %s and epoch %d, want 1, 1 and 3", run.Attempt, run.Checkpoint, run.Epoch)
	}
	g.next <- []a2a.Event{status(a2a.StateCompleted)}
	f.waitState(task, a2a.StateCompleted)
	next.stop()
}

// A worker that cannot renew ends its runs by its own clock, while the lease still keeps others out.
func TestWorkerThatCannotRenewFencesItself(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *store.Config) { c.LockTimeout = 20 * time.Millisecond })
	g := newGate()
	const ttl = 3 * time.Second // a third of it is for a busy machine
	p := f.start(config(func(c *worker.Config) { c.Limits.LeaseTTL = ttl }, agent("a", g)))
	task := f.submit("a", "x")
	receive(t, "run", g.started)
	release := f.hold("LOCK TABLE a2a.task_leases") // no renewal gets through, nor is told that the lease is over
	before := time.Now()
	wantCause(t, executor.ErrLeaseLost, receive(t, "end", g.ended))
	if took := time.Since(before); took > ttl+ttl/3 {
		t.Errorf("the run went on for %v, the lease is of %v", took, ttl)
	}
	release()
	p.stop()
	if n := len(f.events(task)); n != 0 {
		t.Errorf("%d events were written", n)
	}
}

// A claim or the read of its input may take long: the time of the lease runs from before it.
func TestLeaseIsCountedFromBeforeTheClaim(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *store.Config) { c.LockTimeout = 30 * time.Second })
	g := newGate()
	const ttl = 300 * time.Millisecond
	task := f.submit("a", "x")
	// The claim does not read messages, the input does.
	release := f.hold("LOCK TABLE a2a.messages IN ACCESS EXCLUSIVE MODE")
	p := f.start(config(func(c *worker.Config) { c.Limits.LeaseTTL, c.Limits.MaxAttempts = ttl, 1 }, agent("a", g)))
	f.waitFor2("SELECT EXISTS (SELECT FROM a2a.task_leases WHERE lease_until < clock_timestamp())")
	release()
	p.stop() // when it has seen to what it claimed
	if len(g.started) != 0 {
		t.Error("the run began although its lease was over")
	}
	if n := len(f.events(task)); n != 0 {
		t.Errorf("%d events were written", n)
	}
	stats, _ := p.Stats()
	same(t, "stats", worker.Stats{Claimed: 1, Lost: 1}, stats)
}

// waitFor2 waits until a query is true. The test has locked what a snapshot would read.
func (f *fixture) waitFor2(query string) {
	f.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !value[bool](f, query) {
		select {
		case <-tick.C:
		case <-f.ctx.Done():
			f.t.Fatalf("not true: %s", query)
		}
	}
}

func TestRenewalKeepsALongRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	g := newGate()
	const ttl = 600 * time.Millisecond
	p := f.start(config(func(c *worker.Config) { c.Limits.LeaseTTL = ttl }, agent("a", g)))
	task := f.submit("a", "x")
	receive(t, "run", g.started)
	claimed := value[time.Time](f, "SELECT lease_until FROM a2a.task_leases")
	f.waitFor2("SELECT (SELECT lease_until FROM a2a.task_leases) > (SELECT claimed_at + interval '1200 milliseconds' FROM a2a.task_attempts)")
	if n, err := f.Rescue(f.ctx, nil, 1, 10); n != 0 || err != nil {
		t.Errorf("rescue = %d, %v while the run renews", n, err)
	}
	if now := value[time.Time](f, "SELECT lease_until FROM a2a.task_leases"); !now.After(claimed) {
		t.Errorf("the lease ends at %v, ended at %v when claimed", now, claimed)
	}
	g.next <- []a2a.Event{status(a2a.StateCompleted)}
	f.waitState(task, a2a.StateCompleted)
	p.stop()
}

// A task that is claimed and cannot be read is given back while somebody has locked what it is made of. If it takes too long to
// read, it is tried again later, as if its agent had failed: that may be for its size.
func TestTasksThatCannotBeReadAreTriedAgain(t *testing.T) {
	t.Parallel()
	for outcome, limit := range map[string]func(c *store.Config){
		"released": func(c *store.Config) { c.LockTimeout = 20 * time.Millisecond },
		"retry":    func(c *store.Config) { c.LockTimeout, c.StatementTimeout = time.Minute, 200*time.Millisecond },
	} {
		t.Run(outcome, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, limit)
			task := f.submit("a", "x")
			release := f.hold("LOCK TABLE a2a.messages IN ACCESS EXCLUSIVE MODE")
			p := f.start(config(func(c *worker.Config) { c.Limits.MaxAttempts = 1000 }, agent("a", say(status(a2a.StateCompleted)))))
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
	p := f.start(config(func(c *worker.Config) { c.Poll = 5 * time.Millisecond }, agent("a", agentFunc(func(_ context.Context, _ executor.Run, yield func(a2a.Event, error) bool) {
		runs.Add(1)
		yield(status(a2a.StateCompleted), nil)
	}))))
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

func TestPoliciesAreThoseOfTheAgents(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	agents := []worker.Agent{agent("a", say()), agent("b", say(), a2a.Limits{MaxAttempts: 7}), agent("c", say())}
	agents[1].OnLostLease, agents[2].OnLostLease = a2a.LostLeaseFail, a2a.LostLeaseInputRequired
	p := worker.New(f.Store, f.hub, config(nil, agents...))
	same(t, "policies", []store.Policy{
		{Agent: "a", Fate: "retry", MaxAttempts: 3}, {Agent: "b", Fate: "fail", MaxAttempts: 7}, {Agent: "c", Fate: "input-required", MaxAttempts: 3},
	}, p.Policies())
}

// lateHub is a hub in which a waiter that is registered by another goroutine than the one that starts is late.
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

// Whoever is woken by nothing but wakes must wait for them before the first look, or what comes between is found by the next poll.
func TestPoolListensBeforeItLooks(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	release := f.hold("LOCK TABLE a2a.task_ready IN ACCESS EXCLUSIVE MODE") // the first look waits here
	hub := &lateHub{Hub: f.hub, registered: make(chan string, 10)}
	p := worker.New(f.Store, hub, config(nil, agent("a", say()), agent("b", say())))
	ctx, cancel := context.WithCancel(f.ctx)
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	f.waitBlocked()
	var keys []string
	for range len(hub.registered) {
		keys = append(keys, <-hub.registered)
	}
	same(t, "keys that are waited for at the first look", []string{"cancel:r1", "cancels", "ready:a", "ready:b"}, keys)
	release()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func (f *fixture) waitBlocked() {
	f.t.Helper()
	f.waitFor2("SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')")
}

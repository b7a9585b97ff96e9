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
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/worker"
)

// flaky is an agent that can be away.
type flaky struct {
	away  atomic.Bool
	tries atomic.Int64      // runs that found it away
	runs  chan executor.Run // runs that reached it
	tried chan struct{}     // one value for each run that found it away; may be nil
}

func newFlaky() *flaky { return &flaky{runs: make(chan executor.Run, 10_000)} }

func (f *flaky) agent(name string, limits a2a.Limits) worker.Agent {
	return agent(name, agentFunc(func(_ context.Context, run executor.Run, yield func(a2a.Event, error) bool) {
		if f.away.Load() {
			f.tries.Add(1)
			yield(nil, executor.Unreachable(errors.New("the agent refuses connections")))
			if f.tried != nil {
				f.tried <- struct{}{}
			}
			return
		}
		f.runs <- run
		yield(status(a2a.StateCompleted), nil)
	}), limits)
}

// probing makes the pool probe without waiting long.
func probing(c *worker.Config) {
	c.FirstProbe, c.LongestProbe = time.Millisecond, 5*time.Millisecond
	c.Limits.Unreachable = time.Hour
}

func TestUnreachableAgentCostsNoAttempt(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var agent flaky
	agent.runs, agent.tried = make(chan executor.Run, 1), make(chan struct{}, 1000)
	agent.away.Store(true)
	p := f.start(config(probing, agent.agent("a", a2a.Limits{MaxAttempts: 2})))
	task := f.submit("a", "x")
	for range 10 { // more than the attempts that the task has
		receive(t, "try", agent.tried)
	}
	if got := f.snapshot(task).Status.State; got != a2a.StateWorking {
		t.Errorf("the task is %s while its agent is away, want WORKING", got)
	}
	// The claim of the first try, and one that says why the task waits.
	if got := f.snapshot(task); got.LastSeq != 3 {
		t.Errorf("the log has %d events after a moment without the agent, want 3", got.LastSeq)
	}
	const reason = "SELECT body->'metadata'->>'a2ad/reason' FROM a2a.task_events WHERE task_id = $1 AND seq = 3"
	if got := value[string](f, reason, task); got != tasks.ReasonUnreachable {
		t.Errorf("the reason is %q, want %q", got, tasks.ReasonUnreachable)
	}
	agent.away.Store(false)
	f.waitState(task, a2a.StateCompleted)
	if run := receive(t, "run", agent.runs); run.Attempt != 1 {
		t.Errorf("the run that reached the agent is attempt %d, want 1", run.Attempt)
	}
	// The next process would record the end of the outage if this one stopped first.
	f.waitQuery("SELECT NOT EXISTS (SELECT FROM a2a.agent_outages)")
	p.stop()
	outcomes := f.outcomes(task)
	for i, outcome := range outcomes[:len(outcomes)-1] {
		if outcome != "unreachable" {
			t.Errorf("attempt %d ended with %q, want unreachable", i+1, outcome)
		}
	}
	if last := outcomes[len(outcomes)-1]; last != "completed" {
		t.Errorf("the last attempt ended with %q, want completed", last)
	}
}

func TestUnreachableForTooLongFails(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var agent flaky
	agent.tried = make(chan struct{}, 1000)
	agent.away.Store(true)
	p := f.start(config(probing, agent.agent("a", a2a.Limits{Unreachable: time.Microsecond})))
	got := f.waitState(f.submit("a", "x"), a2a.StateFailed)
	want := "the agent was unreachable for 1µs: the agent refuses connections"
	if text := statusText(got); text != want {
		t.Errorf("the client gets %q, want %q", text, want)
	}
	p.stop()
}

// A client is told at most once a minute why its task waits.
func TestUnreachableIsSaidOnceAMinute(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	agent := newFlaky()
	agent.tried = make(chan struct{}, 1000)
	agent.away.Store(true)
	p := f.start(config(probing, agent.agent("a", a2a.Limits{})))
	task := f.submit("a", "x")
	for minutes := range 3 {
		for range 5 {
			receive(t, "try", agent.tried)
		}
		f.exec("UPDATE a2a.tasks SET status_at = status_at - interval '1 minute' WHERE id = $1", task)
		f.waitFor(task, "another status", func(t *a2a.Task) bool { return t.LastSeq > int64(3+minutes) })
	}
	p.stop()
	if n, said := len(f.outcomes(task)), f.snapshot(task).LastSeq; said > 7 || n < 15 {
		t.Errorf("%d events after %d tries in four minutes, want at most 7 after at least 15", said, n)
	}
}

// While an agent is away all replicas together send it one task at a time, however many wait.
func TestOutageCostsOneTaskAProbe(t *testing.T) {
	t.Parallel()
	const waiting, replicas = 200, 3
	f := newFixture(t)
	agent := newFlaky()
	agent.tried = make(chan struct{}, 10_000)
	agent.away.Store(true)
	var ids []a2a.ID
	for i := range waiting {
		ids = append(ids, f.submit("a", fmt.Sprint(i)))
	}
	var pools []running
	for i := range replicas {
		pools = append(pools, f.start(config(func(c *worker.Config) {
			probing(c)
			c.FirstProbe, c.LongestProbe = 50*time.Millisecond, 50*time.Millisecond
			c.Worker = fmt.Sprint("r", i)
		}, agent.agent("a", a2a.Limits{}))))
	}
	probes := func() int {
		return value[int](f, "SELECT coalesce(max(probes), 0) FROM a2a.agent_outages")
	}
	for probes() < 5 {
		receive(t, "try", agent.tried)
	}
	// Before its breaker opens, a replica sends at most as many as it can have runs: four for each of its four slots.
	if n, limit := agent.tries.Load(), int64(replicas*4*4+probes()+replicas); n > limit {
		t.Errorf("%d tasks were sent while the agent was away, want at most %d", n, limit)
	}
	agent.away.Store(false)
	for _, id := range ids {
		f.waitState(id, a2a.StateCompleted)
	}
	for _, p := range pools {
		p.stop()
	}
	if n := value[int](f, "SELECT count(*) FROM a2a.task_attempts WHERE outcome IN ('retry', 'failed')"); n != 0 {
		t.Errorf("%d attempts were counted, want 0", n)
	}
}

// The pool shows the state of its breakers, and counts the tasks that it has sent as probes.
func TestPoolShowsItsBreakers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	agent := newFlaky()
	agent.tried = make(chan struct{}, 10_000)
	agent.away.Store(true)
	p := f.start(config(probing, agent.agent("a", a2a.Limits{})))
	if got := p.Breakers()["a"]; got != (worker.BreakerState{}) {
		t.Errorf("before the first task: %+v, want a closed breaker", got)
	}
	ids := []a2a.ID{f.submit("a", "x"), f.submit("a", "y"), f.submit("a", "z")}
	for p.Breakers()["a"].Probes < 2 { // at least three tries open the breaker, the others are probes
		receive(t, "try", agent.tried)
	}
	if got := p.Breakers()["a"]; !got.Open && !got.HalfOpen {
		t.Errorf("after two probes: %+v, want a breaker that is not closed", got)
	}
	agent.away.Store(false)
	for _, id := range ids {
		f.waitState(id, a2a.StateCompleted)
	}
	p.stop()
	if got := p.Breakers()["a"]; got.Open || got.HalfOpen {
		t.Errorf("after a task reached the agent: %+v, want a closed breaker", got)
	}
}

// An agent that only one replica cannot reach does its tasks through the others.
func TestOutageOfOneReplica(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	reached, away := newFlaky(), newFlaky()
	away.away.Store(true)
	a := f.start(config(probing, away.agent("a", a2a.Limits{})))
	b := f.start(config(func(c *worker.Config) { probing(c); c.Worker = "r2" }, reached.agent("a", a2a.Limits{})))
	for i := range 50 {
		f.waitState(f.submit("a", fmt.Sprint(i)), a2a.StateCompleted)
	}
	a.stop()
	b.stop()
}

// A poisonous task that kills its agent was read by it: that is an attempt, and the breaker stays closed.
func TestAgentThatDiesOfATaskCostsAttempts(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := f.start(config(probing, agent("a", failing(errors.New("the agent closed the connection before it answered")))))
	f.waitState(f.submit("a", "x"), a2a.StateFailed)
	p.stop()
	if n := value[int](f, "SELECT count(*) FROM a2a.agent_outages"); n != 0 {
		t.Errorf("%d outages are recorded, want 0", n)
	}
}

// A process that starts during an outage knows of it, and ends it.
func TestOutageOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if err := f.Tasks.BeginOutage(t.Context(), "a", "the agent refuses connections", time.Millisecond); err != nil {
		t.Fatal(err)
	}
	agent := newFlaky()
	p := f.start(config(probing, agent.agent("a", a2a.Limits{})))
	f.waitState(f.submit("a", "x"), a2a.StateCompleted)
	wake, stop := f.hub.Wait("reachable:a")
	defer stop()
	for value[int](f, "SELECT count(*) FROM a2a.agent_outages") != 0 {
		receive(t, "end of the outage", wake)
	}
	p.stop()
}

package worker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/worker"
)

var parks = a2a.Limits{MaxAttempts: 2, OnExhausted: a2a.ExhaustedPark}

// waitParked waits until a task is parked, and returns why.
func (f *fixture) waitParked(task a2a.ID) string {
	f.t.Helper()
	const query = "SELECT coalesce((SELECT reason FROM a2a.task_parked WHERE task_id = $1), '')"
	var why string
	f.waitFor(task, "parked", func(*a2a.Task) bool {
		why = value[string](f, query, task)
		return why != ""
	})
	return why
}

func (f *fixture) resume(task a2a.ID) {
	f.t.Helper()
	if list, err := f.Tasks.Resume(f.t.Context(), []a2a.ID{task}, "fixed"); err != nil || len(list) != 1 {
		f.t.Fatalf("Resume = %d tasks, %v, want 1", len(list), err)
	}
}

// broken returns an agent that fails while its attempts are below n, and whose attempt numbers the channel receives.
func broken(reason error, n int, limits a2a.Limits) (worker.Agent, <-chan int) {
	tries := make(chan int, 100)
	return agent("a", agentFunc(func(_ context.Context, run executor.Run, yield func(a2a.Event, error) bool) {
		tries <- run.Attempt
		if len(tries) <= n {
			yield(nil, reason)
			return
		}
		yield(status(a2a.StateCompleted), nil)
	}), limits), tries
}

func TestTaskWithoutAttemptsIsParkedAndResumed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a, tries := broken(errors.New("out of luck"), 2, parks)
	p := f.start(config(nil, a))
	task := f.submit("a", "x")
	if why := f.waitParked(task); why != "attempt 2 of 2: out of luck" {
		t.Errorf("it is parked because of %q", why)
	}
	f.resume(task)
	f.waitState(task, a2a.StateCompleted)
	p.stop()
	for _, want := range []int{1, 2, 1} {
		if got := <-tries; got != want {
			t.Errorf("attempt %d, want %d", got, want)
		}
	}
	got := f.outcomes(task)
	if len(got) != 3 || got[1] != "parked" || got[2] != "completed" {
		t.Errorf("the attempts ended with %v, want retry, parked and completed", got)
	}
}

func TestPermanentErrorIsNotParked(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a, _ := broken(executor.Permanent(errors.New("never")), 1, parks)
	p := f.start(config(nil, a))
	f.waitState(f.submit("a", "x"), a2a.StateFailed)
	p.stop()
}

func TestDeadlineIsNotParked(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	limits := parks
	limits.Deadline = time.Millisecond
	p := f.start(config(nil, agent("a", newGate(), limits)))
	f.waitState(f.submit("a", "x"), a2a.StateFailed)
	p.stop()
}

func TestUnreachableForTooLongIsParked(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	agent := newFlaky()
	agent.away.Store(true)
	limits := parks
	limits.Unreachable = time.Microsecond
	p := f.start(config(probing, agent.agent("a", limits)))
	task := f.submit("a", "x")
	want := "the agent was unreachable for 1µs: the agent refuses connections"
	if why := f.waitParked(task); why != want {
		t.Errorf("it is parked because of %q, want %q", why, want)
	}
	agent.away.Store(false)
	f.resume(task)
	f.waitState(task, a2a.StateCompleted)
	p.stop()
}

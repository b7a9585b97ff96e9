package worker_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/worker"
)

// failLost fails the tasks of lost workers.
var failLost = []tasks.Policy{{Agent: "a", Fate: "fail"}}

func TestCancelEndsTheContextWithinAWake(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	g := newGate()
	p := f.start(config(nil, agent("a", g)))
	task := f.submit("a", "x")
	receive(t, "run", g.started)
	said := a2a.Raw(`{"why":"late"}`)
	if _, err := f.Tasks.CancelWith(t.Context(), ann, "a", task, said); err != nil {
		t.Fatal(err)
	}
	cause := receive(t, "end", g.ended)
	wantCause(t, executor.ErrCanceled, cause)
	ended, end := context.WithCancelCause(t.Context())
	end(cause)
	same(t, "the metadata that the executor gets", string(said), string(executor.CancelMetadata(ended)))
	p.stop()
	same(
		t,
		"events",
		[]a2a.Event{&a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateCanceled}, Metadata: said}},
		f.events(task),
	)
	stats, _ := p.Stats()
	same(t, "stats", worker.Stats{Claimed: 1}, stats)
}

// Without a wake-up, the next renewal finds the cancel.
func TestCancelIsFoundByTheRenewal(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *store.Config) {
		wake := c.Wake
		c.Wake = func(keys ...string) {
			for _, k := range keys {
				if !strings.HasPrefix(k, "cancel:") {
					wake(k)
				}
			}
		}
	})
	g := newGate()
	p := f.start(config(func(c *worker.Config) { c.Limits.LeaseTTL = 9 * time.Second }, agent("a", g)))
	task := f.submit("a", "x")
	receive(t, "run", g.started)
	if _, err := f.Tasks.Cancel(t.Context(), ann, "a", task); err != nil {
		t.Fatal(err)
	}
	wantCause(t, executor.ErrCanceled, receive(t, "end", g.ended))
	p.stop()
}

// Without a wake-up and a renewal, the refused event shows the cancel.
func TestCancelIsFoundByTheRefusedEvent(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *store.Config) {
		wake := c.Wake
		c.Wake = func(keys ...string) {
			for _, k := range keys {
				if !strings.HasPrefix(k, "cancel:") {
					wake(k)
				}
			}
		}
	})
	g := newGate()
	p := f.start(config(func(c *worker.Config) { c.Limits.LeaseTTL = time.Hour }, agent("a", g)))
	task := f.submit("a", "x")
	receive(t, "run", g.started)
	if _, err := f.Tasks.Cancel(t.Context(), ann, "a", task); err != nil {
		t.Fatal(err)
	}
	g.next <- []a2a.Event{status(a2a.StateWorking)}
	wantCause(t, executor.ErrCanceled, receive(t, "end", g.ended))
	p.stop()
	stats, _ := p.Stats()
	same(t, "stats", worker.Stats{Claimed: 1}, stats)
}

func TestLostLeaseEndsTheRunAndWritesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	g := newGate()
	p := f.start(config(func(c *worker.Config) { c.Slots = 1 }, agent("a", g)))
	task := f.submit("a", "x")
	receive(t, "run", g.started)
	f.exec("UPDATE a2a.task_leases SET lease_until = clock_timestamp() - interval '1 second'")
	if n, err := f.Tasks.Rescue(t.Context(), failLost, tasks.Policy{}, 10); err != nil || n != 1 {
		t.Fatalf("rescue = %d, %v", n, err)
	}
	f.hub.Wake("cancel:r1") // a renewal is due
	wantCause(t, executor.ErrLeaseLost, receive(t, "end", g.ended))
	p.stop()
	if n := len(f.events(task)); n != 1 {
		t.Errorf("%d events, want that of the rescue", n)
	}
	stats, _ := p.Stats()
	same(t, "stats", worker.Stats{Claimed: 1, Lost: 1}, stats)
}

// A run that writes before a renewal has found the lost lease finds it by the append.
func TestLostLeaseIsFoundByTheAppend(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	g := newGate()
	p := f.start(config(nil, agent("a", g)))
	task := f.submit("a", "x")
	receive(t, "run", g.started)
	f.exec("UPDATE a2a.task_leases SET lease_until = clock_timestamp() - interval '1 second'")
	if _, err := f.Tasks.Rescue(t.Context(), failLost, tasks.Policy{}, 10); err != nil {
		t.Fatal(err)
	}
	g.next <- []a2a.Event{chunk("x", "zombie")}
	wantCause(t, executor.ErrLeaseLost, receive(t, "end", g.ended))
	p.stop()
	if got := f.snapshot(task); len(got.Artifacts) != 0 {
		t.Errorf("the zombie wrote %+v", got.Artifacts)
	}
}

// The worker that lost the task claims it again before it notices the loss.
func TestSecondRunOfATaskEndsTheFirst(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	g := newGate()
	p := f.start(config(nil, agent("a", g)))
	task := f.submit("a", "x")
	first := receive(t, "first run", g.started)
	f.steal(task)
	second := receive(t, "second run", g.started)
	if first.Epoch >= second.Epoch {
		t.Errorf("epochs %d and %d", first.Epoch, second.Epoch)
	}
	wantCause(t, executor.ErrLeaseLost, receive(t, "end of the first run", g.ended))
	g.next <- []a2a.Event{status(a2a.StateCompleted)}
	f.waitState(task, a2a.StateCompleted)
	p.stop()
	same(t, "outcomes", []string{"expired", "completed"}, f.outcomes(task))
}

func TestExecutorThatIgnoresItsContextIsAbandoned(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ignores, ended := make(chan struct{}), make(chan struct{})
	p := f.start(
		config(
			func(c *worker.Config) { c.Slots, c.Abandon = 1, 20*time.Millisecond },
			agent("a", agentFunc(func(_ context.Context, run executor.Run, yield func(a2a.Event, error) bool) {
				if run.Messages[0].Parts[0].Text == "second" {
					yield(status(a2a.StateCompleted), nil)
					return
				}
				defer close(ended)
				<-ignores
				for yield(chunk("x", "late"), nil) {
				}
			})),
		),
	)
	first := f.submit("a", "first")
	f.waitState(first, a2a.StateWorking)
	second := f.submit("a", "second")
	if _, err := f.Tasks.Cancel(t.Context(), ann, "a", first); err != nil {
		t.Fatal(err)
	}
	f.waitState(second, a2a.StateCompleted) // the one slot is free again
	p.stop()
	close(ignores)
	receive(t, "end of the abandoned executor", ended)
	same(t, "events", []a2a.Event{status(a2a.StateCanceled)}, f.events(first))
	stats, _ := p.Stats()
	same(t, "stats", worker.Stats{Claimed: 2, Finished: 1, Abandoned: 1}, stats)
}

func TestExecutorMayCleanUpAfterItsTurn(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tidied := make(chan struct{})
	p := f.start(
		config(nil, agent("a", agentFunc(func(ctx context.Context, _ executor.Run, yield func(a2a.Event, error) bool) {
			yield(status(a2a.StateCompleted), nil)
			<-ctx.Done() // ends when the turn is over
			close(tidied)
		}))),
	)
	f.waitState(f.submit("a", "x"), a2a.StateCompleted)
	receive(t, "tidying up", tidied)
	p.stop()
	stats, _ := p.Stats()
	same(t, "stats", worker.Stats{Claimed: 1, Finished: 1}, stats)
}

// Events after the end of the turn are ignored.
func TestEventsAfterTheEndAreDropped(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := f.start(
		config(nil, agent("a", say(status(a2a.StateInputRequired, "?"), chunk("x", "late"), status(a2a.StateFailed)))),
	)
	task := f.submit("a", "x")
	f.waitState(task, a2a.StateInputRequired)
	p.stop()
	same(t, "events", []a2a.Event{status(a2a.StateInputRequired, "?")}, f.events(task))
}

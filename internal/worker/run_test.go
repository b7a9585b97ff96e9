package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/worker"
)

func TestRunGetsTheTaskAndItsEventsAreKept(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	task := f.send(store.Submission{Agent: "a", ContextID: "ctx", Message: message("hello"), Traceparent: trace})
	runs := make(chan executor.Run, 1)
	p := f.start(config(func(c *worker.Config) { c.Limits.Deadline = time.Hour }, agent("a", agentFunc(func(ctx context.Context, run executor.Run, yield func(a2a.Event, error) bool) {
		runs <- run
		if d, ok := ctx.Deadline(); !ok || d.Sub(run.Deadline).Abs() > time.Second {
			t.Errorf("the context ends at %v, the run at %v", d, run.Deadline)
		}
		_ = yield(chunk("x", "1"), nil) && yield(status(a2a.StateWorking, "busy"), nil) && yield(status(a2a.StateCompleted, "done"), nil)
	}))))
	got := f.waitState(task, a2a.StateCompleted)
	run := receive(t, "run", runs)
	if until := time.Until(run.Deadline); until < 59*time.Minute || until > time.Hour {
		t.Errorf("the run ends in %v, want an hour", until)
	}
	if run.Task.ID != task || run.Task.Status.State != a2a.StateWorking || run.Task.LastSeq != 2 || len(run.Task.History) != 1 {
		t.Errorf("the run's task is %+v", run.Task)
	}
	run.Task, run.Deadline = a2a.Task{}, time.Time{}
	same(t, "run", executor.Run{Messages: []a2a.Message{message("hello")}, Agent: "a", Tenant: "acme", Owner: "ann", Epoch: 1, Attempt: 1, Traceparent: trace}, run)
	same(t, "events", []a2a.Event{chunk("x", "1"), status(a2a.StateWorking, "busy"), status(a2a.StateCompleted, "done")}, f.events(task))
	same(t, "artifacts", []a2a.Artifact{chunk("x", "1").Artifact}, got.Artifacts)
	same(t, "outcomes", []string{"completed"}, f.outcomes(task))
	p.stop()
	stats, running := p.Stats()
	same(t, "stats", worker.Stats{Claimed: 1, Finished: 1}, stats)
	if running != 0 || !p.Healthy() {
		t.Errorf("%d runs, healthy %v, when all is done", running, p.Healthy())
	}
}

func TestTasksAreClaimedOnAWakeAndAtTheStart(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	before := f.submit("a", "before")
	p := f.start(config(nil, agent("a", say(status(a2a.StateCompleted)))))
	f.waitState(before, a2a.StateCompleted)
	after := f.submit("a", "after")
	f.waitState(after, a2a.StateCompleted)
	p.stop()
}

// A wake that is lost costs a poll.
func TestTasksAreFoundByThePoll(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *store.Config) { c.Wake = func(...string) {} })
	p := f.start(config(func(c *worker.Config) { c.Poll = 5 * time.Millisecond }, agent("a", say(status(a2a.StateCompleted)))))
	f.waitState(f.submit("a", "x"), a2a.StateCompleted)
	p.stop()
}

func TestErrorsAreTriedAgainUntilTheAttemptsAreUsedUp(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		exec executor.Executor
		text string
	}{
		{"error", failing(errors.New("no\x00 \xffluck"), chunk("x", "part")), "attempt 3 of 3: no\uFFFD \uFFFDluck"},
		{"panic", agentFunc(func(_ context.Context, _ executor.Run, yield func(a2a.Event, error) bool) {
			yield(chunk("x", "part"), nil)
			panic("boom")
		}), "attempt 3 of 3: the agent panicked"},
		{"panic with an error that says more than it should", agentFunc(func(context.Context, executor.Run, func(a2a.Event, error) bool) {
			panic(errors.New("dial postgres://user:secret@db"))
		}), "attempt 3 of 3: the agent panicked"},
		// Not to be taken for the database.
		{"an error that says unavailable", failing(a2a.Errorf(a2a.CodeUnavailable, "upstream is down"), chunk("x", "part")), "attempt 3 of 3: upstream is down"},
		{"an error that says lease lost", failing(fmt.Errorf("upstream: %w", executor.ErrLeaseLost)), "attempt 3 of 3: upstream: lease lost"},
		{"an error that says canceled", failing(executor.ErrCanceled), "attempt 3 of 3: task canceled"},
		{"an error that says shutdown", failing(executor.ErrShutdown), "attempt 3 of 3: server is shutting down"},
		{"a context error of its own", failing(context.Canceled), "attempt 3 of 3: context canceled"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			p := f.start(config(nil, agent("a", tt.exec)))
			task := f.submit("a", "x")
			got := f.waitState(task, a2a.StateFailed)
			if text := statusText(got); text != tt.text {
				t.Errorf("the client is told %q, want %q", text, tt.text)
			}
			same(t, "outcomes", []string{"retry", "retry", "failed"}, f.outcomes(task))
			p.stop()
			stats, _ := p.Stats()
			same(t, "stats", worker.Stats{Claimed: 3, Finished: 1, Retried: 2}, stats)
		})
	}
}

func TestRetryHasABackoff(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := f.start(config(func(c *worker.Config) { c.Limits.BackoffBase, c.Limits.BackoffMax = 24*time.Hour, 24*time.Hour }, agent("a", failing(errors.New("no")))))
	task := f.submit("a", "x")
	f.waitOutcomes(task, 1)
	var late bool
	for range 3 { // full jitter may draw a small number once
		late = late || value[bool](f, "SELECT ready_at > clock_timestamp() + interval '1 minute' FROM a2a.tasks")
	}
	if !late {
		t.Error("the task waits for less than a minute of a day")
	}
	p.stop()
}

// waitOutcomes waits until n attempts have ended. Nothing is committed to the log by a retry, so it looks at the table.
func (f *fixture) waitOutcomes(task a2a.ID, n int) {
	f.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for value[int](f, "SELECT count(*)::int FROM a2a.task_attempts WHERE task_id = $1 AND ended_at IS NOT NULL", task) < n {
		select {
		case <-tick.C:
		case <-f.ctx.Done():
			f.t.Fatalf("less than %d attempts have ended", n)
		}
	}
}

func TestRetryAfterIsTheAgentsChoice(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := f.start(config(nil, agent("a", failing(fmt.Errorf("busy: %w", executor.RetryAfter(errors.New("later"), time.Hour))))))
	task := f.submit("a", "x")
	f.waitOutcomes(task, 1)
	if !value[bool](f, "SELECT ready_at BETWEEN clock_timestamp() + interval '59 minutes' AND clock_timestamp() + interval '1 hour' FROM a2a.tasks") {
		t.Error("the task does not wait for an hour")
	}
	same(t, "outcomes", []string{"retry"}, f.outcomes(task))
	p.stop()
}

func TestPermanentErrorsAreNotTriedAgain(t *testing.T) {
	t.Parallel()
	part := []a2a.Part{{Kind: a2a.PartText, Text: "x"}}
	invalid := func(events ...a2a.Event) executor.Executor {
		return say(append([]a2a.Event{chunk("kept", "1")}, events...)...)
	}
	withParts := func(n int) a2a.Event {
		return &a2a.ArtifactUpdate{Artifact: a2a.Artifact{ID: "x", Parts: make([]a2a.Part, n)}}
	}
	tests := []struct {
		name string
		exec executor.Executor
		text string
	}{
		{"permanent error", failing(fmt.Errorf("wrapped: %w", executor.Permanent(errors.New("cannot"))), chunk("kept", "1")), "wrapped: cannot"},
		{"no final status", invalid(), "invalid agent response: the agent ended without a final status"},
		{"no final status behind a checkpoint", invalid(&a2a.Checkpoint{Body: a2a.Raw(`1`)}), "invalid agent response: the agent ended without a final status"},
		{"submitted", invalid(status(a2a.StateSubmitted)), `invalid agent response: event 2: an agent cannot set the state "submitted"`},
		{"canceled", invalid(status(a2a.StateCanceled)), `invalid agent response: event 2: an agent cannot set the state "canceled"`},
		{"no state", invalid(status(a2a.StateNone)), `invalid agent response: event 2: an agent cannot set the state "unknown"`},
		{"a state that there is not", invalid(status(42)), `invalid agent response: event 2: an agent cannot set the state "unknown"`},
		{"no event", invalid(nil), "invalid agent response"},
		{"a nil status", invalid((*a2a.StatusUpdate)(nil)), "invalid agent response"},
		{"a nil artifact", invalid((*a2a.ArtifactUpdate)(nil)), "invalid agent response"},
		{"a nil checkpoint", invalid((*a2a.Checkpoint)(nil)), "invalid agent response"},
		{"a direct reply", invalid(&a2a.Message{ID: "m", Parts: part}), "invalid agent response: event 2: a message by itself: report a status with it, or set direct_reply"},
		{"an artifact without an id", invalid(chunk("", "x")), "invalid agent response: event 2: an artifact without an id"},
		{"an artifact id with NUL", invalid(chunk("a\x00", "x")), "invalid agent response: event 2: artifactId"},
		{"an artifact id that is too long", invalid(chunk(strings.Repeat("x", 257), "x")), "invalid agent response: event 2: artifactId"},
		{"no parts", invalid(chunk("x")), "invalid agent response: event 2: 0 parts"},
		{"too many parts", invalid(withParts(1001)), "invalid agent response: event 2: 1001 parts"},
		{"a part of no kind", invalid(withParts(1)), "invalid agent response: event 2: part 0 has no content"},
		{"a data part without data", invalid(&a2a.ArtifactUpdate{Artifact: a2a.Artifact{ID: "x", Parts: []a2a.Part{{Kind: a2a.PartData}}}}), "invalid agent response: event 2: part 0 has no content"},
		{"a part that is too large", invalid(chunk("x", "ok", strings.Repeat("x", 1<<20+1))), "invalid agent response: event 2: part 1 is larger"},
		{"a message without parts", invalid(&a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateWorking, Message: &a2a.Message{ID: "m"}}}), "invalid agent response: event 2: 0 parts"},
		{"a message id that is not UTF-8", invalid(&a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateWorking, Message: &a2a.Message{ID: "\xff", Parts: part}}}), "invalid agent response: event 2: messageId"},
		{"metadata that is not JSON", invalid(&a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateWorking}, Metadata: a2a.Raw(`{`)}), "invalid agent response: PostgreSQL cannot store "},
		{"data that is not JSON", invalid(&a2a.ArtifactUpdate{Artifact: a2a.Artifact{ID: "x", Parts: []a2a.Part{{Kind: a2a.PartData, Data: a2a.Raw(`[`)}}}}), "invalid agent response: PostgreSQL cannot store "},
		{"a checkpoint that is not JSON", invalid(&a2a.Checkpoint{Body: a2a.Raw(`{`)}, status(a2a.StateWorking)), "invalid agent response: PostgreSQL cannot store "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			p := f.start(config(nil, agent("a", tt.exec)))
			task := f.submit("a", "x")
			got := f.waitState(task, a2a.StateFailed)
			if text := statusText(got); !strings.HasPrefix(text, tt.text) {
				t.Errorf("the client is told %q, want %q", text, tt.text)
			}
			same(t, "outcomes", []string{"failed"}, f.outcomes(task))
			if !strings.Contains(tt.name, "not JSON") { // the database refuses it, with what is written at once
				same(t, "what was reported before", []a2a.Artifact{chunk("kept", "1").Artifact}, got.Artifacts)
			}
			p.stop()
		})
	}
}

func TestEventsAreMadeFitToBeStored(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := f.start(config(nil, agent("a", say(
		&a2a.ArtifactUpdate{Artifact: a2a.Artifact{ID: "x", Name: "n\x00\xff", Description: "d\x00", Extensions: []string{"e\xff"}, Parts: []a2a.Part{
			{Kind: a2a.PartText, Text: "nul \x00 stays, \xff does not", MediaType: "m\x00", Filename: "f\xff"},
		}}},
		&a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateCompleted, Message: &a2a.Message{
			Role: a2a.RoleUser, Parts: texts("x"), Extensions: []string{"e\xff"}, ReferenceTaskIDs: []string{"t\xff"},
		}}},
	))))
	got := f.waitState(f.submit("a", "x"), a2a.StateCompleted)
	want := a2a.Artifact{ID: "x", Name: "n\uFFFD\uFFFD", Description: "d\uFFFD", Extensions: []string{"e\uFFFD"}, Parts: []a2a.Part{
		{Kind: a2a.PartText, Text: "nul \x00 stays, \uFFFD does not", MediaType: "m\uFFFD", Filename: "f\uFFFD"},
	}}
	same(t, "artifacts", []a2a.Artifact{want}, got.Artifacts)
	m := *got.Status.Message
	if m.ID == "" || m.Role != a2a.RoleAgent {
		t.Errorf("message %+v, want one of the agent with an id", m)
	}
	p.stop()
}

// What the database says is for the log, not for clients.
func TestErrorsOfTheDatabaseStayInside(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.exec("ALTER TABLE a2a.task_events ADD CONSTRAINT secret_name CHECK (artifact_id <> 'poison')")
	p := f.start(config(func(c *worker.Config) { c.Limits.MaxAttempts = 1 }, agent("a", say(chunk("poison", "x")))))
	got := f.waitState(f.submit("a", "x"), a2a.StateFailed)
	if text := statusText(got); strings.Contains(text, "secret_name") || strings.Contains(text, "SQLSTATE") {
		t.Errorf("the client is told %q", text)
	}
	p.stop()
}

func TestLimitsOfATask(t *testing.T) {
	t.Parallel()
	many := make([]a2a.Event, 50)
	for i := range many {
		many[i] = chunk("x"+strconv.Itoa(i), strings.Repeat("y", 100))
	}
	tests := []struct {
		name   string
		change func(*worker.Config)
		text   string
	}{
		{"events", func(c *worker.Config) { c.MaxSeq = 10 }, "the task would have more than 10 events"},
		{"bytes", func(c *worker.Config) { c.MaxBytes = 2000 }, "the task would be larger than 2000 bytes"},
		{"artifacts", func(c *worker.Config) { c.MaxArtifacts = 10 }, "event 11: the task would have more than 10 artifacts"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			p := f.start(config(tt.change, agent("a", say(append(many, status(a2a.StateCompleted))...))))
			got := f.waitState(f.submit("a", "x"), a2a.StateFailed)
			if text := statusText(got); text != tt.text {
				t.Errorf("the client is told %q, want %q", text, tt.text)
			}
			p.stop()
		})
	}
}

func TestIdleTimeoutIsAFailedAttempt(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	g := newGate()
	p := f.start(config(func(c *worker.Config) { c.Limits.MaxAttempts = 2 }, agent("a", g, a2a.Limits{IdleTimeout: 30 * time.Millisecond})))
	task := f.submit("a", "x")
	for range 2 {
		receive(t, "run", g.started)
		wantCause(t, executor.ErrIdle, receive(t, "end", g.ended))
	}
	got := f.waitState(task, a2a.StateFailed)
	if want := "attempt 2 of 2: " + executor.ErrIdle.Error(); statusText(got) != want {
		t.Errorf("the client is told %q, want %q", statusText(got), want)
	}
	same(t, "outcomes", []string{"retry", "failed"}, f.outcomes(task))
	p.stop()
}

// An agent that reports now and then is not idle, however long it takes.
func TestEventsResetTheIdleTimeout(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const idle = 300 * time.Millisecond
	p := f.start(config(nil, agent("a", agentFunc(func(ctx context.Context, _ executor.Run, yield func(a2a.Event, error) bool) {
		tick := time.NewTicker(idle / 4)
		defer tick.Stop()
		for range 8 {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			if !yield(chunk("x", "y"), nil) {
				return
			}
		}
		yield(status(a2a.StateCompleted), nil)
	}), a2a.Limits{IdleTimeout: idle})))
	f.waitState(f.submit("a", "x"), a2a.StateCompleted)
	p.stop()
}

func TestDeadlineFailsTheTask(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	g := newGate()
	p := f.start(config(nil, agent("a", g, a2a.Limits{Deadline: 50 * time.Millisecond})))
	task := f.submit("a", "x")
	receive(t, "run", g.started)
	wantCause(t, executor.ErrDeadline, receive(t, "end", g.ended))
	got := f.waitState(task, a2a.StateFailed)
	if statusText(got) != executor.ErrDeadline.Error() {
		t.Errorf("the client is told %q, want %q", statusText(got), executor.ErrDeadline)
	}
	same(t, "outcomes", []string{"failed"}, f.outcomes(task))
	p.stop()
}

// The deadline is that of the turn: a retry does not begin a new one, and no attempt is made behind it.
func TestDeadlineIsOverAllAttempts(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var runs atomic.Int32
	left := make(chan time.Duration, 10)
	p := f.start(config(nil, agent("a", agentFunc(func(ctx context.Context, run executor.Run, yield func(a2a.Event, error) bool) {
		left <- time.Until(run.Deadline)
		if runs.Add(1) == 2 {
			<-ctx.Done()
			return
		}
		// As if the first attempt had taken nearly all of the time.
		f.exec("UPDATE a2a.tasks SET deadline_at = clock_timestamp() + interval '100 milliseconds'")
		yield(nil, errors.New("again"))
	}), a2a.Limits{Deadline: time.Hour})))
	task := f.submit("a", "x")
	f.waitState(task, a2a.StateFailed)
	if first, second := receive(t, "first", left), receive(t, "second", left); first < 59*time.Minute || second > 100*time.Millisecond {
		t.Errorf("the attempts had %v and %v, want an hour and less than 100 ms", first, second)
	}
	same(t, "outcomes", []string{"retry", "failed"}, f.outcomes(task))
	p.stop()
}

func TestCancelEndsTheContextWithinAWake(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	g := newGate()
	p := f.start(config(nil, agent("a", g)))
	task := f.submit("a", "x")
	receive(t, "run", g.started)
	said := a2a.Raw(`{"why":"late"}`)
	if _, err := f.CancelWith(f.ctx, ann, "a", task, said); err != nil {
		t.Fatal(err)
	}
	cause := receive(t, "end", g.ended)
	wantCause(t, executor.ErrCanceled, cause)
	ended, end := context.WithCancelCause(t.Context())
	end(cause)
	same(t, "what the executor is told", string(said), string(executor.CancelMetadata(ended)))
	p.stop()
	same(t, "events", []a2a.Event{&a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateCanceled}, Metadata: said}}, f.events(task))
	stats, _ := p.Stats()
	same(t, "stats", worker.Stats{Claimed: 1}, stats)
}

// No wake reached the worker: the next renewal tells.
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
	p := f.start(config(func(c *worker.Config) { c.Limits.LeaseTTL = 3 * time.Second }, agent("a", g)))
	task := f.submit("a", "x")
	receive(t, "run", g.started)
	if _, err := f.Cancel(f.ctx, ann, "a", task); err != nil {
		t.Fatal(err)
	}
	wantCause(t, executor.ErrCanceled, receive(t, "end", g.ended))
	p.stop()
}

// Neither a wake nor a renewal told of the cancel: the refused event does.
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
	if _, err := f.Cancel(f.ctx, ann, "a", task); err != nil {
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
	if n, err := f.Rescue(f.ctx, []store.Policy{{Agent: "a", Fate: "fail"}}, 1, 10); err != nil || n != 1 {
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

// A run that writes before a renewal has told it that the task is gone finds out by that.
func TestLostLeaseIsFoundByTheAppend(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	g := newGate()
	p := f.start(config(nil, agent("a", g)))
	task := f.submit("a", "x")
	receive(t, "run", g.started)
	f.exec("UPDATE a2a.task_leases SET lease_until = clock_timestamp() - interval '1 second'")
	if _, err := f.Rescue(f.ctx, []store.Policy{{Agent: "a", Fate: "fail"}}, 1, 10); err != nil {
		t.Fatal(err)
	}
	g.next <- []a2a.Event{chunk("x", "zombie")}
	wantCause(t, executor.ErrLeaseLost, receive(t, "end", g.ended))
	p.stop()
	if got := f.snapshot(task); len(got.Artifacts) != 0 {
		t.Errorf("the zombie wrote %+v", got.Artifacts)
	}
}

// The lost task comes back to the very worker that lost it, before that has noticed.
func TestTaskThatComesBackEndsItsOldRun(t *testing.T) {
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
	deaf, over := make(chan struct{}), make(chan struct{})
	p := f.start(config(func(c *worker.Config) { c.Slots, c.Abandon = 1, 20*time.Millisecond }, agent("a", agentFunc(func(_ context.Context, run executor.Run, yield func(a2a.Event, error) bool) {
		if run.Messages[0].Parts[0].Text == "second" {
			yield(status(a2a.StateCompleted), nil)
			return
		}
		defer close(over)
		<-deaf
		for yield(chunk("x", "late"), nil) {
		}
	}))))
	first := f.submit("a", "first")
	f.waitState(first, a2a.StateWorking)
	second := f.submit("a", "second")
	if _, err := f.Cancel(f.ctx, ann, "a", first); err != nil {
		t.Fatal(err)
	}
	f.waitState(second, a2a.StateCompleted) // the one slot is free again
	p.stop()
	close(deaf)
	receive(t, "end of the abandoned executor", over)
	same(t, "events", []a2a.Event{status(a2a.StateCanceled)}, f.events(first))
	stats, _ := p.Stats()
	same(t, "stats", worker.Stats{Claimed: 2, Finished: 1, Abandoned: 1}, stats)
}

func TestExecutorMayTakeItsTimeAfterTheEndOfItsTurn(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tidied := make(chan struct{})
	p := f.start(config(nil, agent("a", agentFunc(func(ctx context.Context, _ executor.Run, yield func(a2a.Event, error) bool) {
		yield(status(a2a.StateCompleted), nil)
		<-ctx.Done() // ends when the turn is over
		close(tidied)
	}))))
	f.waitState(f.submit("a", "x"), a2a.StateCompleted)
	receive(t, "tidying up", tidied)
	p.stop()
	stats, _ := p.Stats()
	same(t, "stats", worker.Stats{Claimed: 1, Finished: 1}, stats)
}

// Events behind the end of the turn are nobody's.
func TestEventsBehindTheEndAreDropped(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := f.start(config(nil, agent("a", say(status(a2a.StateInputRequired, "?"), chunk("x", "late"), status(a2a.StateFailed)))))
	task := f.submit("a", "x")
	f.waitState(task, a2a.StateInputRequired)
	p.stop()
	same(t, "events", []a2a.Event{status(a2a.StateInputRequired, "?")}, f.events(task))
}

package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/worker"
)

func TestRunGetsTheTaskAndItsEventsAreKept(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	task := f.send(tasks.Submission{Agent: "a", ContextID: "ctx", Message: message("hello"), Traceparent: trace})
	runs := make(chan executor.Run, 1)
	p := f.start(
		config(
			func(c *worker.Config) { c.Limits.Deadline = time.Hour },
			agent("a", agentFunc(func(ctx context.Context, run executor.Run, yield func(a2a.Event, error) bool) {
				runs <- run
				if d, ok := ctx.Deadline(); !ok || d.Sub(run.Deadline).Abs() > time.Second {
					t.Errorf("the context ends at %v, the run at %v", d, run.Deadline)
				}
				_ = yield(chunk("x", "1"), nil) && yield(status(a2a.StateWorking, "busy"), nil) &&
					yield(status(a2a.StateCompleted, "done"), nil)
			})),
		),
	)
	got := f.waitState(task, a2a.StateCompleted)
	run := receive(t, "run", runs)
	if until := time.Until(run.Deadline); until < 59*time.Minute || until > time.Hour {
		t.Errorf("the run ends in %v, want an hour", until)
	}
	if run.Task.ID != task || run.Task.Status.State != a2a.StateWorking || run.Task.LastSeq != 2 ||
		len(run.Task.History) != 1 {
		t.Errorf("the run's task is %+v", run.Task)
	}
	run.Task, run.Deadline = a2a.Task{}, time.Time{}
	same(
		t,
		"run",
		executor.Run{
			Messages:    []a2a.Message{message("hello")},
			Agent:       "a",
			Tenant:      "acme",
			Owner:       "ann",
			Epoch:       1,
			Attempt:     1,
			Traceparent: trace,
		},
		run,
	)
	same(
		t,
		"events",
		[]a2a.Event{chunk("x", "1"), status(a2a.StateWorking, "busy"), status(a2a.StateCompleted, "done")},
		f.events(task),
	)
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

// A lost wake-up costs one poll interval.
func TestTasksAreFoundByThePoll(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *store.Config) { c.Wake = func(...string) {} })
	p := f.start(
		config(func(c *worker.Config) { c.Poll = 5 * time.Millisecond }, agent("a", say(status(a2a.StateCompleted)))),
	)
	f.waitState(f.submit("a", "x"), a2a.StateCompleted)
	p.stop()
}

func TestErrorsAreRetriedUntilTheLastAttempt(t *testing.T) {
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
		{
			"panic with an error that says more than it should",
			agentFunc(func(context.Context, executor.Run, func(a2a.Event, error) bool) {
				panic(errors.New("dial postgres://user:secret@db"))
			}),
			"attempt 3 of 3: the agent panicked",
		},
		// An error of the agent that looks like one of the database.
		{
			"an error that says unavailable",
			failing(a2a.Errorf(a2a.CodeUnavailable, "upstream is down"), chunk("x", "part")),
			"attempt 3 of 3: upstream is down",
		},
		{
			"an error that says lease lost",
			failing(fmt.Errorf("upstream: %w", executor.ErrLeaseLost)),
			"attempt 3 of 3: upstream: lease lost",
		},
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
				t.Errorf("the client gets %q, want %q", text, tt.text)
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
	p := f.start(
		config(
			func(c *worker.Config) { c.Limits.BackoffBase, c.Limits.BackoffMax = 24*time.Hour, 24*time.Hour },
			agent("a", failing(errors.New("no"))),
		),
	)
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

// waitOutcomes waits until n attempts have ended. A retry commits no event, so it polls the table.
func (f *fixture) waitOutcomes(task a2a.ID, n int) {
	f.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	const query = "SELECT count(*)::int FROM a2a.task_attempts WHERE task_id = $1 AND ended_at IS NOT NULL"
	for value[int](f, query, task) < n {
		select {
		case <-tick.C:
		case <-f.t.Context().Done():
			f.t.Fatalf("less than %d attempts have ended", n)
		}
	}
}

func TestAgentChoosesTheRetryDelay(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := f.start(
		config(nil, agent("a", failing(fmt.Errorf("busy: %w", executor.RetryAfter(errors.New("later"), time.Hour))))),
	)
	task := f.submit("a", "x")
	f.waitOutcomes(task, 1)
	if !value[bool](
		f,
		"SELECT ready_at BETWEEN clock_timestamp() + interval '59 minutes' "+
			"AND clock_timestamp() + interval '1 hour' FROM a2a.tasks",
	) {
		t.Error("the task does not wait for an hour")
	}
	same(t, "outcomes", []string{"retry"}, f.outcomes(task))
	p.stop()
}

func TestEventsAreMadeFitToBeStored(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := f.start(config(nil, agent("a", say(
		&a2a.ArtifactUpdate{
			Artifact: a2a.Artifact{
				ID:          "x",
				Name:        "n\x00\xff",
				Description: "d\x00",
				Extensions:  []string{"e\xff"},
				Parts: []a2a.Part{
					{Kind: a2a.PartText, Text: "nul \x00 stays, \xff does not", MediaType: "m\x00", Filename: "f\xff"},
				},
			},
		},
		&a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateCompleted, Message: &a2a.Message{
			Role: a2a.RoleUser, Parts: texts("x"), Extensions: []string{"e\xff"}, ReferenceTaskIDs: []string{"t\xff"},
		}}},
	))))
	got := f.waitState(f.submit("a", "x"), a2a.StateCompleted)
	want := a2a.Artifact{
		ID:          "x",
		Name:        "n\uFFFD\uFFFD",
		Description: "d\uFFFD",
		Extensions:  []string{"e\uFFFD"},
		Parts: []a2a.Part{
			{Kind: a2a.PartText, Text: "nul \x00 stays, \uFFFD does not", MediaType: "m\uFFFD", Filename: "f\uFFFD"},
		},
	}
	same(t, "artifacts", []a2a.Artifact{want}, got.Artifacts)
	m := *got.Status.Message
	if m.ID == "" || m.Role != a2a.RoleAgent {
		t.Errorf("message %+v, want one of the agent with an id", m)
	}
	p.stop()
}

// Errors of the database are for the log, not for clients.
func TestErrorsOfTheDatabaseStayInside(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.exec("ALTER TABLE a2a.task_events ADD CONSTRAINT secret_name CHECK (artifact_id <> 'poison')")
	p := f.start(config(func(c *worker.Config) { c.Limits.MaxAttempts = 1 }, agent("a", say(chunk("poison", "x")))))
	got := f.waitState(f.submit("a", "x"), a2a.StateFailed)
	if text := statusText(got); strings.Contains(text, "secret_name") || strings.Contains(text, "SQLSTATE") {
		t.Errorf("the client gets %q", text)
	}
	p.stop()
}

package worker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
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

func TestConversationContinuesOverTurns(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := f.start(
		config(nil, agent("a", agentFunc(func(_ context.Context, run executor.Run, yield func(a2a.Event, error) bool) {
			if n := len(run.Task.History); n < 5 {
				yield(status(a2a.StateInputRequired, fmt.Sprint("question ", n)), nil)
				return
			}
			yield(status(a2a.StateCompleted, "thanks"), nil)
		}))),
	)
	task := f.submit("a", "one")
	f.waitState(task, a2a.StateInputRequired)
	f.followUp("a", task, "two")
	f.waitFor(
		task,
		"a second question",
		func(t *a2a.Task) bool { return t.Status.State == a2a.StateInputRequired && len(t.History) == 3 },
	)
	f.followUp("a", task, "three")
	got := f.waitState(task, a2a.StateCompleted)
	var said []string
	for _, m := range got.History {
		said = append(said, m.Parts[0].Text)
	}
	same(t, "history", []string{"one", "question 1", "two", "question 3", "three"}, said)
	p.stop()
}

func TestCheckpointIsSavedWithTheNextEvent(t *testing.T) {
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
			p := f.start(
				config(
					nil,
					agent(
						"a",
						agentFunc(func(ctx context.Context, run executor.Run, yield func(a2a.Event, error) bool) {
							if run.Attempt == 1 {
								failing(fail, tt.events...)(ctx, run, yield)
								return
							}
							got <- string(run.Checkpoint)
							yield(status(a2a.StateCompleted), nil)
						}),
					),
				),
			)
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

// A checkpoint and its event are in the same transaction, so a saved checkpoint agrees with the log.
func TestCheckpointAgreesWithTheLog(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const steps = 40
	p := f.start(
		config(
			func(c *worker.Config) { c.Limits.MaxAttempts = steps },
			agent("a", agentFunc(func(_ context.Context, run executor.Run, yield func(a2a.Event, error) bool) {
				at, together := 0, false
				if run.Checkpoint != nil {
					if _, err := fmt.Sscan(string(run.Checkpoint), &at); err != nil {
						yield(nil, executor.Permanent(err))
						return
					}
					if err := f.sql.QueryRow(
						t.Context(),
						savedWithItsEvent,
						run.Task.ID.String(),
					).Scan(
						&together,
					); err != nil ||
						!together {
						t.Errorf("checkpoint %d was written with its event: %t, %v", at, together, err)
					}
				}
				for ; at < steps; at++ {
					if at%7 == 3 && run.Attempt < at {
						break // dies between two steps
					}
					if !yield(&a2a.Checkpoint{Body: a2a.Raw(fmt.Sprint(at + 1))}, nil) ||
						!yield(chunk("x", fmt.Sprint(at)), nil) {
						return
					}
				}
				if at == steps {
					yield(status(a2a.StateCompleted), nil)
					return
				}
				yield(nil, errors.New("died"))
			})),
		),
	)
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

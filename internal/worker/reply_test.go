package worker_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/worker"
)

// talker may answer with a message instead of a task.
func talker(e executor.Executor) worker.Agent {
	a := agent("a", e)
	a.DirectReply = true
	return a
}

func (f *fixture) ask(text string) a2a.ID {
	f.t.Helper()
	return f.send(tasks.Submission{Agent: "a", ContextID: "ctx", Message: message(text), Undecided: true})
}

func reply(text string) *a2a.Message { return &a2a.Message{ID: "r", Parts: texts(text)} }

func TestMessageByItselfIsTheAnswer(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	task := f.ask("hello")
	f.start(config(nil, talker(agentFunc(func(_ context.Context, run executor.Run, yield func(a2a.Event, error) bool) {
		if !run.MayReply {
			t.Error("the run does not say that it may reply")
		}
		// A bare working says nothing that the claim has not said.
		_ = yield(status(a2a.StateWorking), nil) && yield(&a2a.Checkpoint{Body: a2a.Raw(`1`)}, nil) &&
			yield(reply("hi"), nil) &&
			yield(chunk("x", "too late"), nil)
	}))))
	got := f.waitState(task, a2a.StateCompleted)
	if !got.Replied || got.Status.Message.Parts[0].Text != "hi" || got.Status.Message.Role != a2a.RoleAgent {
		t.Errorf("the record is %+v, want the message of the agent", got)
	}
	same(t, "outcomes", []string{"completed"}, f.outcomes(task))
}

func TestAnotherAttemptMayReply(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	task := f.ask("hello")
	f.start(config(nil, talker(agentFunc(func(_ context.Context, run executor.Run, yield func(a2a.Event, error) bool) {
		if run.Attempt < 3 {
			yield(nil, errors.New("not yet"))
			return
		}
		yield(reply("hi"), nil)
	}))))
	if got := f.waitState(task, a2a.StateCompleted); !got.Replied {
		t.Errorf("the record is %+v, want a reply: no event came before it", got)
	}
}

func TestMessageCompletesATaskThatTheClientKnows(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	known := f.submit("a", "known") // its client has the task
	told := f.ask("told")           // by an attempt before
	f.start(config(nil, talker(agentFunc(func(_ context.Context, run executor.Run, yield func(a2a.Event, error) bool) {
		if run.Messages[0].ID == "m-told" && run.Attempt == 1 {
			_ = yield(chunk("x", "1"), nil) && yield(nil, errors.New("once more"))
			return
		}
		yield(reply("hi"), nil)
	}))))
	for _, task := range []a2a.ID{known, told} {
		got := f.waitState(task, a2a.StateCompleted)
		if got.Replied || got.Status.Message == nil || got.Status.Message.Parts[0].Text != "hi" {
			t.Errorf("the task is %+v, want it completed with the message", got)
		}
	}
}

func TestMessageAfterEventsOfATaskIsInvalid(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, first := range []a2a.Event{status(a2a.StateWorking, "busy"), chunk("x", "1")} {
		f := newFixture(t)
		task := f.ask("hello")
		f.start(config(nil, talker(say(first, reply("hi")))))
		got := f.waitState(task, a2a.StateFailed)
		if got.Replied ||
			!strings.Contains(
				got.Status.Message.Parts[0].Text,
				"invalid agent response: event 2: a message by itself after other events",
			) {
			t.Errorf("after %T: %+v", first, got)
		}
	}
	task := f.ask("hello")
	f.start(config(nil, talker(say(&a2a.Message{ID: "r"}))))
	if got := f.waitState(
		task,
		a2a.StateFailed,
	); !strings.Contains(
		got.Status.Message.Parts[0].Text,
		"invalid agent response: event 1: 0 parts",
	) {
		t.Errorf("a message without parts: %+v", got)
	}
}

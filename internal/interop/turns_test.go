package interop

import (
	"errors"
	"testing"

	"github.com/a2aproject/a2a-go/a2a"
)

func TestTaskContinuesWithTheInputItAskedFor(t *testing.T) {
	t.Parallel()
	p := dial(t, scriptAgent)
	task := p.send(script(
		op{"op": "artifact", "id": "a", "text": "draft"},
		op{"op": "input", "text": "shall I go on?"},
		op{"op": "artifact", "id": "a", "text": "final"},
	))
	checkState(t, task, a2a.TaskStateInputRequired)
	question := task.Status.Message
	if question == nil || question.Role != a2a.MessageRoleAgent || question.TaskID != task.ID ||
		question.ContextID != task.ContextID {
		t.Fatalf("the question is %+v", question)
	}
	answer := a2a.NewMessage(a2a.MessageRoleUser, a2a.TextPart{Text: "yes"})
	answer.TaskID = task.ID // the context follows from it
	stream := p.stream(answer).rest()
	checkStream(t, stream)
	done := p.get(task.ID)
	checkState(t, done, a2a.TaskStateCompleted)
	checkSame(t, "the events, added up, and tasks/get", fold(t, stream), done)
	checkSame(t, "the artifact", texts(t, done, "a"), []string{"final"})
	answer.ContextID = task.ContextID
	checkSame(t, "history", done.History, append(task.History, question, answer))
}

func TestTaskThatWaitsForAuthenticationKeepsItsStream(t *testing.T) {
	t.Parallel()
	p := dial(t, scriptAgent)
	s := p.stream(script(op{"op": "auth", "text": "sign in first"}, op{"op": "artifact", "id": "a", "text": "thanks"}))
	s.untilState(a2a.TaskStateAuthRequired)
	task := fold(t, s.seen)
	done := p.send(reply(task, "signed in"))
	checkState(t, done, a2a.TaskStateCompleted)
	stream := s.rest()
	checkStream(t, stream)
	checkSame(t, "the artifact", texts(t, fold(t, stream), "a"), []string{"thanks"})

	// A blocking send does not wait for that.
	checkState(t, p.send(script(op{"op": "auth", "text": "sign in first"})), a2a.TaskStateAuthRequired)
}

func TestSubscriptionOutlastsInputRequired(t *testing.T) {
	t.Parallel()
	p := dial(t, scriptAgent)
	task := p.send(script(op{"op": "input", "text": "well?"}))
	watched := p.resubscribe(task.ID)
	checkState(t, watched.first(), a2a.TaskStateInputRequired)
	p.send(reply(task, "go"))
	stream := watched.rest()
	checkStream(t, stream)
	checkState(t, fold(t, stream), a2a.TaskStateCompleted)
}

func TestCancelOfQueuedWork(t *testing.T) {
	t.Parallel()
	at := newAddress(t, "--workers", "0") // no worker claims the task
	p := dialAt(t, at.url(), scriptAgent, polling())
	task := p.send(script(chunks("a", 1)))
	checkState(t, task, a2a.TaskStateSubmitted)
	s := p.resubscribe(task.ID)
	s.first()
	checkCanceled(t, p, task.ID)
	stream := s.rest()
	checkStream(t, stream)
	checkState(t, fold(t, stream), a2a.TaskStateCanceled)
}

func TestCancelOfRunningWork(t *testing.T) {
	t.Parallel()
	p, g := dial(t, scriptAgent), newGate(t)
	s := p.stream(script(chunks("a", 3), g.op(), chunks("b", 1)))
	s.untilChunk("a", true)
	id := s.seen[0].TaskInfo().TaskID
	checkCanceled(t, p, id)
	stream := s.rest()
	checkStream(t, stream)
	g.open()
	task := p.get(id)
	checkSame(t, "the events, added up, and tasks/get", fold(t, stream), task)
	checkSame(t, "what the agent had made", texts(t, task, "a"), numbered("a", 3))
}

func TestCancelOfATaskThatWaits(t *testing.T) {
	t.Parallel()
	p := dial(t, scriptAgent)
	task := p.send(script(op{"op": "input", "text": "well?"}))
	checkCanceled(t, p, task.ID)
}

// checkCanceled cancels twice: a canceled task cannot be canceled.
func checkCanceled(t *testing.T, p *peer, id a2a.TaskID) {
	t.Helper()
	task, err := p.CancelTask(testContext(t), &a2a.TaskIDParams{ID: id})
	if err != nil {
		t.Fatalf("cancel: %v", err)
	}
	checkState(t, task, a2a.TaskStateCanceled)
	if _, err := p.CancelTask(testContext(t), &a2a.TaskIDParams{ID: id}); !errors.Is(err, a2a.ErrTaskNotCancelable) {
		t.Errorf("the second cancel: %v, want %v", err, a2a.ErrTaskNotCancelable)
	}
}

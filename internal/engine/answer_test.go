package engine_test

import (
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/attempt"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// An answer that does not fit the question is refused with its place, and the task still waits.
func TestAnswerMustFitTheQuestion(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.task("x")
	l := r.claim()
	event, _, err := attempt.Prepare(&a2a.Wait{
		Message: true, For: time.Hour, Expects: a2a.Raw(`{"choices":["yes","no"]}`),
		Status: &a2a.Status{State: a2a.StateInputRequired, Message: &a2a.Message{
			Parts: []a2a.Part{{Kind: a2a.PartText, Text: "Ship it?"}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	w := event.(*a2a.Wait)
	step, err := attempt.Bounds{}.Journal(0, nil).Record(w, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.store.Tasks.Append(t.Context(), l, tasks.Batch{
		Events: []a2a.Event{&a2a.StatusUpdate{Status: *w.Status}}, Steps: []a2a.StepRecord{*step}, Wait: w,
	}); err != nil {
		t.Fatal(err)
	}
	question := r.snapshot(id).Status.Message
	if n := len(question.Parts); n != 2 || string(question.Parts[1].Data) != `{"choices":["yes","no"]}` {
		t.Errorf("the question has the parts %+v", question.Parts)
	}
	_, err = r.Send(t.Context(), ann, words, send("maybe", to(id)))
	if a2a.CodeOf(err) != a2a.CodeInvalidParams || err.Error() != `submit to a task: message.parts: the task expects `+
		`one of "yes", "no"` {
		t.Errorf("an answer that does not fit: %v", err)
	}
	if got := r.snapshot(id); got.Status.State != a2a.StateInputRequired || len(got.History) != 1 {
		t.Errorf("after an answer that does not fit: %s, %d messages", got.Status.State, len(got.History))
	}
	if _, err := r.Send(t.Context(), ann, words, send("yes", to(id))); err != nil {
		t.Errorf("an answer that fits: %v", err)
	}
}

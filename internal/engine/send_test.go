package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/engine"
)

type answer struct {
	task *a2a.Task
	err  error
}

// async sends in a goroutine and returns the channel for the answer.
func (r *rig) async(ctx context.Context, op *a2a.SendMessage) <-chan answer {
	return inBackground(func() (*a2a.Task, error) { return r.Send(ctx, ann, words, op) })
}

func inBackground(do func() (*a2a.Task, error)) <-chan answer {
	c := make(chan answer, 1)
	go func() {
		task, err := do()
		c <- answer{task, err}
	}()
	return c
}

func TestBlockingSendWaitsForTheEndOfTheTurn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, end := range []a2a.State{a2a.StateCompleted, a2a.StateFailed, a2a.StateRejected, a2a.StateInputRequired,
		a2a.StateAuthRequired} {
		c := r.async(t.Context(), send("x", blocking))
		l := r.awaitClaim()
		r.append(l, artifact("a", "1", false))
		select {
		case a := <-c:
			t.Errorf("got the answer %+v, %v before the end", a.task, a.err)
		default:
		}
		r.append(l, status(end, "end"))
		a := receive(t, "answer", c)
		if a.err != nil {
			t.Fatal(a.err)
		}
		same(t, end.String(), r.snapshot(l.TaskID), a.task)
	}
}

func TestBlockingFollowUpWaitsForItsOwnTurn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.task("x")
	r.append(r.claim(), status(a2a.StateInputRequired, "?"))
	c := r.async(t.Context(), send("answer", to(id), blocking, key("k")))
	l := r.awaitClaim()
	// A replay waits for the same turn, although the log has an earlier question.
	again := r.async(t.Context(), send("answer", to(id), blocking, key("k")))
	r.append(l, artifact("a", "1", false))
	select {
	case a := <-again:
		t.Errorf("the replay was answered with %+v, %v before the end", a.task, a.err)
	case <-time.After(100 * time.Millisecond): // enough time for a wrong answer
	}
	r.append(l, status(a2a.StateCompleted, "done"))
	for _, c := range []<-chan answer{c, again} {
		a := receive(t, "answer", c)
		if a.err != nil || a.task.Status.State != a2a.StateCompleted {
			t.Errorf("answer %+v, %v", a.task, a.err)
		}
	}
	late, err := r.Send(t.Context(), ann, words, send("answer", to(id), blocking, key("k")))
	if err != nil || late.Status.State != a2a.StateCompleted || len(late.History) != 3 {
		t.Errorf("a late replay = %+v, %v", late, err)
	}
}

func TestBlockingSendReturnsAfterTheLongestWait(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *engine.Config) { c.BlockingMaxWait = 20 * time.Millisecond })
	got, err := r.Send(t.Context(), ann, words, send("x", blocking))
	if err != nil {
		t.Fatal(err)
	}
	same(t, "answer at the cap", r.snapshot(got.ID), got)
	// The task continues.
	r.append(r.claim(), status(a2a.StateCompleted, ""))
}

func TestDrainEndsAWait(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.async(t.Context(), send("x", blocking))
	l := r.awaitClaim()
	r.drain()
	a := receive(t, "answer", c)
	if a.err != nil || a.task.ID != l.TaskID || a.task.Status.State.Terminal() {
		t.Errorf("answer %+v, %v, want the task as it is", a.task, a.err)
	}
	// A new request is answered at once.
	got, err := r.Send(t.Context(), ann, words, send("y", blocking))
	if err != nil || got.Status.State != a2a.StateSubmitted {
		t.Errorf("answer %+v, %v, want a submitted task", got, err)
	}
}

func TestClientThatDisconnectsEndsItsWait(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	c := r.async(ctx, send("x", blocking))
	l := r.awaitClaim()
	cancel()
	if a := receive(t, "end", c); !errors.Is(a.err, context.Canceled) {
		t.Errorf("answer %+v, %v, want the end of the context", a.task, a.err)
	}
	r.append(l, status(a2a.StateCompleted, "")) // the task continues
}

func TestNonBlockingSendReturnsTheNewTask(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, n := range []*int{nil, new(int), new(1)} {
		got, err := r.Send(t.Context(), ann, words, send("x", func(op *a2a.SendMessage) {
			op.HistoryLength, op.Message.Role = n, a2a.RoleAgent // some clients send this role
			op.Message.Metadata = a2a.Raw(`{"k": 1.0}`)
		}))
		if err != nil {
			t.Fatal(err)
		}
		want, err := r.Get(t.Context(), ann, words, &a2a.GetTask{ID: got.ID.String(), HistoryLength: n})
		if err != nil {
			t.Fatal(err)
		}
		if got.History == nil {
			got.History = []a2a.Message{}
		}
		same(t, "the answer and a read", want, got)
		if got.ContextID == "" {
			t.Error("the task has no context")
		}
	}
}

func TestReplayedSendReturnsItsTask(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	first, err := r.Send(t.Context(), ann, words, send("x", key("k")))
	if err != nil {
		t.Fatal(err)
	}
	r.append(r.claim(), status(a2a.StateInputRequired, "?"))
	for _, change := range []func(*a2a.SendMessage){func(*a2a.SendMessage) {}, blocking} {
		again, err := r.Send(t.Context(), ann, words, send("x", key("k"), change))
		if err != nil {
			t.Fatal(err)
		}
		same(t, "the replay", r.snapshot(first.ID), again)
	}
	_, err = r.Send(t.Context(), ann, words, send("y", key("k")))
	wantCode(t, "another message under the key", err, a2a.CodeInvalidParams)
	// An agent may use the message id as the key. The header has precedence.
	byID := &a2a.Agent{Name: "words", DedupeByID: true}
	one, err := r.Send(t.Context(), ann, byID, send("same"))
	if err != nil {
		t.Fatal(err)
	}
	two, err := r.Send(t.Context(), ann, byID, send("same"))
	if err != nil || two.ID != one.ID {
		t.Errorf("the same message id made %s and %s, %v", one.ID, two.ID, err)
	}
	three, err := r.Send(t.Context(), ann, byID, send("same", key("new")))
	if err != nil || three.ID == one.ID {
		t.Errorf("another key gave the same task %s, %v", three.ID, err)
	}
	four, err := r.Send(t.Context(), ann, byID, send("other", key("m-same")))
	if err != nil || four.ID == one.ID {
		t.Errorf("a key that looks like a message id gave %s, %v, want another task", four.ID, err)
	}
}

func TestAgentThatRejectsWhenBusy(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	busy := &a2a.Agent{Name: "words", OnBusy: a2a.OnBusyReject}
	id := r.task("x")
	r.claim()
	_, err := r.Send(t.Context(), ann, busy, send("y", to(id)))
	wantCode(t, "send", err, a2a.CodeUnsupportedOperation)
	_, err = r.Stream(t.Context(), ann, busy, send("y", to(id)))
	wantCode(t, "stream", err, a2a.CodeUnsupportedOperation)
}

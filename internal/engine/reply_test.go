package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/engine"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

// talker is words with direct replies allowed.
var talker = &a2a.Agent{Name: words.Name, DirectReply: true}

func (r *rig) ask(ctx context.Context, op *a2a.SendMessage) <-chan answer {
	c := make(chan answer, 1)
	go func() {
		t, err := r.Send(ctx, ann, talker, op)
		c <- answer{t, err}
	}()
	return c
}

// reply stores a message by the agent, as the worker does.
func (r *rig) reply(l *tasks.Lease, text string, before ...a2a.Event) {
	r.t.Helper()
	done := status(a2a.StateCompleted, text)
	done.(*a2a.StatusUpdate).Status.Message.Role = a2a.RoleAgent
	if _, err := r.store.Tasks.Append(r.t.Context(), l,
		tasks.Batch{Events: append(before, done), Reply: true}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) answered(c <-chan answer) *a2a.Task {
	r.t.Helper()
	a := receive(r.t, "answer", c)
	if a.err != nil {
		r.t.Fatal(a.err)
	}
	return a.task
}

func wantReply(t *testing.T, what string, got *a2a.Task, text string) {
	t.Helper()
	if got == nil || !got.Replied || got.Status.Message == nil || got.Status.Message.Parts[0].Text != text {
		t.Errorf("%s: got %+v, want the message %q instead of a task", what, got, text)
	}
}

// unknown checks that clients cannot distinguish a task from one that does not exist.
func (r *rig) unknown(id a2a.ID) {
	r.t.Helper()
	list, err := r.List(r.t.Context(), ann, talker, &a2a.ListTasks{})
	if err != nil || len(list.Tasks) != 0 || list.Total != 0 {
		r.t.Errorf("the list is %+v, %v, want an empty one", list, err)
	}
	_, err = r.Get(r.t.Context(), ann, talker, &a2a.GetTask{ID: id.String()})
	wantCode(r.t, "get", err, a2a.CodeTaskNotFound)
	_, err = r.Cancel(r.t.Context(), ann, talker, &a2a.CancelTask{ID: id.String()})
	wantCode(r.t, "cancel", err, a2a.CodeTaskNotFound)
	_, err = r.Subscribe(r.t.Context(), ann, talker, &a2a.Subscribe{ID: id.String(), EndedOK: true})
	wantCode(r.t, "subscribe", err, a2a.CodeTaskNotFound)
	_, err = r.Send(r.t.Context(), ann, talker, send("more", to(id)))
	wantCode(r.t, "send to it", err, a2a.CodeTaskNotFound)
}

func TestDirectReplyIsTheAnswerAndNoTask(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.ask(t.Context(), send("x", blocking, key("k")))
	l := r.awaitClaim()
	r.unknown(l.TaskID) // it may still become a task
	r.reply(l, "hi")
	got := r.answered(c)
	wantReply(t, "answer", got, "hi")
	if got.ContextID == "" {
		t.Error("the answer has no context")
	}
	r.unknown(l.TaskID)
	// The record is durable: every form of the repeated request gets the same answer.
	wantReply(t, "repeat", r.answered(r.ask(t.Context(), send("x", blocking, key("k")))), "hi")
	s, err := r.Stream(t.Context(), ann, talker, send("x", key("k")))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	same(t, "repeated stream", "task@3!", frames(t, s, "task@3!"))
	// Its context continues like any other.
	next, err := r.Send(t.Context(), ann, talker, send("y", func(op *a2a.SendMessage) {
		op.Message.ContextID = got.ContextID
	}))
	if err != nil || next.ContextID != got.ContextID {
		t.Errorf("next message of the context: %+v, %v", next, err)
	}
}

func TestRepeatOfAnUndecidedRequestWaitsForTheSameReply(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx, leave := context.WithCancel(t.Context())
	lost := r.ask(ctx, send("x", blocking, key("k")))
	l := r.awaitClaim()
	leave() // the client disconnected, and its replica may have stopped
	if a := receive(t, "end", lost); a.err == nil {
		t.Fatalf("answered %+v", a.task)
	}
	again := r.ask(t.Context(), send("x", blocking, key("k")))
	s, err := r.Stream(t.Context(), ann, talker, send("x", key("k")))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	same(t, "stream before the reply", "…", frames(t, s, "…"))
	// The worker is lost too, so another attempt replies.
	if err := r.store.Tasks.Retry(t.Context(), l, "lost", 0); err != nil {
		t.Fatal(err)
	}
	l = r.claim()
	same(t, "stream before the second attempt's reply", "…", frames(t, s, "…"))
	r.reply(l, "hi", status(a2a.StateWorking, ""))
	wantReply(t, "repeat", r.answered(again), "hi")
	f := next(t, s)
	wantReply(t, "stream", f.Task, "hi")
	if !f.Last {
		t.Error("the stream continues after the reply")
	}
}

func TestAnyOtherEventThanAReplyMakesATask(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for name, first := range map[string]a2a.Event{
		"a status that says something": status(a2a.StateWorking, "thinking"),
		"a status with metadata": &a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateWorking},
			Metadata: a2a.Raw(`{"step":1}`)},
		"an artifact":                   artifact("a", "1", false),
		"a question":                    status(a2a.StateInputRequired, "?"),
		"a failure":                     status(a2a.StateFailed, "no"),
		"the end, with a message of it": status(a2a.StateCompleted, "done"),
	} {
		c := r.ask(t.Context(), send("x", blocking))
		l := r.awaitClaim()
		r.append(l, status(a2a.StateWorking, "")) // as the claim already recorded
		_, err := r.Get(t.Context(), ann, talker, &a2a.GetTask{ID: l.TaskID.String()})
		wantCode(t, name+": get before it", err, a2a.CodeTaskNotFound)
		r.append(l, first)
		got, err := r.Get(t.Context(), ann, talker, &a2a.GetTask{ID: l.TaskID.String()})
		if err != nil || got.Replied {
			t.Errorf("%s: get: %+v, %v, want a task", name, got, err)
			continue
		}
		if !got.Status.State.EndsTurn() {
			r.reply(l, "and so on") // perhaps by another attempt; now it belongs to the task
		}
		same(t, name, r.snapshot(l.TaskID), r.answered(c))
		if end := r.snapshot(l.TaskID); end.Replied || len(end.History) == 0 {
			t.Errorf("%s: finally got %+v, want a task with its history", name, end)
		}
	}
}

func TestUndecidedTaskThatIsCanceledOrLostStaysATask(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.ask(t.Context(), send("x", blocking))
	l := r.awaitClaim()
	if _, err := r.store.Tasks.Cancel(t.Context(), ann, "", l.TaskID); err != nil { // by the operator
		t.Fatal(err)
	}
	if got := r.answered(c); got.Replied || got.Status.State != a2a.StateCanceled {
		t.Errorf("answer %+v, want the canceled task", got)
	}
}

func TestNonBlockingSendGetsTheTaskNotTheReply(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	got, err := r.Send(t.Context(), ann, talker, send("x"))
	if err != nil || got.Status.State != a2a.StateSubmitted {
		t.Fatalf("answer %+v, %v, want the task at once", got, err)
	}
	r.reply(r.claim(), "hi")
	got, err = r.Get(t.Context(), ann, talker, &a2a.GetTask{ID: got.ID.String()})
	if err != nil || got.Replied || got.Status.State != a2a.StateCompleted || got.Status.Message.Parts[0].Text != "hi" {
		t.Errorf("get %+v, %v, want it completed with the message", got, err)
	}
	// The same is true for the second turn of a task.
	id := r.task("y")
	r.append(r.claim(), status(a2a.StateInputRequired, "?"))
	c := r.ask(t.Context(), send("answer", to(id), blocking))
	r.reply(r.awaitClaim(), "thanks")
	if got := r.answered(c); got.Replied || got.Status.State != a2a.StateCompleted {
		t.Errorf("answer of the second turn %+v, want the task", got)
	}
}

func TestLateReplyBecomesATask(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*rig){"the cap": nil, "a drain": func(r *rig) { r.drain() }} {
		r := newRig(t, func(c *engine.Config) {
			if c.BlockingMaxWait = time.Minute; end == nil {
				c.BlockingMaxWait = 20 * time.Millisecond
			}
		})
		c := r.ask(t.Context(), send("x", blocking))
		l := r.awaitClaim()
		if end != nil {
			end(r)
		}
		got := r.answered(c)
		if got.Replied || got.ID != l.TaskID || got.Status.State.EndsTurn() {
			t.Errorf("%s: answer %+v, want the task as it is", name, got)
		}
		r.reply(l, "late")
		got, err := r.Get(t.Context(), ann, talker, &a2a.GetTask{ID: got.ID.String()})
		if err != nil || got.Replied || got.Status.Message.Parts[0].Text != "late" {
			t.Errorf("%s: the task is %+v, %v, want it completed with the late message", name, got, err)
		}
	}
}

func TestStreamOfAReplyHasNothingElse(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s, err := r.Stream(t.Context(), ann, talker, send("x"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l := r.awaitClaim()
	same(t, "before the reply", "…", frames(t, s, "…"))
	r.reply(l, "hi")
	same(t, "stream", "task@3!", frames(t, s, "task@3!"))
	r.unknown(l.TaskID)
}

func TestStreamOfATaskHasAllItsEvents(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s, err := r.Stream(t.Context(), ann, talker, send("x"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l := r.awaitClaim()
	r.append(l, status(a2a.StateWorking, ""))
	same(t, "before the first event", "…", frames(t, s, "…"))
	r.append(l, artifact("a", "1", false))
	same(t, "then", "task@1 2 3 4 …", frames(t, s, "task@1 2 3 4 …"))
	r.append(l, status(a2a.StateCompleted, "done"))
	same(t, "at the end", "5!", frames(t, s, "5!"))
}

func TestStreamStartsWithTheTaskAfterTheLongestWait(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *engine.Config) { c.BlockingMaxWait = 20 * time.Millisecond })
	s, err := r.Stream(t.Context(), ann, talker, send("x"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if f := next(t, s); f.Task == nil || f.Task.Replied {
		t.Errorf("first frame %+v, want the task", f)
	}
	l := r.claim()
	r.reply(l, "late")
	same(t, "after the task", "2 3!", frames(t, s, "2 3!"))
}

func TestStreamStartsWithTheTaskWhenDraining(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s, err := r.Stream(t.Context(), ann, talker, send("x"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l := r.awaitClaim()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(engine.ErrDraining)
	f, err := s.Next(ctx)
	if err != nil || f.Task == nil || f.Task.ID != l.TaskID || f.Task.Replied {
		t.Fatalf("frame %+v, %v, want the task, so that its client can come back", f, err)
	}
	if _, err := r.Get(t.Context(), ann, talker, &a2a.GetTask{ID: l.TaskID.String()}); err != nil {
		t.Errorf("get: %v", err)
	}
}

func withPush(op *a2a.SendMessage) {
	op.Push = &a2a.PushConfig{URL: "http://127.0.0.1/hook", Version: a2a.PushV10}
}

func TestWebhookGetsAReplyOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *engine.Config) {
		c.Push = engine.PushRules{
			Check: func(*a2a.PushConfig) error { return nil }, Origin: func(string) string {
				return "http://127.0.0.1"
			},
			Seal: func(a2a.ID, *a2a.PushConfig) (token, credentials []byte, err error) { return nil, nil, nil },
		}
	})
	due := func() []webhooks.Delivery {
		d, err := r.store.Webhooks.Claim(t.Context(), 10, 10, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	c := r.ask(t.Context(), send("x", blocking, withPush))
	l := r.awaitClaim()
	r.append(l, status(a2a.StateWorking, ""))
	if d := due(); len(d) != 0 {
		t.Errorf("due before the decision: %+v", d)
	}
	r.reply(l, "hi")
	wantReply(t, "answer", r.answered(c), "hi")
	d := due()
	if len(d) != 1 {
		t.Fatalf("due after the reply: %+v, want one delivery", d)
	}
	at, err := r.store.Tasks.SnapshotAt(t.Context(), d[0].Task, d[0].Seq, tasks.Want{Artifacts: true})
	if err != nil {
		t.Fatal(err)
	}
	wantReply(t, "what is delivered", at, "hi")
	if err := r.store.Webhooks.RecordDelivery(t.Context(), &d[0], &webhooks.Try{}, true); err != nil {
		t.Fatal(err)
	}
	if d := due(); len(d) != 0 {
		t.Errorf("due again: %+v", d)
	}
	// If it becomes a task after all, the webhook gets that too.
	c = r.ask(t.Context(), send("y", blocking, withPush))
	r.awaitClaim()
	r.drain()
	id := r.answered(c).ID
	if d := due(); len(d) != 1 || d[0].Task != id {
		t.Errorf("due after the drain: %+v, want a delivery of task %s", d, id)
	}
}

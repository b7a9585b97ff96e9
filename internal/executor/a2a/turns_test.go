package a2a_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
)

func TestQuestionsAndAnswersBelongToOneTask(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fake) {
		f.program = [][]a2a.Event{
			{chunk("a", 0, "draft"), status(a2a.StateInputRequired, "which?")},
			{status(a2a.StateAuthRequired, "sign in")},
			{chunk("a", 1, "more"), status(a2a.StateCompleted, "done")},
		}
		k := newKeeper(t, f)
		for _, text := range []string{"go", "this one", "signed in"} {
			k.say(text)
			k.finish()
		}
		checkTexts(t, "the log", k.shows(), []string{
			"a= draft", "input-required which?", "auth-required sign in", "a+ more", "completed done",
		})
		if len(f.order) != 1 || len(f.messages) != 3 {
			t.Fatalf("the upstream has %d tasks and %d messages, want 1 and 3", len(f.order), len(f.messages))
		}
		for i, m := range f.messages[1:] {
			if m.TaskID != f.order[0] || m.ID == f.messages[i].ID || m.Parts[0].Text != k.said[i+1].Parts[0].Text {
				t.Errorf("message %d is %+v", i+1, m)
			}
		}
	})
}

func TestAnswerIsNotRepeatedAfterALostResponse(t *testing.T) {
	t.Parallel()
	for _, generation := range generations {
		f := newFake(t, generation)
		f.program = [][]a2a.Event{{status(a2a.StateInputRequired, "which?")}, {status(a2a.StateCompleted, "done")}}
		k := newKeeper(t, f)
		k.say("go")
		k.finish()
		before := k.checkpoint
		k.say("this one")
		f.pace, f.allowed, f.given = true, 0, 0
		if killed, err := k.run(bounded(t), func(a2a.Event) bool { return true }); !killed || err != nil {
			t.Fatal(killed, err)
		}
		k.checkpoint = before // nothing was saved, as if the process had died before it
		f.allow(1)
		k.finish()
		if n, _ := f.count(); n != 2 {
			t.Errorf("%s: %d messages were sent, want 2", generation, n)
		}
		checkTexts(t, "the log", k.shows(), []string{"input-required which?", "completed done"})
	}
}

func TestMessageAfterTheEndStartsAnotherTaskInItsContext(t *testing.T) {
	t.Parallel()
	for _, generation := range generations {
		f := newFake(t, generation)
		f.program = [][]a2a.Event{{chunk("a", 0, "x"), status(a2a.StateCompleted)}}
		k := newKeeper(t, f)
		k.say("one")
		k.say("two") // queued before the first run, which gets both messages as new
		k.finish()
		k.say("three") // arrived while the end was being written: the store starts another turn
		k.finish()
		if len(f.order) != 3 || len(f.messages) != 3 {
			t.Fatalf("%s: %d tasks of %d messages, want 3 and 3", generation, len(f.order), len(f.messages))
		}
		for i, m := range f.messages {
			if m.ContextID != f.messages[0].ContextID || m.ContextID == "ctx" || m.TaskID != "" {
				t.Errorf("message %d belongs to context %q, task %q", i, m.ContextID, m.TaskID)
			}
			if i > 0 && !slices.Equal(m.ReferenceTaskIDs, f.order[i-1:i]) {
				t.Errorf("message %d refers to %v", i, m.ReferenceTaskIDs)
			}
		}
		checkTexts(t, "the log", k.shows(), []string{"a= x", "a~2= x", "completed", "a~3= x", "completed"})
	}
}

func TestContextsOfOwnersAreSeparate(t *testing.T) {
	t.Parallel()
	f := newFake(t, "1.0")
	f.program = [][]a2a.Event{{status(a2a.StateCompleted)}}
	k := newKeeper(t, f)
	for _, owner := range []string{"o", "p", "o"} {
		run := executor.Run{Task: k.task, Agent: "up", Tenant: "t", Owner: owner,
			Messages: []a2a.Message{{ID: "m", Role: a2a.RoleUser, Parts: textParts("go")}}}
		for _, err := range k.exec.Execute(bounded(t), run) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if m := f.messages; m[0].ContextID == m[1].ContextID || m[0].ContextID != m[2].ContextID {
		t.Errorf("contexts are %s, %s, %s", m[0].ContextID, m[1].ContextID, m[2].ContextID)
	}
}

func TestDirectReplyCompletesTheTask(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fake) {
		f.reply = &a2a.Message{ID: "r", Role: a2a.RoleAgent, ContextID: "theirs", Parts: textParts("hello")}
		k := newKeeper(t, f)
		k.say("hi")
		k.finish()
		checkTexts(t, "the log", k.shows(), []string{"completed hello"})
	})
}

func TestDirectReplyIsRelayedIfPermitted(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fake) {
		f.reply = &a2a.Message{ID: "r", Role: a2a.RoleAgent, TaskID: "theirs", ContextID: "theirs",
			Parts: textParts("hello"), Metadata: a2a.Raw(`{"k":1}`)}
		k := newKeeper(t, f)
		k.mayReply = true
		k.say("hi")
		k.finish()
		want := []a2a.Event{&a2a.Message{ID: "r", Role: a2a.RoleAgent, Parts: textParts("hello"),
			Metadata: a2a.Raw(`{"k":1}`)}}
		if diff := cmp.Diff(want, k.log); diff != "" {
			t.Errorf("the log (-want +got):\n%s", diff)
		}
	})
}

// A crash after a direct reply does not send its message again.
func TestQueuedMessagesGetOneDirectReplyEach(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fake) {
		f.reply = &a2a.Message{ID: "r", Role: a2a.RoleAgent, Parts: textParts("hello")}
		k := newKeeper(t, f)
		k.say("one")
		k.say("two")
		if killed, err := k.run(bounded(t), func(e a2a.Event) bool { return show(e) == "working hello" }); !killed {
			t.Fatal(err)
		}
		k.finish()
		k.say("three")
		k.finish()
		checkTexts(t, "the log", k.shows(), []string{"working hello", "completed hello", "completed hello"})
		if n, _ := f.count(); n != 3 {
			t.Errorf("%d messages were sent, want 3", n)
		}
	})
}

// The executor forwards the trace, and the metadata of send and cancel requests.
func TestRequestMetadataIsForwarded(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fake) {
		f.program = [][]a2a.Event{{status(a2a.StateWorking, "on it"), chunk("a", 0, "x")}}
		k := newKeeper(t, f)
		k.trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		k.say("go")
		k.task.History[0].RequestMetadata = a2a.Raw(`{"n": 9007199254740993}`)
		ctx, cancel := context.WithCancelCause(bounded(t))
		_, err := k.run(ctx, func(e a2a.Event) bool {
			if _, ok := e.(*a2a.ArtifactUpdate); ok {
				cancel(executor.Canceled(a2a.Raw(`{"why": 1.50}`)))
			}
			return false
		})
		if !errors.Is(err, executor.ErrCanceled) {
			t.Errorf("the run ends with %v", err)
		}
		checkTexts(t, "metadata", f.metadata, []string{`{"n": 9007199254740993}`, `{"why": 1.50}`})
		for _, h := range f.headers[1:] { // after the card
			if h.Get("Traceparent") != string(k.trace) {
				t.Errorf("the header is %v", h)
			}
		}
	})
}

// The upstream task waits for input, has ended or is lost.
func TestCancelOfAWaitingTaskUsesItsCheckpoint(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fake) {
		f.program = [][]a2a.Event{{status(a2a.StateInputRequired, "which?")}}
		k := newKeeper(t, f)
		k.say("go")
		k.finish()
		run := executor.Run{Task: a2a.Task{ID: k.task.ID}, Agent: "up", Tenant: "t", Owner: "o",
			Checkpoint: k.checkpoint}
		ctx := bounded(t)
		if err := k.exec.Cancel(ctx, run, a2a.Raw(`{"why":1}`)); err != nil {
			t.Fatal(err)
		}
		if _, n := f.count(); n != 1 {
			t.Errorf("%d cancels were sent, want 1", n)
		}
		checkTexts(t, "metadata", f.metadata, []string{`{"why":1}`})
		if err := k.exec.Cancel(ctx, run, nil); err != nil {
			t.Errorf("a task that has ended: %v", err)
		}
		f.forget()
		if err := k.exec.Cancel(ctx, run, nil); err != nil {
			t.Errorf("a task that is forgotten: %v", err)
		}
		f.locked(func() { f.down = true })
		if err := k.exec.Cancel(ctx, run, nil); err == nil {
			t.Error("the cancel for an unreachable upstream has no error")
		}
		run.Checkpoint = nil
		if err := k.exec.Cancel(ctx, run, nil); err != nil {
			t.Errorf("a task that the upstream has never seen: %v", err)
		}
	})
}

func TestArtifactThatDiffersIsReplaced(t *testing.T) {
	t.Parallel()
	f := newFake(t, "1.0")
	f.program = [][]a2a.Event{{chunk("a", 0, "0"), chunk("a", 1, "1"), chunk("a", 0, "anew"),
		status(a2a.StateCompleted)}}
	f.pace, f.allowed = true, 2
	k := newKeeper(t, f)
	k.say("go")
	if killed, err := k.run(bounded(t), func(a2a.Event) bool { return len(k.texts("a")) == 2 }); !killed || err != nil {
		t.Fatal(killed, err)
	}
	f.allow(10)
	k.finish()
	checkTexts(t, "the log", k.shows(), []string{"a= 0", "a+ 1", "a= anew", "completed"})
}

func TestManyMissedPartsAreSplit(t *testing.T) {
	t.Parallel()
	f := newFake(t, "0.3")
	f.streaming = false
	f.program = [][]a2a.Event{slices.Concat(chunksOf("a", 1200), []a2a.Event{status(a2a.StateCompleted)})}
	k := newKeeper(t, f)
	k.say("go")
	k.finish()
	if got := len(k.texts("a")); got != 1200 || len(k.log) != 4 {
		t.Errorf("%d parts in %d events, want 1200 in 4", got, len(k.log))
	}
}

func TestCancelIsForwardedOnce(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{executor.ErrCanceled, executor.ErrDeadline, executor.ErrShutdown,
		executor.ErrLeaseLost} {
		each(t, func(t *testing.T, f *fake) {
			f.program = [][]a2a.Event{{status(a2a.StateWorking, "on it"), chunk("a", 0, "x")}}
			k := newKeeper(t, f)
			k.say("go")
			ctx, cancel := context.WithCancelCause(bounded(t))
			_, err := k.run(ctx, func(e a2a.Event) bool {
				if _, ok := e.(*a2a.ArtifactUpdate); ok {
					cancel(cause)
				}
				return false
			})
			if !errors.Is(err, cause) {
				t.Errorf("the run ends with %v, want %v", err, cause)
			}
			want := 0
			if errors.Is(cause, executor.ErrCanceled) || errors.Is(cause, executor.ErrDeadline) {
				want = 1
			}
			if _, n := f.count(); n != want {
				t.Errorf("%v: %d cancels were sent, want %d", cause, n, want)
			}
		})
	}
}

func TestCancelByTheUpstreamFailsTheTask(t *testing.T) {
	t.Parallel()
	f := newFake(t, "1.0")
	f.program = [][]a2a.Event{{status(a2a.StateCanceled)}}
	k := newKeeper(t, f)
	k.say("go")
	k.finish()
	checkTexts(t, "the log", k.shows(), []string{"failed the upstream agent canceled the task"})
}

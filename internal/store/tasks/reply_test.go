package tasks_test

import (
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// undecided submits a task that may yet be answered with a direct reply.
func undecided(f *storetest.Fixture, key string) a2a.ID {
	f.T.Helper()
	in := storetest.Submission("hello")
	in.Undecided, in.Key = true, key
	return f.Submit(in).Task
}

// headOf returns what Ann sees of a task.
func headOf(f *storetest.Fixture, id a2a.ID) (tasks.Head, error) {
	return f.Tasks.Head(f.T.Context(), storetest.Ann, id)
}

// answerOf returns the kind of answer to a task in the audit views.
func answerOf(f *storetest.Fixture, id a2a.ID) string {
	f.T.Helper()
	return storetest.Value[string](f, "SELECT answer FROM audit.task WHERE id = $1", id.String())
}

func TestUndecidedTaskBecomesATaskWhenItsLastAttemptIsLost(t *testing.T) {
	t.Parallel()
	for fate, want := range map[string]a2a.State{"fail": a2a.StateFailed, "input-required": a2a.StateInputRequired} {
		f := storetest.Open(t)
		id := undecided(f, "")
		f.Claim(1)
		if _, err := headOf(f, id); a2a.CodeOf(err) != a2a.CodeTaskNotFound || err == nil {
			t.Errorf("head before the rescue: %v, want none", err)
		}
		f.Expire(id)
		policy := tasks.Policy{Agent: storetest.Agent, Fate: fate, MaxAttempts: 3}
		if _, err := f.Tasks.Rescue(t.Context(), []tasks.Policy{policy}, tasks.Policy{MaxAttempts: 3}, 10); err != nil {
			t.Fatal(err)
		}
		if h, err := headOf(f, id); err != nil || h.State != want {
			t.Errorf("%s: head %+v, %v, want %s", fate, h, err, want)
		}
		if got := answerOf(f, id); got != "task" {
			t.Errorf("%s: the audit log says %s", fate, got)
		}
		f.Invariants()
	}
}

func TestRescuedTaskStaysUndecided(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	id := undecided(f, "h:k")
	f.Claim(1)
	f.Expire(id)
	if _, err := f.Tasks.Rescue(t.Context(), nil, tasks.Policy{MaxAttempts: 3}, 10); err != nil {
		t.Fatal(err)
	}
	leases := f.Claim(1)
	if len(leases) != 1 || answerOf(f, id) != "undecided" {
		t.Fatalf("%d leases of a task that is %s", len(leases), answerOf(f, id))
	}
	done := &a2a.StatusUpdate{
		Status: a2a.Status{
			State:   a2a.StateCompleted,
			Message: &a2a.Message{ID: "r", Role: a2a.RoleAgent, Parts: []a2a.Part{{Kind: a2a.PartText, Text: "hi"}}},
		},
	}
	if _, err := f.Tasks.Append(t.Context(), &leases[0], tasks.Batch{
		Events: []a2a.Event{done}, Reply: true,
	}); err != nil {
		t.Fatal(err)
	}
	if got := answerOf(f, id); got != "message" {
		t.Errorf("the audit log says %s", got)
	}
	if _, err := headOf(f, id); a2a.CodeOf(err) != a2a.CodeTaskNotFound || err == nil {
		t.Errorf("head after the reply: %v, want none", err)
	}
	if err := f.Tasks.Reveal(t.Context(), id); err != nil { // by a request that waited too long
		t.Fatal(err)
	}
	got, err := f.Tasks.SnapshotOfAny(t.Context(), id, tasks.Want{})
	if err != nil || !got.Replied {
		t.Errorf("the record is %+v, %v, want the reply", got, err)
	}
	in := storetest.Submission("hello")
	in.Undecided, in.Key = true, "h:k"
	if again := f.Submit(in); !again.Replay || again.Undecided || again.State != a2a.StateCompleted {
		t.Errorf("the replay is %+v", again)
	}
	f.Invariants()
}

func TestRevealedTaskTakesNoReply(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	id := undecided(f, "")
	if err := f.Tasks.Reveal(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if h, err := headOf(f, id); err != nil || h.State != a2a.StateSubmitted {
		t.Errorf("head %+v, %v, want the task", h, err)
	}
	if got := answerOf(f, id); got != "task" {
		t.Errorf("the audit log says %s", got)
	}
	f.Invariants()
}

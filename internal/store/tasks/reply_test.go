package tasks_test

import (
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

func (f *fixture) undecided(key string) a2a.ID {
	f.t.Helper()
	in := submission("hello")
	in.Undecided, in.Key = true, key
	return f.submit(in).Task
}

func (f *fixture) head(id a2a.ID) (tasks.Head, error) { return f.Tasks.Head(f.ctx, ann, id) }

func (f *fixture) answer(id a2a.ID) (kind string) {
	f.t.Helper()
	if err := f.sql.QueryRow(f.ctx, "SELECT answer FROM audit.task WHERE id = $1", id.String()).Scan(&kind); err != nil {
		f.t.Fatal(err)
	}
	return kind
}

func TestUndecidedTaskIsATaskOnceItsWorkerIsLostForGood(t *testing.T) {
	t.Parallel()
	for fate, want := range map[string]a2a.State{"fail": a2a.StateFailed, "input-required": a2a.StateInputRequired} {
		f := newFixture(t)
		id := f.undecided("")
		f.claim(1)
		if _, err := f.head(id); a2a.CodeOf(err) != a2a.CodeTaskNotFound || err == nil {
			t.Errorf("head before: %v, want none", err)
		}
		f.expire(id)
		if _, err := f.Tasks.Rescue(f.ctx, []tasks.Policy{{Agent: agent, Fate: fate, MaxAttempts: 3}}, 3, 10); err != nil {
			t.Fatal(err)
		}
		if h, err := f.head(id); err != nil || h.State != want {
			t.Errorf("%s: head %+v, %v, want %s", fate, h, err, want)
		}
		if got := f.answer(id); got != "task" {
			t.Errorf("%s: the audit says %s", fate, got)
		}
		f.invariants()
	}
}

func TestRescuedTaskStaysUndecided(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.undecided("h:k")
	f.claim(1)
	f.expire(id)
	if _, err := f.Tasks.Rescue(f.ctx, nil, 3, 10); err != nil {
		t.Fatal(err)
	}
	leases := f.claim(1)
	if len(leases) != 1 || f.answer(id) != "undecided" {
		t.Fatalf("%d leases of a task that is %s", len(leases), f.answer(id))
	}
	done := &a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateCompleted, Message: &a2a.Message{ID: "r", Role: a2a.RoleAgent, Parts: []a2a.Part{{Kind: a2a.PartText, Text: "hi"}}}}}
	if _, err := f.Tasks.Append(f.ctx, &leases[0], tasks.Batch{Events: []a2a.Event{done}, Reply: true}); err != nil {
		t.Fatal(err)
	}
	if got := f.answer(id); got != "message" {
		t.Errorf("the audit says %s", got)
	}
	if _, err := f.head(id); a2a.CodeOf(err) != a2a.CodeTaskNotFound || err == nil {
		t.Errorf("head behind the reply: %v, want none", err)
	}
	if err := f.Tasks.Reveal(f.ctx, id); err != nil { // by who waited too long, a moment too late
		t.Fatal(err)
	}
	got, err := f.Tasks.SnapshotOfAny(f.ctx, id, tasks.Want{})
	if err != nil || !got.Replied {
		t.Errorf("the record is %+v, %v, want the reply", got, err)
	}
	in := submission("hello")
	in.Undecided, in.Key = true, "h:k"
	if again := f.submit(in); !again.Replay || again.Undecided || again.State != a2a.StateCompleted {
		t.Errorf("the repeat is %+v", again)
	}
	f.invariants()
}

func TestRevealedTaskTakesNoReply(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.undecided("")
	if err := f.Tasks.Reveal(f.ctx, id); err != nil {
		t.Fatal(err)
	}
	if h, err := f.head(id); err != nil || h.State != a2a.StateSubmitted {
		t.Errorf("head %+v, %v, want the task", h, err)
	}
	if got := f.answer(id); got != "task" {
		t.Errorf("the audit says %s", got)
	}
	f.invariants()
}

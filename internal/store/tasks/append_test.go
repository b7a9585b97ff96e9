package tasks_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/wake"
)

func TestAppendRecordsEventsInOrder(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	f.TakeCommitted(l.TaskID)
	events := []a2a.Event{
		storetest.Status(a2a.StateWorking, "first"),
		storetest.Artifact("a", "one", "two"),
		&a2a.ArtifactUpdate{
			Artifact: a2a.Artifact{
				ID: "a", Parts: storetest.Texts("three"), Extensions: []string{"x"}, Description: "d",
				Metadata: a2a.Raw(`{ "x":1.0 }`),
			},
			Append: true, LastChunk: true, Metadata: a2a.Raw(`{"\u0000":[]}`),
		},
		&a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateWorking}, Metadata: a2a.Raw(`{}`)},
	}
	out := f.Append(l, events...)
	if out.Base != 2 || out.State != a2a.StateWorking || out.Requeued || l.LastSeq != 6 {
		t.Errorf("Append = %+v, lease at %d, want base 2, working, 6", out, l.LastSeq)
	}
	log := f.Log(l.TaskID)
	for i, e := range log[2:] {
		if e.Seq != int64(i+3) || e.UID.IsZero() || !e.Time.Equal(out.At) {
			t.Errorf("entry %d: seq %d, uid %s, time %s, want time %s", i, e.Seq, e.UID, e.Time, out.At)
		}
		if u, ok := events[i].(*a2a.StatusUpdate); ok {
			copied := *u
			copied.Status.Time = out.At
			events[i] = &copied
		}
		storetest.Same(t, fmt.Sprint("event ", i), events[i], e.Event)
	}
	storetest.Same(t, "committed events", [][]a2a.Entry{log[2:]}, f.TakeCommitted(l.TaskID))
	if got, want := l.Bytes, storetest.Value[int64](f, "SELECT bytes FROM a2a.tasks"); got != want {
		t.Errorf("the lease counts %d bytes, the task %d", got, want)
	}
	f.Invariants()
}

func TestAppendAfterLeaseLostWritesNothing(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		lose func(f *storetest.Fixture, l *tasks.Lease) error
	}{
		{"canceled", func(f *storetest.Fixture, l *tasks.Lease) error {
			_, err := f.Tasks.Cancel(t.Context(), storetest.Ann, storetest.Agent, l.TaskID)
			return err
		}},
		{"retried", func(f *storetest.Fixture, l *tasks.Lease) error {
			c := *l
			return f.Tasks.Retry(t.Context(), &c, "", 0)
		}},
		{"released", func(f *storetest.Fixture, l *tasks.Lease) error {
			return f.Tasks.Release(t.Context(), []*tasks.Lease{l}, "given back")
		}},
		{"rescued", func(f *storetest.Fixture, l *tasks.Lease) error { f.Expire(l.TaskID); f.Rescue(1); return nil }},
		{"claimed by another", func(f *storetest.Fixture, l *tasks.Lease) error {
			f.Expire(l.TaskID)
			f.Rescue(1)
			f.ClaimTask(l.TaskID)
			return nil
		}},
		{"completed", func(f *storetest.Fixture, l *tasks.Lease) error {
			c := *l
			f.Append(&c, storetest.Status(a2a.StateCompleted))
			return nil
		}},
		{"waits for input", func(f *storetest.Fixture, l *tasks.Lease) error {
			c := *l
			f.Append(&c, storetest.Status(a2a.StateInputRequired))
			return nil
		}},
		{"requeued for the next turn", func(f *storetest.Fixture, l *tasks.Lease) error {
			c := *l
			f.Say(l.TaskID, "more")
			f.Append(&c, storetest.Status(a2a.StateCompleted))
			return nil
		}},
	}
	f := storetest.Open(t)
	for _, tt := range tests {
		l := f.RunningTask()
		f.Append(l, storetest.Chunk("a", "one"))
		if err := tt.lose(f, l); err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		before, log := f.Snapshot(l.TaskID), len(f.Log(l.TaskID))
		f.TakeCommitted(l.TaskID)
		for _, b := range []tasks.Batch{
			{Events: []a2a.Event{storetest.Status(a2a.StateWorking, "zombie")}},
			{
				Events: []a2a.Event{storetest.Chunk("a", "two"), storetest.Status(a2a.StateCompleted, "zombie")},
				Error:  "x",
			},
			{Checkpoint: a2a.Raw(`"zombie"`)},
		} {
			if out, err := f.Tasks.Append(t.Context(), l, b); !errors.Is(err, db.ErrLeaseLost) {
				t.Errorf("%s: Append = %+v, %v, want ErrLeaseLost", tt.name, out, err)
			}
		}
		if err := f.Tasks.Retry(t.Context(), l, "zombie", 0); !errors.Is(err, db.ErrLeaseLost) {
			t.Errorf("%s: Retry = %v, want ErrLeaseLost", tt.name, err)
		}
		storetest.Same(t, tt.name+": the task", before, f.Snapshot(l.TaskID))
		if n := len(f.Log(l.TaskID)); n != log {
			t.Errorf("%s: %d events, want %d", tt.name, n, log)
		}
		if got := f.TakeCommitted(l.TaskID); got != nil {
			t.Errorf("%s: committed %v, want nothing", tt.name, got)
		}
		f.Invariants()
	}
}

// Until another worker claims the task, an expired lease still allows a write. That saves the work.
func TestAppendUnderAnExpiredLeaseBeforeTheRescue(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	f.Expire(l.TaskID)
	f.Append(l, storetest.Status(a2a.StateCompleted))
	f.Rescue(0)
	f.Invariants()
}

func TestEndOfTurnRequeuesATaskWithNewMessages(t *testing.T) {
	t.Parallel()
	tests := []struct {
		asked, got a2a.State
		outcome    string
	}{
		{a2a.StateCompleted, a2a.StateWorking, "completed"},
		{a2a.StateInputRequired, a2a.StateWorking, "input"},
		{a2a.StateAuthRequired, a2a.StateWorking, "input"},
		{a2a.StateFailed, a2a.StateFailed, "failed"},
		{a2a.StateRejected, a2a.StateRejected, "rejected"},
	}
	f := storetest.Open(t)
	for i, tt := range slices.Concat(tests, tests) {
		l := f.RunningTask()
		task := l.TaskID
		before := 2
		if i >= len(tests) { // again, with enough events for the artifacts to be folded
			for range 40 {
				f.Append(l, storetest.Chunk("a", "x"))
			}
			before += 40
		}
		f.Say(task, "more")
		f.TakeWakes()
		f.TakeCommitted(task)
		out := f.Append(l, storetest.Chunk("a", "x"), storetest.Status(tt.asked, "done"))
		requeued := tt.got == a2a.StateWorking
		if out.State != tt.got || out.Requeued != requeued {
			t.Errorf("%s: Append = %+v, want %s", tt.asked, out, tt.got)
		}
		got := f.Snapshot(task)
		if got.Status.State != tt.got || got.Status.Message == nil || got.Status.Message.ID != "agent-done" {
			t.Errorf("%s: status %+v", tt.asked, got.Status)
		}
		storetest.Same(t, tt.asked.String()+": attempts", []attempt{{1, 1, "r1", tt.outcome, ""}}, attempts(f, task))
		storetest.Same(t, tt.asked.String()+": committed events",
			[][]a2a.Entry{f.Log(task)[before:]}, f.TakeCommitted(task))
		f.Invariants()
		if !requeued {
			storetest.Same(t, tt.asked.String()+": wakes", nil, f.TakeWakes())
			continue
		}
		storetest.Same(t, tt.asked.String()+": wakes", []string{wake.Ready(storetest.Agent)}, f.TakeWakes())
		next := f.ClaimTask(task)
		if next.Attempt != 1 || next.Epoch <= l.Epoch {
			t.Errorf("%s: the next lease is attempt %d, epoch %d", tt.asked, next.Attempt, next.Epoch)
		}
		in, err := f.Tasks.Inputs(t.Context(), []tasks.Lease{*next})
		if err != nil {
			t.Fatal(err)
		}
		storetest.Same(t, tt.asked.String()+": new messages",
			[]a2a.Message{storetest.Message("m-more", "more")}, in[0].Messages)
		f.Append(next, storetest.Status(tt.asked))
		if s := f.Snapshot(task).Status.State; s != tt.asked {
			t.Errorf("%s: the next turn ended with %s", tt.asked, s)
		}
		f.Invariants()
	}
}

func TestFailedAttemptKeepsItsReason(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	failed := storetest.Batch(storetest.Status(a2a.StateFailed, "sorry"))
	failed.Error = "because"
	if _, err := f.Tasks.Append(t.Context(), l, failed); err != nil {
		t.Fatal(err)
	}
	storetest.Same(t, "attempts", []attempt{{1, 1, "r1", "failed", "because"}}, attempts(f, l.TaskID))
}

func TestMessagesOfStatusesMoveIntoHistoryInOrder(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	task := l.TaskID
	history := func(want ...string) {
		t.Helper()
		var got []string
		snap := f.Snapshot(task)
		for _, m := range snap.History {
			got = append(got, m.Parts[0].Text)
		}
		if m := snap.Status.Message; m != nil {
			got = append(got, "["+m.Parts[0].Text+"]")
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("history %v, want %v", got, want)
		}
		for n := range len(snap.History) + 1 {
			part, err := f.Tasks.SnapshotOfAny(t.Context(), task, tasks.Want{History: &n})
			if err != nil {
				t.Fatal(err)
			}
			storetest.Same(t, fmt.Sprint("the last ", n), snap.History[len(snap.History)-n:], part.History)
			storetest.Same(t, "status message", snap.Status.Message, part.Status.Message)
		}
	}
	f.Append(l, storetest.Status(a2a.StateWorking, "one"))
	history("hello", "[one]")
	f.Append(l, storetest.Chunk("a", "x"))
	history("hello", "[one]")
	f.Say(task, "wait")
	history("hello", "wait", "[one]") // the status message stays, although the other message is newer
	f.Append(l, storetest.Status(a2a.StateWorking, "two"), storetest.Chunk("a", "y"),
		storetest.Status(a2a.StateWorking, "three"), storetest.Chunk("a", "z"))
	history("hello", "one", "wait", "two", "[three]")
	f.Append(l, storetest.Status(a2a.StateWorking))
	history("hello", "one", "wait", "two", "three")
	f.Append(l, storetest.Status(a2a.StateInputRequired, "what?")) // the client has said more, so the task is requeued
	history("hello", "one", "wait", "two", "three", "[what?]")
	l = f.ClaimTask(task)
	history("hello", "one", "wait", "two", "three", "what?")
	f.Append(l, storetest.Status(a2a.StateInputRequired, "who?"))
	f.Say(task, "me")
	history("hello", "one", "wait", "two", "three", "what?", "who?", "me")
	l = f.ClaimTask(task)
	f.Append(l, storetest.Status(a2a.StateWorking, "same id"), storetest.Status(a2a.StateCompleted, "same id"))
	history("hello", "one", "wait", "two", "three", "what?", "who?", "me", "same id", "[same id]")
	f.Invariants()
}

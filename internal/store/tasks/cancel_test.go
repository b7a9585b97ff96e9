package tasks_test

import (
	"errors"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

func TestCancelEndsATask(t *testing.T) {
	t.Parallel()
	const none = ""
	tests := []struct {
		name   string
		before func(f *storetest.Fixture) a2a.ID
		code   a2a.ErrorCode // 0: canceled
		state  a2a.State
		wake   string
	}{
		{"queued", (*storetest.Fixture).NewTask, 0, a2a.StateCanceled, none},
		{"running", func(f *storetest.Fixture) a2a.ID {
			return f.RunningTask().TaskID
		}, 0, a2a.StateCanceled, "cancel:r1"},
		{"waiting for a retry", func(f *storetest.Fixture) a2a.ID {
			l := f.RunningTask()
			if err := f.Tasks.Retry(t.Context(), l, "x", time.Hour); err != nil {
				f.T.Fatal(err)
			}
			return l.TaskID
		}, 0, a2a.StateCanceled, none},
		{"running with an expired lease", func(f *storetest.Fixture) a2a.ID {
			l := f.RunningTask()
			f.Expire(l.TaskID)
			return l.TaskID
		}, 0, a2a.StateCanceled, "cancel:r1"},
		{"waiting for input", func(f *storetest.Fixture) a2a.ID {
			l := f.RunningTask()
			f.Append(l, storetest.Chunk("a", "1"), storetest.Status(a2a.StateInputRequired, "?"))
			return l.TaskID
		}, 0, a2a.StateCanceled, none},
		{"resubmitted", func(f *storetest.Fixture) a2a.ID {
			l := f.RunningTask()
			f.Append(l, storetest.Status(a2a.StateAuthRequired, "?"))
			f.Say(l.TaskID, "go on")
			return l.TaskID
		}, 0, a2a.StateCanceled, none},
		{"with a checkpoint and artifacts", func(f *storetest.Fixture) a2a.ID {
			l := f.RunningTask()
			batch := storetest.Batch(storetest.Chunk("a", "1"), storetest.Chunk("b", "2"), storetest.Chunk("a", "3"))
			batch.Checkpoint = a2a.Raw(`1`)
			if _, err := f.Tasks.Append(t.Context(), l, batch); err != nil {
				f.T.Fatal(err)
			}
			return l.TaskID
		}, 0, a2a.StateCanceled, "cancel:r1"},
		{"completed", func(f *storetest.Fixture) a2a.ID {
			l := f.RunningTask()
			f.Append(l, storetest.Status(a2a.StateCompleted))
			return l.TaskID
		}, a2a.CodeTaskNotCancelable, a2a.StateCompleted, none},
		{"canceled", func(f *storetest.Fixture) a2a.ID {
			id := f.NewTask()
			if _, err := f.Tasks.Cancel(t.Context(), storetest.Ann, storetest.Agent, id); err != nil {
				f.T.Fatal(err)
			}
			return id
		}, a2a.CodeTaskNotCancelable, a2a.StateCanceled, none},
	}
	f := storetest.Open(t)
	for _, tt := range tests {
		id := tt.before(f)
		before := f.Snapshot(id)
		f.TakeWakes()
		f.TakeCommitted(id)
		state, err := f.Tasks.Cancel(t.Context(), storetest.Ann, storetest.Agent, id)
		if a2a.CodeOf(err) != tt.code || (err == nil) != (tt.code == 0) || state != tt.state {
			t.Errorf("%s: Cancel = %s, %v, want %s", tt.name, state, err, tt.state)
		}
		after := f.Snapshot(id)
		if tt.code != 0 {
			storetest.Same(t, tt.name+": the task", before, after)
			continue
		}
		if after.Status.State != a2a.StateCanceled || after.Status.Message != nil || after.LastSeq != before.LastSeq+1 {
			t.Errorf("%s: status %+v at %d, was at %d", tt.name, after.Status, after.LastSeq, before.LastSeq)
		}
		storetest.Same(t, tt.name+": artifacts", before.Artifacts, after.Artifacts)
		if m := before.Status.Message; m != nil {
			storetest.Same(t, tt.name+": last message", *m, after.History[len(after.History)-1])
		}
		var want []string
		if tt.wake != none {
			want = []string{tt.wake}
		}
		storetest.Same(t, tt.name+": wakes", want, f.TakeWakes())
		if n := len(f.TakeCommitted(id)); n != 1 {
			t.Errorf("%s: %d commits were reported, want 1", tt.name, n)
		}
		f.Invariants()
	}
}

func TestCancelOfAnotherCallersTaskIsNotFound(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	id := f.NewTask()
	for name, try := range map[string]func() (a2a.State, error){
		"owner": func() (a2a.State, error) {
			return f.Tasks.Cancel(t.Context(), db.Caller{Tenant: "acme", Owner: "bob"}, storetest.Agent, id)
		},
		"tenant": func() (a2a.State, error) {
			return f.Tasks.Cancel(t.Context(), db.Caller{Tenant: "corp", Owner: "ann"}, storetest.Agent, id)
		},
		"agent": func() (a2a.State, error) { return f.Tasks.Cancel(t.Context(), storetest.Ann, "other", id) },
		"none": func() (a2a.State, error) {
			return f.Tasks.Cancel(t.Context(), storetest.Ann, storetest.Agent, db.NewTaskID())
		},
	} {
		_, err := try()
		storetest.WantCode(t, err, a2a.CodeTaskNotFound)
		if !errors.Is(err, a2a.ErrTaskNotFound) {
			t.Errorf("%s: %v, want the error of an unknown task", name, err)
		}
	}
	if _, err := f.Tasks.Cancel(t.Context(), storetest.Ann, "", id); err != nil {
		t.Errorf("cancel by an operator, who names no agent: %v", err)
	}
}

// Cancel and append lock the row of the task, and the second one sees what the first one did. The test locks the row
// until both wait for it.
func TestCancelAndCompletionRaceToOneEnd(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	for i := range 30 {
		cancelFirst := i%2 == 0
		l := f.RunningTask()
		f.Append(l, storetest.Chunk("a", "x"))
		release := f.Lock("SELECT FROM a2a.tasks WHERE id = $1 FOR UPDATE", l.TaskID)
		canceled, completed := make(chan error, 1), make(chan error, 1)
		cancel := func() {
			_, err := f.Tasks.Cancel(t.Context(), storetest.Ann, storetest.Agent, l.TaskID)
			canceled <- err
		}
		complete := func() {
			_, err := f.Tasks.Append(t.Context(), l,
				storetest.Batch(storetest.Chunk("a", "y"), storetest.Status(a2a.StateCompleted)))
			completed <- err
		}
		if !cancelFirst {
			cancel, complete = complete, cancel
		}
		go cancel()
		f.WaitBlocked(1)
		go complete()
		f.WaitBlocked(2)
		release()
		cancelErr, completeErr := <-canceled, <-completed
		want := a2a.StateCompleted
		if cancelErr == nil {
			want = a2a.StateCanceled
		}
		if (cancelErr == nil) == (completeErr == nil) {
			t.Errorf("cancel: %v, completion: %v, want one error", cancelErr, completeErr)
		}
		if cancelErr == nil && !errors.Is(completeErr, db.ErrLeaseLost) {
			t.Errorf("completion of a canceled task: %v, want ErrLeaseLost", completeErr)
		}
		if cancelErr != nil {
			storetest.WantCode(t, cancelErr, a2a.CodeTaskNotCancelable)
		}
		got := f.Snapshot(l.TaskID)
		if got.Status.State != want {
			t.Errorf("the task is %s, want %s", got.Status.State, want)
		}
		parts := map[a2a.State]int{a2a.StateCanceled: 1, a2a.StateCompleted: 2}[want]
		if n := len(got.Artifacts[0].Parts); n != parts {
			t.Errorf("%s with %d parts, want %d", want, n, parts)
		}
	}
	f.Invariants()
}

// All calls that end a lease run at the same time, in any order.
func TestCallsThatEndALeaseRaceToOneEnd(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	for range 15 {
		l := f.RunningTask()
		f.Expire(l.TaskID)
		racers := []func() error{
			func() error {
				_, err := f.Tasks.Cancel(t.Context(), storetest.Ann, storetest.Agent, l.TaskID)
				return err
			},
			func() error { c := *l; return f.Tasks.Retry(t.Context(), &c, "x", 0) },
			func() error { c := *l; return f.Tasks.Release(t.Context(), []*tasks.Lease{&c}, "given back") },
			func() error { _, err := f.Tasks.Rescue(t.Context(), nil, tasks.Policy{MaxAttempts: 5}, 10); return err },
			func() error {
				c := *l
				_, err := f.Tasks.Append(t.Context(), &c, storetest.Batch(storetest.Status(a2a.StateInputRequired)))
				return err
			},
			func() error {
				in := storetest.Submission("x")
				in.Task = l.TaskID
				_, err := f.Tasks.Submit(t.Context(), in)
				return err
			},
			func() error {
				_, err := f.Tasks.NewClaimer().Claim(t.Context(), storetest.Agent, 10, storetest.TTL, 0)
				return err
			},
		}
		start, done := make(chan struct{}), make(chan error, len(racers))
		for _, r := range racers {
			go func() { <-start; done <- r() }()
		}
		close(start)
		for range racers {
			err := <-done
			if code := a2a.CodeOf(err); err != nil && !errors.Is(err, db.ErrLeaseLost) && code != a2a.CodeTaskTerminal {
				t.Error(err)
			}
		}
		f.Claim(10) // removes the row that a claim may have left when it lost the race against the cancel
		if got := states(f, l.TaskID); got[len(got)-1] != a2a.StateCanceled {
			t.Errorf("states %v, want canceled at the end", got)
		}
	}
	f.Invariants()
}

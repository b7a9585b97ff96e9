package tasks_test

import (
	"errors"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

func TestCancelEndsATask(t *testing.T) {
	t.Parallel()
	const none = ""
	tests := []struct {
		name   string
		before func(f *fixture) a2a.ID
		code   a2a.ErrorCode // 0: canceled
		state  a2a.State
		wake   string
	}{
		{"queued", (*fixture).task, 0, a2a.StateCanceled, none},
		{"running", func(f *fixture) a2a.ID { return f.running().TaskID }, 0, a2a.StateCanceled, "cancel:r1"},
		{"waiting for a retry", func(f *fixture) a2a.ID {
			l := f.running()
			if err := f.Tasks.Retry(f.ctx, l, "x", time.Hour); err != nil {
				f.t.Fatal(err)
			}
			return l.TaskID
		}, 0, a2a.StateCanceled, none},
		{"running with a lease that ran out", func(f *fixture) a2a.ID {
			l := f.running()
			f.expire(l.TaskID)
			return l.TaskID
		}, 0, a2a.StateCanceled, "cancel:r1"},
		{"waiting for input", func(f *fixture) a2a.ID {
			l := f.running()
			f.append(l, chunk("a", "1"), status(a2a.StateInputRequired, "?"))
			return l.TaskID
		}, 0, a2a.StateCanceled, none},
		{"resubmitted", func(f *fixture) a2a.ID {
			l := f.running()
			f.append(l, status(a2a.StateAuthRequired, "?"))
			f.say(l.TaskID, "go on")
			return l.TaskID
		}, 0, a2a.StateCanceled, none},
		{"with a checkpoint and artifacts", func(f *fixture) a2a.ID {
			l := f.running()
			if _, err := f.Tasks.Append(f.ctx, l, tasks.Batch{Events: []a2a.Event{chunk("a", "1"), chunk("b", "2"), chunk("a", "3")}, Checkpoint: a2a.Raw(`1`)}); err != nil {
				f.t.Fatal(err)
			}
			return l.TaskID
		}, 0, a2a.StateCanceled, "cancel:r1"},
		{"completed", func(f *fixture) a2a.ID {
			l := f.running()
			f.append(l, status(a2a.StateCompleted))
			return l.TaskID
		}, a2a.CodeTaskNotCancelable, a2a.StateCompleted, none},
		{"canceled", func(f *fixture) a2a.ID {
			id := f.task()
			if _, err := f.Tasks.Cancel(f.ctx, ann, agent, id); err != nil {
				f.t.Fatal(err)
			}
			return id
		}, a2a.CodeTaskNotCancelable, a2a.StateCanceled, none},
	}
	f := newFixture(t)
	for _, tt := range tests {
		id := tt.before(f)
		before := f.snapshot(id)
		f.takeWakes()
		f.takeCommitted(id)
		state, err := f.Tasks.Cancel(f.ctx, ann, agent, id)
		if a2a.CodeOf(err) != tt.code || (err == nil) != (tt.code == 0) || state != tt.state {
			t.Errorf("%s: Cancel = %s, %v, want %s", tt.name, state, err, tt.state)
		}
		after := f.snapshot(id)
		if tt.code != 0 {
			same(t, tt.name+": the task", before, after)
			continue
		}
		if after.Status.State != a2a.StateCanceled || after.Status.Message != nil || after.LastSeq != before.LastSeq+1 {
			t.Errorf("%s: status %+v at %d, was at %d", tt.name, after.Status, after.LastSeq, before.LastSeq)
		}
		same(t, tt.name+": artifacts", before.Artifacts, after.Artifacts)
		if m := before.Status.Message; m != nil {
			same(t, tt.name+": last message", *m, after.History[len(after.History)-1])
		}
		var want []string
		if tt.wake != none {
			want = []string{tt.wake}
		}
		same(t, tt.name+": wakes", want, f.takeWakes())
		if n := len(f.takeCommitted(id)); n != 1 {
			t.Errorf("%s: told of %d commits, want 1", tt.name, n)
		}
		f.invariants()
	}
}

func TestCancelOfAForeignTask(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.task()
	for name, try := range map[string]func() (a2a.State, error){
		"owner": func() (a2a.State, error) {
			return f.Tasks.Cancel(f.ctx, db.Caller{Tenant: "acme", Owner: "bob"}, agent, id)
		},
		"tenant": func() (a2a.State, error) {
			return f.Tasks.Cancel(f.ctx, db.Caller{Tenant: "corp", Owner: "ann"}, agent, id)
		},
		"agent": func() (a2a.State, error) { return f.Tasks.Cancel(f.ctx, ann, "other", id) },
		"none":  func() (a2a.State, error) { return f.Tasks.Cancel(f.ctx, ann, agent, db.NewTaskID()) },
	} {
		_, err := try()
		wantCode(t, err, a2a.CodeTaskNotFound)
		if !errors.Is(err, a2a.ErrTaskNotFound) {
			t.Errorf("%s: %v differs from a task that does not exist", name, err)
		}
	}
	if _, err := f.Tasks.Cancel(f.ctx, ann, "", id); err != nil {
		t.Errorf("the operator names no agent: %v", err)
	}
}

// Both want the row of the task; whoever is second finds out what the first did. The test holds the row until both wait for it.
func TestCancelAndCompletionRaceToOneEnd(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for i := range 30 {
		cancelFirst := i%2 == 0
		l := f.running()
		f.append(l, chunk("a", "x"))
		release := f.hold("SELECT FROM a2a.tasks WHERE id = $1 FOR UPDATE", l.TaskID)
		canceled, completed := make(chan error, 1), make(chan error, 1)
		cancel := func() { _, err := f.Tasks.Cancel(f.ctx, ann, agent, l.TaskID); canceled <- err }
		complete := func() {
			_, err := f.Tasks.Append(f.ctx, l, tasks.Batch{Events: []a2a.Event{chunk("a", "y"), status(a2a.StateCompleted)}})
			completed <- err
		}
		if !cancelFirst {
			cancel, complete = complete, cancel
		}
		go cancel()
		f.waitBlocked(1)
		go complete()
		f.waitBlocked(2)
		release()
		cancelErr, completeErr := <-canceled, <-completed
		want := a2a.StateCompleted
		if cancelErr == nil {
			want = a2a.StateCanceled
		}
		if (cancelErr == nil) == (completeErr == nil) {
			t.Errorf("cancel: %v, completion: %v, want one of them", cancelErr, completeErr)
		}
		if cancelErr == nil && !errors.Is(completeErr, db.ErrLeaseLost) {
			t.Errorf("completion of a canceled task: %v, want ErrLeaseLost", completeErr)
		}
		if cancelErr != nil {
			wantCode(t, cancelErr, a2a.CodeTaskNotCancelable)
		}
		got := f.snapshot(l.TaskID)
		if got.Status.State != want {
			t.Errorf("the task is %s, want %s", got.Status.State, want)
		}
		if n := len(got.Artifacts[0].Parts); n != 1 && want == a2a.StateCanceled || n != 2 && want == a2a.StateCompleted {
			t.Errorf("%s with %d parts", want, n)
		}
	}
	f.invariants()
}

// The same without a gate, against everything that takes a task from its worker.
func TestEverythingThatTakesATaskRacesToOneEnd(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for range 15 {
		l := f.running()
		f.expire(l.TaskID)
		racers := []func() error{
			func() error { _, err := f.Tasks.Cancel(f.ctx, ann, agent, l.TaskID); return err },
			func() error { c := *l; return f.Tasks.Retry(f.ctx, &c, "x", 0) },
			func() error { c := *l; return f.Tasks.Release(f.ctx, []*tasks.Lease{&c}) },
			func() error { _, err := f.Tasks.Rescue(f.ctx, nil, 5, 10); return err },
			func() error {
				c := *l
				_, err := f.Tasks.Append(f.ctx, &c, tasks.Batch{Events: []a2a.Event{status(a2a.StateInputRequired)}})
				return err
			},
			func() error {
				in := submission("x")
				in.Task = l.TaskID
				_, err := f.Tasks.Submit(f.ctx, in)
				return err
			},
			func() error { _, err := f.Tasks.NewClaimer().Claim(f.ctx, agent, 10, ttl, 0); return err },
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
		f.claim(10) // a claim that lost the race for a canceled task left its row
		if got := f.states(l.TaskID); got[len(got)-1] != a2a.StateCanceled {
			t.Errorf("states %v, want canceled at the end", got)
		}
	}
	f.invariants()
}

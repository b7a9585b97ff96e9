package tasks_test

import (
	"errors"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/wake"
)

// allFaults are the ways in which a request may get lost. The test sets Match.
var allFaults = []lostRequest{
	{"the request is lost", storetest.Fault{}},
	{"the answer is lost", storetest.Fault{Answered: true}},
	{"the request is lost and PostgreSQL is unreachable for a while", storetest.Fault{Refuse: 3}},
	{"the answer is lost and PostgreSQL is unreachable for a while", storetest.Fault{Answered: true, Refuse: 2}},
	{"the answer is lost and PostgreSQL is unreachable for longer", storetest.Fault{Answered: true, Refuse: 3}},
}

// lostRequest is a fault of one request of a store.
type lostRequest struct {
	name  string
	fault storetest.Fault
}

// faults are those that a test tries. make test leaves those with an outage to make test-crash.
func faults() []lostRequest {
	if testing.Short() {
		return allFaults[:2]
	}
	return allFaults
}

// longEnd ends a task with enough events for its artifacts to be folded.
func longEnd() []a2a.Event {
	var events []a2a.Event
	for range 40 {
		events = append(events, storetest.Chunk("a", "x"))
	}
	return append(events, storetest.Status(a2a.StateCompleted))
}

// After a lost answer, the store finds the append in the log or repeats it, but never both.
func TestAppendWithALostAnswerIsWrittenOnce(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		match  func([]byte) bool
		before func(f *storetest.Fixture, l *tasks.Lease)
		batch  tasks.Batch
		want   tasks.Appended
	}{
		{
			"a chunk", storetest.IsExecute, nil, storetest.Batch(storetest.Chunk("a", "x")),
			tasks.Appended{Base: 2},
		},
		{
			"two events and a checkpoint", storetest.IsExecute, nil,
			tasks.Batch{
				Events:     []a2a.Event{storetest.Chunk("a", "x"), storetest.Status(a2a.StateWorking, "busy")},
				Checkpoint: a2a.Raw(`1`),
			},
			tasks.Appended{Base: 2, State: a2a.StateWorking},
		},
		{"a checkpoint", storetest.IsExecute, nil, tasks.Batch{Checkpoint: a2a.Raw(`1`)}, tasks.Appended{Base: 2}},
		{
			"the end of the turn",
			storetest.IsExecute, nil, storetest.Batch(storetest.Status(a2a.StateInputRequired, "?")),
			tasks.Appended{Base: 2, State: a2a.StateInputRequired},
		},
		{
			"the end of the task", storetest.IsExecute, nil,
			storetest.Batch(storetest.Chunk("a", "x"), storetest.Status(a2a.StateCompleted)),
			tasks.Appended{Base: 2, State: a2a.StateCompleted},
		},
		{
			"the end of a task with a long log", storetest.IsCommit, nil, tasks.Batch{Events: longEnd()},
			tasks.Appended{Base: 2, State: a2a.StateCompleted},
		},
		{
			"the end of a turn of a requeued task", storetest.IsExecute, func(f *storetest.Fixture, l *tasks.Lease) {
				f.Say(l.TaskID, "more")
			},
			storetest.Batch(storetest.Chunk("a", "x"), storetest.Status(a2a.StateCompleted)),
			tasks.Appended{Base: 2, State: a2a.StateWorking, Requeued: true},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := storetest.Open(t)
			s, p := f.BehindProxy(t)
			for _, ft := range faults() {
				l := f.RunningTask()
				if tt.before != nil {
					tt.before(f, l)
				}
				f.TakeWakes()
				f.TakeCommitted(l.TaskID)
				ft.fault.Match = tt.match
				fired := p.Arm(ft.fault)
				out, err := s.Tasks.Append(t.Context(), l, tt.batch)
				storetest.WantFired(t, fired)
				if err != nil {
					t.Errorf("%s: %v", ft.name, err)
					continue
				}
				out.At = tt.want.At
				storetest.Same(t, ft.name+": answer", tt.want, out)
				n := len(tt.batch.Events)
				if log := f.Log(l.TaskID); len(log) != 2+n {
					t.Errorf("%s: %d events in the log, want %d", ft.name, len(log), 2+n)
				} else if committed := f.TakeCommitted(l.TaskID); n > 0 {
					storetest.Same(t, ft.name+": committed events", [][]a2a.Entry{log[2:]}, committed)
				}
				if l.LastSeq != int64(2+n) {
					t.Errorf("%s: the lease is at %d, want %d", ft.name, l.LastSeq, 2+n)
				}
				if woke := len(f.TakeWakes()) > 0; woke != tt.want.Requeued {
					t.Errorf("%s: woke the queue = %v, want %v", ft.name, woke, tt.want.Requeued)
				}
				f.Invariants()
				if !tt.want.State.EndsTurn() && !tt.want.Requeued { // the worker keeps its lease
					f.Append(l, storetest.Status(a2a.StateCompleted))
					f.Invariants()
				}
			}
		})
	}
}

// The task is canceled while the outcome of the append is unknown.
func TestLostAppendBeforeACancel(t *testing.T) {
	t.Parallel()
	for _, answered := range []bool{false, true} {
		f := storetest.Open(t)
		s, p := f.BehindProxy(t)
		l := f.RunningTask()
		fired := p.Arm(storetest.Fault{Match: storetest.IsExecute, Answered: answered, Then: func() {
			if _, err := f.Tasks.Cancel(t.Context(), storetest.Ann, storetest.Agent, l.TaskID); err != nil {
				t.Error(err)
			}
		}})
		_, err := s.Tasks.Append(t.Context(), l, storetest.Batch(storetest.Chunk("a", "x")))
		storetest.WantFired(t, fired)
		want := 3
		if answered {
			want = 4
		}
		if answered && err != nil || !answered && !errors.Is(err, db.ErrLeaseLost) {
			t.Errorf("answered %v: %v", answered, err)
		}
		if n := len(f.Log(l.TaskID)); n != want {
			t.Errorf("answered %v: %d events, want %d", answered, n, want)
		}
		f.Invariants()
	}
}

// The lost append and its repetition share a flush with others.
func TestLostFlushOfAppendsIsWrittenOnce(t *testing.T) {
	t.Parallel()
	for _, ft := range faults() {
		t.Run(ft.name, func(t *testing.T) {
			t.Parallel()
			f := storetest.Open(t)
			s, p := f.BehindProxy(t)
			leases, batches := batch(f, 6, func(i int) tasks.Batch {
				if i%2 == 0 {
					return tasks.Batch{Events: longEnd()}
				}
				return storetest.Batch(storetest.Chunk("a", "x"), storetest.Status(a2a.StateWorking))
			})
			ft.fault.Match = storetest.IsCommit
			fired := p.Arm(ft.fault)
			res := together(f, s, leases, batches)
			storetest.WantFired(t, fired)
			for i, r := range res {
				if r.err != nil || r.out.Base != 2 {
					t.Errorf("append %d = %+v, %v", i, r.out, r.err)
				}
				if n, want := len(f.Log(leases[i].TaskID)), 2+len(batches[i].Events); n != want {
					t.Errorf("append %d: %d events, want %d", i, n, want)
				}
			}
			f.Invariants()
		})
	}
}

func TestAppendFailsWhileTheDatabaseStaysUnreachable(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	s, p := f.BehindProxy(t)
	l := f.RunningTask()
	p.BreakAll(1000)
	_, err := s.Tasks.Append(t.Context(), l, storetest.Batch(storetest.Chunk("a", "x")))
	storetest.WantCode(t, err, a2a.CodeUnavailable)
	if n := len(f.Log(l.TaskID)); n != 2 {
		t.Errorf("%d events, want 2", n)
	}
	p.BreakAll(0)
	if _, err := s.Tasks.Append(t.Context(), l, storetest.Batch(storetest.Chunk("a", "x"))); err != nil {
		t.Errorf("after the database can be reached again: %v", err)
	}
}

// The answer is the same as without the loss.
func TestSubmitWithALostAnswerMakesOneTask(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"", "h:k"} {
		for _, ft := range faults() {
			t.Run(ft.name+", key "+key, func(t *testing.T) {
				t.Parallel()
				f := storetest.Open(t)
				s, p := f.BehindProxy(t)
				ft.fault.Match = storetest.IsExecute
				fired := p.Arm(ft.fault)
				in := storetest.Submission("x")
				in.Key = key
				out, err := s.Tasks.Submit(t.Context(), in)
				storetest.WantFired(t, fired)
				if err != nil {
					t.Fatal(err)
				}
				log := f.Log(out.Task)
				if out.Replay || out.State != a2a.StateSubmitted || len(log) != 1 || out.UID != log[0].UID ||
					!out.At.Equal(log[0].Time) {
					t.Errorf("Submit = %+v, the log is %+v", out, log)
				}
				if n := storetest.Value[int](f, "SELECT count(*)::int FROM a2a.tasks"); n != 1 {
					t.Errorf("%d tasks, want 1", n)
				}
				storetest.Same(t, "wakes", []string{wake.Ready(storetest.Agent)}, f.TakeWakes())
				f.Invariants()
			})
		}
	}
}

// A repeated submission with a key makes no task, and is reported as a replay, even if its own answer is lost.
func TestReplayWithALostAnswerMakesNoTask(t *testing.T) {
	t.Parallel()
	for _, ft := range faults() {
		t.Run(ft.name, func(t *testing.T) {
			t.Parallel()
			f := storetest.Open(t)
			s, p := f.BehindProxy(t)
			in := storetest.Submission("x")
			in.Key = "h:k"
			first := f.Submit(in)
			ft.fault.Match = storetest.IsExecute
			fired := p.Arm(ft.fault)
			again, err := s.Tasks.Submit(t.Context(), in)
			storetest.WantFired(t, fired)
			if err != nil || !again.Replay || again.Task != first.Task {
				t.Errorf("Submit = %+v, %v, want a replay of %s", again, err, first.Task)
			}
			if n := storetest.Value[int](f, "SELECT count(*)::int FROM a2a.tasks"); n != 1 {
				t.Errorf("%d tasks, want 1", n)
			}
			f.Invariants()
		})
	}
}

func TestLostFlushOfSubmitsMakesEachTaskOnce(t *testing.T) {
	t.Parallel()
	for _, ft := range faults() {
		t.Run(ft.name, func(t *testing.T) {
			t.Parallel()
			f := storetest.Open(t)
			s, p := f.BehindProxy(t)
			queued, release := tasks.HoldSubmits(s.Tasks)
			ft.fault.Match = storetest.IsExecute
			fired := p.Arm(ft.fault)
			done := make(chan error, 5)
			for i := range cap(done) {
				go func() {
					out, err := s.Tasks.Submit(t.Context(), storetest.Submission("x"))
					if err == nil && (out.Replay || out.UID.IsZero()) {
						t.Errorf("Submit = %+v", out)
					}
					done <- err
				}()
				queued(i + 1)
			}
			release()
			for range cap(done) {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
			storetest.WantFired(t, fired)
			if n := storetest.Value[int](f, "SELECT count(*)::int FROM a2a.tasks"); n != cap(done) {
				t.Errorf("%d tasks, want %d", n, cap(done))
			}
			f.Invariants()
		})
	}
}

// The outcome is unknown, and the client gets that error. With a key it may try again.
func TestFollowUpWithALostAnswerIsUnknown(t *testing.T) {
	t.Parallel()
	for _, answered := range []bool{false, true} {
		f := storetest.Open(t)
		s, p := f.BehindProxy(t)
		l := f.RunningTask()
		f.Append(l, storetest.Status(a2a.StateInputRequired, "?"))
		in := storetest.Submission("answer")
		in.Task, in.ContextID, in.Key = l.TaskID, "", "h:k"
		fired := p.Arm(storetest.Fault{Match: storetest.IsCommit, Answered: answered})
		_, err := s.Tasks.Submit(t.Context(), in)
		storetest.WantFired(t, fired)
		storetest.WantCode(t, err, a2a.CodeUnavailable)
		out, err := s.Tasks.Submit(t.Context(), in)
		if err != nil || out.Replay != answered || out.State != a2a.StateSubmitted {
			t.Errorf("answered %v: again = %+v, %v", answered, out, err)
		}
		if n := len(f.Snapshot(l.TaskID).History); n != 3 {
			t.Errorf("answered %v: %d messages, want 3", answered, n)
		}
		f.Invariants()
	}
}

func TestCancelWithALostAnswerIsUnknown(t *testing.T) {
	t.Parallel()
	for _, answered := range []bool{false, true} {
		f := storetest.Open(t)
		s, p := f.BehindProxy(t)
		l := f.RunningTask()
		fired := p.Arm(storetest.Fault{Match: storetest.IsCommit, Answered: answered})
		_, err := s.Tasks.Cancel(t.Context(), storetest.Ann, storetest.Agent, l.TaskID)
		storetest.WantFired(t, fired)
		storetest.WantCode(t, err, a2a.CodeUnavailable)
		state, err := s.Tasks.Cancel(t.Context(), storetest.Ann, storetest.Agent, l.TaskID)
		if state != a2a.StateCanceled || answered != (a2a.CodeOf(err) == a2a.CodeTaskNotCancelable) {
			t.Errorf("answered %v: again = %s, %v", answered, state, err)
		}
		f.Invariants()
	}
}

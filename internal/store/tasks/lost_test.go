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

// faults are the ways in which a request may get lost. How the request looks on the wire is up to the test.
var faults = []struct {
	name  string
	fault storetest.Fault
}{
	{"the request is lost", storetest.Fault{}},
	{"the answer is lost", storetest.Fault{Answered: true}},
	{"the request is lost and PostgreSQL is away for a while", storetest.Fault{Refuse: 3}},
	{"the answer is lost and PostgreSQL is away for a while", storetest.Fault{Answered: true, Refuse: 2}},
	{"the answer is lost and PostgreSQL is away for longer", storetest.Fault{Answered: true, Refuse: 3}},
}

// longEnd ends a task whose artifacts are worth folding.
func longEnd() []a2a.Event {
	var events []a2a.Event
	for range 40 {
		events = append(events, storetest.Chunk("a", "x"))
	}
	return append(events, storetest.Status(a2a.StateCompleted))
}

// An append whose answer is lost is found in the log, or done again: never both.
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
			"a chunk", storetest.IsExecute, nil, tasks.Batch{Events: []a2a.Event{storetest.Chunk("a", "x")}},
			tasks.Appended{Base: 2},
		},
		{
			"two events and a checkpoint", storetest.IsExecute, nil,
			tasks.Batch{Events: []a2a.Event{storetest.Chunk("a", "x"), storetest.Status(a2a.StateWorking, "busy")}, Checkpoint: a2a.Raw(`1`)},
			tasks.Appended{Base: 2, State: a2a.StateWorking},
		},
		{"a checkpoint", storetest.IsExecute, nil, tasks.Batch{Checkpoint: a2a.Raw(`1`)}, tasks.Appended{Base: 2}},
		{
			"the end of the turn", storetest.IsExecute, nil, tasks.Batch{Events: []a2a.Event{storetest.Status(a2a.StateInputRequired, "?")}},
			tasks.Appended{Base: 2, State: a2a.StateInputRequired},
		},
		{
			"the end of the task", storetest.IsExecute, nil, tasks.Batch{Events: []a2a.Event{storetest.Chunk("a", "x"), storetest.Status(a2a.StateCompleted)}},
			tasks.Appended{Base: 2, State: a2a.StateCompleted},
		},
		{
			"the end of a task with a long log", storetest.IsCommit, nil, tasks.Batch{Events: longEnd()},
			tasks.Appended{Base: 2, State: a2a.StateCompleted},
		},
		{
			"the end of a turn that goes on", storetest.IsExecute, func(f *storetest.Fixture, l *tasks.Lease) { f.Say(l.TaskID, "more") },
			tasks.Batch{Events: []a2a.Event{storetest.Chunk("a", "x"), storetest.Status(a2a.StateCompleted)}},
			tasks.Appended{Base: 2, State: a2a.StateWorking, Requeued: true},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := storetest.Open(t)
			s, p := f.BehindProxy(t)
			for _, ft := range faults {
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
				} else if told := f.TakeCommitted(l.TaskID); n > 0 {
					storetest.Same(t, ft.name+": told of", [][]a2a.Entry{log[2:]}, told)
				}
				if l.LastSeq != int64(2+n) {
					t.Errorf("%s: the lease is at %d, want %d", ft.name, l.LastSeq, 2+n)
				}
				if woke := len(f.TakeWakes()) > 0; woke != tt.want.Requeued {
					t.Errorf("%s: woke the queue = %v, want %v", ft.name, woke, tt.want.Requeued)
				}
				f.Invariants()
				if !tt.want.State.EndsTurn() && !tt.want.Requeued { // the lease goes on
					f.Append(l, storetest.Status(a2a.StateCompleted))
					f.Invariants()
				}
			}
		})
	}
}

// While nobody knows what became of the append, the task is canceled.
func TestAppendThatWasLostBeforeACancel(t *testing.T) {
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
		_, err := s.Tasks.Append(t.Context(), l, tasks.Batch{Events: []a2a.Event{storetest.Chunk("a", "x")}})
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

// The lost append and its repetition stand in a batch with those of others.
func TestLostBatchIsWrittenOnceForEach(t *testing.T) {
	t.Parallel()
	for _, ft := range faults {
		t.Run(ft.name, func(t *testing.T) {
			t.Parallel()
			f := storetest.Open(t)
			s, p := f.BehindProxy(t)
			leases, batches := batch(f, 6, func(i int) tasks.Batch {
				if i%2 == 0 {
					return tasks.Batch{Events: longEnd()}
				}
				return tasks.Batch{Events: []a2a.Event{storetest.Chunk("a", "x"), storetest.Status(a2a.StateWorking)}}
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

func TestAppendGivesUpWhenTheDatabaseStaysAway(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	s, p := f.BehindProxy(t)
	l := f.RunningTask()
	p.BreakAll(1000)
	_, err := s.Tasks.Append(t.Context(), l, tasks.Batch{Events: []a2a.Event{storetest.Chunk("a", "x")}})
	storetest.WantCode(t, err, a2a.CodeUnavailable)
	if n := len(f.Log(l.TaskID)); n != 2 {
		t.Errorf("%d events, want 2", n)
	}
	p.BreakAll(0)
	if _, err := s.Tasks.Append(t.Context(), l, tasks.Batch{Events: []a2a.Event{storetest.Chunk("a", "x")}}); err != nil {
		t.Errorf("when it is back: %v", err)
	}
}

// A submit whose answer is lost makes one task, and says so as if nothing had happened.
func TestSubmitWithALostAnswerMakesOneTask(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"", "h:k"} {
		for _, ft := range faults {
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
				if out.Replay || out.State != a2a.StateSubmitted || len(log) != 1 || out.UID != log[0].UID || !out.At.Equal(log[0].Time) {
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

// A repeat whose own answer is lost is a repeat all the same: neither is it a task, nor does it
// say that it made one.
func TestRepeatWithALostAnswerMakesNoTask(t *testing.T) {
	t.Parallel()
	for _, ft := range faults {
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

func TestLostBatchOfSubmitsMakesEachTaskOnce(t *testing.T) {
	t.Parallel()
	for _, ft := range faults {
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

// What became of it is unknown, and the client is told so; with a key it may try again.
func TestFollowUpWithALostAnswer(t *testing.T) {
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

func TestCancelWithALostAnswer(t *testing.T) {
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

func TestReleaseWithALostAnswer(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	s, p := f.BehindProxy(t)
	for _, ft := range faults {
		l := f.RunningTask()
		ft.fault.Match = storetest.IsExecute
		fired := p.Arm(ft.fault)
		if err := s.Tasks.Release(t.Context(), []*tasks.Lease{l}); err != nil {
			t.Errorf("%s: %v", ft.name, err)
		}
		storetest.WantFired(t, fired)
		storetest.Same(t, ft.name+": attempts", []attempt{{1, 1, "r1", "released", ""}}, attempts(f, l.TaskID))
		f.Invariants()
		if next := f.ClaimTask(l.TaskID); next.Attempt != 1 {
			t.Errorf("%s: the next attempt is %d, want 1", ft.name, next.Attempt)
		}
	}
}

// Claims and retries are not repeated: what they did is found by the rescue.
func TestClaimWithALostAnswerIsRescued(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	s, p := f.BehindProxy(t)
	c := s.Tasks.NewClaimer()
	if _, err := c.Claim(t.Context(), storetest.Agent, 1, storetest.TTL, 0); err != nil { // it has looked at the queue
		t.Fatal(err)
	}
	task := f.NewTask()
	fired := p.Arm(storetest.Fault{Match: storetest.IsExecute, Answered: true})
	_, err := c.Claim(t.Context(), storetest.Agent, 1, storetest.TTL, 0)
	storetest.WantFired(t, fired)
	storetest.WantCode(t, err, a2a.CodeUnavailable)
	f.Expire(task)
	f.Rescue(1)
	if l := f.ClaimTask(task); l.Attempt != 2 {
		t.Errorf("attempt %d, want 2", l.Attempt)
	}
	f.Invariants()
}

// Reads are repeated until the database is back.
func TestReadsSurviveARestart(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	s, p := f.BehindProxy(t)
	reads := map[string]func() error{
		"Head":     func() error { _, err := s.Tasks.Head(t.Context(), storetest.Ann, l.TaskID); return err },
		"Snapshot": func() error { _, err := s.Tasks.SnapshotOfAny(t.Context(), l.TaskID, tasks.Want{}); return err },
		"Inputs":   func() error { _, err := s.Tasks.Inputs(t.Context(), []tasks.Lease{*l}); return err },
		"EventUID": func() error { _, _, err := s.Tasks.EventUID(t.Context(), l.TaskID, 1); return err },
		"Events":   func() error { _, err := s.Tasks.EventsAfter(t.Context(), l.TaskID, 0, 1); return err },
		"Page": func() error {
			_, _, err := s.Tasks.Page(t.Context(), storetest.Ann, tasks.Filter{Agent: storetest.Agent, Limit: 1})
			return err
		},
	}
	for name, read := range reads {
		fired := p.Arm(storetest.Fault{Match: storetest.IsExecute, Answered: true, Refuse: 2})
		if err := read(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		storetest.WantFired(t, fired)
	}
}

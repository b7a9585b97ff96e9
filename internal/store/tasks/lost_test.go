package tasks_test

import (
	"errors"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/wake"
)

// faults are the ways in which a request may get lost. How the request looks on the wire is up to the test.
var faults = []struct {
	name  string
	fault fault
}{
	{"the request is lost", fault{}},
	{"the answer is lost", fault{answered: true}},
	{"the request is lost and PostgreSQL is away for a while", fault{away: 3}},
	{"the answer is lost and PostgreSQL is away for a while", fault{answered: true, away: 2}},
	{"the answer is lost and PostgreSQL is away for longer", fault{answered: true, away: 3}},
}

// behindProxy returns the fixture's database as a store sees it that is cut off.
func (f *fixture) behindProxy(t *testing.T) (*store.Store, *proxy) {
	t.Helper()
	p, url := newProxy(t, f.url)
	return f.replica("r1", func(c *store.Config) { c.URL, c.PoolSize = url, 2 }), p
}

func wantFired(t *testing.T, fired <-chan struct{}) {
	t.Helper()
	select {
	case <-fired:
	case <-time.After(10 * time.Second):
		t.Fatal("nothing was lost: the test tests nothing")
	}
}

// longEnd ends a task whose artifacts are worth folding.
func longEnd() []a2a.Event {
	var events []a2a.Event
	for range 40 {
		events = append(events, chunk("a", "x"))
	}
	return append(events, status(a2a.StateCompleted))
}

// An append whose answer is lost is found in the log, or done again: never both.
func TestAppendWithALostAnswerIsWrittenOnce(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		match  func([]byte) bool
		before func(f *fixture, l *tasks.Lease)
		batch  tasks.Batch
		want   tasks.Appended
	}{
		{
			"a chunk", execute, nil, tasks.Batch{Events: []a2a.Event{chunk("a", "x")}},
			tasks.Appended{Base: 2},
		},
		{
			"two events and a checkpoint", execute, nil,
			tasks.Batch{Events: []a2a.Event{chunk("a", "x"), status(a2a.StateWorking, "busy")}, Checkpoint: a2a.Raw(`1`)},
			tasks.Appended{Base: 2, State: a2a.StateWorking},
		},
		{"a checkpoint", execute, nil, tasks.Batch{Checkpoint: a2a.Raw(`1`)}, tasks.Appended{Base: 2}},
		{
			"the end of the turn", execute, nil, tasks.Batch{Events: []a2a.Event{status(a2a.StateInputRequired, "?")}},
			tasks.Appended{Base: 2, State: a2a.StateInputRequired},
		},
		{
			"the end of the task", execute, nil, tasks.Batch{Events: []a2a.Event{chunk("a", "x"), status(a2a.StateCompleted)}},
			tasks.Appended{Base: 2, State: a2a.StateCompleted},
		},
		{
			"the end of a task with a long log", commit, nil, tasks.Batch{Events: longEnd()},
			tasks.Appended{Base: 2, State: a2a.StateCompleted},
		},
		{
			"the end of a turn that goes on", execute, func(f *fixture, l *tasks.Lease) { f.say(l.TaskID, "more") },
			tasks.Batch{Events: []a2a.Event{chunk("a", "x"), status(a2a.StateCompleted)}},
			tasks.Appended{Base: 2, State: a2a.StateWorking, Requeued: true},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			s, p := f.behindProxy(t)
			for _, ft := range faults {
				l := f.running()
				if tt.before != nil {
					tt.before(f, l)
				}
				f.takeWakes()
				f.takeCommitted(l.TaskID)
				ft.fault.match = tt.match
				fired := p.arm(ft.fault)
				out, err := s.Tasks.Append(f.ctx, l, tt.batch)
				wantFired(t, fired)
				if err != nil {
					t.Errorf("%s: %v", ft.name, err)
					continue
				}
				out.At = tt.want.At
				same(t, ft.name+": answer", tt.want, out)
				n := len(tt.batch.Events)
				if log := f.log(l.TaskID); len(log) != 2+n {
					t.Errorf("%s: %d events in the log, want %d", ft.name, len(log), 2+n)
				} else if told := f.takeCommitted(l.TaskID); n > 0 {
					same(t, ft.name+": told of", [][]a2a.Entry{log[2:]}, told)
				}
				if l.LastSeq != int64(2+n) {
					t.Errorf("%s: the lease is at %d, want %d", ft.name, l.LastSeq, 2+n)
				}
				if woke := len(f.takeWakes()) > 0; woke != tt.want.Requeued {
					t.Errorf("%s: woke the queue = %v, want %v", ft.name, woke, tt.want.Requeued)
				}
				f.invariants()
				if !tt.want.State.EndsTurn() && !tt.want.Requeued { // the lease goes on
					f.append(l, status(a2a.StateCompleted))
					f.invariants()
				}
			}
		})
	}
}

// While nobody knows what became of the append, the task is canceled.
func TestAppendThatWasLostBeforeACancel(t *testing.T) {
	t.Parallel()
	for _, answered := range []bool{false, true} {
		f := newFixture(t)
		s, p := f.behindProxy(t)
		l := f.running()
		fired := p.arm(fault{match: execute, answered: answered, then: func() {
			if _, err := f.Tasks.Cancel(f.ctx, ann, agent, l.TaskID); err != nil {
				t.Error(err)
			}
		}})
		_, err := s.Tasks.Append(f.ctx, l, tasks.Batch{Events: []a2a.Event{chunk("a", "x")}})
		wantFired(t, fired)
		want := 3
		if answered {
			want = 4
		}
		if answered && err != nil || !answered && !errors.Is(err, db.ErrLeaseLost) {
			t.Errorf("answered %v: %v", answered, err)
		}
		if n := len(f.log(l.TaskID)); n != want {
			t.Errorf("answered %v: %d events, want %d", answered, n, want)
		}
		f.invariants()
	}
}

// The lost append and its repetition stand in a batch with those of others.
func TestLostBatchIsWrittenOnceForEach(t *testing.T) {
	t.Parallel()
	for _, ft := range faults {
		t.Run(ft.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			s, p := f.behindProxy(t)
			leases, batches := f.batch(6, func(i int) tasks.Batch {
				if i%2 == 0 {
					return tasks.Batch{Events: longEnd()}
				}
				return tasks.Batch{Events: []a2a.Event{chunk("a", "x"), status(a2a.StateWorking)}}
			})
			ft.fault.match = commit
			fired := p.arm(ft.fault)
			res := f.together(s, leases, batches)
			wantFired(t, fired)
			for i, r := range res {
				if r.err != nil || r.out.Base != 2 {
					t.Errorf("append %d = %+v, %v", i, r.out, r.err)
				}
				if n, want := len(f.log(leases[i].TaskID)), 2+len(batches[i].Events); n != want {
					t.Errorf("append %d: %d events, want %d", i, n, want)
				}
			}
			f.invariants()
		})
	}
}

func TestAppendGivesUpWhenTheDatabaseStaysAway(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s, p := f.behindProxy(t)
	l := f.running()
	p.breakAll(1000)
	_, err := s.Tasks.Append(f.ctx, l, tasks.Batch{Events: []a2a.Event{chunk("a", "x")}})
	wantCode(t, err, a2a.CodeUnavailable)
	if n := len(f.log(l.TaskID)); n != 2 {
		t.Errorf("%d events, want 2", n)
	}
	p.breakAll(0)
	if _, err := s.Tasks.Append(f.ctx, l, tasks.Batch{Events: []a2a.Event{chunk("a", "x")}}); err != nil {
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
				f := newFixture(t)
				s, p := f.behindProxy(t)
				ft.fault.match = execute
				fired := p.arm(ft.fault)
				in := submission("x")
				in.Key = key
				out, err := s.Tasks.Submit(f.ctx, in)
				wantFired(t, fired)
				if err != nil {
					t.Fatal(err)
				}
				log := f.log(out.Task)
				if out.Replay || out.State != a2a.StateSubmitted || len(log) != 1 || out.UID != log[0].UID || !out.At.Equal(log[0].Time) {
					t.Errorf("Submit = %+v, the log is %+v", out, log)
				}
				if n := value[int](f, "SELECT count(*)::int FROM a2a.tasks"); n != 1 {
					t.Errorf("%d tasks, want 1", n)
				}
				same(t, "wakes", []string{wake.Ready(agent)}, f.takeWakes())
				f.invariants()
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
			f := newFixture(t)
			s, p := f.behindProxy(t)
			in := submission("x")
			in.Key = "h:k"
			first := f.submit(in)
			ft.fault.match = execute
			fired := p.arm(ft.fault)
			again, err := s.Tasks.Submit(f.ctx, in)
			wantFired(t, fired)
			if err != nil || !again.Replay || again.Task != first.Task {
				t.Errorf("Submit = %+v, %v, want a replay of %s", again, err, first.Task)
			}
			if n := value[int](f, "SELECT count(*)::int FROM a2a.tasks"); n != 1 {
				t.Errorf("%d tasks, want 1", n)
			}
			f.invariants()
		})
	}
}

func TestLostBatchOfSubmitsMakesEachTaskOnce(t *testing.T) {
	t.Parallel()
	for _, ft := range faults {
		t.Run(ft.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			s, p := f.behindProxy(t)
			queued, release := tasks.HoldSubmits(s.Tasks)
			ft.fault.match = execute
			fired := p.arm(ft.fault)
			done := make(chan error, 5)
			for i := range cap(done) {
				go func() {
					out, err := s.Tasks.Submit(f.ctx, submission("x"))
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
			wantFired(t, fired)
			if n := value[int](f, "SELECT count(*)::int FROM a2a.tasks"); n != cap(done) {
				t.Errorf("%d tasks, want %d", n, cap(done))
			}
			f.invariants()
		})
	}
}

// What became of it is unknown, and the client is told so; with a key it may try again.
func TestFollowUpWithALostAnswer(t *testing.T) {
	t.Parallel()
	for _, answered := range []bool{false, true} {
		f := newFixture(t)
		s, p := f.behindProxy(t)
		l := f.running()
		f.append(l, status(a2a.StateInputRequired, "?"))
		in := submission("answer")
		in.Task, in.ContextID, in.Key = l.TaskID, "", "h:k"
		fired := p.arm(fault{match: commit, answered: answered})
		_, err := s.Tasks.Submit(f.ctx, in)
		wantFired(t, fired)
		wantCode(t, err, a2a.CodeUnavailable)
		out, err := s.Tasks.Submit(f.ctx, in)
		if err != nil || out.Replay != answered || out.State != a2a.StateSubmitted {
			t.Errorf("answered %v: again = %+v, %v", answered, out, err)
		}
		if n := len(f.snapshot(l.TaskID).History); n != 3 {
			t.Errorf("answered %v: %d messages, want 3", answered, n)
		}
		f.invariants()
	}
}

func TestCancelWithALostAnswer(t *testing.T) {
	t.Parallel()
	for _, answered := range []bool{false, true} {
		f := newFixture(t)
		s, p := f.behindProxy(t)
		l := f.running()
		fired := p.arm(fault{match: commit, answered: answered})
		_, err := s.Tasks.Cancel(f.ctx, ann, agent, l.TaskID)
		wantFired(t, fired)
		wantCode(t, err, a2a.CodeUnavailable)
		state, err := s.Tasks.Cancel(f.ctx, ann, agent, l.TaskID)
		if state != a2a.StateCanceled || answered != (a2a.CodeOf(err) == a2a.CodeTaskNotCancelable) {
			t.Errorf("answered %v: again = %s, %v", answered, state, err)
		}
		f.invariants()
	}
}

func TestReleaseWithALostAnswer(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s, p := f.behindProxy(t)
	for _, ft := range faults {
		l := f.running()
		ft.fault.match = execute
		fired := p.arm(ft.fault)
		if err := s.Tasks.Release(f.ctx, []*tasks.Lease{l}); err != nil {
			t.Errorf("%s: %v", ft.name, err)
		}
		wantFired(t, fired)
		same(t, ft.name+": attempts", []attempt{{1, 1, "r1", "released", ""}}, f.attempts(l.TaskID))
		f.invariants()
		if next := f.claimTask(l.TaskID); next.Attempt != 1 {
			t.Errorf("%s: the next attempt is %d, want 1", ft.name, next.Attempt)
		}
	}
}

// Claims and retries are not repeated: what they did is found by the rescue.
func TestClaimWithALostAnswerIsRescued(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s, p := f.behindProxy(t)
	c := s.Tasks.NewClaimer()
	if _, err := c.Claim(f.ctx, agent, 1, ttl, 0); err != nil { // it has looked at the queue
		t.Fatal(err)
	}
	task := f.task()
	fired := p.arm(fault{match: execute, answered: true})
	_, err := c.Claim(f.ctx, agent, 1, ttl, 0)
	wantFired(t, fired)
	wantCode(t, err, a2a.CodeUnavailable)
	f.expire(task)
	f.rescue(1)
	if l := f.claimTask(task); l.Attempt != 2 {
		t.Errorf("attempt %d, want 2", l.Attempt)
	}
	f.invariants()
}

// Reads are repeated until the database is back.
func TestReadsSurviveARestart(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	l := f.running()
	s, p := f.behindProxy(t)
	reads := map[string]func() error{
		"Head":     func() error { _, err := s.Tasks.Head(f.ctx, ann, l.TaskID); return err },
		"Snapshot": func() error { _, err := s.Tasks.SnapshotOfAny(f.ctx, l.TaskID, tasks.Want{}); return err },
		"Inputs":   func() error { _, err := s.Tasks.Inputs(f.ctx, []tasks.Lease{*l}); return err },
		"EventUID": func() error { _, _, err := s.Tasks.EventUID(f.ctx, l.TaskID, 1); return err },
		"Events":   func() error { _, err := s.Tasks.EventsAfter(f.ctx, l.TaskID, 0, 1); return err },
		"Page":     func() error { _, _, err := s.Tasks.Page(f.ctx, ann, tasks.Filter{Agent: agent, Limit: 1}); return err },
	}
	for name, read := range reads {
		fired := p.arm(fault{match: execute, answered: true, away: 2})
		if err := read(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		wantFired(t, fired)
	}
}

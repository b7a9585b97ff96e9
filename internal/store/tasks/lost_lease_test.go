package tasks_test

import (
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

func TestReleaseWithALostAnswerIsRepeated(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	s, p := f.BehindProxy(t)
	for _, ft := range faults() {
		l := f.RunningTask()
		ft.fault.Match = storetest.IsExecute
		fired := p.Arm(ft.fault)
		if err := s.Tasks.Release(t.Context(), []*tasks.Lease{l}, "given back"); err != nil {
			t.Errorf("%s: %v", ft.name, err)
		}
		storetest.WantFired(t, fired)
		want := []attempt{{1, 1, "r1", "released", "given back"}}
		storetest.Same(t, ft.name+": attempts", want, attempts(f, l.TaskID))
		f.Invariants()
		if next := f.ClaimTask(l.TaskID); next.Attempt != 1 {
			t.Errorf("%s: the next attempt is %d, want 1", ft.name, next.Attempt)
		}
	}
}

// The store does not repeat claims and retries. The rescue finds what they did.
func TestClaimWithALostAnswerIsRescued(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	s, p := f.BehindProxy(t)
	c := s.Tasks.NewClaimer()
	if _, err := c.Claim(t.Context(), storetest.Agent, 1, storetest.TTL, 0); err != nil { // it polls the queue
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

// The store repeats reads until the database can be reached again.
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

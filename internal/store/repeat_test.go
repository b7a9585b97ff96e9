package store_test

import (
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
)

// What is lost before its commit cannot be there, and is done again: a follow-up and a cancel
// too, which are not safe to repeat behind it.
func TestFollowUpAndCancelThatWereLostBeforeTheirCommit(t *testing.T) {
	t.Parallel()
	for _, ft := range faults {
		t.Run(ft.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			s, p := f.behindProxy(t)
			l := f.running()
			f.append(l, status(a2a.StateInputRequired, "?"))
			ft.fault.match = execute // the first statement of the transaction
			fired := p.arm(ft.fault)
			in := submission("answer")
			in.Task, in.ContextID = l.TaskID, ""
			out, err := s.Submit(f.ctx, in)
			wantFired(t, fired)
			if err != nil || out.State != a2a.StateSubmitted {
				t.Errorf("follow-up = %+v, %v", out, err)
			}
			if n := len(f.snapshot(l.TaskID).History); n != 3 {
				t.Errorf("%d messages, want 3", n)
			}
			fired = p.arm(ft.fault)
			state, err := s.Cancel(f.ctx, ann, agent, l.TaskID)
			wantFired(t, fired)
			if err != nil || state != a2a.StateCanceled {
				t.Errorf("cancel = %s, %v", state, err)
			}
			f.invariants()
		})
	}
}

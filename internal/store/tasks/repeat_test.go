package tasks_test

import (
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// The store repeats what was lost before its commit, even a follow-up and a cancel, which it must not repeat after a
// commit.
func TestFollowUpAndCancelAreRepeatedIfLostBeforeTheirCommit(t *testing.T) {
	t.Parallel()
	for _, ft := range faults() {
		t.Run(ft.name, func(t *testing.T) {
			t.Parallel()
			f := storetest.Open(t)
			s, p := f.BehindProxy(t)
			l := f.RunningTask()
			f.Append(l, storetest.Status(a2a.StateInputRequired, "?"))
			ft.fault.Match = storetest.IsExecute // the first statement of the transaction
			fired := p.Arm(ft.fault)
			in := storetest.Submission("answer")
			in.Task, in.ContextID = l.TaskID, ""
			out, err := s.Tasks.Submit(t.Context(), in)
			storetest.WantFired(t, fired)
			if err != nil || out.State != a2a.StateSubmitted {
				t.Errorf("follow-up = %+v, %v", out, err)
			}
			if n := len(f.Snapshot(l.TaskID).History); n != 3 {
				t.Errorf("%d messages, want 3", n)
			}
			fired = p.Arm(ft.fault)
			state, err := s.Tasks.Cancel(t.Context(), storetest.Ann, storetest.Agent, l.TaskID)
			storetest.WantFired(t, fired)
			if err != nil || state != a2a.StateCanceled {
				t.Errorf("cancel = %s, %v", state, err)
			}
			f.Invariants()
		})
	}
}

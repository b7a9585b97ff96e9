package engine_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/budget"
)

// A task that is known from its head is read once, however large it is.
func TestKnownTasksAreReadOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	memory := budget.New(budget.Config{Total: 64 << 20})
	read := func(what string, do func(lease *budget.Lease) error) {
		t.Helper()
		lease := memory.Open(budget.Owner{Tenant: ann.Tenant, Name: ann.Owner})
		defer lease.Release()
		before := r.runs.reads.Load()
		if err := do(lease); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if n := r.runs.reads.Load() - before; n != 1 {
			t.Errorf("%s reads the task %d times", what, n)
		}
	}
	for _, kib := range []int{1, 40, 1500} { // a small task, a larger one, and one that is measured first
		id := r.task(fmt.Sprint(kib))
		l := r.claim()
		r.append(l, status(a2a.StateWorking, ""), artifact("a", strings.Repeat("x", kib<<10), false))
		size := fmt.Sprintf(" of %d KiB", kib)
		read("GetTask"+size, func(lease *budget.Lease) error {
			task, err := r.Get(budget.With(t.Context(), lease), ann, words, &a2a.GetTask{ID: id.String()})
			if err == nil && len(task.Artifacts[0].Parts[0].Text) != kib<<10 {
				t.Errorf("GetTask%s: %d bytes", size, len(task.Artifacts[0].Parts[0].Text))
			}
			return err
		})
		for what, last := range map[string]string{"": "", " from the middle": r.eventID(id, 1)} {
			read("SubscribeToTask"+what+size, func(lease *budget.Lease) error {
				op := &a2a.Subscribe{ID: id.String(), StreamRules: rules03}
				op.LastEventID = last
				s, err := r.Subscribe(budget.With(t.Context(), lease), ann, words, op)
				if err == nil {
					s.Close()
				}
				return err
			})
		}
	}
}

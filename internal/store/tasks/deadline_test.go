package tasks_test

import (
	"testing"

	"github.com/a2ad/a2ad/internal/store/storetest"
)

func TestClaimWithoutDeadline(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	task := f.NewTask()
	leases, err := f.Tasks.NewClaimer().Claim(t.Context(), storetest.Agent, 10, storetest.TTL, 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(leases) != 1 || leases[0].TaskID != task || leases[0].Left != 0 {
		t.Errorf("got leases %+v, want one of task %s with no deadline", leases, task)
	}
}

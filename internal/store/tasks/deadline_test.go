package tasks_test

import (
	"testing"
)

func TestClaimWithoutDeadline(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	task := f.task()
	leases, err := f.Tasks.NewClaimer().Claim(f.ctx, agent, 10, ttl, 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(leases) != 1 || leases[0].TaskID != task || leases[0].Left != 0 {
		t.Errorf("got leases %+v, want one of task %s with no deadline", leases, task)
	}
}

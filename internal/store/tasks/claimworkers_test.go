package tasks_test

import (
	"fmt"
	"maps"
	"testing"

	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// TestClaimForSeveralWorkers: one statement gives tasks to several workers, to the first ones first. Limits and stopped
// workers count as in a claim for one worker.
func TestClaimForSeveralWorkers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name           string
		waiting, limit int
		stopped        string
		want           map[string]int
	}{
		{"enough tasks", 9, 0, "", map[string]int{"w1": 2, "w2": 4}}, // w2 asks twice
		{"too few tasks", 3, 0, "", map[string]int{"w1": 2, "w2": 1}},
		{"no task", 0, 0, "", map[string]int{}},
		{"a limit of attempts", 9, 3, "", map[string]int{"w1": 2, "w2": 1}},
		{"the first worker is stopped", 9, 0, "w1", map[string]int{"w2": 4}},
		{"a stopped worker under a limit", 9, 3, "w1", map[string]int{"w2": 3}},
		{"the last worker is stopped", 9, 0, "w2", map[string]int{"w1": 2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := storetest.Open(t)
			f.SubmitMany(tt.waiting)
			if tt.stopped != "" {
				if _, _, err := f.Tasks.BeginStop(t.Context(), tasks.StopWorker, tt.stopped, false); err != nil {
					t.Fatal(err)
				}
			}
			leases, err := f.Tasks.NewClaimer().ClaimFor(t.Context(), tasks.ClaimRequest{
				Agent: storetest.Agent, Worker: "w1", Slots: 2, Running: tt.limit, TTL: storetest.TTL,
				Others: []tasks.WorkerSlots{{Worker: "w2", Slots: 3}, {Worker: "w2", Slots: 1}},
			})
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]int{}
			for i := range leases {
				l := &leases[i]
				got[l.Worker]++
				stored := f.Column(fmt.Sprintf(`SELECT concat_ws(' ', l.worker, a.worker, e.worker)
					FROM a2a.task_leases l
					JOIN a2a.task_attempts a USING (task_id, epoch)
					JOIN a2a.task_events e ON e.task_id = l.task_id AND e.epoch = l.epoch
					WHERE l.task_id = '%s'`, l.TaskID))
				if len(stored) != 1 || stored[0] != l.Worker+" "+l.Worker+" "+l.Worker {
					t.Errorf("the lease of %s is stored for %q", l.Worker, stored)
				}
			}
			if !maps.Equal(got, tt.want) {
				t.Errorf("claimed for %v, want %v", got, tt.want)
			}
			if n := f.Column("SELECT count(*)::text FROM a2a.task_leases"); n[0] != fmt.Sprint(len(leases)) {
				t.Errorf("%s leases are stored, want %d", n[0], len(leases))
			}
			f.Invariants()
		})
	}
}

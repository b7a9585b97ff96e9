package jobs_test

import (
	"reflect"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/jobs"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// A job leaves tasks as they are that have changed since it collected them, and counts why.
func TestJobSkipsTasksThatHaveChanged(t *testing.T) {
	t.Parallel()
	r := open(t)
	lease := r.RunningTask()
	working, queued, gone := r.RunningTask().TaskID, r.NewTask(), r.NewTask()
	job := r.start(jobs.NewJob{Action: jobs.Cancel, Filter: jobs.Filter{State: []string{"submitted", "working"}}})
	j := r.collected("r1")
	later := r.NewTask()
	r.Append(lease, storetest.Status(a2a.StateCompleted, "done"))
	r.Exec("DELETE FROM a2a.context_tasks WHERE task_id = $1", gone)
	r.Exec("DELETE FROM a2a.task_ready WHERE task_id = $1", gone)
	r.Exec("DELETE FROM a2a.tasks WHERE id = $1", gone)
	for j.Remaining > 0 {
		if err := r.Jobs.Act(t.Context(), j, nil); err != nil {
			t.Fatal(err)
		}
	}
	want := map[a2a.ID]string{
		lease.TaskID: "skipped it is completed", gone: "skipped it was removed", working: "done", queued: "done",
	}
	if got := r.outcomes(job.ID); !reflect.DeepEqual(got, want) {
		t.Errorf("the tasks became %v, want %v", got, want)
	}
	if got := r.Snapshot(later).Status.State; got != a2a.StateSubmitted {
		t.Errorf("a task that was created after the job is %s", got)
	}
	refused, err := r.Jobs.Refusals(t.Context(), job.ID)
	if err != nil || len(refused) != 2 || refused[0].Tasks != 1 {
		t.Errorf("the refusals are %+v, %v", refused, err)
	}
	if got := r.find(job.ID); got.Done != 2 || got.Skipped != 2 || got.Matched != 4 {
		t.Errorf("the job is %+v", got)
	}
}

// A task that has left the states of the filter is not canceled, although it could be.
func TestJobKeepsToTheStatesOfItsFilter(t *testing.T) {
	t.Parallel()
	r := open(t)
	task := r.NewTask()
	job := r.start(jobs.NewJob{Action: jobs.Cancel, Filter: jobs.Filter{State: []string{"submitted"}}})
	j := r.collected("r1")
	l := r.ClaimTask(task)
	r.Append(l, storetest.Status(a2a.StateWorking))
	if err := r.Jobs.Act(t.Context(), j, nil); err != nil {
		t.Fatal(err)
	}
	if got := r.outcomes(job.ID); got[task] != "skipped it is working" {
		t.Errorf("the task became %v", got)
	}
}

// A task that was resumed is not canceled with the parked ones, although it is still working.
func TestJobCancelsOnlyTasksThatAreStillParked(t *testing.T) {
	t.Parallel()
	r := open(t)
	var ids []a2a.ID
	for range 4 {
		l := r.RunningTask()
		if err := r.Tasks.Park(t.Context(), l, "attempts are used up", 0); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, l.TaskID)
	}
	waits, runs, again, parked := ids[0], ids[1], ids[2], ids[3]
	job := r.start(jobs.NewJob{Action: jobs.Cancel, Filter: jobs.Filter{Parked: true}})
	j := r.collected("r1")
	resume := func(id a2a.ID) {
		t.Helper()
		if _, err := r.Tasks.Resume(t.Context(), []a2a.ID{id}, "repaired"); err != nil {
			t.Fatal(err)
		}
	}
	resume(runs)
	r.ClaimTask(runs)
	resume(again)
	if err := r.Tasks.Park(t.Context(), r.ClaimTask(again), "attempts are used up", 0); err != nil {
		t.Fatal(err)
	}
	resume(waits)
	for j.Remaining > 0 {
		if err := r.Jobs.Act(t.Context(), j, nil); err != nil {
			t.Fatal(err)
		}
	}
	want := map[a2a.ID]string{
		waits: "skipped it is not parked", runs: "skipped it is not parked", again: "done", parked: "done",
	}
	if got := r.outcomes(job.ID); !reflect.DeepEqual(got, want) {
		t.Errorf("the tasks became %v, want %v", got, want)
	}
	r.Invariants()
}

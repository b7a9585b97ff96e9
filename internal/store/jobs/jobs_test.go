package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/jobs"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/wake"
)

// rig is a database with bulk jobs.
type rig struct{ *storetest.Fixture }

func open(t *testing.T) *rig { return &rig{storetest.Open(t)} }

// failed makes tasks that have failed.
func (r *rig) failed(n int) (ids []a2a.ID) {
	r.T.Helper()
	for range n {
		l := r.RunningTask()
		r.Append(l, storetest.Status(a2a.StateFailed, "upstream is gone"))
		ids = append(ids, l.TaskID)
	}
	return ids
}

func (r *rig) start(in jobs.NewJob) jobs.Job {
	r.T.Helper()
	ctx := access.ActingBy(r.T.Context(), access.By{Actor: "operator ann", Reason: "repaired"})
	j, err := r.Jobs.Start(ctx, in)
	if err != nil {
		r.T.Fatal(err)
	}
	return j
}

func (r *rig) claim(s *store.Store, worker string) *jobs.Job {
	r.T.Helper()
	j, found, err := s.Jobs.Claim(r.T.Context(), worker, false)
	if err != nil || !found {
		r.T.Fatalf("claim a job: %t, %v", found, err)
	}
	return j
}

// collected claims the only job, and collects all its tasks.
func (r *rig) collected(worker string) *jobs.Job {
	r.T.Helper()
	j := r.claim(r.Store, worker)
	for !j.Collected {
		if err := r.Jobs.Collect(r.T.Context(), j); err != nil {
			r.T.Fatal(err)
		}
	}
	return j
}

// run runs a job that nobody holds until it has ended or a step fails, as a server does.
func run(ctx context.Context, s *store.Store, worker string) error {
	j, found, err := s.Jobs.Claim(ctx, worker, false)
	if err != nil || !found {
		return err
	}
	for !j.Collected {
		if err := s.Jobs.Collect(ctx, j); err != nil {
			return err
		}
	}
	for j.Remaining > 0 {
		if err := s.Jobs.Act(ctx, j, nil); err != nil {
			return err
		}
	}
	return s.Jobs.End(ctx, j, "")
}

func (r *rig) mustRun() {
	r.T.Helper()
	if err := run(r.T.Context(), r.Store, "r1"); err != nil {
		r.T.Fatal(err)
	}
}

// abandon ends the leases of all jobs, as if their servers had been dead for long.
func (r *rig) abandon() {
	r.Exec("UPDATE a2a.jobs SET lease_until = clock_timestamp() - interval '1 s' WHERE state = 'running'")
}

// outcomes returns what became of the tasks of a job, by task.
func (r *rig) outcomes(job a2a.ID) map[a2a.ID]string {
	r.T.Helper()
	list, err := r.Jobs.Tasks(r.T.Context(), jobs.TaskFilter{Job: job, Limit: 100})
	if err != nil {
		r.T.Fatal(err)
	}
	out := make(map[a2a.ID]string)
	for _, t := range list {
		out[t.ID] = strings.TrimSpace(string(t.Outcome) + " " + t.Detail)
	}
	return out
}

func (r *rig) find(id a2a.ID) jobs.Job {
	r.T.Helper()
	j, err := r.Jobs.Find(r.T.Context(), id.String())
	if err != nil {
		r.T.Fatal(err)
	}
	return j
}

// retries returns how many tasks were made from a task.
func (r *rig) retries(of a2a.ID) int {
	return storetest.Value[int](r.Fixture, `SELECT count(*)::int FROM a2a.messages m
		WHERE m.seq = 1 AND m.body->'metadata'->>'a2ad/retryOf' = $1`, of.String())
}

func TestJobRetriesFromTheOldestTask(t *testing.T) {
	t.Parallel()
	r := open(t)
	ids := r.failed(3)
	running := r.NewTask()
	job := r.start(jobs.NewJob{Action: jobs.Retry, Filter: jobs.Filter{Agent: []string{storetest.Agent}}})
	r.TakeWakes()
	r.mustRun()
	woken := r.TakeWakes()
	if !slices.Contains(woken, wake.Ready(storetest.Agent)) || !slices.Contains(woken, wake.Job(job.ID)) {
		t.Errorf("woke %v, want the workers, and those who follow the job", woken)
	}
	got := r.find(job.ID)
	if got.State != jobs.Done || got.Matched != 3 || got.Done != 3 || got.EndedAt.IsZero() {
		t.Errorf("the job is %+v", got)
	}
	list, err := r.Jobs.Tasks(t.Context(), jobs.TaskFilter{Job: job.ID, Limit: 10})
	if err != nil || len(list) != 3 {
		t.Fatalf("%d tasks, %v", len(list), err)
	}
	for i, x := range list {
		if x.ID != ids[i] || x.Outcome != jobs.TaskDone || r.retries(x.ID) != 1 || x.Agent != storetest.Agent {
			t.Errorf("task %d is %+v, want the retry of %s", i, x, ids[i])
		}
		if state := r.Snapshot(x.New).Status.State; state != a2a.StateSubmitted {
			t.Errorf("the new task is %s", state)
		}
	}
	if n := r.retries(running); n != 0 {
		t.Errorf("a task that has not ended was retried %d times", n)
	}
	want := []string{
		`operator ann job.start / {"action":"retry","filter":{"agent":["` + storetest.Agent + `"]},"job":"` +
			job.ID.String() + `","reason":"repaired"}`,
	}
	for i := range ids {
		want = append(want, `operator ann task.retry `+storetest.Ann.Tenant+"/"+storetest.Ann.Owner+
			` {"job":"`+job.ID.String()+`","new":"`+list[i].New.String()+`","reason":"repaired"}`)
	}
	if got := r.Actions(); !slices.Equal(got, want) {
		t.Errorf("the audit log has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	r.Invariants()
}

func TestJobCancelsAndResumes(t *testing.T) {
	t.Parallel()
	r := open(t)
	parked := r.RunningTask()
	if err := r.Tasks.Park(t.Context(), parked, "attempts are used up", 0); err != nil {
		t.Fatal(err)
	}
	other := r.NewTask()
	job := r.start(jobs.NewJob{Action: jobs.Resume})
	r.mustRun()
	if got := r.outcomes(job.ID); len(got) != 1 || got[parked.TaskID] != "done attempts are used up" {
		t.Errorf("the tasks became %v", got)
	}
	r.TakeCommitted(other)
	job = r.start(jobs.NewJob{Action: jobs.Cancel})
	r.mustRun()
	for _, id := range []a2a.ID{parked.TaskID, other} {
		if got := r.Snapshot(id).Status.State; got != a2a.StateCanceled {
			t.Errorf("a task is %s", got)
		}
	}
	if got := r.TakeCommitted(other); len(got) != 1 {
		t.Errorf("those who follow a canceled task were told %d times", len(got))
	}
	if got := r.outcomes(job.ID); len(got) != 2 {
		t.Errorf("the tasks became %v", got)
	}
	r.Invariants()
}

// Whatever request of a server is lost, or its answer, and the server with it: another one continues the job, skips no
// task and retries none twice.
func TestJobContinuesAfterItsServerWasKilledAtAnyStep(t *testing.T) {
	t.Parallel()
	for _, answered := range []bool{false, true} {
		t.Run(fmt.Sprintf("answered %t", answered), func(t *testing.T) {
			t.Parallel()
			r := open(t)
			first, proxy := r.BehindProxy(t)
			defer r.Invariants()
			for n, idle := 0, 0; ; n++ {
				ids := r.failed(2)
				job := r.start(jobs.NewJob{Action: jobs.Retry})
				seen := 0
				proxy.Arm(storetest.Fault{Answered: answered, Match: func([]byte) bool {
					seen++
					return seen > n
				}})
				err := run(t.Context(), first, "r1")
				proxy.Disarm()
				hit := seen > n
				r.abandon()
				if err := run(t.Context(), r.Store, "r2"); err != nil {
					t.Fatalf("request %d: the second server: %v", n, err)
				}
				got := r.find(job.ID)
				if got.State != jobs.Done || got.Matched != 2 || got.Done != 2 {
					t.Errorf("request %d: the job is %+v", n, got)
				}
				for _, id := range ids {
					if m := r.retries(id); m != 1 {
						t.Errorf("request %d: a task was retried %d times", n, m)
					}
				}
				switch {
				case hit:
					idle = 0
				case err != nil && idle < 10: // a connection that the last fault has broken
					idle, n = idle+1, n-1
				default:
					if n < 10 || err != nil {
						t.Errorf("the job made %d requests: %v", n, err)
					}
					return
				}
			}
		})
	}
}

// A job has all its tasks, however many pages they take, each once.
func TestJobCollectsManyTasks(t *testing.T) {
	t.Parallel()
	r := open(t)
	const n = 10_000
	r.AddCompleted(n, storetest.Ann.Owner, storetest.Agent)
	r.Exec("UPDATE a2a.tasks SET state = 101")
	r.Exec(`UPDATE a2a.tasks SET created_at = (SELECT min(created_at) FROM a2a.tasks)
		WHERE id IN (SELECT id FROM a2a.tasks LIMIT 2500)`)
	count, err := r.Jobs.Count(t.Context(), jobs.Retry, &jobs.Filter{}, time.Minute)
	if err != nil || count.Tasks != n || count.More || len(count.Groups) != 1 || len(count.Newest) != 10 {
		t.Errorf("counted %+v, %v", count.Groups, err)
	}
	r.start(jobs.NewJob{Action: jobs.Retry})
	j := r.claim(r.Store, "r1")
	for !j.Collected {
		before := *j
		if err := r.Jobs.Collect(t.Context(), j); err != nil {
			t.Fatal(err)
		}
		// As a server repeats it that has not got the answer.
		if err := r.Jobs.Collect(t.Context(), &before); !errors.Is(err, jobs.ErrLost) {
			t.Errorf("the same tasks were collected twice: %v", err)
		}
	}
	if j.Matched != n || j.Remaining != n {
		t.Errorf("collected %d tasks", j.Matched)
	}
	if got := storetest.Value[int](r.Fixture,
		"SELECT count(DISTINCT task_id)::int FROM a2a.job_tasks WHERE n BETWEEN 1 AND $1", n); got != n {
		t.Errorf("%d different tasks, want %d", got, n)
	}
	r.failed(1)
	if count, err := r.Jobs.Count(t.Context(), jobs.Retry, &jobs.Filter{}, time.Minute); err != nil ||
		count.Tasks != n || !count.More {
		t.Errorf("counted %d, more %t, %v", count.Tasks, count.More, err)
	}
}

func TestOldJobsAreSwept(t *testing.T) {
	t.Parallel()
	r := open(t)
	for range 3 {
		r.NewTask()
	}
	r.start(jobs.NewJob{Action: jobs.Cancel})
	r.mustRun()
	running := r.start(jobs.NewJob{Action: jobs.Cancel})
	if n, err := r.Jobs.Sweep(t.Context(), time.Hour, 10); err != nil || n != 0 {
		t.Errorf("swept %d, %v", n, err)
	}
	for _, want := range []int{2, 2, 0} { // two tasks; one task and the job
		if n, err := r.Jobs.Sweep(t.Context(), time.Microsecond, 2); err != nil || n != want {
			t.Errorf("swept %d, want %d, %v", n, want, err)
		}
	}
	if list, err := r.Jobs.List(t.Context(), jobs.ListFilter{Limit: 10}); err != nil || len(list) != 1 ||
		list[0].ID != running.ID {
		t.Errorf("left are %+v, %v", list, err)
	}
}

package jobs_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/jobs"
)

// A server that has lost the lease of a job changes nothing.
func TestLostLeaseOfAJobChangesNothing(t *testing.T) {
	t.Parallel()
	r := open(t)
	task := r.NewTask()
	job := r.start(jobs.NewJob{Action: jobs.Cancel})
	stale := r.claim(r.Store, "r1")
	if _, found, err := r.Jobs.Claim(t.Context(), "r2", false); err != nil || found {
		t.Fatalf("a job was claimed twice: %t, %v", found, err)
	}
	r.abandon()
	now := r.collected("r2")
	wantLost := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, jobs.ErrLost) {
			t.Errorf("%s returned %v", what, err)
		}
	}
	wantLost("collect", r.Jobs.Collect(t.Context(), stale))
	stale.Remaining = 1
	wantLost("act", r.Jobs.Act(t.Context(), stale, nil))
	wantLost("fail", r.Jobs.Fail(t.Context(), stale, "x"))
	wantLost("end", r.Jobs.End(t.Context(), stale, ""))
	if err := r.Jobs.Release(t.Context(), stale); err != nil {
		t.Error(err)
	}
	wantLost("end with tasks left", r.Jobs.End(t.Context(), now, ""))
	if got := r.Snapshot(task).Status.State; got != a2a.StateSubmitted {
		t.Errorf("the task is %s", got)
	}
	if err := r.Jobs.Act(t.Context(), now, nil); err != nil {
		t.Fatal(err)
	}
	now.Remaining = 1 // as a server knows it that has not got the answer
	wantLost("fail of a task that is recorded", r.Jobs.Fail(t.Context(), now, "x"))
	if got := r.find(job.ID); got.Done != 1 || got.Failed != 0 || got.Worker != "r2" {
		t.Errorf("the job is %+v", got)
	}
}

// The lease is checked again when the task is locked: it may be lost while a step waits.
func TestLeaseOfAJobIsLostWhileAStepWaits(t *testing.T) {
	t.Parallel()
	r := open(t)
	task := r.failed(1)[0]
	r.start(jobs.NewJob{Action: jobs.Retry})
	j := r.collected("r1")
	release := r.Lock("SELECT FROM a2a.tasks WHERE id = $1 FOR UPDATE", task)
	done := make(chan error, 1)
	go func() { done <- r.Jobs.Act(t.Context(), j, nil) }()
	r.WaitBlocked(1)
	r.abandon()
	r.claim(r.Store, "r2")
	release()
	if err := <-done; !errors.Is(err, jobs.ErrLost) {
		t.Errorf("act returned %v", err)
	}
	if n := r.retries(task); n != 0 {
		t.Errorf("the task was retried %d times", n)
	}
}

func TestStoppedJobActsOnNoMoreTasks(t *testing.T) {
	t.Parallel()
	r := open(t)
	for range 2 {
		r.NewTask()
	}
	job := r.start(jobs.NewJob{Action: jobs.Cancel})
	j := r.collected("r1")
	if err := r.Jobs.Act(t.Context(), j, nil); err != nil {
		t.Fatal(err)
	}
	if stopped, err := r.Jobs.Stop(t.Context(), job.ID); err != nil || !stopped {
		t.Fatalf("stopped %t, %v", stopped, err)
	}
	if err := r.Jobs.Act(t.Context(), j, nil); !errors.Is(err, jobs.ErrLost) {
		t.Errorf("act returned %v", err)
	}
	if stopped, err := r.Jobs.Stop(t.Context(), job.ID); err != nil || stopped {
		t.Errorf("it was stopped twice: %t, %v", stopped, err)
	}
	if got := r.find(job.ID); got.State != jobs.Stopped || got.Done != 1 || got.Remaining != 1 {
		t.Errorf("the job is %+v", got)
	}
	if _, found, err := r.Jobs.Claim(t.Context(), "r2", false); err != nil || found {
		t.Errorf("a stopped job was claimed: %t, %v", found, err)
	}
}

// Two jobs that have collected the same tasks retry each task once, whoever is first.
func TestTwoRetriesOfTheSameTasks(t *testing.T) {
	t.Parallel()
	r := open(t)
	ids := r.failed(20)
	var list []*jobs.Job
	for range 2 {
		r.start(jobs.NewJob{Action: jobs.Retry})
		list = append(list, r.collected("r1"))
	}
	var wg sync.WaitGroup
	for _, j := range list {
		wg.Go(func() {
			for j.Remaining > 0 {
				if err := r.Jobs.Act(t.Context(), j, nil); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	done, skipped := 0, 0
	for _, j := range list {
		got := r.find(j.ID)
		done, skipped = done+got.Done, skipped+got.Skipped
	}
	if done != 20 || skipped != 20 {
		t.Errorf("%d tasks were retried and %d skipped, want 20 of each", done, skipped)
	}
	for _, id := range ids {
		if n := r.retries(id); n != 1 {
			t.Errorf("a task was retried %d times", n)
		}
	}
	r.Invariants()
}

// A job does not wait for a lease that was taken before the clock was set back.
func TestJobIsClaimedAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.start(jobs.NewJob{Action: jobs.Cancel})
	r.claim(r.Store, "r1")
	r.SetClockBack(2 * time.Hour)
	r.claim(r.Store, "r2")
}

// A worker that runs its own jobs claims no others, and no other worker claims its jobs while it holds them.
func TestOwnJobs(t *testing.T) {
	t.Parallel()
	r := open(t)
	others := r.start(jobs.NewJob{Action: jobs.Cancel})
	own := r.start(jobs.NewJob{Action: jobs.Cancel, Holder: "command"})
	j, found, err := r.Jobs.Claim(t.Context(), "command", true)
	if err != nil || !found || j.ID != own.ID {
		t.Fatalf("claimed %+v, %t, %v", j, found, err)
	}
	if got := r.claim(r.Store, "r1"); got.ID != others.ID {
		t.Errorf("claimed %s, want %s", got.ID, others.ID)
	}
	if _, found, err := r.Jobs.Claim(t.Context(), "r1", false); err != nil || found {
		t.Errorf("the job of a command was claimed: %t, %v", found, err)
	}
}

// A server does not run a job of a newer version: without a filter that it does not know, the job would act on more
// tasks. It shows the job, and runs others.
func TestJobsOfANewerVersionAreLeftToItsServers(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.Exec("ALTER TABLE a2a.jobs DROP CONSTRAINT jobs_action_check")
	var newer []a2a.ID
	for _, change := range []string{`filter = '{"agent":["words"],"color":"red"}'`, `action = 'archive'`} {
		job := r.start(jobs.NewJob{Action: jobs.Cancel, Holder: "command"})
		r.Exec("UPDATE a2a.jobs SET "+change+" WHERE id = $1", job.ID)
		newer = append(newer, job.ID)
	}
	if _, found, err := r.Jobs.Claim(t.Context(), "command", true); err != nil || found {
		t.Errorf("a job of a newer version was claimed: %t, %v", found, err)
	}
	r.abandon()
	known := r.start(jobs.NewJob{Action: jobs.Retry, Filter: jobs.Filter{
		ID: "0", IDs: []string{newer[0].String()}, State: []string{"failed"}, Agent: []string{"words"}, Tenant: "acme",
		Owner: "\x00", Context: "c", Since: time.Unix(1, 0), Until: time.Unix(2, 0), Outcome: "failed", Text: `\u0000`,
		Error: "e", MetadataKey: "m", Parked: true, Roots: true, NotRetried: true,
	}})
	if j := r.claim(r.Store, "r1"); j.ID != known.ID {
		t.Errorf("claimed %+v, want the other job", j)
	}
	if _, found, err := r.Jobs.Claim(t.Context(), "r1", false); err != nil || found {
		t.Errorf("a job of a newer version was claimed: %t, %v", found, err)
	}
	for _, id := range newer {
		if j := r.find(id); j.State != jobs.Running {
			t.Errorf("a job of a newer version is %+v", j)
		}
	}
}

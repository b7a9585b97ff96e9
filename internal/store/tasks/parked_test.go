package tasks_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/wake"
)

// park parks a task of Ann that has a webhook, and returns the lease that its worker had.
func park(f *storetest.Fixture, limit time.Duration) *tasks.Lease {
	f.T.Helper()
	in := storetest.Submission("x")
	in.Push = webhook("h")
	l := f.ClaimTask(f.Submit(in).Task)
	if err := f.Tasks.Park(f.T.Context(), l, "bad luck", limit); err != nil {
		f.T.Fatal(err)
	}
	return l
}

// lastReason returns the reason in the newest event of a task, which must be a status.
func lastReason(f *storetest.Fixture, task a2a.ID) string {
	f.T.Helper()
	log := f.Log(task)
	reason, _ := rawjson.String(rawjson.Get(log[len(log)-1].Event.(*a2a.StatusUpdate).Metadata, "a2ad/reason"))
	return reason
}

// resume resumes tasks and wants n of them to have been parked.
func resume(f *storetest.Fixture, n int, ids ...a2a.ID) {
	f.T.Helper()
	got, err := f.Tasks.Resume(f.T.Context(), ids, "fixed")
	if err != nil || len(got) != n {
		f.T.Fatalf("Resume = %d tasks, %v, want %d", len(got), err, n)
	}
}

func TestParkedTaskStaysWorkingWithoutAWorker(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := park(f, 0)
	f.Invariants()
	got := f.Snapshot(l.TaskID)
	if got.Status.State != a2a.StateWorking || lastReason(f, l.TaskID) != "parked: bad luck" {
		t.Errorf("the task is %s with the reason %q", got.Status.State, lastReason(f, l.TaskID))
	}
	if n := len(f.TakeCommitted(l.TaskID)); n == 0 {
		t.Error("no commit was reported to the followers")
	}
	if missing := storetest.Value[int64](f, `
		SELECT t.last_seq - p.head_seq FROM a2a.push_configs p JOIN a2a.tasks t ON t.id = p.task_id`); missing != 0 {
		t.Errorf("the head of the webhook lacks %d events", missing)
	}
	storetest.Same(t, "attempts", []attempt{{1, 1, "r1", "parked", "bad luck"}}, attempts(f, l.TaskID))
	if leases := f.Claim(1); len(leases) != 0 {
		t.Error("a parked task was claimed")
	}
	if _, err := f.Tasks.Append(t.Context(), l, storetest.Batch(storetest.Status(a2a.StateCompleted))); !errors.Is(err,
		db.ErrLeaseLost) {
		t.Errorf("an append of the worker that parked it = %v, want ErrLeaseLost", err)
	}
	if err := f.Tasks.Park(t.Context(), l, "again", 0); !errors.Is(err, db.ErrLeaseLost) {
		t.Errorf("to park it again = %v, want ErrLeaseLost", err)
	}
}

func TestResumeGivesFreshAttempts(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t, func(c *store.Config) { c.Actor = "operator ann@desk" })
	l := park(f, time.Hour)
	f.Exec("UPDATE a2a.tasks SET attempt = 5")
	f.Say(l.TaskID, "and this") // stored for the next attempt
	f.TakeWakes()
	resume(f, 1, l.TaskID)
	storetest.Same(t, "wakes", []string{wake.Ready(storetest.Agent)}, f.TakeWakes())
	f.Invariants()
	resume(f, 0, l.TaskID)
	next := f.ClaimTask(l.TaskID)
	if next.Attempt != 1 || next.Through != 2 || lastReason(f, l.TaskID) != "fixed" {
		t.Errorf("the next attempt is %d, through %d, with the reason %q, want 1, 2 and fixed",
			next.Attempt, next.Through, lastReason(f, l.TaskID))
	}
	resume(f, 0, l.TaskID) // it runs
	f.Append(next, storetest.Status(a2a.StateCompleted))
	f.Invariants()
	found, err := f.Access.Actions(t.Context(), access.ActionFilter{Name: access.ActionTaskResume, Limit: 5})
	if err != nil || len(found) != 1 || found[0].Task != l.TaskID || found[0].Actor != "operator ann@desk" ||
		string(found[0].Detail) != `{"parked":"bad luck","reason":"fixed"}` {
		t.Errorf("actions %+v, %v", found, err)
	}
}

// A task can be parked again after it was resumed.
func TestTaskIsParkedTwice(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := park(f, 0)
	resume(f, 1, l.TaskID)
	if err := f.Tasks.Park(t.Context(), f.ClaimTask(l.TaskID), "again", 0); err != nil {
		t.Fatal(err)
	}
	f.Invariants()
	resume(f, 1, l.TaskID)
	f.Invariants()
}

func TestCancelOfAParkedTask(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := park(f, time.Hour)
	if _, err := f.Tasks.Cancel(t.Context(), storetest.Ann, storetest.Agent, l.TaskID); err != nil {
		t.Fatal(err)
	}
	resume(f, 0, l.TaskID)
	if n := storetest.Value[int](f, "SELECT count(*)::int FROM a2a.task_parked"); n != 0 {
		t.Errorf("%d rows are left in task_parked, want 0", n)
	}
	f.Invariants()
}

// A server of the version before this one does not know of task_parked.
func TestRowThatAnOlderServerLeftMeansNothing(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := park(f, time.Microsecond)
	f.Exec(`CREATE TABLE a2a.kept AS TABLE a2a.task_parked`)
	if _, err := f.Tasks.Cancel(t.Context(), storetest.Ann, storetest.Agent, l.TaskID); err != nil {
		t.Fatal(err)
	}
	f.Exec(`INSERT INTO a2a.task_parked TABLE a2a.kept`)
	resume(f, 0, l.TaskID)
	if n, err := f.Tasks.ExpireParked(t.Context(), 10); n != 0 || err != nil {
		t.Errorf("ExpireParked = %d, %v, want 0", n, err)
	}
	if got := f.Snapshot(l.TaskID).Status.State; got != a2a.StateCanceled {
		t.Errorf("the task is %s, want CANCELED", got)
	}
	f.Invariants()
}

func TestParkedTaskFailsAfterItsTime(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	task, forever := park(f, time.Hour).TaskID, park(f, 0).TaskID
	expire := func(want int) {
		t.Helper()
		if n, err := f.Tasks.ExpireParked(t.Context(), 10); n != want || err != nil {
			t.Fatalf("ExpireParked = %d, %v, want %d", n, err, want)
		}
	}
	expire(0)
	f.SetClockBack(jump)
	expire(0)
	if !storetest.Value[bool](f, `
		SELECT until < clock_timestamp() + interval '1 h' FROM a2a.task_parked WHERE task_id = $1`, task) {
		t.Error("the clock was set back, and the task stays parked for longer than an hour")
	}
	f.Exec("UPDATE a2a.task_parked SET until = until - interval '1 h' WHERE task_id = $1", task)
	release := f.Lock("SELECT FROM a2a.tasks WHERE id = $1 FOR UPDATE", task)
	expire(0)
	release()
	expire(1)
	expire(0)
	got := f.Snapshot(task)
	if got.Status.State != a2a.StateFailed || got.Status.Message.Parts[0].Text != "parked for too long: bad luck" {
		t.Errorf("the task is %s with the message %+v", got.Status.State, got.Status.Message)
	}
	if got := f.Snapshot(forever).Status.State; got != a2a.StateWorking {
		t.Errorf("the task without a limit is %s, want WORKING", got)
	}
	resume(f, 1, task, forever)
	f.Invariants()
}

func TestRescueParksATaskWithoutAttempts(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	policy := tasks.Policy{Agent: storetest.Agent, Fate: "retry", MaxAttempts: 1, Parks: true, ParkFor: time.Hour}
	named, undecided := f.ClaimTask(f.NewTask()), undecided(f, "")
	f.Claim(1)
	f.Expire(named.TaskID)
	f.Expire(undecided)
	f.TakeCommitted(named.TaskID)
	f.Rescue(2, policy)
	f.Rescue(0, policy)
	for _, task := range []a2a.ID{named.TaskID, undecided} {
		if h, err := headOf(f, task); err != nil || h.State != a2a.StateWorking {
			t.Errorf("head %+v, %v, want a task that is working", h, err)
		}
		if got := lastReason(f, task); got != "parked: the worker was lost" {
			t.Errorf("the reason is %q", got)
		}
	}
	if n := len(f.TakeCommitted(named.TaskID)); n != 1 {
		t.Errorf("%d commits were reported, want 1", n)
	}
	if n := storetest.Value[int](f, `SELECT count(*)::int FROM audit.parked p JOIN a2a.task_attempts a USING (task_id)
		WHERE a.outcome = 'expired' AND p.until = p.since + interval '1 h' AND p.attempts = 1`); n != 2 {
		t.Errorf("%d tasks were parked as the policy says, want 2", n)
	}
	f.Invariants()
	resume(f, 2, named.TaskID, undecided)
	f.Invariants()
}

// The policy of agents that are not named decides about their tasks.
func TestRescueParksTasksOfAgentsWithoutAPolicy(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	f.Expire(l.TaskID)
	if n, err := f.Tasks.Rescue(t.Context(), nil, tasks.Policy{MaxAttempts: 1, Parks: true}, 10); n != 1 || err != nil {
		t.Fatalf("Rescue = %d, %v, want 1", n, err)
	}
	if n := storetest.Value[int](f, "SELECT count(*)::int FROM audit.parked WHERE until IS NULL"); n != 1 {
		t.Errorf("%d tasks are parked for ever, want 1", n)
	}
	f.Invariants()
}

func TestUndecidedTaskThatIsParkedIsTheAnswer(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.ClaimTask(undecided(f, ""))
	if err := f.Tasks.Park(t.Context(), l, "bad luck", 0); err != nil {
		t.Fatal(err)
	}
	if h, err := headOf(f, l.TaskID); err != nil || h.State != a2a.StateWorking {
		t.Errorf("head %+v, %v, want a task that is working", h, err)
	}
	f.Invariants()
}

// A cancel that waits for the resume cancels the task, and a resume that waits for a cancel changes nothing.
func TestResumeAndCancelAtOnce(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := park(f, 0)
	release := f.Lock("SELECT FROM a2a.tasks WHERE id = $1 FOR UPDATE", l.TaskID)
	results := make(chan int, 1)
	go func() {
		list, _ := f.Tasks.Resume(t.Context(), []a2a.ID{l.TaskID}, "fixed")
		results <- len(list)
	}()
	canceled := make(chan error, 1)
	go func() {
		_, err := f.Tasks.Cancel(t.Context(), storetest.Ann, storetest.Agent, l.TaskID)
		canceled <- err
	}()
	release()
	<-results
	if err := <-canceled; err != nil {
		t.Errorf("cancel: %v", err)
	}
	if got := f.Snapshot(l.TaskID).Status.State; got != a2a.StateCanceled {
		t.Errorf("the task is %s, want CANCELED", got)
	}
	f.Invariants()
}

// Resume names the tasks that were parked, and no others.
func TestResumeSkipsWhatIsNotParked(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	parked, running, queued := park(f, 0), f.RunningTask(), f.NewTask()
	got, err := f.Tasks.Resume(t.Context(), []a2a.ID{running.TaskID, queued, parked.TaskID, db.NewTaskID()}, "fixed")
	if err != nil || !slices.Equal(got, []tasks.Resumed{
		{Task: parked.TaskID, Agent: storetest.Agent, Tenant: "acme", Owner: "ann", Parked: "bad luck"},
	}) {
		t.Errorf("Resume = %+v, %v", got, err)
	}
	f.Invariants()
}

package tasks_test

import (
	"errors"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// A worker that was frozen, and has lost its lease meanwhile, records no step and begins no wait.
func TestZombieRecordsNothing(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	zombie := f.RunningTask()
	f.Expire(zombie.TaskID)
	f.Rescue(1)
	for what, batch := range map[string]tasks.Batch{
		"step": {Steps: stepOf}, "wait": waiting(a2a.Wait{For: time.Hour}),
		"usage": {Usage: someUsage}, "usage with a step": {Usage: someUsage, Steps: stepOf},
	} {
		if _, err := f.Tasks.Append(t.Context(), zombie, batch); !errors.Is(err, db.ErrLeaseLost) {
			t.Errorf("a %s of a worker without a lease: %v, want ErrLeaseLost", what, err)
		}
	}
	for _, table := range []string{"task_steps", "task_usage", "usage_pending"} {
		if n := storetest.Value[int](f, "SELECT count(*)::int FROM a2a."+table); n != 0 {
			t.Errorf("%d rows of %s were recorded", n, table)
		}
	}
	f.Invariants()
}

// Two requests of one run that do not know of each other cannot both record the next step.
func TestStepsAreRecordedOnceEach(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	other := *l
	if _, err := f.Tasks.Append(t.Context(), l, tasks.Batch{Steps: stepOf}); err != nil {
		t.Fatal(err)
	}
	different := []a2a.StepRecord{stepOf[0]}
	different[0].Key = "another"
	if _, err := f.Tasks.Append(t.Context(), &other, tasks.Batch{Steps: different}); !errors.Is(err, db.ErrLeaseLost) {
		t.Errorf("a step after an unknown one: %v, want ErrLeaseLost", err)
	}
	f.Invariants()
}

// Steps of several runs share a transaction, and one that has lost its lease records none of them.
func TestStepsOfSeveralTasksShareACommit(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	zombie := f.RunningTask()
	f.Expire(zombie.TaskID)
	f.Rescue(1)
	f.Exec("UPDATE a2a.task_ready SET quiet = true") // the claim writes no event that the zombie does not know
	leases := []*tasks.Lease{zombie, f.ClaimTask(zombie.TaskID)}
	batches := []tasks.Batch{{Steps: stepOf}, {Steps: stepOf}}
	for range 6 {
		leases, batches = append(leases, f.RunningTask()), append(batches, tasks.Batch{Steps: stepOf})
	}
	for i, r := range flushed(f, f.Store, tasks.HoldSteps, leases, batches) {
		if i == 0 && !errors.Is(r.err, db.ErrLeaseLost) || i > 0 && r.err != nil {
			t.Errorf("append %d: %v", i, r.err)
		}
		if want := min(i, 1); leases[i].Steps != want {
			t.Errorf("append %d: the lease knows %d steps, want %d", i, leases[i].Steps, want)
		}
	}
	const made = `SELECT concat_ws(' ', count(*), count(DISTINCT s.xmin::text), count(*) FILTER (WHERE t.steps = 1))
		FROM a2a.task_steps s JOIN a2a.tasks t ON t.id = s.task_id AND t.lease_epoch = s.epoch`
	if got := storetest.Value[string](f, made); got != "7 1 7" {
		t.Errorf("steps, transactions, and steps that were counted: %s, want 7 1 7", got)
	}
	if n := f.Tasks.Counts().Steps[tasks.AgentCount{Agent: leases[1].Agent, What: tasks.StepOK}]; n != 7 {
		t.Errorf("the counter says %d steps, want 7", n)
	}
	f.Invariants()
}

// A failed step that is to be tried again is recorded again, with or without other events.
func TestFailedStepIsRecordedAgain(t *testing.T) {
	t.Parallel()
	for _, events := range [][]a2a.Event{nil, {storetest.Chunk("a", "x")}} {
		f := storetest.Open(t)
		l := f.RunningTask()
		open := stepOf[0]
		open.Result, open.Error, open.NextAt, open.Ended = nil, a2a.Raw(`"down"`), time.Now(), false
		next := a2a.StepRecord{Step: a2a.Step{Key: "next"}, Seq: 2, Kind: a2a.StepWork, Ended: true}
		for _, steps := range [][]a2a.StepRecord{{open}, {stepOf[0], next}} {
			if _, err := f.Tasks.Append(t.Context(), l, tasks.Batch{Events: events, Steps: steps}); err != nil {
				t.Fatal(err)
			}
		}
		const rows = `SELECT string_agg(concat_ws(' ', seq, key, result, error, ended_at IS NOT NULL),
			', ' ORDER BY seq)
			FROM a2a.task_steps`
		if got, want := storetest.Value[string](f, rows), `1 charge#1 "paid" t, 2 next t`; got != want {
			t.Errorf("with %d events: recorded %s, want %s", len(events), got, want)
		}
		f.Invariants()
	}
}

// A webhook that is set while a run records steps gets the events that follow them.
func TestStepsUnderAWebhookThatTheRunDoesNotKnow(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	f.Exec("UPDATE a2a.tasks SET has_push = true")
	if _, err := f.Tasks.Append(t.Context(), l, tasks.Batch{Steps: stepOf}); err != nil {
		t.Fatal(err)
	}
	if !l.HasPush {
		t.Error("the run does not know of the webhook after its step")
	}
}

// A wait for a duration lasts as long as it was meant to, and one without an end stays as it is. The deadline of the
// turn is not later.
func TestWaitsLastAsLongAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	until := time.Now().Add(100 * time.Hour).Truncate(time.Second)
	for name, tt := range map[string]struct {
		wait     a2a.Wait
		deadline time.Duration
		due      string // due_at as of now, or as the agent named it
		late     string // deadline_at
	}{
		"a duration":      {a2a.Wait{For: time.Hour}, 3 * time.Hour, "in 1 h", "in 3 h"},
		"no deadline":     {a2a.Wait{For: time.Hour}, 0, "in 1 h", "never"},
		"a message":       {a2a.Wait{Message: true}, 3 * time.Hour, "never", "in 3 h"},
		"a named time":    {a2a.Wait{Until: until}, 200 * time.Hour, "as named", "in 202 h"},
		"after its limit": {a2a.Wait{Until: until}, 3 * time.Hour, "in 100 h", "in 3 h"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := storetest.Open(t)
			l := f.RunningTask()
			f.Exec("UPDATE a2a.tasks SET deadline_at = clock_timestamp() + nullif($1::interval, interval '0')",
				tt.deadline)
			if _, err := f.Tasks.Append(t.Context(), l, waiting(tt.wait)); err != nil {
				t.Fatal(err)
			}
			f.SetClockBack(jump)
			f.Rescue(0)
			const times = `
				SELECT CASE WHEN coalesce(at, 'infinity') = 'infinity' THEN 'never' WHEN at = $1 THEN 'as named'
				  ELSE format('in %s h', round(extract(epoch FROM at - clock_timestamp()) / 3600)) END
				FROM a2a.task_waits, `
			named := until.Add(jump) // SetClockBack moves what is stored
			due := storetest.Value[string](f, times+"LATERAL (VALUES (due_at)) x (at)", named)
			late := storetest.Value[string](f, times+"LATERAL (VALUES (deadline_at)) x (at)", named)
			if due != tt.due || late != tt.late {
				t.Errorf("the wait ends %s, and its deadline is %s, want %s and %s", due, late, tt.due, tt.late)
			}
			f.Invariants()
		})
	}
}

// The loop that ends waits sleeps until the next one, and makes no statement while there is none.
func TestNextWait(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	next := func() (time.Duration, bool) {
		t.Helper()
		in, ok, err := f.Tasks.NextWait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return in, ok
	}
	if in, ok := next(); ok {
		t.Errorf("without a wait the next one is in %s", in)
	}
	for _, tt := range []struct {
		wait        a2a.Wait
		least, most time.Duration // 0: no wait ends by its time
	}{
		{a2a.Wait{Message: true}, 0, 0},
		{a2a.Wait{For: time.Hour}, 59 * time.Minute, time.Hour},
		{a2a.Wait{For: time.Minute}, 30 * time.Second, time.Minute},
		{a2a.Wait{Until: time.Now().Add(-time.Hour)}, 0, time.Nanosecond},
	} {
		if _, err := f.Tasks.Append(t.Context(), f.RunningTask(), waiting(tt.wait)); err != nil {
			t.Fatal(err)
		}
		f.Exec("UPDATE a2a.task_waits SET deadline_at = NULL")
		if in, ok := next(); ok != (tt.most > 0) || in < tt.least || in > tt.most {
			t.Errorf("after %+v the next wait is in %s (%t), want %s to %s", tt.wait, in, ok, tt.least, tt.most)
		}
	}
}

// Steps are removed together with the log.
func TestRetentionRemovesSteps(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	if _, err := f.Tasks.Append(t.Context(), l, tasks.Batch{
		Steps:  stepOf,
		Events: []a2a.Event{&a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateCompleted}}},
	}); err != nil {
		t.Fatal(err)
	}
	prune := func(tasks.Ended) tasks.Fate { return tasks.Prune }
	if out, err := f.Tasks.Retire(t.Context(), a2a.ID{}, 0, 10, prune); err != nil || out.Pruned != 1 {
		t.Fatalf("Retire = %+v, %v, want one log", out, err)
	}
	if n := storetest.Value[int](f, "SELECT count(*)::int FROM a2a.task_steps"); n != 0 {
		t.Errorf("%d steps are left", n)
	}
	f.Invariants()
}

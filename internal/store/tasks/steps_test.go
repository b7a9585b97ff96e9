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
	} {
		if _, err := f.Tasks.Append(t.Context(), zombie, batch); !errors.Is(err, db.ErrLeaseLost) {
			t.Errorf("a %s of a worker without a lease: %v, want ErrLeaseLost", what, err)
		}
	}
	if n := storetest.Value[int](f, "SELECT count(*)::int FROM a2a.task_steps"); n != 0 {
		t.Errorf("%d steps were recorded", n)
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

// A wait for a duration lasts as long as it was meant to, and one without an end stays as it is.
func TestWaitsLastAsLongAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	until := time.Now().Add(100 * time.Hour).Truncate(time.Second)
	for _, w := range []a2a.Wait{{For: time.Hour}, {Message: true}, {Signal: "s"}, {Until: until}} {
		if _, err := f.Tasks.Append(t.Context(), f.RunningTask(), waiting(w)); err != nil {
			t.Fatal(err)
		}
	}
	f.SetClockBack(jump)
	f.Rescue(0)
	const hour = `SELECT due_at BETWEEN clock_timestamp() + interval '59 min' AND clock_timestamp() + interval '1 h'
		FROM a2a.task_waits WHERE set_at IS NOT NULL`
	if !storetest.Value[bool](f, hour) {
		t.Errorf("the wait ends at %v", storetest.Value[time.Time](f, "SELECT min(due_at) FROM a2a.task_waits"))
	}
	if n := storetest.Value[int](f, "SELECT count(*)::int FROM a2a.task_waits WHERE due_at = 'infinity'"); n != 2 {
		t.Errorf("%d waits have no end, want 2", n)
	}
	const named = "SELECT due_at FROM a2a.task_waits WHERE set_at IS NULL AND due_at < 'infinity'"
	at := storetest.Value[time.Time](f, named)
	if !at.Equal(until.Add(jump)) { // SetClockBack moves what is stored
		t.Errorf("the wait until %v ends at %v", until, at)
	}
	f.Invariants()
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

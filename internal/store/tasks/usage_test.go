package tasks_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// someUsage is a report of a run.
var someUsage = []a2a.Usage{{Model: "m1", Input: 12, Output: 34, Cached: 5, Reasoning: 3, Requests: 1}}

// countedOnce returns what is wrong if someUsage, which one task has reported, is not in the sums once.
func countedOnce(w *witness, _ tasks.Appended) string {
	return w.count(1, `a2a.task_usage u JOIN audit.usage_day d USING (
		model, input_tokens, output_tokens, cached_input_tokens, reasoning_tokens, requests)
		WHERE (model, input_tokens, output_tokens, cached_input_tokens, reasoning_tokens, requests)
		  = ('m1', 12, 34, 5, 3, 1) AND (SELECT count(*) FROM audit.usage_day) = 1`)
}

// numbers are the columns of usage as one text.
const numbers = `concat_ws(' ', model, input_tokens, output_tokens, cached_input_tokens, reasoning_tokens, requests)`

// usageByDay returns the sums by day, without the day, which is today's.
func usageByDay(f *storetest.Fixture) []string {
	f.T.Helper()
	return f.Column(`SELECT concat_ws(' ', tenant, owner, agent, ` + numbers + `) FROM audit.usage_day
		WHERE day = (statement_timestamp() AT TIME ZONE 'UTC')::date ORDER BY 1`)
}

// mustReport appends a batch.
func mustReport(f *storetest.Fixture, l *tasks.Lease, b tasks.Batch) {
	f.T.Helper()
	if _, err := f.Tasks.Append(f.T.Context(), l, b); err != nil {
		f.T.Fatal(err)
	}
}

// sumUsage sums all usage that is pending, a few reports at a time.
func sumUsage(f *storetest.Fixture) {
	f.T.Helper()
	for n := 2; n == 2; {
		var err error
		if n, err = f.Tasks.SumUsage(f.T.Context(), 2); err != nil {
			f.T.Fatal(err)
		}
	}
	if n := storetest.Value[int](f, "SELECT count(*)::int FROM a2a.usage_pending"); n != 0 {
		f.T.Errorf("%d reports are pending", n)
	}
}

// What runs report is summed by task and model, and by day, whatever else the batch has.
func TestUsageIsSummed(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	first, second := f.RunningTask(), f.RunningTask()
	other := []a2a.Usage{{Model: "m2", Output: 1}, {Model: "m1", Input: 100}, {Requests: 2}, {Model: "m2", Output: 1}}
	mustReport(f, first, tasks.Batch{Usage: someUsage})
	mustReport(f, first, tasks.Batch{Usage: someUsage, Steps: stepOf})
	mustReport(f, first, tasks.Batch{Usage: other, Events: []a2a.Event{storetest.Chunk("a", "x")}})
	sumUsage(f)
	mustReport(f, second, tasks.Batch{Usage: someUsage, Events: []a2a.Event{storetest.Status(a2a.StateCompleted)}})

	ofTask := func(l *tasks.Lease) []string {
		return f.Column(fmt.Sprintf("SELECT %s FROM audit.usage WHERE task_id = '%s' ORDER BY 1", numbers, l.TaskID))
	}
	storetest.Same(t, "the usage of the first task",
		[]string{" 0 0 0 0 2", "m1 124 68 10 6 2", "m2 0 2 0 0 0"}, ofTask(first))
	storetest.Same(t, "the usage of the second task", []string{"m1 12 34 5 3 1"}, ofTask(second))
	who := storetest.Ann.Tenant + " " + storetest.Ann.Owner + " " + storetest.Agent + " "
	sums := []string{who + " 0 0 0 0 2", who + "m1 136 102 15 9 3", who + "m2 0 2 0 0 0"}
	storetest.Same(t, "the sums by day", sums, usageByDay(f))
	sumUsage(f)
	storetest.Same(t, "the sums by day, when nothing is pending", sums, usageByDay(f))
	counts := f.Tasks.Counts()
	for kind, want := range map[string]uint64{
		tasks.TokensInput: 136, tasks.TokensOutput: 104, tasks.TokensCached: 15, tasks.TokensReasoning: 9,
	} {
		if got := counts.UsageTokens[tasks.AgentCount{Agent: storetest.Agent, What: kind}]; got != want {
			t.Errorf("the counter of %s tokens says %d, want %d", kind, got, want)
		}
	}
	if got := counts.UsageRequests[tasks.AgentCount{Agent: storetest.Agent}]; got != 5 {
		t.Errorf("the counter of requests says %d, want 5", got)
	}
	f.Invariants()
}

// Usage counts towards the size of its task, so that no agent can report without end.
func TestUsageCountsTowardsTheSizeOfItsTask(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	before := l.StepBytes
	mustReport(f, l, tasks.Batch{Usage: someUsage})
	if got, want := l.StepBytes-before, int64(someUsage[0].Size()); got != want {
		t.Errorf("the task grew by %d bytes, want %d", got, want)
	}
	if got := storetest.Value[int64](f, "SELECT step_bytes FROM a2a.tasks"); got != l.StepBytes {
		t.Errorf("the task has %d bytes, and its lease %d", got, l.StepBytes)
	}
}

// Batches of several runs share a transaction, and the usage of one that has lost its lease is not counted.
func TestUsageOfSeveralTasksSharesACommit(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		hold  func(*tasks.Store) (func(int), func())
		batch tasks.Batch
	}{
		"steps":  {tasks.HoldSteps, tasks.Batch{Usage: someUsage, Steps: stepOf}},
		"alone":  {tasks.HoldAppends, tasks.Batch{Usage: someUsage}},
		"events": {tasks.HoldAppends, tasks.Batch{Usage: someUsage, Events: []a2a.Event{storetest.Chunk("a", "x")}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := storetest.Open(t)
			zombie := f.RunningTask()
			f.Expire(zombie.TaskID)
			f.Rescue(1)
			f.Exec("UPDATE a2a.task_ready SET quiet = true") // the claim writes no event that the zombie does not know
			leases := []*tasks.Lease{zombie, f.ClaimTask(zombie.TaskID), f.RunningTask(), f.RunningTask()}
			batches := slices.Repeat([]tasks.Batch{tt.batch}, len(leases))
			for i, r := range flushed(f, f.Store, tt.hold, leases, batches) {
				if i == 0 && !errors.Is(r.err, db.ErrLeaseLost) || i > 0 && r.err != nil {
					t.Errorf("append %d: %v", i, r.err)
				}
			}
			const made = `SELECT concat_ws(' ', count(*), count(DISTINCT xmin::text), sum(input_tokens))
				FROM a2a.task_usage`
			if got := storetest.Value[string](f, made); got != "3 1 36" {
				t.Errorf("tasks, transactions and input tokens: %s, want 3 1 36", got)
			}
			if got := storetest.Value[int](f, "SELECT sum(input_tokens)::int FROM audit.usage_day"); got != 36 {
				t.Errorf("the day has %d input tokens, want 36", got)
			}
			f.Invariants()
		})
	}
}

// Two requests of one run that overlap and report nothing but usage are both counted.
func TestOverlappingReportsOfUsageBothCount(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	other := *l
	mustReport(f, l, tasks.Batch{Usage: someUsage})
	mustReport(f, &other, tasks.Batch{Usage: someUsage})
	if got := storetest.Value[int](f, "SELECT requests::int FROM audit.usage"); got != 2 {
		t.Errorf("%d requests were counted, want 2", got)
	}
}

// The sums by day outlive the tasks, and the usage of a task its log.
func TestUsageOutlivesLogsAndTasks(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	mustReport(f, l, tasks.Batch{Usage: someUsage, Events: []a2a.Event{storetest.Status(a2a.StateCompleted)}})
	days := usageByDay(f)
	if len(days) != 1 {
		t.Fatalf("the sums by day are %q, want one", days)
	}
	retire(f, 10, always(tasks.Prune))
	if n := storetest.Value[int](f, "SELECT count(*)::int FROM audit.usage"); n != 1 {
		t.Errorf("the task has %d rows of usage after its log was removed, want 1", n)
	}
	retire(f, 10, always(tasks.Delete))
	if n := storetest.Value[int](f, "SELECT count(*)::int FROM a2a.task_usage"); n != 0 {
		t.Errorf("%d rows of usage are left of a removed task", n)
	}
	storetest.Same(t, "the sums by day after the removal", days, usageByDay(f))
	sumUsage(f)
	storetest.Same(t, "the sums by day after the sum", days, usageByDay(f))
	f.Invariants()
}

// A server of the version before knows no usage. The database removes it with the task, whichever server does.
func TestUsageIsRemovedWithItsTask(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l, other := f.RunningTask(), f.RunningTask()
	mustReport(f, l, tasks.Batch{Usage: someUsage})
	mustReport(f, other, tasks.Batch{Usage: someUsage})
	days := usageByDay(f)
	f.Exec("DELETE FROM a2a.tasks WHERE id = $1", l.TaskID)
	left := f.Column("SELECT DISTINCT task_id::text FROM a2a.task_usage")
	storetest.Same(t, "tasks with usage", []string{other.TaskID.String()}, left)
	storetest.Same(t, "the sums by day", days, usageByDay(f))
}

func TestOldSumsOfUsageAreRemoved(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	f.Exec(`INSERT INTO a2a.usage_days
		SELECT (statement_timestamp() AT TIME ZONE 'UTC')::date - n, 't', 'o', 'a', 'm', 1, 1, 0, 0, 1
		FROM generate_series(0, 9) n`)
	for _, want := range []int{3, 3, 1, 0} {
		n, err := f.Tasks.SweepUsage(t.Context(), 2*24*time.Hour, 3)
		if err != nil || n != want {
			t.Errorf("a sweep removed %d sums, %v, want %d", n, err, want)
		}
	}
	if n := storetest.Value[int](f, "SELECT count(*)::int FROM a2a.usage_days"); n != 3 {
		t.Errorf("%d days are left, want today and the two before", n)
	}
	if got := f.Tasks.Counts().Swept[db.SweepOfUsage].Removed; got != 7 {
		t.Errorf("the counter says %d removed sums, want 7", got)
	}
}

// Reports that a process sums while another does the same are counted once.
func TestUsageIsSummedByOneProcessAtATime(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	mustReport(f, f.RunningTask(), tasks.Batch{Usage: someUsage})
	days := usageByDay(f)
	other, err := f.SQL.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const lock = "SELECT pg_advisory_xact_lock(x'61326164'::int, $1)"
	if _, err := other.Exec(t.Context(), lock, db.ChoreUsage); err != nil {
		t.Fatal(err)
	}
	if n, err := f.Tasks.SumUsage(t.Context(), 10); n != 0 || err != nil {
		t.Errorf("SumUsage = %d, %v while another process does it", n, err)
	}
	if err := other.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, err := f.Tasks.SumUsage(t.Context(), 10); n != 1 || err != nil {
		t.Errorf("SumUsage = %d, %v, want 1", n, err)
	}
	storetest.Same(t, "the sums by day", days, usageByDay(f))
}

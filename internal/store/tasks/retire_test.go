package tasks_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

// leftovers lists the tables that still have rows of a task.
func leftovers(f *storetest.Fixture, task a2a.ID) []string {
	f.T.Helper()
	return f.Column(fmt.Sprintf(`
		SELECT x.name FROM (
		  SELECT 'tasks' AS name FROM a2a.tasks WHERE id = '%[1]s'
		  UNION SELECT 'task_events' FROM a2a.task_events WHERE task_id = '%[1]s'
		  UNION SELECT 'messages' FROM a2a.messages WHERE task_id = '%[1]s'
		  UNION SELECT 'task_attempts' FROM a2a.task_attempts WHERE task_id = '%[1]s'
		  UNION SELECT 'artifacts' FROM a2a.artifacts WHERE task_id = '%[1]s'
		  UNION SELECT 'artifact_parts' FROM a2a.artifact_parts WHERE task_id = '%[1]s'
		  UNION SELECT 'task_checkpoints' FROM a2a.task_checkpoints WHERE task_id = '%[1]s'
		  UNION SELECT 'context_tasks' FROM a2a.context_tasks WHERE task_id = '%[1]s'
		  UNION SELECT 'idempotency_keys' FROM a2a.idempotency_keys WHERE task_id = '%[1]s'
		  UNION SELECT 'task_ready' FROM a2a.task_ready WHERE task_id = '%[1]s'
		  UNION SELECT 'task_leases' FROM a2a.task_leases WHERE task_id = '%[1]s'
		  UNION SELECT 'task_batches' FROM a2a.task_batches WHERE task_id = '%[1]s'
		  UNION SELECT 'task_cancels' FROM a2a.task_cancels WHERE task_id = '%[1]s'
		  UNION SELECT 'push_configs' FROM a2a.push_configs WHERE task_id = '%[1]s'
		  UNION SELECT 'push_attempts' FROM a2a.push_attempts WHERE task_id = '%[1]s') x ORDER BY x.name`, task))
}

// A table with a task_id that a deletion forgets would keep what somebody wanted gone.
func TestDeletionKnowsEveryTable(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	known := []string{"audit_log"} // by design: who did what outlives what it was done to
	known = append(known, "task_events", "messages", "task_attempts", "artifacts", "artifact_parts", "task_checkpoints", "context_tasks",
		"idempotency_keys", "task_ready", "task_leases", "task_batches", "task_cancels", "push_configs", "push_attempts")
	for _, table := range f.Column(`SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
		WHERE c.relnamespace = 'a2a'::regnamespace AND c.relkind IN ('r', 'p') AND a.attname = 'task_id'`) {
		if !slices.Contains(known, table) {
			t.Errorf("%s has a task_id: TaskDelete must remove its rows, and leftovers of this test look for them", table)
		}
	}
}

// retire goes over all tasks once.
func retire(f *storetest.Fixture, limit int, decide func(tasks.Ended) tasks.Fate) (sum tasks.Retired) {
	f.T.Helper()
	for after := (a2a.ID{}); ; {
		got, err := f.Tasks.Retire(f.T.Context(), after, 0, limit, decide)
		if err != nil {
			f.T.Fatal(err)
		}
		sum.Deleted, sum.Pruned, sum.Events = sum.Deleted+got.Deleted, sum.Pruned+got.Pruned, sum.Events+got.Events
		if after = got.Next; after.IsZero() {
			return sum
		}
	}
}

func always(fate tasks.Fate) func(tasks.Ended) tasks.Fate {
	return func(tasks.Ended) tasks.Fate { return fate }
}

func TestRetireDeletesWhatHasEndedAndIsSettled(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	unsettled := f.FullTask() // its webhook has had nothing yet
	running := f.RunningTask().TaskID
	waiting := f.NewTask()
	var ended []a2a.ID
	for range 5 {
		l := f.RunningTask()
		f.Append(l, storetest.Artifact("a", "x"), storetest.Status(a2a.StateCompleted, "done"))
		ended = append(ended, l.TaskID)
	}
	var asked []tasks.Ended
	got := retire(f, 2, func(e tasks.Ended) tasks.Fate { asked = append(asked, e); return tasks.Delete })
	storetest.Same(t, "retired", tasks.Retired{Deleted: 5}, got)
	for _, e := range asked {
		if e.Agent != storetest.Agent || e.State != a2a.StateCompleted || e.For < 0 || e.For > time.Hour {
			t.Errorf("asked about %+v", e)
		}
	}
	for _, id := range ended {
		if left := leftovers(f, id); len(left) > 0 {
			t.Errorf("what is left of %s: %q", id, left)
		}
	}
	for _, id := range []a2a.ID{unsettled, running, waiting} {
		if left := leftovers(f, id); !slices.Contains(left, "tasks") || !slices.Contains(left, "task_events") {
			t.Errorf("what is left of %s: %q", id, left)
		}
	}
	if n := len(f.Actions()); n != 3 { // batches of two
		t.Errorf("%d actions are recorded: %q", n, f.Actions())
	}
	// Its webhook was given up: that is settled too.
	f.Failed(f.DueWebhook(), webhooks.Failure{Fate: "dead"})
	storetest.Same(t, "what there is to delete", []string{
		"artifact_parts", "artifacts", "context_tasks", "idempotency_keys", "messages", "push_attempts", "push_configs", "task_attempts", "task_events", "tasks",
	}, leftovers(f, unsettled))
	storetest.Same(t, "retired", tasks.Retired{Deleted: 1}, retire(f, 10, always(tasks.Delete)))
	if left := leftovers(f, unsettled); len(left) > 0 {
		t.Errorf("what is left of %s: %q", unsettled, left)
	}
	f.Invariants()
}

// What was decided before the lock may have been another task's state, or that of a version to come.
func TestRetireLocksOnlyWhatHasEnded(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	running, waiting, l := f.RunningTask().TaskID, f.NewTask(), f.RunningTask()
	f.Append(l, storetest.Status(a2a.StateCompleted, ""))
	var ids []pgtype.UUID
	for _, id := range []a2a.ID{running, waiting, l.TaskID} {
		ids = append(ids, pgtype.UUID{Bytes: id, Valid: true})
	}
	got, err := dbsqlc.New(f.SQL).RetireLock(t.Context(), ids)
	if err != nil {
		t.Fatal(err)
	}
	storetest.Same(t, "locked", ids[2:], got)
}

func TestRetireLeavesTheLogOfWhatIsNotSettled(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	task := f.FullTask()
	before := f.Log(task)
	storetest.Same(t, "retired", tasks.Retired{}, retire(f, 10, always(tasks.Prune)))
	storetest.Same(t, "log", before, f.Log(task))
	// A webhook that its client has deleted is settled, whatever it had not been told.
	if err := f.Webhooks.Delete(t.Context(), storetest.Ann, task, "hook"); err != nil {
		t.Fatal(err)
	}
	storetest.Same(t, "retired", tasks.Retired{Pruned: 1, Events: int64(len(before) - 1)}, retire(f, 10, always(tasks.Prune)))
	storetest.Same(t, "actions", []string{fmt.Sprintf(`replica r1 log.prune / {"events":%d,"from":"%[2]s","tasks":1,"to":"%[2]s"}`, len(before)-1, task)}, f.Actions())
	storetest.Same(t, "retired", tasks.Retired{Deleted: 1}, retire(f, 10, always(tasks.Delete)))

	// One that has been told of everything is, too.
	task = f.FullTask()
	f.Delivered(f.DueWebhook(), false)
	if got := f.Progress(task, "hook"); got.State != "active" || got.Cursor != got.Head {
		t.Fatalf("the webhook is %+v", got)
	}
	storetest.Same(t, "retired", tasks.Retired{Deleted: 1}, retire(f, 10, always(tasks.Delete)))
}

func TestRetireLeavesYoungTasksUnread(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	f.Append(l, storetest.Status(a2a.StateCompleted, ""))
	got, err := f.Tasks.Retire(t.Context(), a2a.ID{}, time.Hour, 10, func(e tasks.Ended) tasks.Fate { t.Errorf("asked about %+v", e); return tasks.Delete })
	if err != nil || got.Deleted+got.Pruned+len(got.Left) != 0 || !got.At.IsZero() {
		t.Errorf("%+v, %v", got, err)
	}
}

// Whoever sets a webhook on an ended task, or reads it, holds its row.
func TestRetireLeavesHeldTasksAlone(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	f.Append(l, storetest.Status(a2a.StateCompleted, ""))
	release := f.Lock("SELECT FROM a2a.tasks WHERE id = $1 FOR UPDATE", l.TaskID.String())
	storetest.Same(t, "retired", tasks.Retired{}, retire(f, 10, always(tasks.Delete)))
	release()
	storetest.Same(t, "retired", tasks.Retired{Deleted: 1}, retire(f, 10, always(tasks.Delete)))
}

// Without its log a task reads as before.
func TestPrunedTaskReadsTheSame(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	for _, events := range []int{3, 40} { // artifacts in the log, and folded
		l := f.RunningTask()
		for i := range events {
			f.Append(l, storetest.Artifact(fmt.Sprint("a", i%3), fmt.Sprint(i)))
		}
		f.Append(l, storetest.Status(a2a.StateCompleted, "done"))
		before, log := f.Snapshot(l.TaskID), f.Log(l.TaskID)
		storetest.Same(t, "retired", tasks.Retired{Pruned: 1, Events: int64(len(log) - 1)}, retire(f, 10, always(tasks.Prune)))
		storetest.Same(t, "retired again", tasks.Retired{}, retire(f, 10, always(tasks.Prune)))
		storetest.Same(t, "task", before, f.Snapshot(l.TaskID))
		at, err := f.Tasks.SnapshotAt(t.Context(), l.TaskID, before.LastSeq, tasks.Want{Artifacts: true})
		if err != nil {
			t.Fatal(err)
		}
		storetest.Same(t, "task at its end", before, at)
		storetest.Same(t, "log", log[len(log)-1:], f.Log(l.TaskID))
		// A client that comes back to an event that is gone is told of a gap.
		if _, ok, err := f.Tasks.EventUID(t.Context(), l.TaskID, 2); err != nil || ok {
			t.Errorf("event 2 is there: %v, %v", ok, err)
		}
	}
	f.Invariants()
}

func TestPurgeRemovesWhateverRuns(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	mine := []a2a.ID{f.FullTask(), f.RunningTask().TaskID, f.NewTask()}
	f.SetWebhook(mine[1], "hook")
	bob := db.Caller{Tenant: "acme", Owner: "bob"}
	other := f.Submit(tasks.Submission{Caller: bob, Agent: storetest.Agent, ContextID: "talk", Message: a2a.Message{ID: "m", Role: a2a.RoleUser, Parts: []a2a.Part{{Kind: a2a.PartText, Text: "x"}}}}).Task
	f.TakeWakes()
	if _, err := f.Tasks.Purge(t.Context(), tasks.PurgeFilter{Tenant: "acme"}); err == nil {
		t.Error("a whole tenant was purged by leaving the owner out")
	}
	// One context of an owner.
	n, err := f.Tasks.Purge(t.Context(), tasks.PurgeFilter{Tenant: "acme", Owner: "ann", ContextID: "talk"})
	if err != nil || n != 1 || len(leftovers(f, mine[0])) > 0 || len(leftovers(f, mine[1])) == 0 {
		t.Errorf("purge of a context: %d, %v", n, err)
	}
	n, err = f.Tasks.Purge(t.Context(), tasks.PurgeFilter{Tenant: "acme", Owner: "ann"})
	if err != nil || n != 2 {
		t.Errorf("purge of an owner: %d, %v", n, err)
	}
	for _, id := range mine {
		if left := leftovers(f, id); len(left) > 0 {
			t.Errorf("what is left of %s: %q", id, left)
		}
	}
	if !slices.Contains(f.TakeWakes(), "cancel:r1") {
		t.Error("the worker was not told")
	}
	if left := leftovers(f, other); !slices.Contains(left, "tasks") {
		t.Errorf("somebody else's task: %q", left)
	}
	if n, err := f.Tasks.Purge(t.Context(), tasks.PurgeFilter{Task: other}); err != nil || n != 1 {
		t.Errorf("purge of a task: %d, %v", n, err)
	}
}

func TestPurgeRemovesOnlyWhatIsNamed(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	type place struct{ tenant, owner, context string }
	places := []place{{"acme", "ann", "talk"}, {"acme", "ann", "talk"}, {"acme", "ann", "work"}, {"acme", "bob", "talk"}, {"corp", "ann", "talk"}}
	for name, tc := range map[string]struct {
		filter func(ids []a2a.ID) tasks.PurgeFilter
		gone   []int
	}{
		"a task":   {func(ids []a2a.ID) tasks.PurgeFilter { return tasks.PurgeFilter{Task: ids[1]} }, []int{1}},
		"an owner": {func([]a2a.ID) tasks.PurgeFilter { return tasks.PurgeFilter{Tenant: "acme", Owner: "ann"} }, []int{0, 1, 2}},
		"a context": {func([]a2a.ID) tasks.PurgeFilter {
			return tasks.PurgeFilter{Tenant: "acme", Owner: "ann", ContextID: "talk"}
		}, []int{0, 1}},
		"a task, of an owner": {func(ids []a2a.ID) tasks.PurgeFilter {
			return tasks.PurgeFilter{Task: ids[0], Tenant: "acme", Owner: "ann"}
		}, []int{0}},
		"a task of another": {func(ids []a2a.ID) tasks.PurgeFilter {
			return tasks.PurgeFilter{Task: ids[3], Tenant: "acme", Owner: "ann"}
		}, nil},
		"an owner of no tasks": {func([]a2a.ID) tasks.PurgeFilter { return tasks.PurgeFilter{Tenant: "corp", Owner: "bob"} }, nil},
	} {
		ids := make([]a2a.ID, len(places))
		for i, p := range places {
			ids[i] = f.Submit(tasks.Submission{
				Caller: db.Caller{Tenant: p.tenant, Owner: p.owner}, Agent: storetest.Agent, ContextID: p.context,
				Message: a2a.Message{ID: "m", Role: a2a.RoleUser, Parts: []a2a.Part{{Kind: a2a.PartText, Text: "x"}}},
			}).Task
		}
		said := len(f.Actions())
		n, err := f.Tasks.Purge(t.Context(), tc.filter(ids))
		if err != nil || n != len(tc.gone) {
			t.Errorf("%s: %d, %v, want %d", name, n, err, len(tc.gone))
		}
		for i, id := range ids {
			if gone := len(leftovers(f, id)) == 0; gone != slices.Contains(tc.gone, i) {
				t.Errorf("%s: task %d of %v is gone: %t", name, i, places[i], gone)
			}
		}
		var purged []string
		for _, action := range f.Actions()[said:] {
			if strings.Contains(action, " task.purge ") {
				purged = append(purged, action)
			}
		}
		if len(purged) != len(tc.gone) {
			t.Errorf("%s: the audit log says %q", name, purged)
		}
		f.Exec("TRUNCATE a2a.tasks, a2a.task_events, a2a.messages, a2a.task_ready, a2a.context_tasks, a2a.task_attempts, a2a.audit_log")
	}
}

// A request that a deliverer has begun is waited for, as when a client deletes the webhook.
func TestPurgeWaitsForTheWebhookThatIsOnItsWay(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	task := f.FullTask()
	d := f.DueWebhook()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if n, err := f.Tasks.Purge(ctx, tasks.PurgeFilter{Task: task}); err == nil || n != 0 {
		t.Errorf("purged %d under a request, %v", n, err)
	}
	f.Delivered(d, true)
	if n, err := f.Tasks.Purge(t.Context(), tasks.PurgeFilter{Task: task}); err != nil || n != 1 {
		t.Errorf("purge: %d, %v", n, err)
	}
}

// To fold the artifacts of a large log may take longer than other statements may. The connection is silent meanwhile, and must not
// be given up for it.
func TestRetireFoldsForLongerThanStatementsMayTake(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	f.Append(l, storetest.Artifact("a", "text"), storetest.Status(a2a.StateCompleted, "done"))
	f.Exec(`CREATE FUNCTION a2a.test_slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(3); RETURN NEW; END $$`)
	f.Exec(`CREATE TRIGGER test_slow BEFORE INSERT ON a2a.artifacts FOR EACH ROW EXECUTE FUNCTION a2a.test_slow()`)
	s := f.Replica("r2", func(c *store.Config) { c.StatementTimeout = time.Second })
	out, err := s.Tasks.Retire(t.Context(), a2a.ID{}, 0, 10, func(tasks.Ended) tasks.Fate { return tasks.Prune })
	if err != nil || out.Pruned != 1 {
		t.Fatalf("pruned %d logs, %v", out.Pruned, err)
	}
	if !storetest.Value[bool](f, `SELECT folded FROM a2a.tasks WHERE id = $1`, l.TaskID.String()) {
		t.Error("the artifacts are not folded")
	}
}

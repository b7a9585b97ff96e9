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
		  UNION SELECT 'task_parked' FROM a2a.task_parked WHERE task_id = '%[1]s'
		  UNION SELECT 'task_assignments' FROM a2a.task_assignments WHERE task_id = '%[1]s'
		  UNION SELECT 'task_steps' FROM a2a.task_steps WHERE task_id = '%[1]s'
		  UNION SELECT 'task_waits' FROM a2a.task_waits WHERE task_id = '%[1]s'
		  UNION SELECT 'task_orphans' FROM a2a.task_orphans WHERE task_id = '%[1]s'
		  UNION SELECT 'task_usage' FROM a2a.task_usage WHERE task_id = '%[1]s'
		  UNION SELECT 'task_signals' FROM a2a.task_signals WHERE task_id = '%[1]s'
		  UNION SELECT 'push_configs' FROM a2a.push_configs WHERE task_id = '%[1]s'
		  UNION SELECT 'push_attempts' FROM a2a.push_attempts WHERE task_id = '%[1]s') x ORDER BY x.name`, task))
}

// A table that the deletion forgets would keep data that a client or an operator wanted to be deleted.
func TestDeletionKnowsEveryTable(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	// By design: the records for auditors are kept for longer than the tasks, and hold nothing that a client wrote.
	known := []string{"audit_log", "schedule_ticks", "job_tasks"}
	known = append(known, "task_events", "messages", "task_attempts", "artifacts", "artifact_parts", "task_checkpoints",
		"context_tasks",
		"idempotency_keys", "task_ready", "task_leases", "task_batches", "task_cancels", "task_steps", "task_waits",
		"task_usage", "task_signals", "task_parked", "task_orphans", "task_assignments", "push_configs",
		"push_attempts")
	for _, table := range f.Column(`SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
		WHERE c.relnamespace = 'a2a'::regnamespace AND c.relkind IN ('r', 'p') AND a.attname = 'task_id'`) {
		if !slices.Contains(known, table) {
			t.Errorf("%s has a task_id: TaskDelete must remove its rows, and leftovers must list it",
				table)
		}
	}
}

// retire calls Retire until it has visited all tasks.
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

// always decides the same for every task.
func always(fate tasks.Fate) func(tasks.Ended) tasks.Fate {
	return func(tasks.Ended) tasks.Fate { return fate }
}

func TestRetireDeletesEndedTasksWhoseWebhooksAreDone(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	undelivered := f.FullTask() // its webhook has delivered nothing yet
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
			t.Errorf("Retire asks about %+v", e)
		}
	}
	for _, id := range ended {
		if left := leftovers(f, id); len(left) > 0 {
			t.Errorf("rows left of %s: %q", id, left)
		}
	}
	for _, id := range []a2a.ID{undelivered, running, waiting} {
		if left := leftovers(f, id); !slices.Contains(left, "tasks") || !slices.Contains(left, "task_events") {
			t.Errorf("rows left of %s: %q", id, left)
		}
	}
	if n := len(f.Actions()); n != 3 { // one per batch of two tasks
		t.Errorf("%d actions are recorded, want 3: %q", n, f.Actions())
	}
	// A dead webhook is done, too.
	f.Failed(f.DueWebhook(), webhooks.Failure{Fate: "dead"})
	storetest.Same(t, "what there is to delete", []string{
		"artifact_parts", "artifacts", "context_tasks", "idempotency_keys", "messages", "push_attempts", "push_configs",
		"task_attempts", "task_events", "tasks",
	}, leftovers(f, undelivered))
	storetest.Same(t, "retired", tasks.Retired{Deleted: 1}, retire(f, 10, always(tasks.Delete)))
	if left := leftovers(f, undelivered); len(left) > 0 {
		t.Errorf("rows left of %s: %q", undelivered, left)
	}
	f.Invariants()
}

// A task may change between the decision and the lock. So the lock checks again that the task has ended.
func TestRetireLocksOnlyEndedTasks(t *testing.T) {
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

func TestRetireKeepsTheLogUntilWebhooksAreDone(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	task := f.FullTask()
	before := f.Log(task)
	storetest.Same(t, "retired", tasks.Retired{}, retire(f, 10, always(tasks.Prune)))
	storetest.Same(t, "log", before, f.Log(task))
	// A deleted webhook is done, even if it has not delivered everything.
	if err := f.Webhooks.Delete(t.Context(), storetest.Ann, task, "hook"); err != nil {
		t.Fatal(err)
	}
	storetest.Same(t, "retired",
		tasks.Retired{Pruned: 1, Events: int64(len(before) - 1)}, retire(f, 10, always(tasks.Prune)))
	storetest.Same(t, "actions",
		[]string{
			fmt.Sprintf(`replica r1 log.prune / {"events":%d,"from":"%[2]s","tasks":1,"to":"%[2]s"}`,
				len(before)-1, task),
		}, f.Actions())
	storetest.Same(t, "retired", tasks.Retired{Deleted: 1}, retire(f, 10, always(tasks.Delete)))

	// A webhook that has delivered everything is done, too.
	task = f.FullTask()
	f.Delivered(f.DueWebhook(), false)
	if got := f.Progress(task, "hook"); got.State != "active" || got.Cursor != got.Head {
		t.Fatalf("the webhook is %+v, want it active, with everything delivered", got)
	}
	storetest.Same(t, "retired", tasks.Retired{Deleted: 1}, retire(f, 10, always(tasks.Delete)))
}

func TestRetireDoesNotReadYoungTasks(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	f.Append(l, storetest.Status(a2a.StateCompleted, ""))
	got, err := f.Tasks.Retire(t.Context(), a2a.ID{}, time.Hour, 10, func(e tasks.Ended) tasks.Fate {
		t.Errorf("Retire asks about %+v", e)
		return tasks.Delete
	})
	if err != nil || got.Deleted+got.Pruned+len(got.Left) != 0 || !got.At.IsZero() {
		t.Errorf("%+v, %v", got, err)
	}
}

// A statement that sets a webhook on an ended task has locked its row.
func TestRetireSkipsLockedTasks(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	f.Append(l, storetest.Status(a2a.StateCompleted, ""))
	release := f.Lock("SELECT FROM a2a.tasks WHERE id = $1 FOR UPDATE", l.TaskID.String())
	storetest.Same(t, "retired", tasks.Retired{}, retire(f, 10, always(tasks.Delete)))
	release()
	storetest.Same(t, "retired", tasks.Retired{Deleted: 1}, retire(f, 10, always(tasks.Delete)))
}

func TestPrunedTaskReadsTheSame(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	for _, events := range []int{3, 40} { // artifacts in the log, and folded ones
		l := f.RunningTask()
		for i := range events {
			f.Append(l, storetest.Artifact(fmt.Sprint("a", i%3), fmt.Sprint(i)))
		}
		f.Append(l, storetest.Status(a2a.StateCompleted, "done"))
		before, log := f.Snapshot(l.TaskID), f.Log(l.TaskID)
		storetest.Same(t, "retired",
			tasks.Retired{Pruned: 1, Events: int64(len(log) - 1)}, retire(f, 10, always(tasks.Prune)))
		storetest.Same(t, "retired again", tasks.Retired{}, retire(f, 10, always(tasks.Prune)))
		storetest.Same(t, "task", before, f.Snapshot(l.TaskID))
		at, err := f.Tasks.SnapshotAt(t.Context(), l.TaskID, before.LastSeq, tasks.Want{Artifacts: true})
		if err != nil {
			t.Fatal(err)
		}
		storetest.Same(t, "task at its end", before, at)
		storetest.Same(t, "log", log[len(log)-1:], f.Log(l.TaskID))
		// A client that resumes after a deleted event learns that there is a gap.
		if _, ok, err := f.Tasks.EventUID(t.Context(), l.TaskID, 2); err != nil || ok {
			t.Errorf("EventUID of a deleted event = %v, %v, want none", ok, err)
		}
	}
	f.Invariants()
}

func TestPurgeDeletesTasksInAnyState(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	mine := []a2a.ID{f.FullTask(), f.RunningTask().TaskID, f.NewTask()}
	f.SetWebhook(mine[1], "hook")
	bob := db.Caller{Tenant: "acme", Owner: "bob"}
	other := f.Submit(tasks.Submission{
		Caller: bob, Agent: storetest.Agent, ContextID: "talk",
		Message: a2a.Message{ID: "m", Role: a2a.RoleUser, Parts: []a2a.Part{{Kind: a2a.PartText, Text: "x"}}},
	}).Task
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
			t.Errorf("rows left of %s: %q", id, left)
		}
	}
	if !slices.Contains(f.TakeWakes(), "cancel:r1") {
		t.Error("the worker was not woken")
	}
	if left := leftovers(f, other); !slices.Contains(left, "tasks") {
		t.Errorf("rows of another owner's task: %q", left)
	}
	if n, err := f.Tasks.Purge(t.Context(), tasks.PurgeFilter{Task: other}); err != nil || n != 1 {
		t.Errorf("purge of a task: %d, %v", n, err)
	}
}

func TestPurgeDeletesOnlyWhatTheFilterNames(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	type origin struct{ tenant, owner, context string }
	origins := []origin{
		{"acme", "ann", "talk"}, {"acme", "ann", "talk"}, {"acme", "ann", "work"}, {"acme", "bob", "talk"},
		{"corp", "ann", "talk"},
	}
	for name, tc := range map[string]struct {
		filter  func(ids []a2a.ID) tasks.PurgeFilter
		deleted []int
	}{
		"a task": {func(ids []a2a.ID) tasks.PurgeFilter { return tasks.PurgeFilter{Task: ids[1]} }, []int{1}},
		"an owner": {
			func([]a2a.ID) tasks.PurgeFilter { return tasks.PurgeFilter{Tenant: "acme", Owner: "ann"} }, []int{0, 1, 2},
		},
		"a context": {func([]a2a.ID) tasks.PurgeFilter {
			return tasks.PurgeFilter{Tenant: "acme", Owner: "ann", ContextID: "talk"}
		}, []int{0, 1}},
		"a task, of an owner": {func(ids []a2a.ID) tasks.PurgeFilter {
			return tasks.PurgeFilter{Task: ids[0], Tenant: "acme", Owner: "ann"}
		}, []int{0}},
		"a task of another": {func(ids []a2a.ID) tasks.PurgeFilter {
			return tasks.PurgeFilter{Task: ids[3], Tenant: "acme", Owner: "ann"}
		}, nil},
		"an owner of no tasks": {
			func([]a2a.ID) tasks.PurgeFilter { return tasks.PurgeFilter{Tenant: "corp", Owner: "bob"} }, nil,
		},
	} {
		ids := make([]a2a.ID, len(origins))
		for i, p := range origins {
			ids[i] = f.Submit(tasks.Submission{
				Caller: db.Caller{Tenant: p.tenant, Owner: p.owner}, Agent: storetest.Agent, ContextID: p.context,
				Message: a2a.Message{ID: "m", Role: a2a.RoleUser, Parts: []a2a.Part{{Kind: a2a.PartText, Text: "x"}}},
			}).Task
		}
		said := len(f.Actions())
		n, err := f.Tasks.Purge(t.Context(), tc.filter(ids))
		if err != nil || n != len(tc.deleted) {
			t.Errorf("%s: %d, %v, want %d", name, n, err, len(tc.deleted))
		}
		for i, id := range ids {
			if deleted := len(leftovers(f, id)) == 0; deleted != slices.Contains(tc.deleted, i) {
				t.Errorf("%s: task %d of %v deleted = %t", name, i, origins[i], deleted)
			}
		}
		var purged []string
		for _, action := range f.Actions()[said:] {
			if strings.Contains(action, " task.purge ") {
				purged = append(purged, action)
			}
		}
		if len(purged) != len(tc.deleted) {
			t.Errorf("%s: the audit log says %q", name, purged)
		}
		f.Exec(`TRUNCATE a2a.tasks, a2a.task_events, a2a.messages, a2a.task_ready, a2a.context_tasks,
			a2a.task_attempts, a2a.audit_log`)
	}
}

// A purge waits for the request in flight, like a client that deletes the webhook.
func TestPurgeWaitsForTheRequestInFlight(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	task := f.FullTask()
	d := f.DueWebhook()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if n, err := f.Tasks.Purge(ctx, tasks.PurgeFilter{Task: task}); err == nil || n != 0 {
		t.Errorf("purged %d during a request, %v, want an error", n, err)
	}
	f.Delivered(d, true)
	if n, err := f.Tasks.Purge(t.Context(), tasks.PurgeFilter{Task: task}); err != nil || n != 1 {
		t.Errorf("purge: %d, %v, want 1", n, err)
	}
}

// Folding a large log may take longer than statement_timeout allows. The connection is silent during that time, and the
// store must not close it.
func TestRetireHasNoStatementTimeout(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	f.Append(l, storetest.Artifact("a", "text"), storetest.Status(a2a.StateCompleted, "done"))
	f.Exec(`CREATE FUNCTION a2a.test_slow() RETURNS trigger LANGUAGE plpgsql
		AS $$ BEGIN PERFORM pg_sleep(8); RETURN NEW; END $$`)
	f.Exec(`CREATE TRIGGER test_slow BEFORE INSERT ON a2a.artifacts FOR EACH ROW EXECUTE FUNCTION a2a.test_slow()`)
	s := f.Replica("r2", func(c *store.Config) { c.StatementTimeout = 4 * time.Second })
	out, err := s.Tasks.Retire(t.Context(), a2a.ID{}, 0, 10, func(tasks.Ended) tasks.Fate { return tasks.Prune })
	if err != nil || out.Pruned != 1 {
		t.Fatalf("pruned %d logs, %v, want 1", out.Pruned, err)
	}
	if !storetest.Value[bool](f, `SELECT folded FROM a2a.tasks WHERE id = $1`, l.TaskID.String()) {
		t.Error("the artifacts are not folded")
	}
}

package tenantfile_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// stays are the tables with a column tenant or task_id whose rows do not move, with the reason.
var stays = map[string]string{
	"task_leases":      "no task at work moves",
	"audit_log":        "what was done in a database stays in its log",
	"job_tasks":        "bulk jobs are of all tenants",
	"browser_sessions": "people sign in again",
	"workers":          "workers are of all tenants",
	"context_tasks":    "a trigger makes them",
	"tenant_moves":     "it is about moves",
	"tenant_rows":      "it has what moves",
}

// moving are the tables whose rows move.
func moving(f *storetest.Fixture) []string {
	return slices.DeleteFunc(f.Column(`
		SELECT DISTINCT c.relname::text FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
		WHERE c.relnamespace = 'a2a'::regnamespace AND c.relkind IN ('r', 'p')
		  AND (a.attname IN ('tenant', 'task_id') OR c.relname IN ('tasks', 'schedule_ticks')) ORDER BY 1`),
		func(table string) bool { return stays[table] != "" })
}

// own are the columns that have other values in each database.
var own = map[string]string{"task_events": "xid", "push_attempts": "id"}

// content is every row of the tables that move, apart from the columns of their own. It is read by other statements
// than those that move them.
func content(f *storetest.Fixture) map[string][]string {
	all := make(map[string][]string)
	for _, table := range moving(f) {
		columns := f.Column(fmt.Sprintf(`SELECT quote_ident(attname) FROM pg_attribute
			WHERE attrelid = 'a2a.%s'::regclass AND attnum > 0 AND NOT attisdropped AND attname <> '%s'
			ORDER BY attname`, table, own[table]))
		all[table] = f.Column(fmt.Sprintf("SELECT ROW(%s)::text FROM a2a.%s", strings.Join(columns, ", "), table))
		slices.Sort(all[table])
	}
	return all
}

// fill makes a tenant with rows in every table that moves.
func fill(t *testing.T, f *storetest.Fixture) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	in := storetest.Submission("tab\t, quote \", backslash \\, NUL \\u0000, line\nand \u2028 and an emoji 🐘")
	in.Key = "h:key"
	asks := f.ClaimTask(f.Submit(in).Task)
	f.Append(asks, storetest.Chunk("a", "1"), storetest.Chunk("a", "2"), storetest.Status(a2a.StateInputRequired, "?"))
	err := f.Tasks.Assign(ctx, tasks.Assignment{Task: asks.TaskID, To: "ann@example.org"})
	must(err)

	folded := f.RunningTask()
	_, err = f.Tasks.Append(ctx, folded, tasks.Batch{
		Usage: []a2a.Usage{{Model: "m", Input: 3, Output: 4, Requests: 1}}, ID: "b1",
		Checkpoint: a2a.Raw(`{"at": 1.0}`), Events: []a2a.Event{storetest.Chunk("a", "x")},
	})
	must(err)
	_, err = f.Tasks.SumUsage(ctx, 100)
	must(err)
	for i := range 40 {
		f.Append(folded, storetest.Chunk("a", fmt.Sprint(i)))
	}
	f.Append(folded, storetest.Status(a2a.StateCompleted, "done"))

	parked := f.RunningTask()
	_, err = f.Tasks.Append(ctx, parked, tasks.Batch{
		Checkpoint: a2a.Raw(`{"at":2}`), Usage: []a2a.Usage{{Model: "m", Input: 5}},
	})
	must(err)
	must(f.Tasks.Park(ctx, parked, "attempts are used up", 0))

	waits := f.RunningTask()
	_, err = f.Tasks.Append(ctx, waits, tasks.Batch{
		Wait: &a2a.Wait{Signal: "go", For: time.Hour}, Steps: []a2a.StepRecord{
			{
				Step: a2a.Step{Key: "charge#1", Result: a2a.Raw(`"\u0000 paid"`)}, Seq: 1, Kind: a2a.StepWork,
				Ended: true,
			},
			{Step: a2a.Step{Key: "wait#1"}, Seq: 2, Kind: a2a.StepWait},
		},
	})
	must(err)
	f.Exec(`INSERT INTO a2a.task_signals (task_id, seq, name, key, digest, value, sender)
		VALUES ($1, 1, 'go', 'k', '\x00ff', '{"a" :  1}', 'ann')`, waits.TaskID)

	f.NewTaskWithWebhook("h1")
	f.Failed(f.DueWebhook(), failure)
	f.SetWebhook(asks.TaskID, "h2")
	f.Exec("UPDATE a2a.push_configs SET deleted_at = clock_timestamp(), deleted_after_seq = 1 WHERE config_id = 'h2'")
	f.Exec("UPDATE a2a.push_configs SET token = 'sealed', query = 'q'")
	f.NewTask() // submitted

	f.Exec(`INSERT INTO a2a.task_orphans (task_id, parent_id) VALUES ($1, $2)`, parked.TaskID, folded.TaskID)
	f.Exec(`INSERT INTO a2a.task_cancels (task_id, queue, tenant, owner, traceparent, checkpoint, body, due_at)
		VALUES ($1, 'words', 'acme', 'ann', '', '{}', '{}', 'infinity')`, folded.TaskID)
	f.Exec(`INSERT INTO a2a.push_destinations (tenant, origin, last_error, fails)
		VALUES ('acme', 'https://x', 'no', 1)`)
	f.Exec(`INSERT INTO a2a.push_parked (tenant, origin, look_at) VALUES ('acme', 'https://x', 'infinity')`)
	f.Exec(`INSERT INTO a2a.schedules (agent, name, cron, timezone, message, tenant, owner, overlap, catch_up, jitter,
		paused, loaded_by, next_tick, next_at)
		VALUES ('words', 'daily', '0 3 * * *', 'UTC', '{}', 'acme', 'ann', 'skip',
		'1 day 2 hours', '00:00:01.5', false, 'r1', '2100-01-01', '2100-01-01')`)
	f.Exec(`INSERT INTO a2a.schedule_ticks (agent, name, tick, outcome)
		VALUES ('words', 'daily', '2026-01-01', 'missed')`)
	f.Exec(`INSERT INTO a2a.api_keys (id, secret_sha256, tenant, owner, name, scopes)
		VALUES ('k1', sha256('x'), 'acme', 'ann', 'a', '{tasks:read,tasks:write}')`)
}

// The test of all others: nothing of what a tenant has is left out.
func TestFillHasRowsInEveryTable(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	fill(t, f)
	all := content(f)
	for _, table := range moving(f) {
		if len(all[table]) == 0 {
			t.Errorf("no rows in %s: fill must make some, or stays must say why they do not move", table)
		}
	}
	f.Invariants()
}

func sameContent(t *testing.T, what string, want, got map[string][]string) {
	t.Helper()
	for _, table := range slices.Sorted(maps.Keys(want)) {
		if diff := cmp.Diff(want[table], got[table]); diff != "" {
			t.Errorf("%s: table %s (-want +got):\n%s", what, table, diff)
		}
	}
}

package storetest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// planted are faults by the query that must find them. $E is a task that has ended, $Q waits for a worker, $R has one,
// $W waits for a message, $P has called $C and waits for it, and $K is parked.
var planted = []struct{ query, sql string }{
	{"events are not first_seq..last_seq", `DELETE FROM a2a.task_events WHERE task_id = $E AND seq = 3`},
	{"messages are not 1..last_message_seq", `DELETE FROM a2a.messages WHERE task_id = $E AND seq = 1`},
	{"messages are not in the order of their events",
		`UPDATE a2a.messages SET at_seq = 99 WHERE task_id = $E AND seq = 1`},
	{"an event after the terminal one", `UPDATE a2a.tasks SET last_seq = last_seq + 1 WHERE id = $E`},
	{"the state is not that of the last status", `UPDATE a2a.tasks SET state = 101 WHERE id = $E`},
	{"status_at is not the time of the last status", `UPDATE a2a.tasks SET status_at = status_at - interval '1 s'
		WHERE id = $E`},
	{"last_at is not the time of the last event",
		`UPDATE a2a.tasks SET last_at = last_at + interval '1 s' WHERE id = $E`},
	{"an event is older than the one before it",
		`UPDATE a2a.task_events SET committed_at = committed_at - interval '1 h'
		WHERE task_id = $E AND seq = 3`},
	{"an older epoch wrote after a newer one", `UPDATE a2a.task_events SET epoch = 7 WHERE task_id = $E AND seq = 3`},
	{withoutAttempt, `UPDATE a2a.task_events SET worker = 'ghost' WHERE task_id = $E AND seq = 3`},
	{"an illegal transition", `UPDATE a2a.task_events SET state = 2 WHERE task_id = $E AND seq = 1`},
	{"ready_at without its row, or a row without ready_at", `DELETE FROM a2a.task_ready WHERE task_id = $Q`},
	{"in the queue and must not be, or the reverse", `INSERT INTO a2a.task_parked
		SELECT $W, t.lease_epoch, t.agent, t.tenant, now(), 'infinity', 'x', 1 FROM a2a.tasks t WHERE t.id = $W`},
	{"a wait of another epoch, or of no task", `UPDATE a2a.task_waits SET epoch = 99 WHERE task_id = $W`},
	{"steps are not 1..steps", `UPDATE a2a.task_steps SET seq = 2 WHERE task_id = $W`},
	{"a wait that nothing ends", `UPDATE a2a.task_waits SET due_at = 'infinity', deadline_at = NULL, pending = 0
		WHERE task_id = $P`},
	{"a wait without its step", `UPDATE a2a.task_waits SET step = 1 WHERE task_id = $P`},
	{"a wait that is recorded as over, or the reverse",
		`UPDATE a2a.task_steps SET ended_at = now() WHERE task_id = $W`},
	{"a call without its task, or a called task without its call", `DELETE FROM a2a.tasks WHERE id = $C`},
	{"a called task of another owner, or of a wrong depth", `UPDATE a2a.tasks SET owner = 'eve' WHERE id = $C`},
	{"a call that has ended while its task has not, or the reverse", `UPDATE a2a.task_steps SET ended_at = now()
		WHERE child_id = $C`},
	{"a wait for calls that counts them wrong", `UPDATE a2a.task_waits SET pending = 2 WHERE task_id = $P`},
	{"an open call of an ended task that no one cancels", `UPDATE a2a.tasks SET state = 100 WHERE id = $P`},
	{"a child to be canceled whose parent has not ended", `INSERT INTO a2a.task_orphans VALUES ($C, $P)`},
	{"a step of an older epoch after one of a newer",
		`UPDATE a2a.task_steps SET epoch = 7 WHERE task_id = $P AND seq = 1`},
	{"a step without an attempt", `UPDATE a2a.task_steps SET worker = 'ghost' WHERE task_id = $W`},
	{"a signal that has ended a wait of no task", signals(1) + `; UPDATE a2a.task_signals SET step = 9`},
	{"two signals that have ended one wait", signals(2)},
	{"a lease of another epoch, or of no task", `UPDATE a2a.task_leases SET epoch = 99 WHERE task_id = $R`},
	{"parked under another epoch, or no task, or one that is not working",
		`UPDATE a2a.task_parked SET epoch = 99 WHERE task_id = $K`},
	{"an open attempt without a lease, or the reverse", `DELETE FROM a2a.task_leases WHERE task_id = $R`},
	{"an attempt of a future epoch", `UPDATE a2a.task_attempts SET epoch = 99 WHERE task_id = $E`},
	{"folded artifacts of a task that is not marked so, or the reverse",
		`UPDATE a2a.tasks SET folded = false WHERE id = $E`},
	{"folded artifacts of a task that has not ended", `ALTER TABLE a2a.tasks DROP CONSTRAINT tasks_check;
		UPDATE a2a.tasks SET state = 2 WHERE id = $E`},
	{"usage of no task",
		`DELETE FROM a2a.tasks WHERE id = $C; INSERT INTO a2a.task_usage VALUES ($C, 'm', 1, 1, 0, 0, 1)`},
	{"usage of tasks that is missing in the sums by day",
		`UPDATE a2a.usage_pending SET reasoning_tokens = reasoning_tokens - 1`},
	{"a checkpoint of a task that has ended", `INSERT INTO a2a.task_checkpoints VALUES ($E, 1, '1')`},
	{"a webhook that does not know the newest event", `UPDATE a2a.push_configs SET head_seq = head_seq - 1
		WHERE task_id = $E`},
	{"a parked webhook that is in no list", `UPDATE a2a.push_configs SET parked = true WHERE task_id = $E`},
	{"an attempt that ended before it began", `UPDATE a2a.task_attempts SET ended_at = claimed_at - interval '1 h'
		WHERE task_id = $E`},
	{"a list_key of another list", `UPDATE a2a.tasks SET list_key = list_key + 1 WHERE id = $E`},
	{"a task of two ticks", `INSERT INTO a2a.schedule_ticks (agent, name, tick, outcome, task_id)
		SELECT 'words', 's', now() + n * interval '1 min', 'started', $E FROM generate_series(1, 2) n`},
	{"two tasks of a tick", schedule + `; UPDATE a2a.messages SET body =
		'{"metadata":{"a2ad/schedule":"s","a2ad/tick":"2026-01-01T00:00:00Z"}}' WHERE task_id IN ($Q, $R) AND seq = 1`},
	{"a queued tick without its record", schedule + `; UPDATE a2a.schedules SET queued_tick = now(), last_task = $E`},
	{"an idempotency key of no task", `UPDATE a2a.idempotency_keys SET task_id = gen_random_uuid()`},
}

const schedule = `INSERT INTO a2a.schedules (agent, name, cron, timezone, message, tenant, owner, overlap, catch_up,
	jitter, paused, loaded_by) VALUES ('words', 's', '@daily', 'UTC', '{}', 't', 'o', 'queue', '1 h', '0', true, 'r1')`

// signals adds signals that have ended the wait of $W.
func signals(n int) string {
	return fmt.Sprintf(`INSERT INTO a2a.task_signals (task_id, seq, name, key, digest, sender, step)
		SELECT $W, n, 's', n::text, '', 'x', 1 FROM generate_series(1, %d) n`, n)
}

// someTasks makes the tasks of planted, and returns what replaces their names.
func someTasks(f *Fixture) *strings.Replacer {
	f.T.Helper()
	appendTo := func(l *tasks.Lease, b tasks.Batch) {
		f.T.Helper()
		if _, err := f.Tasks.Append(f.T.Context(), l, b); err != nil {
			f.T.Fatal(err)
		}
	}
	step := func(seq int, kind a2a.StepKind) a2a.StepRecord {
		return a2a.StepRecord{Step: a2a.Step{Key: fmt.Sprint("k", seq)}, Seq: seq, Kind: kind}
	}
	ended := f.FullTask()
	waits := f.RunningTask()
	appendTo(waits, tasks.Batch{
		Wait: &a2a.Wait{Message: true, For: time.Hour}, Steps: []a2a.StepRecord{step(1, a2a.StepWait)},
	})
	parked := f.RunningTask()
	if err := f.Tasks.Park(f.T.Context(), parked, "bad luck", 0); err != nil {
		f.T.Fatal(err)
	}
	runs, parent := f.RunningTask(), f.RunningTask()
	appendTo(runs, tasks.Batch{Usage: []a2a.Usage{{Model: "m", Output: 3, Reasoning: 2}}})
	call, wait := step(1, a2a.StepCall), step(2, a2a.StepWait)
	call.Child, wait.Calls = db.NewTaskID(), []int{1}
	call.Call = &a2a.Call{Key: call.Key, Agent: Agent, Message: Message("", "x")}
	appendTo(parent, tasks.Batch{
		ContextID: "ctx", Wait: &a2a.Wait{For: time.Hour}, Steps: []a2a.StepRecord{call, wait},
	})
	var names []string
	for name, id := range map[string]a2a.ID{
		"$E": ended, "$Q": f.NewTask(), "$R": runs.TaskID, "$W": waits.TaskID, "$P": parent.TaskID, "$C": call.Child,
		"$K": parked.TaskID,
	} {
		names = append(names, name, "'"+id.String()+"'::uuid")
	}
	return strings.NewReplacer(names...)
}

// Each query finds a fault that is planted in a healthy database.
func TestInvariantsFindPlantedFaults(t *testing.T) {
	t.Parallel()
	f := Open(t)
	names := someTasks(f)
	f.Invariants()
	query := make(map[string]int)
	for i, q := range brokenTasks {
		query[q.name] = i
	}
	for _, p := range planted {
		i, ok := query[p.query]
		delete(query, p.query)
		found, err := findPlanted(t.Context(), f, names.Replace(p.sql))
		if err != nil || !ok || found[i] == "" {
			t.Errorf("%q finds nothing: %v", p.query, err)
		}
	}
	for name := range query {
		t.Errorf("no fault is planted for %q", name)
	}
}

// findPlanted plants a fault in a transaction, and rolls it back.
func findPlanted(ctx context.Context, f *Fixture, fault string) ([]string, error) {
	tx, err := f.SQL.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // the fault must go
	if _, err := tx.Exec(ctx, fault); err != nil {
		return nil, err
	}
	return findBroken(ctx, tx, nil)
}

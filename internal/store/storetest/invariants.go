package storetest

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

const withoutAttempt = "an event without an attempt"

// brokenTasks are the queries that find tasks in a state that no task may be in.
var brokenTasks = []struct{ name, query string }{
	{"events are not first_seq..last_seq", `
		SELECT t.id FROM a2a.tasks t LEFT JOIN a2a.task_events e ON e.task_id = t.id GROUP BY t.id
		HAVING count(e.seq) <> t.last_seq - t.first_seq + 1 OR min(e.seq) <> t.first_seq OR max(e.seq) <> t.last_seq`},
	{"messages are not 1..last_message_seq", `
		SELECT t.id FROM a2a.tasks t LEFT JOIN a2a.messages m ON m.task_id = t.id GROUP BY t.id
		HAVING count(m.seq) <> t.last_message_seq OR min(m.seq) <> 1 OR max(m.seq) <> t.last_message_seq
		  OR max(m.seq) FILTER (WHERE m.role = 1) <> t.last_user_seq`},
	{"messages are not in the order of their events", `
		SELECT m.task_id
		FROM (SELECT *, lag(at_seq) OVER (PARTITION BY task_id ORDER BY seq) AS before FROM a2a.messages) m
		JOIN a2a.tasks t ON t.id = m.task_id
		WHERE m.at_seq < m.before OR m.at_seq < 1 OR m.at_seq > t.last_seq + 1
		  OR m.role = 2 AND m.at_seq >= t.first_seq AND NOT EXISTS (
		    SELECT FROM a2a.task_events e
		    WHERE e.task_id = m.task_id AND e.seq = m.at_seq AND e.kind = 1 AND e.body::text LIKE '%"message"%')`},
	{"an event after the terminal one", `
		SELECT e.task_id FROM a2a.task_events e JOIN a2a.tasks t ON t.id = e.task_id
		WHERE e.state >= 100 AND e.seq <> t.last_seq`},
	{"the state is not that of the last status", `
		SELECT t.id FROM a2a.tasks t
		WHERE t.state IS DISTINCT FROM (
		  SELECT e.state FROM a2a.task_events e WHERE e.task_id = t.id AND e.kind = 1 ORDER BY e.seq DESC LIMIT 1)`},
	{"status_at is not the time of the last status", `
		SELECT t.id FROM a2a.tasks t
		WHERE t.status_at IS DISTINCT FROM (
		  SELECT date_trunc('milliseconds', e.committed_at) FROM a2a.task_events e
		  WHERE e.task_id = t.id AND e.kind = 1 ORDER BY e.seq DESC LIMIT 1)`},
	{"last_at is not the time of the last event", `
		SELECT t.id FROM a2a.tasks t JOIN a2a.task_events e ON e.task_id = t.id AND e.seq = t.last_seq
		WHERE e.committed_at <> t.last_at`},
	{"an event is older than the one before it", `
		SELECT e.task_id
		FROM (SELECT *, lag(committed_at) OVER (PARTITION BY task_id ORDER BY seq) AS before FROM a2a.task_events) e
		WHERE e.committed_at < e.before`},
	{"an older epoch wrote after a newer one", `
		SELECT e.task_id
		FROM (SELECT *, max(epoch) OVER (PARTITION BY task_id ORDER BY seq) AS newest FROM a2a.task_events) e
		WHERE e.source = 1 AND e.epoch < e.newest`},
	{withoutAttempt, `
		SELECT e.task_id FROM a2a.task_events e
		WHERE e.source = 1 AND NOT EXISTS (
		  SELECT FROM a2a.task_attempts a
		  WHERE a.task_id = e.task_id AND a.epoch = e.epoch AND a.worker = e.worker)`},
	{"an illegal transition", `
		SELECT e.task_id
		FROM (SELECT task_id, seq, state, lag(state) OVER (PARTITION BY task_id ORDER BY seq) AS before
		      FROM a2a.task_events WHERE kind = 1) e
		WHERE e.before >= 100 OR e.state = 1 AND e.before = 2 OR e.state = 1 AND e.before = 1
		  OR e.state IN (3, 4) AND e.before IN (3, 4) OR e.before IS NULL AND e.state <> 1 AND e.seq = 1`},
	{"ready_at without its row, or a row without ready_at", `
		SELECT coalesce(t.id, r.task_id)
		FROM (SELECT * FROM a2a.tasks WHERE ready_at IS NOT NULL) t
		FULL JOIN a2a.task_ready r ON r.task_id = t.id
		  AND r.run_at = t.ready_at AND r.queue = t.agent AND r.priority = t.priority AND r.tenant = t.tenant
		WHERE t.id IS NULL OR r.task_id IS NULL`},
	{"in the queue and must not be, or the reverse", `
		SELECT t.id
		FROM a2a.tasks t
		LEFT JOIN a2a.task_leases l ON l.task_id = t.id
		LEFT JOIN a2a.task_parked p ON p.task_id = t.id
		LEFT JOIN a2a.task_waits w ON w.task_id = t.id
		WHERE CASE t.state
		  WHEN 1 THEN t.ready_at IS NULL OR l.task_id IS NOT NULL OR w.task_id IS NOT NULL
		  WHEN 2 THEN num_nonnulls(t.ready_at, l.task_id, p.task_id, w.task_id) <> 1
		  ELSE t.ready_at IS NOT NULL OR l.task_id IS NOT NULL OR t.state >= 100 AND w.task_id IS NOT NULL END`},
	{"a wait of another epoch, or of no task", `
		SELECT w.task_id FROM a2a.task_waits w LEFT JOIN a2a.tasks t ON t.id = w.task_id
		WHERE t.lease_epoch IS DISTINCT FROM w.epoch`},
	{"steps are not 1..steps", `
		SELECT t.id FROM a2a.tasks t LEFT JOIN a2a.task_steps s ON s.task_id = t.id GROUP BY t.id
		HAVING count(s.seq) <> t.steps OR min(s.seq) <> 1 OR max(s.seq) <> t.steps`},
	{"a wait that nothing ends", `
		SELECT w.task_id FROM a2a.task_waits w
		WHERE least(w.due_at, w.deadline_at) = 'infinity' AND NOT w.on_message AND w.on_signal IS NULL
		  AND w.pending <= 0`},
	{"a wait without its step", `
		SELECT w.task_id FROM a2a.task_waits w JOIN a2a.tasks t ON t.id = w.task_id AND t.lease_epoch = w.epoch
		LEFT JOIN a2a.task_steps s ON s.task_id = w.task_id AND s.seq = w.step
		WHERE s.kind IS DISTINCT FROM 2 OR s.ended_at IS NOT NULL`},
	{"a wait that is recorded as over, or the reverse", `
		SELECT s.task_id FROM a2a.task_steps s JOIN a2a.tasks t ON t.id = s.task_id
		LEFT JOIN a2a.task_waits w ON w.task_id = s.task_id AND w.step = s.seq
		WHERE s.kind = 2 AND t.state < 100 AND (s.ended_at IS NULL) <> (w.task_id IS NOT NULL)`},
	{"a call without its task, or a called task without its call", `
		SELECT coalesce(s.task_id, c.id) FROM (SELECT * FROM a2a.task_steps WHERE kind = 3) s
		FULL JOIN (
		  SELECT c.* FROM a2a.tasks c JOIN a2a.tasks p ON p.id = c.parent_id AND (p.state < 100 OR p.first_seq = 1)) c
		  ON c.id = s.child_id AND c.parent_id = s.task_id AND c.parent_step = s.seq
		WHERE c.id IS NULL AND s.ended_at IS NULL OR s.task_id IS NULL`},
	{"a called task of another owner, or of a wrong depth", `
		SELECT c.id FROM a2a.tasks c LEFT JOIN a2a.tasks p ON p.id = c.parent_id
		WHERE (c.parent_id IS NOT NULL) <> (c.depth > 0)
		  OR p.id IS NOT NULL AND (c.tenant <> p.tenant OR c.owner <> p.owner OR c.depth <> p.depth + 1)`},
	{"a call that has ended while its task has not, or the reverse", `
		SELECT s.task_id FROM a2a.task_steps s JOIN a2a.tasks c ON c.id = s.child_id
		WHERE (s.ended_at IS NOT NULL) <> (c.state >= 100)`},
	{"a wait for calls that counts them wrong", `
		SELECT w.task_id FROM a2a.task_waits w
		WHERE w.calls IS NOT NULL AND w.result IS NULL AND w.pending <= 0
		  OR w.pending > (
		    SELECT count(*) FROM a2a.task_steps s
		    WHERE s.task_id = w.task_id AND s.seq = ANY (w.calls) AND s.ended_at IS NULL)`},
	{"an open call of an ended task that no one cancels", `
		SELECT s.task_id FROM a2a.task_steps s JOIN a2a.tasks p ON p.id = s.task_id
		WHERE s.kind = 3 AND s.ended_at IS NULL AND s.on_parent_end = 1 AND p.state >= 100
		  AND NOT EXISTS (SELECT FROM a2a.task_orphans o WHERE o.task_id = s.child_id)`},
	{"a child to be canceled whose parent has not ended", `
		SELECT o.task_id FROM a2a.task_orphans o JOIN a2a.tasks p ON p.id = o.parent_id WHERE p.state < 100`},
	// A step that is recorded again has the claim of the last time.
	{"a step of an older epoch after one of a newer", `
		SELECT s.task_id
		FROM (SELECT *, max(epoch) FILTER (WHERE attempts = 1 AND artifact_id IS NULL)
		        OVER (PARTITION BY task_id ORDER BY seq) AS newest FROM a2a.task_steps) s
		WHERE s.epoch < s.newest`},
	{"a step without an attempt", `
		SELECT s.task_id FROM a2a.task_steps s WHERE NOT EXISTS (
		  SELECT FROM a2a.task_attempts a
		  WHERE a.task_id = s.task_id AND a.epoch = s.epoch AND a.worker = s.worker)`},
	{"a signal that has ended a wait of no task", `
		SELECT s.task_id FROM a2a.task_signals s LEFT JOIN a2a.task_steps p ON p.task_id = s.task_id AND p.seq = s.step
		WHERE s.step IS NOT NULL AND p.kind IS DISTINCT FROM 2`},
	{"two signals that have ended one wait", `
		SELECT s.task_id FROM a2a.task_signals s
		WHERE s.step IS NOT NULL GROUP BY s.task_id, s.step HAVING count(*) > 1`},
	{"a lease of another epoch, or of no task", `
		SELECT l.task_id FROM a2a.task_leases l LEFT JOIN a2a.tasks t ON t.id = l.task_id
		WHERE t.lease_epoch IS DISTINCT FROM l.epoch`},
	{"parked under another epoch, or no task, or one that is not working", `
		SELECT p.task_id FROM a2a.task_parked p LEFT JOIN a2a.tasks t ON t.id = p.task_id
		WHERE t.lease_epoch IS DISTINCT FROM p.epoch OR t.state <> 2 OR t.agent <> p.agent OR t.tenant <> p.tenant
		  OR t.deadline_at IS NOT NULL`},
	{"an open attempt without a lease, or the reverse", `
		SELECT a.task_id FROM a2a.task_attempts a
		WHERE (a.ended_at IS NULL) <> EXISTS (
		  SELECT FROM a2a.task_leases l WHERE l.task_id = a.task_id AND l.epoch = a.epoch)`},
	{"an attempt of a future epoch", `
		SELECT a.task_id FROM a2a.task_attempts a JOIN a2a.tasks t ON t.id = a.task_id WHERE a.epoch > t.lease_epoch`},
	{"folded artifacts of a task that is not marked so, or the reverse", `
		SELECT t.id FROM a2a.tasks t
		WHERE t.folded <> EXISTS (SELECT FROM a2a.artifacts a WHERE a.task_id = t.id)
		  OR NOT t.folded AND EXISTS (SELECT FROM a2a.artifact_parts p WHERE p.task_id = t.id)`},
	{"folded artifacts of a task that has not ended", `
		SELECT t.id FROM a2a.artifacts a JOIN a2a.tasks t ON t.id = a.task_id WHERE t.state < 100`},
	{"a checkpoint of a task that has ended", `
		SELECT t.id FROM a2a.task_checkpoints c JOIN a2a.tasks t ON t.id = c.task_id WHERE t.state >= 100`},
	{"a webhook that does not know the newest event", `
		SELECT t.id FROM a2a.push_configs p JOIN a2a.tasks t ON t.id = p.task_id
		WHERE p.deleted_at IS NULL AND p.head_seq <> t.last_seq AND (t.reply <> 1 OR t.state > 2)`},
	{"a parked webhook that is in no list", `
		SELECT p.task_id FROM a2a.push_configs p
		WHERE p.parked AND p.state = 'active' AND p.deleted_at IS NULL AND p.cursor_seq < p.head_seq
		  AND NOT EXISTS (SELECT FROM a2a.push_parked l WHERE l.tenant = p.tenant AND l.origin = p.origin)`},
	{"usage of no task", `
		SELECT u.task_id FROM a2a.task_usage u WHERE NOT EXISTS (SELECT FROM a2a.tasks t WHERE t.id = u.task_id)`},
	// The sums by day keep the usage of tasks that were removed.
	{"usage of tasks that is missing in the sums by day", `
		SELECT unnest(u.ids)
		FROM (
		  SELECT t.tenant, t.owner, t.agent, u.model, array_agg(t.id) AS ids,
		    ARRAY[sum(u.input_tokens), sum(u.output_tokens), sum(u.cached_input_tokens), sum(u.reasoning_tokens),
		      sum(u.requests)] AS sums
		  FROM a2a.task_usage u JOIN a2a.tasks t ON t.id = u.task_id GROUP BY t.tenant, t.owner, t.agent, u.model) u
		LEFT JOIN (
		  SELECT d.tenant, d.owner, d.agent, d.model,
		    ARRAY[sum(d.input_tokens), sum(d.output_tokens), sum(d.cached_input_tokens), sum(d.reasoning_tokens),
		      sum(d.requests)] AS sums
		  FROM audit.usage_day d GROUP BY d.tenant, d.owner, d.agent, d.model) d USING (tenant, owner, agent, model)
		WHERE d.sums IS NULL OR u.sums[1] > d.sums[1] OR u.sums[2] > d.sums[2] OR u.sums[3] > d.sums[3]
		  OR u.sums[4] > d.sums[4] OR u.sums[5] > d.sums[5]`},
	{"an attempt that ended before it began", `
		SELECT a.task_id FROM a2a.task_attempts a WHERE a.ended_at < a.claimed_at`},
	{"a list_key of another list", `
		SELECT t.id FROM a2a.tasks t WHERE t.list_key <> a2a.list_key(t.tenant, t.owner, t.agent)`},
	{"a task of two ticks", `
		SELECT k.task_id FROM a2a.schedule_ticks k WHERE k.task_id IS NOT NULL GROUP BY k.task_id HAVING count(*) > 1`},
	{"two tasks of a tick", `
		SELECT unnest(array_agg(m.id)) FROM (
		  SELECT t.id, t.agent, k.tick,
		    substring(m.body::text FROM '"a2ad/schedule":"[^"]*","a2ad/tick":"[^"]*"') AS told -- in whole seconds
		  FROM a2a.tasks t JOIN a2a.messages m ON m.task_id = t.id AND m.seq = 1
		  LEFT JOIN a2a.schedule_ticks k ON k.task_id = t.id
		  WHERE EXISTS (SELECT FROM a2a.schedules s WHERE s.agent = t.agent)) m
		WHERE m.told IS NOT NULL GROUP BY m.agent, m.told
		HAVING count(*) > 1 AND count(*) > count(DISTINCT m.tick)`},
	{"a queued tick without its record", `
		SELECT s.last_task FROM a2a.schedules s WHERE s.queued_tick IS NOT NULL AND NOT EXISTS (
		  SELECT FROM a2a.schedule_ticks k
		  WHERE (k.agent, k.name, k.tick, k.outcome) = (s.agent, s.name, s.queued_tick, 'queued'))`},
	{"an idempotency key of no task", `
		SELECT k.task_id FROM a2a.idempotency_keys k LEFT JOIN a2a.tasks t ON t.id = k.task_id WHERE t.id IS NULL`},
}

// Invariants fails the test for every task in a state that no task may be in.
func (f *Fixture) Invariants() {
	f.T.Helper()
	if text := f.Broken(); text != "" {
		f.T.Error(text)
	}
}

// Broken describes the tasks of these agents, or of all, that are in a state that no task may be in. It needs one round
// trip.
func (f *Fixture) Broken(agents ...string) string {
	f.T.Helper()
	found, err := findBroken(f.T.Context(), f.SQL, agents)
	if err != nil {
		f.T.Fatal(err)
	}
	var text strings.Builder
	for i, ids := range found {
		if name := brokenTasks[i].name; ids != "" && !(f.AttemptsSwept && name == withoutAttempt) {
			text.WriteString(name + ": " + ids + "\n")
		}
	}
	return text.String()
}

// findBroken returns the ids that each query finds.
func findBroken(ctx context.Context, conn interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}, agents []string) (found []string, err error) {
	var b pgx.Batch
	for _, q := range brokenTasks {
		b.Queue(`
			SELECT coalesce(string_agg(DISTINCT x.id::text, ' '), '') FROM (`+q.query+`) AS x(id)
			WHERE $1::text[] IS NULL OR x.id IN (SELECT t.id FROM a2a.tasks t WHERE t.agent = ANY ($1))`, agents)
	}
	res := conn.SendBatch(ctx, &b)
	defer res.Close()
	for _, q := range brokenTasks {
		var ids string
		if err := res.QueryRow().Scan(&ids); err != nil {
			return nil, fmt.Errorf("%s: %w", q.name, err)
		}
		found = append(found, ids)
	}
	return found, nil
}

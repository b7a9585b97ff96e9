-- CountTasks counts the tasks of all callers by agent and state, for the operator and for metrics. Of tasks that have
-- ended it counts a random sample of pages, if the table has more than pages.
-- name: CountTasks :many
WITH seen AS (
  SELECT least(1, sqlc.arg(pages)::bigint * current_setting('block_size')::float8
    / greatest(pg_relation_size('a2a.tasks'), 1)) AS share
)
SELECT t.agent, t.state, count(*)::bigint AS tasks, false::boolean AS estimated
FROM a2a.tasks t
WHERE t.state IN (a2a.state_submitted(), a2a.state_working()) -- the predicate of the index tasks_running
GROUP BY t.agent, t.state
UNION ALL
SELECT t.agent, t.state, count(*), false
FROM a2a.tasks t
WHERE a2a.state_interrupted(t.state) -- the predicate of the index tasks_asking
GROUP BY t.agent, t.state
UNION ALL
SELECT t.agent, t.state, round(count(*) / (SELECT s.share FROM seen s))::bigint, (SELECT s.share < 1 FROM seen s)
FROM a2a.tasks t TABLESAMPLE SYSTEM ((SELECT 100 * s.share FROM seen s))
WHERE a2a.state_terminal(t.state)
GROUP BY t.agent, t.state
ORDER BY 1, 2;

-- CountReady counts the tasks that wait for a worker, by agent, for the operator. due are those that may be claimed
-- now.
-- name: CountReady :many
SELECT r.queue, count(*) AS waiting, count(*) FILTER (WHERE r.run_at <= clock_timestamp()) AS due,
  (extract(epoch FROM clock_timestamp() - min(r.run_at)) * 1000)::bigint AS oldest_ms
FROM a2a.task_ready r
GROUP BY r.queue
ORDER BY r.queue;

-- CountLeases counts the runs of each worker, for the operator. expired are those that their worker no longer renews.
-- name: CountLeases :many
SELECT l.worker, count(*) AS running, count(*) FILTER (WHERE l.lease_until < clock_timestamp()) AS expired
FROM a2a.task_leases l
GROUP BY l.worker
ORDER BY l.worker;

-- RunsBySilence lists runs for the operator, the one with the oldest last event first: an agent that hangs reports
-- nothing while its worker renews the lease.
-- name: RunsBySilence :many
SELECT l.task_id, t.agent, l.worker, a.attempt, t.last_seq,
  (extract(epoch FROM clock_timestamp() - a.claimed_at) * 1000)::bigint AS age_ms,
  (extract(epoch FROM clock_timestamp() - t.last_at) * 1000)::bigint AS silent_ms
FROM a2a.task_leases l
JOIN a2a.tasks t ON t.id = l.task_id
JOIN a2a.task_attempts a ON a.task_id = l.task_id AND a.epoch = l.epoch
ORDER BY t.last_at, l.task_id
LIMIT sqlc.arg(max)::int;

-- CountPushes counts webhooks with something to deliver and those that were given up, for the operator.
-- name: CountPushes :one
SELECT count(*) FILTER (WHERE p.state = 'active' AND p.cursor_seq < p.head_seq) AS backlog,
  coalesce(sum(p.head_seq - p.cursor_seq) FILTER (WHERE p.state = 'active'), 0)::bigint AS events,
  count(*) FILTER (WHERE p.state = 'active' AND p.cursor_seq < p.head_seq AND p.attempt > 0) AS failing,
  count(*) FILTER (WHERE p.state = 'dead') AS dead,
  count(*) FILTER (WHERE p.state = 'disabled') AS disabled,
  coalesce((
    SELECT (extract(epoch FROM clock_timestamp() - min(e.committed_at)) * 1000)::bigint
    FROM a2a.push_configs o
    JOIN a2a.task_events e ON e.task_id = o.task_id AND e.seq = o.cursor_seq + 1
    WHERE o.state = 'active' AND o.deleted_at IS NULL AND o.cursor_seq < o.head_seq), 0)::bigint AS oldest_ms
FROM a2a.push_configs p
WHERE p.deleted_at IS NULL;

-- DestinationsDown reads the destinations whose breaker is open, and those that are disabled, for the operator.
-- name: DestinationsDown :many
SELECT d.tenant, d.origin, d.fails, d.open_until, d.disabled_at,
  coalesce(left(d.last_error, 2000), '')::text AS last_error
FROM a2a.push_destinations d
WHERE d.open_until > clock_timestamp() OR d.disabled_at IS NOT NULL
ORDER BY d.tenant, d.origin
LIMIT sqlc.arg(max)::int;

-- DatabaseSize reads how large the database is.
-- name: DatabaseSize :one
SELECT pg_catalog.pg_database_size(pg_catalog.current_database())::bigint AS bytes;

-- TableSizes reads how large the tables are, the largest first. Rows and dead rows are those of the statistics.
-- name: TableSizes :many
SELECT c.relname::text AS name, pg_catalog.pg_total_relation_size(c.oid)::bigint AS bytes,
  pg_catalog.pg_indexes_size(c.oid)::bigint AS index_bytes,
  coalesce(pg_catalog.pg_stat_get_live_tuples(c.oid), 0)::bigint AS live,
  coalesce(pg_catalog.pg_stat_get_dead_tuples(c.oid), 0)::bigint AS dead
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'a2a' AND c.relkind IN ('r', 'p')
ORDER BY 2 DESC, 1;

-- Sessions reads the connections to this database. Unless the login may read all statistics, those of other logins show
-- neither their transaction nor their state nor their type (hidden).
-- name: Sessions :many
SELECT s.pid, coalesce(s.usename, '')::text AS login, coalesce(s.application_name, '')::text AS application,
  coalesce(s.state, '')::text AS state,
  coalesce((extract(epoch FROM clock_timestamp() - s.xact_start) * 1000)::bigint, 0)::bigint AS tx_ms,
  coalesce((extract(epoch FROM clock_timestamp() - s.state_change) * 1000)::bigint, 0)::bigint AS state_ms,
  coalesce(pg_catalog.age(s.backend_xmin), 0)::bigint AS xmin_age,
  coalesce(s.backend_type IS NULL, false)::boolean AS hidden
FROM pg_catalog.pg_stat_activity s
WHERE s.datname = pg_catalog.current_database()
  AND coalesce(s.backend_type, 'client backend') = 'client backend'
  AND s.usename IS NOT NULL
  AND s.pid <> pg_catalog.pg_backend_pid()
ORDER BY s.pid;

-- TimelineEvents reads the log of a task for the operator, with what wrote each event. Of artifacts it reads only the
-- size, and of anything long the beginning (cut). As all statements of a timeline, it reads the newest rows first.
-- name: TimelineEvents :many
SELECT e.seq, e.kind, coalesce(e.state, 0)::smallint AS state, e.source, e.epoch,
  coalesce(e.worker, '')::text AS worker, e.committed_at, coalesce(e.artifact_id, '')::text AS artifact_id,
  left(e.body::text, 2000)::text AS body, (length(e.body::text) > 2000)::boolean AS cut,
  coalesce(octet_length(e.parts::text), 0)::bigint AS bytes
FROM a2a.task_events e
WHERE e.task_id = sqlc.arg(task_id) AND e.seq < sqlc.arg(before)::bigint
ORDER BY e.seq DESC
LIMIT sqlc.arg(max)::int;

-- TimelineMessages reads the messages of the client of a task for the operator, with the event from which on each
-- shows, unless that is before the first event of the timeline. Of long ones it reads the beginning (cut).
-- name: TimelineMessages :many
SELECT m.seq, m.at_seq, left(m.body::text, 2000)::text AS body, (length(m.body::text) > 2000)::boolean AS cut
FROM a2a.messages m
WHERE m.task_id = sqlc.arg(task_id) AND m.role = a2a.role_user()
  AND m.at_seq >= sqlc.arg(first_event)::bigint
ORDER BY m.seq DESC
LIMIT sqlc.arg(max)::int;

-- TimelineSteps reads the steps and waits of a task for the operator. Of results it reads the beginning.
-- name: TimelineSteps :many
SELECT s.seq, s.key, s.kind, s.name, coalesce(left(coalesce(s.result, s.error)::text, 200), '')::text AS says,
  (s.error IS NOT NULL)::boolean AS failed, s.attempts, s.next_at, s.recorded_at, s.ended_at, s.worker,
  s.child_id, coalesce(s.artifact_id, '')::text AS artifact_id
FROM a2a.task_steps s
WHERE s.task_id = sqlc.arg(task_id)
ORDER BY s.seq DESC
LIMIT sqlc.arg(max)::int;

-- TimelineSignals reads the signals of a task for the operator.
-- name: TimelineSignals :many
SELECT s.seq, s.name, coalesce(left(s.value::text, 200), '')::text AS value, s.sender, s.received_at
FROM a2a.task_signals s
WHERE s.task_id = sqlc.arg(task_id)
ORDER BY s.seq DESC
LIMIT sqlc.arg(max)::int;

-- WaitOfTask reads what the task waits for, for the operator. No row means that it does not wait.
-- name: WaitOfTask :one
SELECT w.due_at, w.on_message, coalesce(w.on_signal, '')::text AS on_signal,
  coalesce(cardinality(w.calls), 0)::int AS calls, w.pending
FROM a2a.task_waits w
JOIN a2a.tasks t ON t.id = w.task_id AND t.lease_epoch = w.epoch
WHERE w.task_id = sqlc.arg(task_id);

-- TaskTree reads a task, the tasks that its runs have called, those that their runs have called, and so on, each below
-- the one that has called it. A task that was removed has no agent.
-- name: TaskTree :many
WITH RECURSIVE tree AS (
  SELECT sqlc.arg(root)::uuid AS id, ''::text AS key, 0 AS depth, ARRAY[]::int[] AS path
  UNION ALL
  SELECT s.child_id, s.key, t.depth + 1, t.path || s.seq
  FROM tree t
  JOIN a2a.task_steps s ON s.task_id = ANY (ARRAY[t.id]) AND s.kind = a2a.step_call()
)
SELECT x.id::uuid AS id, x.key::text AS key, x.depth::int AS depth, coalesce(t.agent, '')::text AS agent,
  coalesce(t.state, 0)::smallint AS state, t.status_at, t.created_at
FROM tree x
LEFT JOIN a2a.tasks t ON t.id = ANY (ARRAY[x.id])
ORDER BY x.path
LIMIT sqlc.arg(max)::int;

-- TimelineTries reads the delivery attempts of all webhooks of a task for the operator.
-- name: TimelineTries :many
SELECT p.config_id, p.url, a.from_seq, a.seq, a.outcome, a.attempt, a.trigger, a.started_at, a.duration_ms,
  coalesce(a.status, 0)::int AS status, coalesce(a.class, '')::text AS class, coalesce(a.reason, '')::text AS reason
FROM (
  -- One index has the webhooks of a task that were deleted, and another those that were not.
  SELECT l.id
  FROM a2a.push_configs l
  WHERE l.task_id = sqlc.arg(task_id) AND l.deleted_at IS NULL
  UNION ALL
  SELECT d.id
  FROM a2a.push_configs d
  WHERE d.task_id = sqlc.arg(task_id) AND coalesce(d.deleted_at, 'infinity') <> 'infinity'
) x
JOIN a2a.push_configs p ON p.id = ANY (ARRAY[x.id])
JOIN LATERAL (
  SELECT *
  FROM a2a.push_attempts t
  WHERE t.push_id = ANY (ARRAY[p.id])
  OFFSET 0 -- so that the attempts are looked up for each webhook
) a ON true
ORDER BY a.id DESC
LIMIT sqlc.arg(max)::int;

-- RetireScan reads tasks in the order of their ids, which is that of their creation. The caller decides which of them
-- have stayed long enough. It also reads those that cannot be removed yet, so that the next page begins after them.
-- name: RetireScan :many
SELECT t.id, t.agent, t.state, t.status_at, t.first_seq, t.last_seq, clock_timestamp()::timestamptz AS now
FROM a2a.tasks t
WHERE t.id > sqlc.arg(after)::uuid AND t.id < sqlc.arg(before)::uuid
ORDER BY t.id
LIMIT sqlc.arg(max)::int;

-- RetireRead reads some of these tasks again.
-- name: RetireRead :many
SELECT t.id, t.agent, t.state, t.status_at, t.first_seq, t.last_seq, clock_timestamp()::timestamptz AS now
FROM a2a.tasks t
WHERE t.id = ANY (sqlc.arg(ids)::uuid[]);

-- AttemptsForget removes attempts of tasks that ended longer ago than keep. It reads at most max attempts after the
-- given one, in the order of the ids of their tasks, which are lower than before. It returns the last attempt that it
-- read and how many it removed. It waits for no lock.
-- name: AttemptsForget :one
WITH page AS MATERIALIZED (
  SELECT a.task_id, a.epoch
  FROM a2a.task_attempts a
  WHERE (a.task_id, a.epoch) > (sqlc.arg(after)::uuid, sqlc.arg(after_epoch)::bigint)
    AND a.task_id < sqlc.arg(before)::uuid
  ORDER BY a.task_id, a.epoch
  LIMIT sqlc.arg(max)::int
), ended AS MATERIALIZED (
  SELECT t.id
  FROM a2a.tasks t
  WHERE t.id = ANY (ARRAY(SELECT p.task_id FROM page p))
    AND a2a.state_terminal(t.state)
    AND t.status_at + sqlc.arg(keep)::interval < clock_timestamp() -- a sum, so that the index of lists is not used
), old AS MATERIALIZED (
  SELECT a.task_id, a.epoch
  FROM a2a.task_attempts a
  WHERE a.task_id = ANY (ARRAY(SELECT e.id FROM ended e))
    AND (a.task_id, a.epoch) IN (SELECT p.task_id, p.epoch FROM page p)
  ORDER BY a.task_id, a.epoch
  FOR UPDATE OF a SKIP LOCKED
), gone AS (
  DELETE FROM a2a.task_attempts a
  USING old o
  WHERE a.task_id = ANY (ARRAY[o.task_id]) AND a.epoch = o.epoch
  RETURNING 1
), last AS (
  SELECT p.task_id, p.epoch
  FROM page p
  ORDER BY p.task_id DESC, p.epoch DESC
  LIMIT 1
)
SELECT (SELECT count(*) FROM page)::int AS found, (SELECT count(*) FROM gone)::int AS gone,
  coalesce((SELECT l.task_id FROM last l), sqlc.arg(after))::uuid AS task_id,
  coalesce((SELECT l.epoch FROM last l), sqlc.arg(after_epoch))::bigint AS epoch;

-- RetireLock locks those of the tasks that have ended and that no other transaction has locked. Webhooks are set under
-- the same lock, so the next statement of the transaction sees all of them.
-- name: RetireLock :many
SELECT t.id
FROM a2a.tasks t
WHERE t.id = ANY (sqlc.arg(ids)::uuid[]) AND a2a.state_terminal(t.state)
ORDER BY t.id
FOR UPDATE SKIP LOCKED;

-- RetireSettled returns those of the tasks that have nothing more to deliver. A webhook that was given up delivers
-- nothing.
-- name: RetireSettled :many
SELECT i.id::uuid AS id
FROM (SELECT unnest(sqlc.arg(ids)::uuid[]) AS id) i
WHERE NOT EXISTS (
  SELECT
  FROM a2a.push_configs p
  WHERE p.task_id = i.id
    AND p.task_id = ANY (sqlc.arg(ids))
    AND p.deleted_at IS NULL
    AND p.state = 'active'
    -- Not cursor_seq < head_seq, which a partial index has: the planner would walk over it, not look up the task.
    AND p.head_seq - p.cursor_seq > 0);

-- TaskDelete removes everything about tasks whose rows the transaction has locked, and returns their tenants and
-- owners. A trigger removes their usage.
-- name: TaskDelete :many
WITH task AS (
  DELETE FROM a2a.tasks t
  WHERE t.id = ANY (sqlc.arg(ids)::uuid[])
  RETURNING t.id, t.tenant, t.owner, t.context_id
), message AS (
  DELETE FROM a2a.messages m
  WHERE m.task_id = ANY (sqlc.arg(ids))
  RETURNING m.task_id, m.message_id, m.idem_key, m.dedupe_mid
), key AS (
  -- A task's keys are not found by its id: its messages say which they are. An imported task has one of its own.
  DELETE FROM a2a.idempotency_keys k
  USING (
    SELECT t.tenant, t.owner, CASE WHEN m.dedupe_mid THEN 'm:' || m.message_id ELSE 'h:' || m.idem_key END AS key, t.id
    FROM message m
    JOIN task t ON t.id = m.task_id
    WHERE m.dedupe_mid OR m.idem_key IS NOT NULL
    UNION ALL
    SELECT t.tenant, t.owner, 'i:' || t.id, t.id
    FROM task t
  ) x
  WHERE k.tenant = ANY (ARRAY[x.tenant])
    AND k.owner = ANY (ARRAY[x.owner])
    AND k.key = ANY (ARRAY[x.key])
    AND k.task_id = x.id
), context AS (
  DELETE FROM a2a.context_tasks c
  USING task t
  WHERE c.tenant = ANY (ARRAY[t.tenant])
    AND c.owner = ANY (ARRAY[t.owner])
    AND c.context_id = ANY (ARRAY[t.context_id])
    AND c.task_id = ANY (ARRAY[t.id])
), event AS (
  DELETE FROM a2a.task_events e
  WHERE e.task_id = ANY (sqlc.arg(ids))
), attempt AS (
  DELETE FROM a2a.task_attempts a
  WHERE a.task_id = ANY (sqlc.arg(ids))
), artifact AS (
  DELETE FROM a2a.artifacts ar
  WHERE ar.task_id = ANY (sqlc.arg(ids))
), artifact_part AS (
  DELETE FROM a2a.artifact_parts ap
  WHERE ap.task_id = ANY (sqlc.arg(ids))
), checkpoint AS (
  DELETE FROM a2a.task_checkpoints cp
  WHERE cp.task_id = ANY (sqlc.arg(ids))
), parked AS (
  DELETE FROM a2a.task_parked k
  WHERE k.task_id = ANY (sqlc.arg(ids))
), assignment AS (
  DELETE FROM a2a.task_assignments g
  WHERE g.task_id = ANY (sqlc.arg(ids))
), step AS (
  DELETE FROM a2a.task_steps st
  WHERE st.task_id = ANY (sqlc.arg(ids))
), wait AS (
  DELETE FROM a2a.task_waits w
  WHERE w.task_id = ANY (sqlc.arg(ids))
), signal AS (
  DELETE FROM a2a.task_signals sg
  WHERE sg.task_id = ANY (sqlc.arg(ids))
), batch AS (
  DELETE FROM a2a.task_batches b
  WHERE b.task_id = ANY (sqlc.arg(ids))
), orphan AS (
  DELETE FROM a2a.task_orphans o
  WHERE o.task_id = ANY (sqlc.arg(ids))
), cancel AS (
  DELETE FROM a2a.task_cancels tc
  WHERE tc.task_id = ANY (sqlc.arg(ids))
), webhook AS (
  -- One index has the webhooks of a task that were deleted, and another those that were not.
  DELETE FROM a2a.push_configs p
  USING (
    SELECT l.id
    FROM a2a.push_configs l
    WHERE l.task_id = ANY (sqlc.arg(ids)) AND l.deleted_at IS NULL
    UNION ALL
    SELECT d.id
    FROM a2a.push_configs d
    WHERE d.task_id = ANY (sqlc.arg(ids)) AND coalesce(d.deleted_at, 'infinity') <> 'infinity'
  ) x
  WHERE p.id = ANY (ARRAY[x.id])
  RETURNING p.id
), try AS (
  DELETE FROM a2a.push_attempts pa
  WHERE pa.push_id = ANY (ARRAY(SELECT w.id FROM webhook w))
)
SELECT t.id, t.tenant, t.owner
FROM task t;

-- LogPrune removes all events of ended tasks but the last, and their steps and signals. The transaction has locked the tasks and folded their
-- artifacts.
-- name: LogPrune :execrows
WITH task AS (
  UPDATE a2a.tasks t
  SET first_seq = t.last_seq, folded = t.has_artifacts, steps = 0, step_bytes = 0
  WHERE t.id = ANY (sqlc.arg(ids)::uuid[]) AND t.first_seq < t.last_seq
  RETURNING t.id, t.last_seq
), step AS (
  DELETE FROM a2a.task_steps st
  USING task t
  WHERE st.task_id = ANY (ARRAY[t.id])
), signal AS (
  DELETE FROM a2a.task_signals sg
  USING task t
  WHERE sg.task_id = ANY (ARRAY[t.id])
)
DELETE FROM a2a.task_events e
USING task t
WHERE e.task_id = ANY (sqlc.arg(ids)::uuid[]) AND e.task_id = t.id AND e.seq < t.last_seq;

-- LogUnfolded returns those of the tasks whose artifacts are still in the log.
-- name: LogUnfolded :many
SELECT t.id
FROM a2a.tasks t
WHERE t.id = ANY (sqlc.arg(ids)::uuid[]) AND t.has_artifacts AND NOT t.folded;

-- PurgeScan reads the tasks that an operator removes: one, those of a context, or those of an owner. Empty filters
-- select all.
-- name: PurgeScan :many
SELECT t.id, t.tenant, t.owner, t.state
FROM a2a.tasks t
WHERE t.id > sqlc.arg(after)::uuid
  AND (sqlc.narg(id)::uuid IS NULL OR t.id = sqlc.narg(id))
  AND (sqlc.arg(tenant)::text = '' OR t.tenant = sqlc.arg(tenant))
  AND (sqlc.arg(owner)::text = '' OR t.owner = sqlc.arg(owner))
  AND (sqlc.arg(context_id)::text = '' OR t.context_id = sqlc.arg(context_id))
ORDER BY t.id
LIMIT sqlc.arg(max)::int;

-- PurgeLock locks tasks in any state. It waits for other transactions that have locked them.
-- name: PurgeLock :many
SELECT t.id, t.state
FROM a2a.tasks t
WHERE t.id = ANY (sqlc.arg(ids)::uuid[])
ORDER BY t.id
FOR UPDATE;

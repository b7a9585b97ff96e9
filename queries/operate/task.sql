-- TaskList reads a page of the tasks of all callers, newest first, for the operator. Empty filters select all. before_at
-- stands for the creation of the task before, if it no longer exists.
-- name: TaskList :many
SELECT t.id, t.tenant, t.owner, t.agent, t.context_id, t.state, t.status_at, t.created_at, t.last_seq, t.attempt,
  t.lease_epoch, t.ready_at, coalesce(l.worker, '')::text AS worker, l.lease_until,
  t.parent_id, p.since AS parked_since, p.until AS parked_until,
  coalesce(left(p.reason, 2000), '')::text AS parked_reason
FROM a2a.tasks t
LEFT JOIN a2a.task_leases l ON l.task_id = t.id
LEFT JOIN a2a.task_parked p ON p.task_id = t.id AND p.epoch = t.lease_epoch AND t.ready_at IS NULL
WHERE t.id >= sqlc.arg(first_id)::uuid
  AND t.id <= sqlc.arg(last_id)::uuid
  AND (sqlc.arg(tenant)::text = '' OR t.tenant = sqlc.arg(tenant))
  AND (sqlc.arg(owner)::text = '' OR t.owner = sqlc.arg(owner))
  AND (sqlc.arg(agent)::text = '' OR t.agent = sqlc.arg(agent))
  AND (sqlc.arg(context_id)::text = '' OR t.context_id = sqlc.arg(context_id))
  AND (cardinality(sqlc.arg(states)::smallint[]) = 0 OR t.state = ANY (sqlc.arg(states)))
  AND (NOT sqlc.arg(parked)::boolean OR p.task_id IS NOT NULL)
  AND (NOT sqlc.arg(roots)::boolean OR t.parent_id IS NULL)
  AND (NOT sqlc.arg(not_retried)::boolean OR NOT EXISTS (
    SELECT FROM a2a.audit_log a WHERE a.task_id = t.id AND a.action = 'task.retry'))
  AND (sqlc.narg(since)::timestamptz IS NULL OR t.created_at >= sqlc.narg(since))
  AND (sqlc.narg(until)::timestamptz IS NULL OR t.created_at < sqlc.narg(until))
  AND (sqlc.narg(before)::uuid IS NULL OR (t.created_at, t.id) < (
    coalesce((SELECT b.created_at FROM a2a.tasks b WHERE b.id = sqlc.narg(before)), sqlc.narg(before_at)::timestamptz),
    sqlc.narg(before)::uuid))
ORDER BY t.created_at DESC, t.id DESC
LIMIT sqlc.arg(max)::int;

-- TaskOwner reads who owns a task, for the operator, who may act on any task.
-- name: TaskOwner :one
SELECT t.tenant, t.owner, t.created_at
FROM a2a.tasks t
WHERE t.id = sqlc.arg(id);

-- AttemptsOfTask reads the newest attempts at a task for the operator, the newest first.
-- name: AttemptsOfTask :many
SELECT a.epoch, a.attempt, a.worker, a.claimed_at, a.ended_at, coalesce(a.outcome, '')::text AS outcome,
  coalesce(left(a.error, 2000), '')::text AS error
FROM a2a.task_attempts a
WHERE a.task_id = sqlc.arg(task_id)
ORDER BY a.epoch DESC
LIMIT sqlc.arg(max)::int;

-- TraceOfTask reads the position in a trace of the newest message of the client that had one.
-- name: TraceOfTask :one
SELECT coalesce(t.traceparent, '')::text AS traceparent FROM a2a.tasks t WHERE t.id = sqlc.arg(task_id);

-- SchemaVersion reads the number of the newest migration that was applied.
-- name: SchemaVersion :one
SELECT coalesce(max(g.version_id), 0)::bigint FROM public.a2a_goose_version g WHERE g.is_applied;

-- SchemaFloor reads the number of the oldest migration whose servers still work on this schema.
-- name: SchemaFloor :one
SELECT f.version FROM a2a.schema_floor f;

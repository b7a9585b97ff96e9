-- TaskSearch reads a page of tasks for an operator, newest first. Empty filters select all. said is the beginning of the
-- message with which a task failed, was rejected or asks.
-- name: TaskSearch :many
SELECT t.id, t.tenant, t.owner, t.agent, t.context_id, t.state, t.status_at, t.created_at, t.last_seq, t.attempt,
  t.lease_epoch, t.ready_at, coalesce(l.worker, '')::text AS worker, l.lease_until,
  t.parent_id, t.parked_since, t.parked_until, t.parked_reason, coalesce(left(a.error, 2000), '')::text AS error,
  coalesce(m.beginning, '')::text AS said, coalesce(g.assignee, '')::text AS assignee
FROM (
  SELECT t.id, t.tenant, t.owner, t.agent, t.context_id, t.state, t.status_at, t.created_at, t.last_seq, t.attempt,
    t.lease_epoch, t.ready_at, t.parent_id, t.status_message_seq, p.since AS parked_since, p.until AS parked_until,
    coalesce(left(p.reason, 2000), '')::text AS parked_reason
  FROM a2a.tasks t
  LEFT JOIN a2a.task_parked p ON p.task_id = t.id AND p.epoch = t.lease_epoch AND t.ready_at IS NULL
  WHERE t.id >= sqlc.arg(first_id)::uuid
    AND t.id <= sqlc.arg(last_id)::uuid
    AND (cardinality(sqlc.arg(ids)::uuid[]) = 0 OR t.id = ANY (sqlc.arg(ids)))
    AND (sqlc.narg(since)::timestamptz IS NULL OR t.created_at >= sqlc.narg(since))
    AND (sqlc.narg(until)::timestamptz IS NULL OR t.created_at < sqlc.narg(until))
    AND (sqlc.arg(tenant)::text = '' OR t.tenant = sqlc.arg(tenant))
    AND (sqlc.arg(owner)::text = '' OR t.owner = sqlc.arg(owner))
    AND (cardinality(sqlc.arg(agents)::text[]) = 0 OR t.agent = ANY (sqlc.arg(agents)))
    AND (sqlc.arg(context_id)::text = '' OR t.context_id = sqlc.arg(context_id))
    AND (cardinality(sqlc.arg(states)::smallint[]) = 0 OR t.state = ANY (sqlc.arg(states)))
    AND (NOT sqlc.arg(parked)::boolean OR p.task_id IS NOT NULL)
    AND (NOT sqlc.arg(roots)::boolean OR t.parent_id IS NULL)
    AND (NOT sqlc.arg(not_retried)::boolean OR NOT EXISTS (
      SELECT FROM a2a.audit_log r WHERE r.task_id = t.id AND r.action = 'task.retry'))
    AND (sqlc.narg(before_time)::timestamptz IS NULL
      OR t.created_at <= sqlc.narg(before_time) -- the index is on this column alone
      AND (t.created_at, t.id) < (sqlc.narg(before_time), sqlc.arg(before_id)::uuid))
    AND (sqlc.arg(outcome)::text = '' OR EXISTS (
      SELECT FROM a2a.task_attempts x WHERE x.task_id = t.id AND x.outcome = sqlc.arg(outcome)))
    AND (sqlc.arg(first_text)::text = '' OR EXISTS (
      SELECT FROM a2a.messages m WHERE m.task_id = t.id AND m.seq = 1 AND m.body::text ~* sqlc.arg(first_text)))
    AND (sqlc.arg(member)::text = '' OR t.metadata::text ~ sqlc.arg(member) OR EXISTS (
      SELECT FROM a2a.messages m
      WHERE m.task_id = t.id AND m.seq = 1 AND m.body::text ~ ('"metadata":.*' || sqlc.arg(member))))
    AND (sqlc.arg(error_like)::text = ''
      OR EXISTS (
        SELECT FROM a2a.task_attempts x
        WHERE x.task_id = t.id AND x.error ILIKE sqlc.arg(error_like)
          AND x.outcome IS DISTINCT FROM 'released') -- that is why it was put back, and no error of the task
      OR t.state IN (a2a.state_failed(), a2a.state_rejected()) AND EXISTS (
        SELECT FROM a2a.messages m
        WHERE m.task_id = t.id AND m.seq = t.status_message_seq AND m.body::text ~* sqlc.arg(error_text)::text))
  ORDER BY t.created_at DESC, t.id DESC
  LIMIT sqlc.arg(max)::int
) t
LEFT JOIN a2a.task_leases l ON l.task_id = t.id
LEFT JOIN a2a.task_assignments g ON g.task_id = ANY (ARRAY[t.id]) AND g.asked_at = t.status_at
LEFT JOIN LATERAL (
  SELECT CASE WHEN x.outcome IS DISTINCT FROM 'released' THEN x.error END AS error
  FROM a2a.task_attempts x
  WHERE x.task_id = t.id
  ORDER BY x.epoch DESC
  LIMIT 1) a ON true
LEFT JOIN LATERAL (
  SELECT left(x.body::text, 2000) AS beginning
  FROM a2a.messages x
  WHERE x.task_id = ANY (ARRAY[t.id]) AND x.seq = t.status_message_seq
) m ON t.state IN (a2a.state_failed(), a2a.state_rejected()) OR a2a.state_interrupted(t.state)
ORDER BY t.created_at DESC, t.id DESC;

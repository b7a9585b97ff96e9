-- RetrySource reads what a retry begins with: the task, and the first message of its client. An imported task may have
-- none, or one of the agent before it. It is for the operator.
-- name: RetrySource :one
SELECT t.tenant, t.owner, t.agent, t.context_id, t.state, (
    SELECT m.body
    FROM a2a.messages m
    WHERE m.task_id = t.id AND m.role = a2a.role_user()
    ORDER BY m.seq
    LIMIT 1
  )::json AS body
FROM a2a.tasks t
WHERE t.id = sqlc.arg(id);

-- PurgeCount counts what PurgeScan would find, for the operator. Empty filters select all.
-- name: PurgeCount :one
SELECT count(*)
FROM a2a.tasks t
WHERE (sqlc.narg(id)::uuid IS NULL OR t.id = sqlc.narg(id))
  AND (sqlc.arg(tenant)::text = '' OR t.tenant = sqlc.arg(tenant))
  AND (sqlc.arg(owner)::text = '' OR t.owner = sqlc.arg(owner))
  AND (sqlc.arg(context_id)::text = '' OR t.context_id = sqlc.arg(context_id));

-- ActionInsert notes who did what. It is part of the transaction that does it, where there is one.
-- name: ActionInsert :exec
INSERT INTO a2a.audit_log (actor, action, tenant, owner, task_id, detail)
VALUES (sqlc.arg(actor), sqlc.arg(action), sqlc.arg(tenant), sqlc.arg(owner), sqlc.narg(task_id), sqlc.arg(detail));

-- ActionList reads what was done, newest first, for the operator. Empty filters select all.
-- name: ActionList :many
SELECT l.id, l.at, l.actor, l.action, l.tenant, l.owner, l.task_id, l.detail
FROM a2a.audit_log l
WHERE (sqlc.narg(task_id)::uuid IS NULL OR l.task_id = sqlc.narg(task_id)) AND (sqlc.arg(action)::text = '' OR l.action = sqlc.arg(action))
  AND (sqlc.arg(tenant)::text = '' OR l.tenant = sqlc.arg(tenant)) AND (sqlc.arg(actor)::text = '' OR l.actor LIKE sqlc.arg(actor) || '%')
  AND (sqlc.narg(since)::timestamptz IS NULL OR l.at >= sqlc.narg(since)) AND (sqlc.narg(until)::timestamptz IS NULL OR l.at < sqlc.narg(until))
  AND (sqlc.arg(before)::bigint = 0 OR l.id < sqlc.arg(before))
ORDER BY l.id DESC
LIMIT sqlc.arg(max)::int;

-- ActionsForget removes what was done longer ago than it is kept, up to two batches, and returns how much that was.
-- name: ActionsForget :one
SELECT a2a.forget_actions(sqlc.narg(keep)::interval, sqlc.narg(keep_signins)::interval, sqlc.arg(batch)::int)::int AS n;

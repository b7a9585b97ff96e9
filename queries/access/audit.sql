-- ActionInsert records who did what. If the action has a transaction, this is part of it.
-- name: ActionInsert :exec
INSERT INTO a2a.audit_log (actor, action, tenant, owner, task_id, detail)
VALUES (sqlc.arg(actor), sqlc.arg(action), sqlc.arg(tenant), sqlc.arg(owner), sqlc.narg(task_id), sqlc.arg(detail));

-- ActionList reads recorded actions, newest first, for the operator. Empty filters select all.
-- name: ActionList :many
SELECT l.id, l.at, l.actor, l.action, l.tenant, l.owner, l.task_id, l.detail
FROM a2a.audit_log l
WHERE (sqlc.narg(task_id)::uuid IS NULL OR l.task_id = sqlc.narg(task_id))
  AND (sqlc.arg(action)::text = '' OR l.action = sqlc.arg(action))
  AND (sqlc.arg(tenant)::text = '' OR l.tenant = sqlc.arg(tenant))
  AND (sqlc.arg(actor)::text = '' OR l.actor LIKE sqlc.arg(actor) || '%')
  AND (sqlc.narg(since)::timestamptz IS NULL OR l.at >= sqlc.narg(since))
  AND (sqlc.narg(until)::timestamptz IS NULL OR l.at < sqlc.narg(until))
  AND (sqlc.arg(before)::bigint = 0 OR l.id < sqlc.arg(before))
ORDER BY l.id DESC
LIMIT sqlc.arg(max)::int;

-- ActionsForget removes actions that are older than they are kept, at most two batches, and returns how many those
-- were.
-- name: ActionsForget :one
SELECT a2a.forget_actions(
  sqlc.narg(keep)::interval, sqlc.narg(keep_signins)::interval, sqlc.arg(batch)::int)::int AS n;

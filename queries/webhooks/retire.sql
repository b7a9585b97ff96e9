-- PushesEnd ends the webhooks of tasks: no request of theirs may start any more once
-- PushesBusy says so.
-- name: PushesEnd :exec
UPDATE a2a.push_configs p SET deleted_at = clock_timestamp(), deleted_after_seq = p.head_seq
WHERE p.task_id = ANY (sqlc.arg(ids)::uuid[]) AND p.deleted_at IS NULL;

-- PushesBusy reports whether a webhook of the tasks is held by a deliverer. PushesEnd has deleted them all.
-- name: PushesBusy :one
SELECT EXISTS (
  SELECT FROM a2a.push_configs p
  WHERE p.task_id = ANY (sqlc.arg(ids)::uuid[]) AND coalesce(p.deleted_at, 'infinity') <> 'infinity' AND coalesce(p.lease_until, '-infinity') > clock_timestamp())::boolean AS busy;

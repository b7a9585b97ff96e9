-- PushesEnd deletes the webhooks of tasks. Their last requests have ended when PushesBusy says so.
-- name: PushesEnd :exec
UPDATE a2a.push_configs p
SET deleted_at = clock_timestamp(), deleted_after_seq = p.head_seq
WHERE p.task_id = ANY (sqlc.arg(ids)::uuid[]) AND p.deleted_at IS NULL;

-- PushesBusy reports whether a replica is delivering a webhook of the tasks, after PushesEnd has deleted them.
-- name: PushesBusy :one
SELECT EXISTS (
  SELECT
  FROM a2a.push_configs p
  WHERE p.task_id = ANY (sqlc.arg(ids)::uuid[])
    AND coalesce(p.deleted_at, 'infinity') <> 'infinity' -- the predicate of the index push_configs_deleted_task
    AND coalesce(p.lease_until, '-infinity') > clock_timestamp())::boolean AS busy;

-- StopBegin stops the claims of an agent or of a worker. No row means that they are stopped already.
-- name: StopBegin :one
INSERT INTO a2a.claim_stops AS s (kind, name, actor, reason)
VALUES (sqlc.arg(kind)::text, sqlc.arg(name)::text, sqlc.arg(actor)::text, sqlc.arg(reason)::text)
ON CONFLICT (kind, name) DO NOTHING
RETURNING s.since;

-- StopEnd lets claims continue. No row means that they are not stopped.
-- name: StopEnd :one
DELETE FROM a2a.claim_stops s
WHERE s.kind = sqlc.arg(kind)::text AND s.name = sqlc.arg(name)::text
RETURNING s.since;

-- Stops lists what is stopped. There are few.
-- name: Stops :many
SELECT s.kind, s.name, s.since, s.actor, s.reason
FROM a2a.claim_stops s
ORDER BY s.kind, s.name
LIMIT 1000;

-- LeasesExpire ends the leases of a worker. It can renew none of them, and the next rescue gives its tasks to others.
-- name: LeasesExpire :many
WITH held AS (
  SELECT l.task_id, l.epoch
  FROM a2a.task_leases l
  WHERE l.worker = sqlc.arg(worker)::text AND l.lease_until > clock_timestamp()
  ORDER BY l.task_id -- the order of locks
  FOR UPDATE
)
UPDATE a2a.task_leases l
SET lease_until = clock_timestamp()
FROM held h
WHERE l.task_id = ANY (ARRAY[h.task_id]) AND l.epoch = h.epoch
RETURNING l.task_id;

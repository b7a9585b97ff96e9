-- LeasePark ends an attempt and parks its task: it stays working, and nothing claims it. No row means that the lease was
-- lost.
-- name: LeasePark :one
WITH task AS (
  UPDATE a2a.tasks t
  SET lease_epoch = t.lease_epoch + 1,
    last_seq = t.last_seq + 1,
    last_at = greatest(statement_timestamp(), t.last_at),
    status_at = date_trunc('milliseconds', greatest(statement_timestamp(), t.last_at)),
    status_message_seq = NULL,
    deadline_at = NULL,
    -- An answer may take days now, so the client gets the task.
    reply = CASE WHEN t.reply = a2a.reply_open() THEN a2a.reply_task() ELSE t.reply END
  WHERE t.id = sqlc.arg(task_id)::uuid AND t.lease_epoch = sqlc.arg(epoch)::bigint AND NOT a2a.state_terminal(t.state)
  RETURNING t.id, t.agent, t.tenant, t.lease_epoch, t.attempt, t.last_seq, t.last_at, t.has_push
), lease_deleted AS (
  DELETE FROM a2a.task_leases l
  USING task t
  WHERE l.task_id = ANY (ARRAY[t.id])
), attempt_ended AS (
  UPDATE a2a.task_attempts a
  SET ended_at = clock_timestamp(), outcome = 'parked', error = sqlc.arg(error)::text
  FROM task t
  WHERE a.task_id = sqlc.arg(task_id) AND a.epoch = sqlc.arg(epoch)
), event AS (
  INSERT INTO a2a.task_events (task_id, seq, event_uid, kind, state, source, committed_at, body)
  SELECT t.id, t.last_seq, gen_random_uuid(), a2a.kind_status(), a2a.state_working(), a2a.source_server(), t.last_at,
    json_build_object('metadata', json_build_object('a2ad/reason', 'parked: ' || sqlc.arg(error)))
  FROM task t
), parked AS (
  INSERT INTO a2a.task_parked AS p (task_id, epoch, agent, tenant, since, until, reason, attempts)
  SELECT t.id, t.lease_epoch, t.agent, t.tenant, c.now, coalesce(c.now + sqlc.narg(park_for)::interval, 'infinity'),
    sqlc.arg(error), t.attempt
  FROM task t, (SELECT clock_timestamp() AS now) c
)
SELECT t.id, t.has_push
FROM task t;

-- ParkedResume gives parked tasks fresh attempts: it puts them into the queue. It returns those that were parked.
-- name: ParkedResume :many
WITH parked AS (
  SELECT p.task_id, p.epoch, p.reason
  FROM a2a.task_parked p
  WHERE p.task_id = ANY (sqlc.arg(ids)::uuid[])
), locked AS (
  SELECT t.id
  FROM a2a.tasks t
  JOIN parked p ON p.task_id = t.id AND p.epoch = t.lease_epoch
  WHERE t.id = ANY (sqlc.arg(ids)) AND t.ready_at IS NULL AND NOT a2a.state_terminal(t.state)
  ORDER BY t.id
  FOR UPDATE OF t
), parked_deleted AS (
  DELETE FROM a2a.task_parked p
  USING locked k
  WHERE p.task_id = ANY (ARRAY[k.id])
), task AS (
  UPDATE a2a.tasks t
  SET attempt = 0, ready_at = clock_timestamp()
  FROM locked k
  WHERE t.id = ANY (ARRAY[k.id])
  RETURNING t.id, t.agent, t.priority, t.tenant, t.owner, t.ready_at
), ready_added AS (
  INSERT INTO a2a.task_ready (queue, priority, run_at, task_id, tenant, reason)
  SELECT t.agent, t.priority, t.ready_at, t.id, t.tenant, sqlc.arg(reason)::text
  FROM task t
)
SELECT t.id, t.agent, t.tenant, t.owner, p.reason
FROM task t
JOIN parked p ON p.task_id = t.id
ORDER BY t.id;

-- ParkedAnchor begins times again that began in the future, because the clock was set back since then.
-- name: ParkedAnchor :exec
UPDATE a2a.task_parked p
SET until = n.now + (p.until - p.since), since = n.now
FROM (SELECT clock_timestamp() AS now) n
WHERE p.until < 'infinity' -- the predicate of the index task_parked_until
  AND p.since > n.now;

-- ParkedOverdue takes at most batch tasks that have been parked for as long as they may out of the parked ones, and
-- locks and returns them. It waits for no lock.
-- name: ParkedOverdue :many
WITH due AS (
  SELECT p.task_id, p.epoch, p.reason
  FROM a2a.task_parked p
  WHERE p.until < 'infinity' -- the predicate of the index task_parked_until
    AND p.until <= (SELECT clock_timestamp())
  ORDER BY p.until
  LIMIT sqlc.arg(batch)::int
), stale AS (
  -- A server of an earlier version has canceled the task.
  SELECT d.task_id
  FROM due d
  LEFT JOIN a2a.tasks t ON t.id = ANY (ARRAY[d.task_id])
  WHERE t.lease_epoch IS DISTINCT FROM d.epoch
), locked AS (
  SELECT t.id, d.reason
  FROM a2a.tasks t
  JOIN due d ON d.task_id = t.id AND d.epoch = t.lease_epoch
  WHERE t.id = ANY (ARRAY(SELECT d.task_id FROM due d)) AND t.ready_at IS NULL AND NOT a2a.state_terminal(t.state)
  ORDER BY t.id
  FOR UPDATE OF t SKIP LOCKED
), parked_deleted AS (
  DELETE FROM a2a.task_parked p
  USING (SELECT k.id FROM locked k UNION ALL SELECT s.task_id FROM stale s) x
  WHERE p.task_id = ANY (ARRAY[x.id])
)
SELECT k.id, k.reason
FROM locked k;

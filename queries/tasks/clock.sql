-- WaitsAnchor begins those waits again that began in the future: the database's clock was set back since then, for
-- example by a failover, and they would last longer by as much. A wait is as long again as it was meant to be. A task
-- that was ready at once does not wait; a worker gets a whole lease, and has time to renew it. It returns the agents
-- whose tasks it has moved, once for each task, and an empty name for each webhook. It changes up to batch tasks, as
-- many cancels and as many webhooks. It waits for no lock: the next call finds what this one has skipped.
-- name: WaitsAnchor :many
WITH n AS (
  SELECT clock_timestamp() AS now
), waiting AS (
  SELECT q.ctid AS row_at, q.run_at, q.task_id, q.tenant, q.reason, q.quiet,
    greatest(q.run_at - q.made_at, interval '0') AS meant
  FROM a2a.task_ready q
  WHERE q.made_at > (SELECT clock_timestamp())
  ORDER BY q.made_at
  LIMIT sqlc.arg(batch)::int
  FOR UPDATE SKIP LOCKED
), locked AS (
  SELECT t.id
  FROM a2a.tasks t
  WHERE t.id = ANY (ARRAY(SELECT w.task_id FROM waiting w))
  ORDER BY t.id
  FOR UPDATE SKIP LOCKED
), ready_deleted AS (
  -- Rows of task_ready are never updated, only deleted and inserted.
  DELETE FROM a2a.task_ready q
  WHERE q.ctid = ANY (ARRAY(SELECT w.row_at FROM waiting w JOIN locked k ON k.id = w.task_id))
), moved AS (
  UPDATE a2a.tasks t
  SET ready_at = n.now + w.meant
  FROM n, waiting w, locked k
  WHERE t.id = ANY (ARRAY[k.id])
    AND w.task_id = k.id
    AND t.ready_at = w.run_at
    AND NOT a2a.state_terminal(t.state)
  RETURNING t.id, t.agent, t.priority, t.ready_at, w.tenant, w.reason, w.quiet
), ready_added AS (
  INSERT INTO a2a.task_ready (queue, priority, run_at, task_id, tenant, reason, quiet, made_at)
  SELECT m.agent, m.priority, m.ready_at, m.id, m.tenant, m.reason, m.quiet, n.now
  FROM moved m, n
), leases AS (
  -- A server of an earlier version renews a lease without setting held_at.
  UPDATE a2a.task_leases l
  SET lease_until = n.now + (l.lease_until - l.held_at), held_at = n.now
  FROM n
  WHERE l.task_id = ANY (ARRAY(
    SELECT x.task_id
    FROM a2a.task_leases x
    WHERE x.held_at > clock_timestamp() AND x.lease_until > x.held_at
    ORDER BY x.task_id
    FOR UPDATE SKIP LOCKED))
), cancels AS (
  UPDATE a2a.task_cancels c
  SET due_at = n.now + greatest(c.due_at - c.set_at, interval '0'), set_at = n.now
  FROM n
  WHERE c.task_id = ANY (ARRAY(
    SELECT x.task_id
    FROM a2a.task_cancels x
    WHERE x.set_at > (SELECT clock_timestamp())
    ORDER BY x.set_at
    LIMIT sqlc.arg(batch)
    FOR UPDATE SKIP LOCKED))
), webhooks AS (
  UPDATE a2a.push_configs p
  SET next_attempt_at = CASE
      WHEN isfinite(p.next_attempt_at) THEN n.now + greatest(p.next_attempt_at - p.waits_at, interval '0')
      ELSE p.next_attempt_at END,
    lease_until = n.now + greatest(p.lease_until - p.waits_at, interval '0'),
    waits_at = n.now
  FROM n
  WHERE p.id = ANY (ARRAY(
    SELECT x.id
    FROM a2a.push_configs x
    WHERE x.waits_at > (SELECT clock_timestamp())
      -- The predicate of the index push_configs_waits.
      AND (coalesce(x.lease_until, '-infinity') <> '-infinity'
        OR coalesce(x.state, '') = 'active' AND x.head_seq - x.cursor_seq > 0)
    ORDER BY x.waits_at
    LIMIT sqlc.arg(batch)
    FOR UPDATE SKIP LOCKED))
  RETURNING p.id
), task_waits AS (
  -- Both times move by as much as the clock. A wait until a named time keeps that time.
  UPDATE a2a.task_waits w
  SET due_at = w.due_at - (w.set_at - n.now), deadline_at = w.deadline_at - (w.set_at - n.now), set_at = n.now
  FROM n
  WHERE w.task_id = ANY (ARRAY(
    SELECT x.task_id
    FROM a2a.task_waits x
    WHERE x.set_at > (SELECT clock_timestamp())
    ORDER BY x.set_at
    LIMIT sqlc.arg(batch)
    FOR UPDATE SKIP LOCKED))
), breakers AS (
  UPDATE a2a.push_destinations d
  SET open_until = n.now + (d.open_until - d.waits_at),
    first_failure_at = least(d.first_failure_at, n.now),
    waits_at = n.now
  FROM n
  WHERE (d.tenant, d.origin) IN (
    SELECT x.tenant, x.origin
    FROM a2a.push_destinations x
    WHERE x.waits_at > clock_timestamp()
    ORDER BY x.tenant, x.origin
    FOR UPDATE SKIP LOCKED)
)
SELECT m.agent::text AS agent FROM moved m
UNION ALL
SELECT ''::text AS agent FROM webhooks;

-- DeadlineBound moves a turn's deadline to at most this far from now. It is further away only if the clock was set
-- back.
-- name: DeadlineBound :exec
UPDATE a2a.tasks t
SET deadline_at = clock_timestamp() + sqlc.arg(deadline)::interval
WHERE t.id = sqlc.arg(task_id)::uuid
  AND t.lease_epoch = sqlc.arg(epoch)::bigint
  AND t.deadline_at > clock_timestamp() + sqlc.arg(deadline);

-- WaitsAnchor begins those waits anew that began in the future: the database's clock was set back since, by a failover say,
-- and they would last longer by as much. A wait is as long again as it was meant to be: none for a task that was ready at once,
-- and a whole lease for a worker, who then has time to renew it. It waits for no lock, and takes up to batch tasks and as
-- many cancels and webhooks; what it passes over for a lock the next look finds. It returns the agents whose tasks it has
-- moved, once for each task, and an empty name for each webhook. Rows of task_ready are not updated but made again, like all of that table. The server of a version before that
-- renews a lease leaves held_at as it is.
-- name: WaitsAnchor :many
WITH n AS (
  SELECT clock_timestamp() AS now
), r AS (
  SELECT q.ctid AS place, q.run_at, q.task_id, q.tenant, q.reason, greatest(q.run_at - q.made_at, interval '0') AS meant
  FROM a2a.task_ready q
  WHERE q.made_at > (SELECT clock_timestamp())
  ORDER BY q.made_at
  LIMIT sqlc.arg(batch)::int
  FOR UPDATE SKIP LOCKED
), k AS (
  SELECT t.id FROM a2a.tasks t
  WHERE t.id = ANY (ARRAY(SELECT r.task_id FROM r))
  ORDER BY t.id
  FOR UPDATE SKIP LOCKED
), d AS (
  DELETE FROM a2a.task_ready q WHERE q.ctid = ANY (ARRAY(SELECT r.place FROM r JOIN k ON k.id = r.task_id))
), u AS (
  UPDATE a2a.tasks t SET ready_at = n.now + r.meant
  FROM n, r, k
  WHERE t.id = ANY (ARRAY[k.id]) AND r.task_id = k.id AND t.ready_at = r.run_at AND t.state < 100
  RETURNING t.id, t.agent, t.priority, t.ready_at, r.tenant, r.reason
), i AS (
  INSERT INTO a2a.task_ready (queue, priority, run_at, task_id, tenant, reason, made_at)
  SELECT u.agent, u.priority, u.ready_at, u.id, u.tenant, u.reason, n.now FROM u, n
), l AS (
  UPDATE a2a.task_leases l SET lease_until = n.now + (l.lease_until - l.held_at), held_at = n.now
  FROM n
  WHERE l.task_id = ANY (ARRAY(
    SELECT x.task_id FROM a2a.task_leases x
    WHERE x.held_at > clock_timestamp() AND x.lease_until > x.held_at
    ORDER BY x.task_id
    FOR UPDATE SKIP LOCKED))
), c AS (
  UPDATE a2a.task_cancels c SET due_at = n.now + greatest(c.due_at - c.set_at, interval '0'), set_at = n.now
  FROM n
  WHERE c.task_id = ANY (ARRAY(
    SELECT x.task_id FROM a2a.task_cancels x
    WHERE x.set_at > (SELECT clock_timestamp())
    ORDER BY x.set_at
    LIMIT sqlc.arg(batch)
    FOR UPDATE SKIP LOCKED))
), p AS (
  UPDATE a2a.push_configs p
  SET next_attempt_at = CASE WHEN isfinite(p.next_attempt_at) THEN n.now + greatest(p.next_attempt_at - p.waits_at, interval '0') ELSE p.next_attempt_at END,
    lease_until = n.now + greatest(p.lease_until - p.waits_at, interval '0'), waits_at = n.now
  FROM n
  WHERE p.id = ANY (ARRAY(
    SELECT x.id FROM a2a.push_configs x
    WHERE x.waits_at > (SELECT clock_timestamp())
      AND (coalesce(x.lease_until, '-infinity') <> '-infinity' OR coalesce(x.state, '') = 'active' AND x.head_seq - x.cursor_seq > 0) -- as the index has it
    ORDER BY x.waits_at
    LIMIT sqlc.arg(batch)
    FOR UPDATE SKIP LOCKED))
  RETURNING p.id
), b AS (
  UPDATE a2a.push_destinations b
  SET open_until = n.now + (b.open_until - b.waits_at), first_failure_at = least(b.first_failure_at, n.now), waits_at = n.now
  FROM n
  WHERE (b.tenant, b.origin) IN (
    SELECT x.tenant, x.origin FROM a2a.push_destinations x WHERE x.waits_at > clock_timestamp() ORDER BY x.tenant, x.origin FOR UPDATE SKIP LOCKED)
)
SELECT u.agent::text AS agent FROM u
UNION ALL
SELECT ''::text AS agent FROM p;

-- DeadlineBound has a turn end no later than that from now: its deadline lies further away if the clock was set back.
-- name: DeadlineBound :exec
UPDATE a2a.tasks t SET deadline_at = clock_timestamp() + sqlc.arg(deadline)::interval
WHERE t.id = sqlc.arg(task_id)::uuid AND t.lease_epoch = sqlc.arg(epoch)::bigint AND t.deadline_at > clock_timestamp() + sqlc.arg(deadline);

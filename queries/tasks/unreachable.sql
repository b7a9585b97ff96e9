-- LeasePostpone returns a task whose agent could not be reached to the queue, without counting the attempt. No row means
-- that the lease was lost, or that the agent has been unreachable for this task for longer than the limit.
-- name: LeasePostpone :one
WITH outage AS (
  -- The outage began with the first of the attempts in a row that ended like this one. A worker that was stopped cleanly
  -- does not end it.
  SELECT c.now, least(coalesce(b.unreachable_since, c.now), c.now) AS since, b.unreachable_since IS NOT NULL AS again
  FROM (SELECT clock_timestamp() AS now) c
  LEFT JOIN LATERAL (
    SELECT a.unreachable_since
    FROM a2a.task_attempts a
    WHERE a.task_id = sqlc.arg(task_id)::uuid AND a.epoch < sqlc.arg(epoch)::bigint AND a.outcome <> 'released'
    ORDER BY a.epoch DESC
    LIMIT 1
  ) b ON true
), task AS (
  UPDATE a2a.tasks t
  SET lease_epoch = t.lease_epoch + 1, attempt = greatest(t.attempt - 1, 0),
    -- The deadline of a turn counts from the first attempt that reached the agent.
    deadline_at = CASE WHEN t.attempt > 1 THEN t.deadline_at END,
    -- As long again as the outage has lasted: the delay doubles.
    ready_at = s.now + greatest(least(s.now - s.since, sqlc.arg(max_delay)::interval), sqlc.arg(min_delay)::interval)
  FROM outage s
  WHERE t.id = sqlc.arg(task_id) AND t.lease_epoch = sqlc.arg(epoch) AND NOT a2a.state_terminal(t.state)
    AND s.now - s.since < sqlc.arg(max_outage)::interval
  RETURNING t.id, t.agent, t.priority, t.tenant, t.ready_at, t.status_at, s.since, s.again, s.now
), lease AS (
  DELETE FROM a2a.task_leases l USING task u WHERE l.task_id = ANY (ARRAY[u.id])
), attempt AS (
  UPDATE a2a.task_attempts a
  SET ended_at = u.now, outcome = 'unreachable', error = sqlc.arg(error)::text, unreachable_since = u.since
  FROM task u
  WHERE a.task_id = sqlc.arg(task_id) AND a.epoch = sqlc.arg(epoch)
), ready AS (
  INSERT INTO a2a.task_ready (queue, priority, run_at, task_id, tenant, reason, quiet)
  SELECT u.agent, u.priority, u.ready_at, u.id, u.tenant, sqlc.arg(reason)::text,
    -- The first claim after the failure tells the client. Later ones do so only if the last one is a minute old.
    u.again AND u.ready_at - u.status_at < interval '1 minute'
  FROM task u
)
SELECT (extract(epoch FROM t.ready_at - t.now) * 1000)::bigint AS delay_ms FROM task t;

-- QueueHasten makes up to batch tasks of an agent that were postponed due now, because the agent answers again. It waits
-- for no lock: a row that another transaction has locked keeps its time. The reason is that of the index
-- task_ready_unreachable.
-- name: QueueHasten :execrows
WITH postponed AS (
  SELECT q.ctid AS row_at, q.task_id, q.run_at, q.quiet
  FROM a2a.task_ready q
  WHERE q.queue = sqlc.arg(agent)::text AND q.reason = 'agent unreachable' AND q.run_at > (SELECT clock_timestamp())
  ORDER BY q.run_at
  LIMIT sqlc.arg(batch)::int
  FOR UPDATE SKIP LOCKED
), locked AS (
  SELECT t.id
  FROM a2a.tasks t
  WHERE t.id = ANY (ARRAY(SELECT p.task_id FROM postponed p))
  ORDER BY t.id
  FOR UPDATE SKIP LOCKED
), ready_deleted AS (
  DELETE FROM a2a.task_ready q
  WHERE q.ctid = ANY (ARRAY(SELECT p.row_at FROM postponed p JOIN locked l ON l.id = p.task_id))
), task AS (
  UPDATE a2a.tasks t
  SET ready_at = clock_timestamp()
  FROM locked l
  JOIN postponed p ON p.task_id = l.id
  WHERE t.id = ANY (ARRAY[l.id]) AND t.ready_at = p.run_at AND NOT a2a.state_terminal(t.state)
  RETURNING t.id, t.agent, t.priority, t.tenant, t.ready_at,
    p.quiet AND t.ready_at - t.status_at < interval '1 minute' AS quiet
)
INSERT INTO a2a.task_ready (queue, priority, run_at, task_id, tenant, reason, quiet)
SELECT t.agent, t.priority, t.ready_at, t.id, t.tenant, 'agent unreachable', t.quiet
FROM task t;

-- OutageBegin records that a replica cannot reach an agent. It does not move the time of the next probe.
-- name: OutageBegin :exec
INSERT INTO a2a.agent_outages AS o (agent, reason, replica, probe_at)
VALUES (sqlc.arg(agent), sqlc.arg(reason), sqlc.arg(replica), clock_timestamp() + sqlc.arg(wait)::interval)
ON CONFLICT (agent) DO UPDATE SET reason = excluded.reason, replica = excluded.replica;

-- OutageProbe gives this replica the right to send an agent one task. found is false if the outage is over, and granted
-- if it is this replica's turn. Otherwise wait_ms says when to ask again.
-- name: OutageProbe :one
WITH u AS (
  UPDATE a2a.agent_outages o
  SET probes = o.probes + 1, replica = sqlc.arg(replica)::text,
    -- The time between two probes doubles up to the longest one.
    probe_at = clock_timestamp() + least(sqlc.arg(first_wait)::interval * 2 ^ least(o.probes, 20), sqlc.arg(max_wait)::interval)
  WHERE o.agent = sqlc.arg(agent)::text
    -- It lies further in the future than any wait if the clock was set back.
    AND (o.probe_at <= clock_timestamp() OR o.probe_at > clock_timestamp() + sqlc.arg(max_wait)::interval)
  RETURNING o.agent
)
SELECT EXISTS (SELECT FROM a2a.agent_outages o WHERE o.agent = sqlc.arg(agent)) AS found,
  EXISTS (SELECT FROM u) AS granted,
  coalesce((SELECT (extract(epoch FROM o.probe_at - clock_timestamp()) * 1000)::bigint
    FROM a2a.agent_outages o WHERE o.agent = sqlc.arg(agent)), 0)::bigint AS wait_ms;

-- OutageEnd records that an agent answers again.
-- name: OutageEnd :execrows
DELETE FROM a2a.agent_outages o WHERE o.agent = sqlc.arg(agent);

-- Outages lists the agents that cannot be reached, by name.
-- name: Outages :many
SELECT o.agent, o.since, o.reason, o.replica, o.probes, o.probe_at FROM a2a.agent_outages o ORDER BY o.agent;

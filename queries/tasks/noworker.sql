-- WorkersSeen records that remote workers of these agents are in touch. That ends the outages of these agents. It
-- returns the agents whose outage it has ended. It waits for no lock on an outage: the next call ends it.
-- name: WorkersSeen :many
WITH seen AS (
  INSERT INTO a2a.agent_workers AS w (agent, seen_at)
  SELECT x.agent, clock_timestamp()
  FROM (SELECT DISTINCT unnest(sqlc.arg(agents)::text[]) AS agent) x
  ORDER BY x.agent -- two processes that lock in one order cannot deadlock
  ON CONFLICT (agent) DO UPDATE
  SET seen_at = excluded.seen_at
)
DELETE FROM a2a.agent_outages o
WHERE o.agent = ANY (ARRAY(
  SELECT x.agent
  FROM a2a.agent_outages x
  WHERE x.agent = ANY (sqlc.arg(agents)::text[])
  FOR UPDATE SKIP LOCKED))
RETURNING o.agent;

-- WorkersMissing records an outage of each of these agents of which no worker was in touch for the time of patience,
-- although a task has waited for longer. It returns these agents: began says that the outage begins now, overdue that it
-- has lasted longer than the limit of the agent. A paused agent misses no worker: its tasks wait.
-- name: WorkersMissing :many
WITH n AS (
  SELECT clock_timestamp() AS now
), paused AS (
  SELECT s.name
  FROM a2a.claim_stops s
  WHERE s.kind = 'agent' AND s.name = ANY (sqlc.arg(agents)::text[])
), ended AS (
  -- If there is no worker when the agent is resumed, the outage begins then.
  DELETE FROM a2a.agent_outages o
  WHERE o.agent = ANY (ARRAY(
    SELECT x.agent
    FROM a2a.agent_outages x
    WHERE x.agent = ANY (ARRAY(SELECT p.name FROM paused p))
    FOR UPDATE SKIP LOCKED))
), served AS (
  SELECT x.agent, x.most
  FROM (SELECT unnest(sqlc.arg(agents)) AS agent, unnest(sqlc.arg(limits)::bigint[]) AS most) x
  WHERE x.agent <> ALL (ARRAY(SELECT p.name FROM paused p))
), known AS (
  -- An agent of which no worker was ever seen counts from now on. A time in the future was stored before the clock was
  -- set back.
  INSERT INTO a2a.agent_workers AS w (agent, seen_at)
  SELECT s.agent, n.now
  FROM served s, n
  ORDER BY s.agent
  ON CONFLICT (agent) DO UPDATE
  SET seen_at = excluded.seen_at
  WHERE w.seen_at > excluded.seen_at
), missing AS (
  SELECT s.agent, s.most
  FROM n, served s, a2a.agent_workers w,
  LATERAL (
    SELECT q.run_at
    FROM a2a.task_ready q
    WHERE q.queue = s.agent
      AND q.priority = ANY (sqlc.arg(lanes)::smallint[])
      AND q.run_at < (SELECT clock_timestamp()) - sqlc.arg(patience)::interval
    LIMIT 1
  ) q
  WHERE w.agent = ANY (ARRAY[s.agent]) AND w.seen_at < n.now - sqlc.arg(patience)
), outage AS (
  INSERT INTO a2a.agent_outages AS o (agent, reason, replica, since, probe_at)
  SELECT m.agent, sqlc.arg(reason)::text, sqlc.arg(replica)::text, n.now, n.now
  FROM missing m, n
  ORDER BY m.agent
  ON CONFLICT (agent) DO UPDATE
  SET reason = excluded.reason, replica = excluded.replica, probe_at = excluded.probe_at,
    -- If this statement has not run for a while, no server was there for workers either: they were not missing.
    since = CASE WHEN o.probe_at < excluded.probe_at - sqlc.arg(gap)::interval THEN excluded.since
      ELSE least(o.since, excluded.since) END,
    told_until = CASE WHEN o.told_until > excluded.since THEN '-infinity' ELSE o.told_until END
  RETURNING o.agent, o.since
)
SELECT o.agent, (o.since = n.now)::boolean AS began,
  (o.since < n.now - m.most * interval '1 millisecond')::boolean AS overdue
FROM n, outage o, missing m
WHERE m.agent = o.agent;

-- UnclaimedTell adds an event to tasks that have waited for a worker for the time of patience, with the reason. It sets
-- them to working, as a claim does whose attempt does not reach the agent. It goes on where the call before has ended,
-- and reads up to batch tasks of each lane. A task that another transaction has locked is left out.
-- name: UnclaimedTell :many
WITH n AS (
  SELECT clock_timestamp() AS now
), waiting AS (
  SELECT o.agent, x.lane, w.task_id, w.run_at
  FROM a2a.agent_outages o, (SELECT unnest(sqlc.arg(lanes)::smallint[]) AS lane) x,
  LATERAL (
    SELECT q.task_id, q.run_at
    FROM a2a.task_ready q
    WHERE q.queue = o.agent
      AND q.priority = x.lane
      AND q.run_at >= o.told_until
      AND q.run_at < (SELECT clock_timestamp()) - sqlc.arg(patience)::interval
    ORDER BY q.run_at, q.task_id
    LIMIT sqlc.arg(batch)::int
  ) w
  WHERE o.agent = ANY (sqlc.arg(agents)::text[])
), locked AS (
  SELECT t.id
  FROM a2a.tasks t
  WHERE t.id = ANY (ARRAY(SELECT w.task_id FROM waiting w))
  ORDER BY t.id
  FOR UPDATE SKIP LOCKED
), task AS (
  UPDATE a2a.tasks t
  SET state = a2a.state_working(), last_seq = t.last_seq + 1, last_at = greatest(n.now, t.last_at),
    status_at = date_trunc('milliseconds', greatest(n.now, t.last_at)), status_message_seq = NULL
  FROM n, locked l
  JOIN waiting w ON w.task_id = l.id
  WHERE t.id = ANY (ARRAY[l.id])
    AND t.ready_at = w.run_at
    -- Otherwise the client of the task was told before.
    AND t.status_at < t.ready_at + sqlc.arg(patience)
    AND NOT a2a.state_terminal(t.state)
  RETURNING t.id, t.last_seq, t.last_at, t.has_push, gen_random_uuid() AS uid
), event AS (
  INSERT INTO a2a.task_events (task_id, seq, event_uid, kind, state, source, committed_at, body)
  SELECT t.id, t.last_seq, t.uid, a2a.kind_status(), a2a.state_working(), a2a.source_server(), t.last_at,
    json_build_object('metadata', json_build_object('a2ad/reason', sqlc.arg(reason)::text))
  FROM task t
), full_lane AS (
  SELECT w.agent, max(w.run_at) AS until
  FROM waiting w
  GROUP BY w.agent, w.lane
  HAVING count(*) = sqlc.arg(batch)
), position AS (
  UPDATE a2a.agent_outages o
  SET told_until = coalesce(
    (SELECT min(f.until) FROM full_lane f WHERE f.agent = o.agent), n.now - sqlc.arg(patience))
  FROM n
  WHERE o.agent = ANY (sqlc.arg(agents)::text[])
)
SELECT t.id, t.has_push
FROM task t;

-- UnclaimedTake takes up to batch tasks of agents that have waited for a worker for longer than the limit of the agent
-- out of the queue, and locks and returns them. It waits for no lock.
-- name: UnclaimedTake :many
WITH agent AS (
  SELECT unnest(sqlc.arg(agents)::text[]) AS name, unnest(sqlc.arg(limits)::bigint[]) AS most
), waiting AS (
  SELECT w.row_at, w.task_id, w.run_at
  FROM agent a,
  LATERAL (
    SELECT q.ctid AS row_at, q.task_id, q.run_at
    FROM a2a.task_ready q
    WHERE q.queue = a.name
      AND q.priority = ANY (sqlc.arg(lanes)::smallint[])
      AND q.run_at < (SELECT clock_timestamp()) - a.most * interval '1 millisecond'
    LIMIT sqlc.arg(batch)::int
    FOR UPDATE SKIP LOCKED
  ) w
  LIMIT sqlc.arg(batch)
), locked AS (
  SELECT t.id, t.agent, t.ready_at, t.state
  FROM a2a.tasks t
  WHERE t.id = ANY (ARRAY(SELECT w.task_id FROM waiting w))
  ORDER BY t.id
  FOR UPDATE SKIP LOCKED
), ready_deleted AS (
  DELETE FROM a2a.task_ready q
  WHERE q.ctid = ANY (ARRAY(SELECT w.row_at FROM waiting w JOIN locked l ON l.id = w.task_id))
)
SELECT l.id, l.agent
FROM locked l
JOIN waiting w ON w.task_id = l.id AND w.run_at = l.ready_at
WHERE NOT a2a.state_terminal(l.state);

-- UnclaimedPark parks tasks that UnclaimedTake has taken. A park_for of 0 is no limit.
-- name: UnclaimedPark :many
WITH taken AS (
  SELECT unnest(sqlc.arg(ids)::uuid[]) AS id, unnest(sqlc.arg(texts)::text[]) AS text,
    nullif(unnest(sqlc.arg(park_fors)::bigint[]), 0) * interval '1 millisecond' AS park_for, clock_timestamp() AS now
), task AS (
  UPDATE a2a.tasks t
  SET state = a2a.state_working(), lease_epoch = t.lease_epoch + 1,
    last_seq = t.last_seq + 1, last_at = greatest(k.now, t.last_at),
    status_at = date_trunc('milliseconds', greatest(k.now, t.last_at)), status_message_seq = NULL,
    deadline_at = NULL, ready_at = NULL,
    -- As LeasePark does it.
    reply = CASE WHEN t.reply = a2a.reply_open() THEN a2a.reply_task() ELSE t.reply END
  FROM taken k
  WHERE t.id = ANY (ARRAY[k.id])
  RETURNING t.id, t.agent, t.tenant, t.lease_epoch, t.attempt, t.last_seq, t.last_at, t.has_push, k.text, k.park_for,
    k.now
), event AS (
  INSERT INTO a2a.task_events (task_id, seq, event_uid, kind, state, source, committed_at, body)
  SELECT t.id, t.last_seq, gen_random_uuid(), a2a.kind_status(), a2a.state_working(), a2a.source_server(), t.last_at,
    json_build_object('metadata', json_build_object('a2ad/reason', 'parked: ' || t.text))
  FROM task t
), parked AS (
  INSERT INTO a2a.task_parked AS p (task_id, epoch, agent, tenant, since, until, reason, attempts)
  SELECT t.id, t.lease_epoch, t.agent, t.tenant, t.now, coalesce(t.now + t.park_for, 'infinity'), t.text, t.attempt
  FROM task t
)
SELECT t.id, t.has_push
FROM task t;

-- OutagesForget removes outages of agents that no replica has probed for a while: the agent was removed, or the replica
-- that could not reach it has stopped. It returns the agents.
-- name: OutagesForget :many
DELETE FROM a2a.agent_outages o
WHERE o.agent = ANY (ARRAY(
  SELECT x.agent
  FROM a2a.agent_outages x
  WHERE x.probe_at < clock_timestamp() - sqlc.arg(older)::interval
    -- It was stored before the clock was set back.
    OR x.probe_at > clock_timestamp() + sqlc.arg(older)
  FOR UPDATE SKIP LOCKED))
RETURNING o.agent;

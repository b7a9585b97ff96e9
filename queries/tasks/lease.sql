-- TaskClaim gives waiting tasks of one agent to workers, one task for each slot. workers and uids have a row for each
-- slot: the worker, and the uid of the event. The first slots get tasks if there are fewer than slots. The caller may
-- act on the rows only after the commit. It runs on connections that use index plans alone. It goes through the lanes
-- in the order given, each oldest first, and locks no task that it does not claim.
--
-- An agent or a worker that an operator has stopped gets no rows.
--
-- capacity is how many runs of the agent there may be at once; with a capacity the caller holds the agent's lock
-- (AgentLock). A negative number is no limit. A floor is the run_at below which
-- the caller has seen no live row: before it are dead index entries that a held snapshot keeps.
-- name: TaskClaim :many
WITH slot AS (
  -- The slots of workers that an operator has not stopped.
  SELECT ARRAY(
    SELECT w.worker
    FROM (SELECT unnest(sqlc.arg(workers)::text[]) AS worker) w
    WHERE w.worker <> ALL (ARRAY(SELECT s.name FROM a2a.claim_stops s WHERE s.kind = 'worker'))) AS workers
), pick AS (
  SELECT w.row_at, lanes.lane, w.run_at, w.task_id, w.reason, w.quiet, (SELECT clock_timestamp()) AS now
  FROM (
    SELECT unnest(sqlc.arg(lanes)::smallint[]) AS lane, unnest(sqlc.arg(floors)::timestamptz[]) AS floor
  ) lanes,
  LATERAL (
    SELECT q.ctid AS row_at, q.run_at, q.task_id, q.reason, q.quiet
    FROM a2a.task_ready q
    WHERE q.queue = sqlc.arg(queue)::text
      AND q.priority = lanes.lane
      -- A subquery bounds the index scan. A plain call is volatile and does not: the claim would read everything that
      -- waits for a later time.
      AND q.run_at <= (SELECT clock_timestamp())
      AND q.run_at >= lanes.floor
    ORDER BY q.run_at, q.task_id
    LIMIT (SELECT cardinality(s.workers) FROM slot s)
    FOR UPDATE SKIP LOCKED
  ) w
  -- This depends on no row, so it is asked once.
  WHERE NOT EXISTS (SELECT FROM a2a.claim_stops s WHERE s.kind = 'agent' AND s.name = sqlc.arg(queue))
  LIMIT CASE WHEN sqlc.arg(capacity)::int < 0 THEN (SELECT cardinality(s.workers) FROM slot s)
    ELSE greatest(0, least(
      (SELECT cardinality(s.workers) FROM slot s),
      sqlc.arg(capacity) - (SELECT count(*) FROM a2a.task_leases l WHERE l.queue = sqlc.arg(queue)))) END
), ready_deleted AS (
  -- By ctid, not by key: the statistics of a queue say nothing, and cannot make this read the whole index.
  DELETE FROM a2a.task_ready r
  WHERE r.ctid = ANY (ARRAY(SELECT p.row_at FROM pick p))
), task AS (
  UPDATE a2a.tasks t
  SET state = a2a.state_working(),
    lease_epoch = t.lease_epoch + 1,
    attempt = t.attempt + 1,
    -- A quiet claim writes no event.
    last_seq = t.last_seq + CASE WHEN pick.quiet THEN 0 ELSE 1 END,
    last_at = CASE WHEN pick.quiet THEN t.last_at ELSE greatest(pick.now, t.last_at) END,
    status_at = CASE WHEN pick.quiet THEN t.status_at
      ELSE date_trunc('milliseconds', greatest(pick.now, t.last_at)) END,
    status_message_seq = CASE WHEN pick.quiet THEN t.status_message_seq END,
    ready_at = NULL,
    -- The deadline that the task has is further away only if the clock was set back.
    deadline_at = least(t.deadline_at, clock_timestamp() + sqlc.narg(deadline)::interval)
  FROM (
    SELECT p.lane, p.run_at, p.task_id, p.reason, p.quiet, p.now,
      (SELECT s.workers FROM slot s)[p.slot] AS worker, (sqlc.arg(uids)::uuid[])[p.slot] AS uid
    FROM (
      SELECT x.lane, x.run_at, x.task_id, x.reason, x.quiet, x.now, row_number() OVER (ORDER BY x.task_id) AS slot
      FROM pick x
    ) p
    ORDER BY p.task_id -- the order of locks
  ) pick
  WHERE t.id = ANY (ARRAY[pick.task_id]) AND NOT a2a.state_terminal(t.state)
  RETURNING t.id, t.tenant, t.owner, t.lease_epoch, t.attempt, t.last_seq, t.last_at, t.last_user_seq, t.read_user_seq,
    t.has_artifacts, t.has_push, t.bytes, t.steps, t.step_bytes, t.depth, t.traceparent, t.deadline_at, pick.lane,
    pick.run_at, pick.quiet, pick.uid, pick.worker,
    CASE WHEN pick.reason IS NULL THEN '{}'::json
      ELSE json_build_object('metadata', json_build_object('a2ad/attempt', t.attempt, 'a2ad/reason', pick.reason)) END
      AS body
), first_lease AS (
  -- A task that is claimed for the first time has no lease yet.
  INSERT INTO a2a.task_leases (task_id, epoch, worker, lease_until, through, queue, holder)
  SELECT t.id, t.lease_epoch, t.worker, clock_timestamp() + sqlc.arg(ttl)::interval, t.last_user_seq,
    CASE WHEN sqlc.arg(capacity) >= 0 THEN sqlc.arg(queue) END, nullif(sqlc.arg(holder)::text, '')
  FROM task t
  WHERE t.lease_epoch = 1
), later_lease AS (
  INSERT INTO a2a.task_leases (task_id, epoch, worker, lease_until, through, queue, holder)
  SELECT t.id, t.lease_epoch, t.worker, clock_timestamp() + sqlc.arg(ttl)::interval, t.last_user_seq,
    CASE WHEN sqlc.arg(capacity) >= 0 THEN sqlc.arg(queue) END, nullif(sqlc.arg(holder)::text, '')
  FROM task t
  WHERE t.lease_epoch > 1
  ON CONFLICT (task_id) DO UPDATE
  SET epoch = excluded.epoch, worker = excluded.worker, lease_until = excluded.lease_until,
    through = excluded.through, queue = excluded.queue, held_at = excluded.held_at, holder = excluded.holder
), attempt AS (
  INSERT INTO a2a.task_attempts (task_id, epoch, attempt, worker, claimed_at)
  SELECT t.id, t.lease_epoch, t.attempt, t.worker, clock_timestamp()
  FROM task t
), event AS (
  INSERT INTO a2a.task_events (task_id, seq, event_uid, kind, state, source, epoch, worker, committed_at, body)
  SELECT t.id, t.last_seq, t.uid, a2a.kind_status(), a2a.state_working(), a2a.source_worker(), t.lease_epoch,
    t.worker, t.last_at, t.body
  FROM task t
  WHERE NOT t.quiet
)
SELECT t.id, t.tenant, t.owner, t.lease_epoch, t.attempt, t.last_seq, t.last_user_seq, t.read_user_seq,
  t.last_at, t.has_artifacts, t.has_push, t.bytes, t.steps, t.step_bytes, t.depth,
  coalesce(t.traceparent, '')::text AS traceparent,
  t.lane::smallint AS lane, t.run_at, t.quiet, t.uid::uuid AS uid, t.worker::text AS worker,
  (clock_timestamp() + sqlc.arg(ttl))::timestamptz AS lease_until, t.body::json AS body,
  coalesce(extract(epoch FROM t.deadline_at - clock_timestamp()) * 1000, 0)::bigint AS deadline_in_ms,
  -- A task that is claimed for the first time has no checkpoint either.
  (CASE WHEN t.lease_epoch > 1 THEN (SELECT c.body FROM a2a.task_checkpoints c WHERE c.task_id = t.id) END)::json
    AS checkpoint
FROM task t
ORDER BY t.run_at, t.id;

-- AgentLock makes the claims of an agent with a capacity follow each other: each must count the leases that the one
-- before has made. It does not wait; false means that another claim has the lock.
-- name: AgentLock :one
SELECT pg_try_advisory_xact_lock(sqlc.arg(class)::int, hashtext(sqlc.arg(agent)::text));

-- LeaseRenewRemote renews the lease of a remote worker if this epoch still has it and it has not expired. A lease that
-- has three quarters of its time left stays as it is: workers that report every token would write it for each. A longer
-- one was made before the clock was set back. The statement reads what the process of a local worker would remember of
-- its run, and the batch that was written under this id before. Only tasks of the named agents count. No row means that
-- the lease is lost.
-- name: LeaseRenewRemote :one
WITH policy AS (
  SELECT unnest(sqlc.arg(agents)::text[]) AS agent, unnest(sqlc.arg(ttls)::bigint[]) AS ttl
), held AS (
  SELECT l.task_id, l.worker, l.through, l.queue, l.lease_until, p.ttl,
    l.lease_until NOT BETWEEN n.now + p.ttl * 0.75 * interval '1 millisecond'
      AND n.now + p.ttl * interval '1 millisecond' AS due
  FROM (SELECT clock_timestamp() AS now) n
  CROSS JOIN a2a.task_leases l
  JOIN a2a.tasks t ON t.id = l.task_id AND t.lease_epoch = l.epoch AND NOT a2a.state_terminal(t.state)
  JOIN policy p ON p.agent = t.agent
  WHERE l.task_id = sqlc.arg(task_id)::uuid
    AND l.epoch = sqlc.arg(epoch)::bigint
    AND l.lease_until > n.now
), renewed AS (
  UPDATE a2a.task_leases l
  SET lease_until = clock_timestamp() + h.ttl * interval '1 millisecond', held_at = clock_timestamp()
  FROM held h
  WHERE h.due AND l.task_id = ANY (ARRAY[h.task_id]) AND l.epoch = sqlc.arg(epoch) AND l.lease_until > clock_timestamp()
  RETURNING l.lease_until
)
SELECT t.agent, t.tenant, t.owner, t.context_id, t.attempt, t.last_seq, t.bytes, t.steps, t.step_bytes, t.depth,
  t.has_push,
  coalesce(t.traceparent, '')::text AS traceparent, h.worker,
  coalesce(r.lease_until, h.lease_until)::timestamptz AS lease_until,
  -- For how long the lease has three quarters of its time left.
  (CASE WHEN h.due THEN h.ttl * 0.25
    ELSE extract(epoch FROM h.lease_until - clock_timestamp()) * 1000 - h.ttl * 0.75 END)::bigint AS fresh_ms,
  coalesce(h.through, t.last_user_seq)::bigint AS through, (h.queue IS NOT NULL)::boolean AS counted,
  (extract(epoch FROM clock_timestamp() - greatest(t.last_at, (
    SELECT s.recorded_at FROM a2a.task_steps s WHERE s.task_id = t.id AND s.seq = t.steps))) * 1000)::bigint
    AS silent_ms,
  coalesce(extract(epoch FROM t.deadline_at - clock_timestamp()) * 1000, 0)::bigint AS deadline_in_ms,
  (t.deadline_at IS NOT NULL)::boolean AS has_deadline,
  coalesce(b.last_seq, 0)::bigint AS batch_seq, b.lease_until AS batch_until
FROM held h
LEFT JOIN renewed r ON true
JOIN a2a.tasks t ON t.id = ANY (ARRAY[h.task_id])
LEFT JOIN a2a.task_batches b
  ON b.task_id = sqlc.arg(task_id) AND b.epoch = sqlc.arg(epoch) AND b.batch_id = sqlc.arg(batch_id)::text
WHERE NOT h.due OR r.lease_until IS NOT NULL;

-- RunEnded reads how a run that has no lease any more ended, with the batch of this id. No row means that the run is
-- not of these agents, or has not ended.
-- name: RunEnded :one
SELECT a.outcome, a.ended_at, t.last_seq, coalesce(b.last_seq, 0)::bigint AS batch_seq, b.lease_until AS batch_until
FROM a2a.task_attempts a
JOIN a2a.tasks t ON t.id = a.task_id
LEFT JOIN a2a.task_batches b
  ON b.task_id = a.task_id AND b.epoch = a.epoch AND b.batch_id = sqlc.arg(batch_id)::text
WHERE a.task_id = sqlc.arg(task_id)::uuid
  AND a.epoch = sqlc.arg(epoch)::bigint
  AND a.ended_at IS NOT NULL
  AND t.agent = ANY (sqlc.arg(agents)::text[]);

-- BatchesAdd records what was written under an id. It is the second statement of the transaction that wrote it.
-- name: BatchesAdd :exec
INSERT INTO a2a.task_batches (task_id, epoch, batch_id, last_seq, lease_until)
SELECT unnest(sqlc.arg(task_ids)::uuid[]), unnest(sqlc.arg(epochs)::bigint[]), unnest(sqlc.arg(batch_ids)::text[]),
  unnest(sqlc.arg(last_seqs)::bigint[]), unnest(sqlc.arg(lease_untils)::timestamptz[]);

-- BatchesDelete removes at most batch ids that are so old that no worker sends them again.
-- name: BatchesDelete :execrows
DELETE FROM a2a.task_batches b
WHERE b.ctid = ANY (ARRAY(
  SELECT x.ctid
  FROM a2a.task_batches x
  WHERE x.made_at < (SELECT clock_timestamp()) - sqlc.arg(older)::interval
  ORDER BY x.made_at
  LIMIT sqlc.arg(batch)::int
  FOR UPDATE SKIP LOCKED));

-- ArtifactIDs lists the artifacts that a task's log names after one event.
-- name: ArtifactIDs :many
SELECT DISTINCT e.artifact_id::text
FROM a2a.task_events e
WHERE e.task_id = sqlc.arg(task_id)::uuid AND e.seq > sqlc.arg(after)::bigint AND e.artifact_id IS NOT NULL;

-- LaneHeads returns for each lane the run_at of its first task that is due, and how many milliseconds before this
-- statement that was. For an empty lane it returns the time of this statement. It locks nothing. It walks over dead
-- index entries after the floors, as a claim does.
-- name: LaneHeads :many
SELECT x.lane::smallint AS lane, coalesce(w.run_at, statement_timestamp())::timestamptz AS head,
  (w.run_at IS NULL)::boolean AS empty,
  coalesce(extract(epoch FROM statement_timestamp() - w.run_at) * 1000, 0)::bigint AS waited_ms
FROM (
  SELECT unnest(sqlc.arg(lanes)::smallint[]) AS lane, unnest(sqlc.arg(floors)::timestamptz[]) AS floor
) x
LEFT JOIN LATERAL (
  SELECT q.run_at
  FROM a2a.task_ready q
  WHERE q.queue = sqlc.arg(queue)::text
    AND q.priority = x.lane
    AND q.run_at >= x.floor
    AND q.run_at <= statement_timestamp()
  ORDER BY q.run_at
  LIMIT 1
) w ON true;

-- QueuesDue returns, of many queues at once, the run_at of the first task in each lane that is due. One more row, of no
-- queue and lane -1, has the time of this statement. It locks nothing. It walks over dead index entries after the
-- floors, as a claim does.
-- name: QueuesDue :many
SELECT x.queue::text AS queue, x.lane::smallint AS lane, w.run_at::timestamptz AS run_at
FROM (
  SELECT unnest(sqlc.arg(queues)::text[]) AS queue, unnest(sqlc.arg(lanes)::smallint[]) AS lane,
    unnest(sqlc.arg(floors)::timestamptz[]) AS floor
) x,
LATERAL (
  SELECT q.run_at
  FROM a2a.task_ready q
  WHERE q.queue = x.queue AND q.priority = x.lane AND q.run_at >= x.floor AND q.run_at <= statement_timestamp()
  ORDER BY q.run_at
  LIMIT 1
) w
UNION ALL
SELECT ''::text AS queue, (-1)::smallint AS lane, statement_timestamp()::timestamptz AS run_at;

-- LeaseRenew renews the leases that these epochs still have, and returns them. An id that is missing was lost or
-- canceled. An expired lease is not renewed, even if no other worker has claimed the task. It waits for no lock: a row
-- that another transaction has locked is returned, and renewed is false.
-- name: LeaseRenew :many
WITH asked AS (
  SELECT unnest(sqlc.arg(task_ids)::uuid[]) AS task_id, unnest(sqlc.arg(epochs)::bigint[]) AS epoch
), held AS (
  SELECT l.task_id
  FROM a2a.task_leases l
  JOIN asked a ON l.task_id = a.task_id AND l.epoch = a.epoch
  WHERE l.task_id = ANY (sqlc.arg(task_ids)::uuid[]) AND l.lease_until > clock_timestamp()
  FOR UPDATE OF l SKIP LOCKED
), renewed AS (
  UPDATE a2a.task_leases l
  SET lease_until = clock_timestamp() + sqlc.arg(ttl)::interval, held_at = clock_timestamp()
  FROM held h
  WHERE l.task_id = ANY (ARRAY[h.task_id])
  RETURNING l.task_id
)
SELECT l.task_id, l.epoch, (r.task_id IS NOT NULL)::boolean AS renewed
FROM a2a.task_leases l
JOIN asked a ON l.task_id = a.task_id AND l.epoch = a.epoch
LEFT JOIN renewed r ON r.task_id = l.task_id
WHERE l.task_id = ANY (sqlc.arg(task_ids)::uuid[])
  AND (r.task_id IS NOT NULL OR l.lease_until > clock_timestamp());

-- TaskStates reads the states of tasks for the worker that lost them.
-- name: TaskStates :many
SELECT t.id, t.state
FROM a2a.tasks t
WHERE t.id = ANY (sqlc.arg(ids)::uuid[]);

-- LeaseRetry puts a task back into the queue after a failed attempt, to be claimed after the delay. It inserts no row
-- when the lease was lost.
-- name: LeaseRetry :execrows
WITH task AS (
  UPDATE a2a.tasks t
  SET lease_epoch = t.lease_epoch + 1, ready_at = clock_timestamp() + sqlc.arg(delay)::interval
  WHERE t.id = sqlc.arg(task_id)::uuid
    AND t.lease_epoch = sqlc.arg(epoch)::bigint
    AND NOT a2a.state_terminal(t.state)
  RETURNING t.id, t.agent, t.priority, t.tenant, t.ready_at
), lease_deleted AS (
  DELETE FROM a2a.task_leases l
  USING task t
  WHERE l.task_id = ANY (ARRAY[t.id])
), attempt_ended AS (
  UPDATE a2a.task_attempts a
  SET ended_at = clock_timestamp(), outcome = 'retry', error = sqlc.arg(error)::text
  FROM task t
  WHERE a.task_id = sqlc.arg(task_id) AND a.epoch = sqlc.arg(epoch)
)
INSERT INTO a2a.task_ready (queue, priority, run_at, task_id, tenant, reason)
SELECT t.agent, t.priority, t.ready_at, t.id, t.tenant, sqlc.arg(error)::text
FROM task t;

-- LeaseRelease puts tasks back into the queue at once. The attempt does not count. It returns the agents of the tasks;
-- those whose lease was lost stay as they are.
-- name: LeaseRelease :many
WITH asked AS (
  SELECT unnest(sqlc.arg(task_ids)::uuid[]) AS task_id, unnest(sqlc.arg(epochs)::bigint[]) AS epoch
), locked AS (
  SELECT t.id, a.epoch
  FROM a2a.tasks t
  JOIN asked a ON a.task_id = t.id AND a.epoch = t.lease_epoch
  WHERE t.id = ANY (sqlc.arg(task_ids)) AND NOT a2a.state_terminal(t.state)
  ORDER BY t.id
  FOR UPDATE OF t
), task AS (
  UPDATE a2a.tasks t
  SET lease_epoch = t.lease_epoch + 1, attempt = greatest(t.attempt - 1, 0), ready_at = clock_timestamp()
  FROM locked k
  WHERE t.id = ANY (ARRAY[k.id]) AND t.lease_epoch = k.epoch
  RETURNING t.id, t.agent, t.priority, t.tenant, t.ready_at, k.epoch
), lease_deleted AS (
  DELETE FROM a2a.task_leases l
  USING task t
  WHERE l.task_id = ANY (ARRAY[t.id])
), attempt_ended AS (
  UPDATE a2a.task_attempts a
  SET ended_at = clock_timestamp(), outcome = 'released', error = sqlc.arg(reason)::text
  FROM task t
  WHERE a.task_id = ANY (ARRAY[t.id]) AND a.epoch = t.epoch
), ready_added AS (
  INSERT INTO a2a.task_ready (queue, priority, run_at, task_id, tenant, reason)
  SELECT t.agent, t.priority, t.ready_at, t.id, t.tenant, sqlc.arg(reason)::text
  FROM task t
)
SELECT DISTINCT t.agent::text
FROM task t;

-- LeaseRescue ends leases that have expired or whose process is gone, at most batch of them. Any replica may run it; it
-- never waits for a lock. The policy of its agent decides about a task: retry while attempts are left, fail, or
-- input-required. A task without attempts fails or is parked. An agent that the caller does not name has the default.
-- name: LeaseRescue :many
WITH policy AS (
  SELECT unnest(sqlc.arg(agents)::text[]) AS agent, unnest(sqlc.arg(policies)::text[]) AS policy,
    unnest(sqlc.arg(max_attempts)::int[]) AS max_attempts, unnest(sqlc.arg(parks)::boolean[]) AS parks,
    unnest(sqlc.arg(park_fors)::bigint[]) AS park_for
), expired AS (
  SELECT l.task_id, l.epoch
  FROM a2a.task_leases l
  WHERE l.lease_until < clock_timestamp() OR l.holder = ANY (sqlc.arg(gone)::text[])
  ORDER BY l.task_id
  LIMIT sqlc.arg(batch)::int
  FOR UPDATE SKIP LOCKED
), locked AS (
  SELECT t.id, e.epoch, clock_timestamp() AS now,
    CASE
      WHEN coalesce(p.policy, 'retry') = 'retry'
          AND t.attempt >= coalesce(p.max_attempts, sqlc.arg(default_attempts)::int)
        THEN CASE WHEN coalesce(p.parks, sqlc.arg(default_parks)::boolean) THEN 'park' ELSE 'fail' END
      ELSE coalesce(p.policy, 'retry') END AS fate,
    nullif(coalesce(p.park_for, sqlc.arg(default_park_for)::bigint), 0) * interval '1 millisecond' AS park_for
  FROM a2a.tasks t
  JOIN expired e ON e.task_id = t.id
  LEFT JOIN policy p ON p.agent = t.agent
  WHERE t.id = ANY (ARRAY(SELECT e.task_id FROM expired e))
    AND t.lease_epoch = e.epoch
    AND NOT a2a.state_terminal(t.state)
  ORDER BY t.id
  FOR UPDATE OF t SKIP LOCKED
), lease_deleted AS (
  DELETE FROM a2a.task_leases l
  USING locked k
  WHERE l.task_id = ANY (ARRAY[k.id])
), task AS (
  -- A retry adds no event, and keeps the status. A task that is parked gets an event without a message.
  UPDATE a2a.tasks t
  SET lease_epoch = t.lease_epoch + 1,
    state = CASE k.fate
      WHEN 'retry' THEN t.state
      WHEN 'park' THEN t.state
      WHEN 'input-required' THEN a2a.state_input_required()
      ELSE a2a.state_failed() END,
    last_seq = t.last_seq + CASE k.fate WHEN 'retry' THEN 0 ELSE 1 END,
    last_message_seq = t.last_message_seq + CASE WHEN k.fate IN ('retry', 'park') THEN 0 ELSE 1 END,
    last_at = CASE k.fate WHEN 'retry' THEN t.last_at ELSE greatest(k.now, t.last_at) END,
    status_at = CASE k.fate WHEN 'retry' THEN t.status_at
      ELSE date_trunc('milliseconds', greatest(k.now, t.last_at)) END,
    status_message_seq = CASE k.fate
      WHEN 'retry' THEN t.status_message_seq
      WHEN 'park' THEN NULL
      ELSE t.last_message_seq + 1 END,
    attempt = CASE k.fate WHEN 'input-required' THEN 0 ELSE t.attempt END,
    deadline_at = CASE k.fate WHEN 'retry' THEN t.deadline_at END,
    ready_at = CASE k.fate WHEN 'retry' THEN clock_timestamp() END,
    folded = k.fate = 'fail'
      AND t.has_artifacts
      AND t.last_seq >= sqlc.arg(fold_events)::bigint
      AND t.last_seq < sqlc.arg(fold_most_events)::bigint
      AND t.bytes <= sqlc.arg(fold_most_bytes)::bigint,
    -- As LeasePark does it.
    reply = CASE WHEN k.fate = 'park' AND t.reply = a2a.reply_open() THEN a2a.reply_task() ELSE t.reply END
  FROM locked k
  WHERE t.id = ANY (ARRAY[k.id])
  RETURNING t.id, t.lease_epoch, t.last_seq, t.last_message_seq, t.last_at, t.state, t.agent, t.tenant, t.priority,
    t.attempt, t.ready_at, t.folded, t.has_push, k.epoch AS expired_epoch, k.fate, k.park_for
), attempt_ended AS (
  UPDATE a2a.task_attempts a
  SET ended_at = clock_timestamp(), outcome = 'expired'
  FROM task t
  WHERE a.task_id = ANY (ARRAY[t.id]) AND a.epoch = t.expired_epoch
), status AS (
  SELECT t.id, t.last_message_seq, t.last_seq, t.last_at, t.state, gen_random_uuid() AS uid,
    json_build_object('messageId', gen_random_uuid(), 'parts', json_build_array(json_build_object('text',
      CASE WHEN t.fate = 'input-required' THEN 'The worker was lost while it ran this task. Send a message to go on.'
        ELSE 'The worker was lost while it ran this task.' END))) AS message
  FROM task t
  WHERE t.fate NOT IN ('retry', 'park')
), message AS (
  INSERT INTO a2a.messages (task_id, seq, at_seq, message_id, role, body)
  SELECT s.id, s.last_message_seq, s.last_seq, s.message->>'messageId', a2a.role_agent(), s.message
  FROM status s
), event AS (
  INSERT INTO a2a.task_events (task_id, seq, event_uid, kind, state, source, committed_at, body)
  SELECT s.id, s.last_seq, s.uid, a2a.kind_status(), s.state, a2a.source_server(), s.last_at,
    json_build_object('message', s.message)
  FROM status s
), parked_event AS (
  INSERT INTO a2a.task_events (task_id, seq, event_uid, kind, state, source, committed_at, body)
  SELECT t.id, t.last_seq, gen_random_uuid(), a2a.kind_status(), t.state, a2a.source_server(), t.last_at,
    json_build_object('metadata', json_build_object('a2ad/reason', 'parked: the worker was lost'))
  FROM task t
  WHERE t.fate = 'park'
), parked AS (
  INSERT INTO a2a.task_parked AS p (task_id, epoch, agent, tenant, since, until, reason, attempts)
  SELECT t.id, t.lease_epoch, t.agent, t.tenant, c.now, coalesce(c.now + t.park_for, 'infinity'), 'the worker was lost',
    t.attempt
  FROM task t, (SELECT clock_timestamp() AS now) c
  WHERE t.fate = 'park'
), ready_added AS (
  INSERT INTO a2a.task_ready (queue, priority, run_at, task_id, tenant, reason)
  SELECT t.agent, t.priority, t.ready_at, t.id, t.tenant, 'the worker was lost'
  FROM task t
  WHERE t.fate = 'retry'
)
SELECT t.id, t.agent, t.fate::text AS fate, t.folded, t.has_push
FROM task t;

-- CheckpointsDelete removes the checkpoints of tasks that LeaseRescue has ended. It is a statement of its own: the
-- rescue does not see a checkpoint that was saved after its snapshot and before it locked the task.
-- name: CheckpointsDelete :exec
DELETE FROM a2a.task_checkpoints c
WHERE c.task_id = ANY (sqlc.arg(task_ids)::uuid[]);

-- TaskClaim gives up to slots waiting tasks of one agent to a worker. Its rows may only be
-- acted on after the commit. A floor is the run_at below which this caller has seen no live
-- row: behind it lie dead index entries that a held snapshot keeps. It runs on
-- connections that know index plans alone, and what it has locked it deletes by place, not by
-- key: no statistics of the queue, which say nothing, can make it read the whole index. It goes
-- through the lanes in the order given, each oldest first, and stops when it has enough; what
-- it does not take it has not locked. capacity is how many runs of the agent there may be at
-- once, or negative: the caller holds the agent's lock (AgentLock) where it is not. uids are as many
-- as slots: of the events. A task that is claimed for the first time has neither a lease nor a checkpoint. The
-- time is a subquery so that it bounds the index scan too: as a plain call, being volatile, it
-- made a claim read everything that waits for a later time.
-- name: TaskClaim :many
WITH pick AS (
  SELECT w.place, lanes.lane, w.run_at, w.task_id, w.reason, (SELECT clock_timestamp()) AS now
  FROM (SELECT unnest(sqlc.arg(lanes)::smallint[]) AS lane, unnest(sqlc.arg(floors)::timestamptz[]) AS floor) lanes, LATERAL (
    SELECT q.ctid AS place, q.run_at, q.task_id, q.reason
    FROM a2a.task_ready q
    WHERE q.queue = sqlc.arg(queue)::text AND q.priority = lanes.lane
      AND q.run_at <= (SELECT clock_timestamp()) AND q.run_at >= lanes.floor
    ORDER BY q.run_at, q.task_id
    LIMIT sqlc.arg(slots)::int
    FOR UPDATE SKIP LOCKED
  ) w
  LIMIT CASE WHEN sqlc.arg(capacity)::int < 0 THEN sqlc.arg(slots)
    ELSE greatest(least(sqlc.arg(slots), sqlc.arg(capacity) - (SELECT count(*) FROM a2a.task_leases l WHERE l.queue = sqlc.arg(queue))), 0) END
), del AS (
  DELETE FROM a2a.task_ready r WHERE r.ctid = ANY (ARRAY(SELECT p.place FROM pick p))
), up AS (
  UPDATE a2a.tasks t
  SET state = 2, lease_epoch = t.lease_epoch + 1, attempt = t.attempt + 1, last_seq = t.last_seq + 1,
    last_at = greatest(pick.now, t.last_at),
    status_at = date_trunc('milliseconds', greatest(pick.now, t.last_at)), status_message_seq = NULL, ready_at = NULL,
    deadline_at = least(t.deadline_at, clock_timestamp() + sqlc.narg(deadline)::interval) -- further away it is only if the clock was set back
  FROM (SELECT p.lane, p.run_at, p.task_id, p.reason, p.now, (sqlc.arg(uids)::uuid[])[row_number() OVER (ORDER BY p.task_id)] AS uid FROM pick p ORDER BY p.task_id) pick -- the order of locks
  WHERE t.id = ANY (ARRAY[pick.task_id]) AND t.state < 100
  RETURNING t.id, t.tenant, t.owner, t.lease_epoch, t.attempt, t.last_seq, t.last_at, t.last_user_seq, t.read_user_seq,
    t.has_artifacts, t.has_push, t.bytes, t.traceparent, t.deadline_at, pick.lane, pick.run_at, pick.uid,
    CASE WHEN pick.reason IS NULL THEN '{}'::json
      ELSE json_build_object('metadata', json_build_object('a2ad/attempt', t.attempt, 'a2ad/reason', pick.reason)) END AS body
), le AS (
  INSERT INTO a2a.task_leases (task_id, epoch, worker, lease_until, through, queue)
  SELECT up.id, up.lease_epoch, sqlc.arg(worker)::text, clock_timestamp() + sqlc.arg(ttl)::interval, up.last_user_seq,
    CASE WHEN sqlc.arg(capacity) >= 0 THEN sqlc.arg(queue) END
  FROM up WHERE up.lease_epoch = 1
), again AS (
  INSERT INTO a2a.task_leases (task_id, epoch, worker, lease_until, through, queue)
  SELECT up.id, up.lease_epoch, sqlc.arg(worker)::text, clock_timestamp() + sqlc.arg(ttl)::interval, up.last_user_seq,
    CASE WHEN sqlc.arg(capacity) >= 0 THEN sqlc.arg(queue) END
  FROM up WHERE up.lease_epoch > 1
  ON CONFLICT (task_id) DO UPDATE
  SET epoch = excluded.epoch, worker = excluded.worker, lease_until = excluded.lease_until, through = excluded.through, queue = excluded.queue, held_at = excluded.held_at
), a AS (
  INSERT INTO a2a.task_attempts (task_id, epoch, attempt, worker, claimed_at)
  SELECT up.id, up.lease_epoch, up.attempt, sqlc.arg(worker), clock_timestamp() FROM up
), ev AS (
  INSERT INTO a2a.task_events (task_id, seq, event_uid, kind, state, source, epoch, worker, committed_at, body)
  SELECT up.id, up.last_seq, up.uid, 1, 2, 1, up.lease_epoch, sqlc.arg(worker), up.last_at, up.body FROM up
)
SELECT up.id, up.tenant, up.owner, up.lease_epoch, up.attempt, up.last_seq, up.last_user_seq, up.read_user_seq,
  up.last_at, up.has_artifacts, up.has_push, up.bytes, coalesce(up.traceparent, '')::text AS traceparent, up.lane::smallint AS lane, up.run_at, up.uid::uuid AS uid, (clock_timestamp() + sqlc.arg(ttl))::timestamptz AS lease_until, up.body::json AS body, coalesce(extract(epoch FROM up.deadline_at - clock_timestamp()) * 1000, 0)::bigint AS deadline_in_ms,
  (CASE WHEN up.lease_epoch > 1 THEN (SELECT c.body FROM a2a.task_checkpoints c WHERE c.task_id = up.id) END)::json AS checkpoint
FROM up
ORDER BY up.run_at, up.id;

-- AgentLock has the claims of an agent whose runs are counted follow each other: the count of
-- the next one must see the leases of this one. It does not wait.
-- name: AgentLock :one
SELECT pg_try_advisory_xact_lock(sqlc.arg(class)::int, hashtext(sqlc.arg(agent)::text));

-- LeaseHold extends the lease of a worker far away, if it is held by this epoch and has not
-- run out, and reads what the worker's process would know of the run. Only agents that are
-- named are looked at. A batch that was written under this id before comes with it.
-- name: LeaseHold :one
WITH p AS (
  SELECT unnest(sqlc.arg(agents)::text[]) AS agent, unnest(sqlc.arg(ttls)::bigint[]) AS ttl
), h AS (
  SELECT l.task_id, p.ttl
  FROM a2a.task_leases l
  JOIN a2a.tasks t ON t.id = l.task_id AND t.lease_epoch = l.epoch AND t.state < 100
  JOIN p ON p.agent = t.agent
  WHERE l.task_id = sqlc.arg(task_id)::uuid AND l.epoch = sqlc.arg(epoch)::bigint AND l.lease_until > clock_timestamp()
  FOR UPDATE OF l
), u AS (
  UPDATE a2a.task_leases l
  SET lease_until = clock_timestamp() + h.ttl * interval '1 millisecond', held_at = clock_timestamp()
  FROM h
  WHERE l.task_id = ANY (ARRAY[h.task_id]) AND l.epoch = sqlc.arg(epoch) AND l.lease_until > clock_timestamp()
  RETURNING l.task_id, l.epoch, l.worker, l.through, l.queue, l.lease_until
)
SELECT t.agent, t.tenant, t.owner, t.context_id, t.attempt, t.last_seq, t.bytes, t.has_push, coalesce(t.traceparent, '')::text AS traceparent, u.worker, u.lease_until,
  coalesce(u.through, t.last_user_seq)::bigint AS through, (u.queue IS NOT NULL)::boolean AS counted,
  (extract(epoch FROM clock_timestamp() - t.last_at) * 1000)::bigint AS silent_ms,
  coalesce(extract(epoch FROM t.deadline_at - clock_timestamp()) * 1000, 0)::bigint AS deadline_in_ms, (t.deadline_at IS NOT NULL)::boolean AS has_deadline,
  coalesce(b.last_seq, 0)::bigint AS batch_seq, b.lease_until AS batch_until
FROM u
JOIN a2a.tasks t ON t.id = ANY (ARRAY[u.task_id])
LEFT JOIN a2a.task_batches b ON b.task_id = sqlc.arg(task_id) AND b.epoch = sqlc.arg(epoch) AND b.batch_id = sqlc.arg(batch_id)::text;

-- RunEnded tells how a run ended that holds no lease any more, with the batch of this id.
-- name: RunEnded :one
SELECT a.outcome, a.ended_at, t.last_seq, coalesce(b.last_seq, 0)::bigint AS batch_seq, b.lease_until AS batch_until
FROM a2a.task_attempts a
JOIN a2a.tasks t ON t.id = a.task_id
LEFT JOIN a2a.task_batches b ON b.task_id = a.task_id AND b.epoch = a.epoch AND b.batch_id = sqlc.arg(batch_id)::text
WHERE a.task_id = sqlc.arg(task_id)::uuid AND a.epoch = sqlc.arg(epoch)::bigint AND a.ended_at IS NOT NULL AND t.agent = ANY (sqlc.arg(agents)::text[]);

-- BatchesAdd notes what was written under an id: the second statement of the transaction that
-- wrote it.
-- name: BatchesAdd :exec
INSERT INTO a2a.task_batches (task_id, epoch, batch_id, last_seq, lease_until)
SELECT unnest(sqlc.arg(task_ids)::uuid[]), unnest(sqlc.arg(epochs)::bigint[]), unnest(sqlc.arg(batch_ids)::text[]), unnest(sqlc.arg(last_seqs)::bigint[]),
  unnest(sqlc.arg(lease_untils)::timestamptz[]);

-- BatchesDelete forgets ids that nobody will send again.
-- name: BatchesDelete :execrows
DELETE FROM a2a.task_batches b
WHERE b.ctid = ANY (ARRAY(
  SELECT x.ctid FROM a2a.task_batches x
  WHERE x.made_at < (SELECT clock_timestamp()) - sqlc.arg(older)::interval
  ORDER BY x.made_at
  LIMIT sqlc.arg(batch)::int
  FOR UPDATE SKIP LOCKED));

-- ArtifactIDs lists the artifacts that a task's log names behind one event.
-- name: ArtifactIDs :many
SELECT DISTINCT e.artifact_id::text
FROM a2a.task_events e
WHERE e.task_id = sqlc.arg(task_id)::uuid AND e.seq > sqlc.arg(after)::bigint AND e.artifact_id IS NOT NULL;

-- LaneHeads returns for each lane the run_at of its first task that is due, or, where it is empty, the time of
-- this statement, and how many milliseconds before this statement that was. It locks nothing;
-- dead index entries behind the floors it walks over as a claim does.
-- name: LaneHeads :many
SELECT x.lane::smallint AS lane, coalesce(w.run_at, statement_timestamp())::timestamptz AS head, (w.run_at IS NULL)::boolean AS empty,
  coalesce(extract(epoch FROM statement_timestamp() - w.run_at) * 1000, 0)::bigint AS waited_ms
FROM (SELECT unnest(sqlc.arg(lanes)::smallint[]) AS lane, unnest(sqlc.arg(floors)::timestamptz[]) AS floor) x
LEFT JOIN LATERAL (
  SELECT q.run_at FROM a2a.task_ready q
  WHERE q.queue = sqlc.arg(queue)::text AND q.priority = x.lane AND q.run_at >= x.floor AND q.run_at <= statement_timestamp()
  ORDER BY q.run_at LIMIT 1
) w ON true;

-- QueuesDue returns, of many queues at once, the run_at of the first task in each lane that is due, and the time of this
-- statement, in a row of lane -1. It locks nothing; dead index entries after the floors it walks over as a claim does.
-- name: QueuesDue :many
SELECT x.queue::text AS queue, x.lane::smallint AS lane, w.run_at::timestamptz AS run_at
FROM (SELECT unnest(sqlc.arg(queues)::text[]) AS queue, unnest(sqlc.arg(lanes)::smallint[]) AS lane, unnest(sqlc.arg(floors)::timestamptz[]) AS floor) x,
LATERAL (
  SELECT q.run_at FROM a2a.task_ready q
  WHERE q.queue = x.queue AND q.priority = x.lane AND q.run_at >= x.floor AND q.run_at <= statement_timestamp()
  ORDER BY q.run_at LIMIT 1
) w
UNION ALL
SELECT ''::text AS queue, (-1)::smallint AS lane, statement_timestamp()::timestamptz AS run_at;

-- LeaseRenew extends the leases that are still held by these epochs and returns them; an id
-- that is missing was lost or canceled. A lease that ran out is not revived, taken or not. It waits for no
-- lock: a row that another transaction has is returned without having been renewed.
-- name: LeaseRenew :many
WITH x AS (
  SELECT unnest(sqlc.arg(task_ids)::uuid[]) AS task_id, unnest(sqlc.arg(epochs)::bigint[]) AS epoch
), h AS (
  SELECT l.task_id
  FROM a2a.task_leases l
  JOIN x ON l.task_id = x.task_id AND l.epoch = x.epoch
  WHERE l.task_id = ANY (sqlc.arg(task_ids)::uuid[]) AND l.lease_until > clock_timestamp()
  FOR UPDATE OF l SKIP LOCKED
), u AS (
  UPDATE a2a.task_leases l
  SET lease_until = clock_timestamp() + sqlc.arg(ttl)::interval, held_at = clock_timestamp()
  FROM h
  WHERE l.task_id = ANY (ARRAY[h.task_id])
  RETURNING l.task_id
)
SELECT l.task_id, l.epoch, (u.task_id IS NOT NULL)::boolean AS renewed
FROM a2a.task_leases l
JOIN x ON l.task_id = x.task_id AND l.epoch = x.epoch
LEFT JOIN u ON u.task_id = l.task_id
WHERE l.task_id = ANY (sqlc.arg(task_ids)::uuid[]) AND (u.task_id IS NOT NULL OR l.lease_until > clock_timestamp());

-- TaskStates reads the states of tasks for the worker that lost them.
-- name: TaskStates :many
SELECT t.id, t.state FROM a2a.tasks t WHERE t.id = ANY(sqlc.arg(ids)::uuid[]);

-- LeaseRetry gives a task back after a failed attempt, to be claimed after the delay. No row
-- back means that the lease was lost.
-- name: LeaseRetry :execrows
WITH u AS (
  UPDATE a2a.tasks t SET lease_epoch = t.lease_epoch + 1, ready_at = clock_timestamp() + sqlc.arg(delay)::interval
  WHERE t.id = sqlc.arg(task_id)::uuid AND t.lease_epoch = sqlc.arg(epoch)::bigint AND t.state < 100
  RETURNING t.id, t.agent, t.priority, t.tenant, t.ready_at
), d AS (
  DELETE FROM a2a.task_leases l USING u WHERE l.task_id = ANY (ARRAY[u.id])
), a AS (
  UPDATE a2a.task_attempts a SET ended_at = clock_timestamp(), outcome = 'retry', error = sqlc.arg(error)::text
  FROM u WHERE a.task_id = sqlc.arg(task_id) AND a.epoch = sqlc.arg(epoch)
)
INSERT INTO a2a.task_ready (queue, priority, run_at, task_id, tenant, reason)
SELECT u.agent, u.priority, u.ready_at, u.id, u.tenant, sqlc.arg(error)::text FROM u;

-- LeaseRelease gives tasks back at once, without counting the attempt: the worker is going away.
-- name: LeaseRelease :many
WITH i AS (
  SELECT unnest(sqlc.arg(task_ids)::uuid[]) AS task_id, unnest(sqlc.arg(epochs)::bigint[]) AS epoch
), l AS (
  SELECT t.id, i.epoch FROM a2a.tasks t JOIN i ON i.task_id = t.id AND i.epoch = t.lease_epoch
  WHERE t.id = ANY (sqlc.arg(task_ids)) AND t.state < 100
  ORDER BY t.id
  FOR UPDATE OF t
), u AS (
  UPDATE a2a.tasks t SET lease_epoch = t.lease_epoch + 1, attempt = greatest(t.attempt - 1, 0), ready_at = clock_timestamp()
  FROM l WHERE t.id = ANY (ARRAY[l.id]) AND t.lease_epoch = l.epoch
  RETURNING t.id, t.agent, t.priority, t.tenant, t.ready_at, l.epoch
), d AS (
  DELETE FROM a2a.task_leases x USING u WHERE x.task_id = ANY (ARRAY[u.id])
), a AS (
  UPDATE a2a.task_attempts a SET ended_at = clock_timestamp(), outcome = 'released'
  FROM u WHERE a.task_id = ANY (ARRAY[u.id]) AND a.epoch = u.epoch
), r AS (
  INSERT INTO a2a.task_ready (queue, priority, run_at, task_id, tenant, reason)
  SELECT u.agent, u.priority, u.ready_at, u.id, u.tenant, 'the worker was shut down' FROM u
)
SELECT DISTINCT u.agent::text FROM u;

-- LeaseRescue takes tasks from workers that are no longer heard of; any replica may run it.
-- It never waits for a lock. What becomes of a task is its agent's policy: retry (while
-- attempts are left), fail or input-required; an agent that the caller does not know keeps
-- the default.
-- name: LeaseRescue :many
WITH p AS (
  SELECT unnest(sqlc.arg(agents)::text[]) AS agent, unnest(sqlc.arg(policies)::text[]) AS policy, unnest(sqlc.arg(max_attempts)::int[]) AS max_attempts
), dead AS (
  SELECT l.task_id, l.epoch FROM a2a.task_leases l
  WHERE l.lease_until < clock_timestamp()
  ORDER BY l.task_id
  LIMIT sqlc.arg(batch)::int
  FOR UPDATE SKIP LOCKED
), l AS (
  SELECT t.id, dead.epoch, clock_timestamp() AS now,
    CASE WHEN coalesce(p.policy, 'retry') = 'retry' AND t.attempt >= coalesce(p.max_attempts, sqlc.arg(default_attempts)::int) THEN 'fail'
      ELSE coalesce(p.policy, 'retry') END AS fate
  FROM a2a.tasks t
  JOIN dead ON dead.task_id = t.id
  LEFT JOIN p ON p.agent = t.agent
  WHERE t.id = ANY (ARRAY(SELECT dead.task_id FROM dead)) AND t.lease_epoch = dead.epoch AND t.state < 100
  ORDER BY t.id
  FOR UPDATE OF t SKIP LOCKED
), d AS (
  DELETE FROM a2a.task_leases x USING l WHERE x.task_id = ANY (ARRAY[l.id])
), u AS (
  UPDATE a2a.tasks t
  SET lease_epoch = t.lease_epoch + 1,
    state = CASE l.fate WHEN 'retry' THEN t.state WHEN 'input-required' THEN 3 ELSE 101 END,
    last_seq = t.last_seq + CASE l.fate WHEN 'retry' THEN 0 ELSE 1 END,
    last_message_seq = t.last_message_seq + CASE l.fate WHEN 'retry' THEN 0 ELSE 1 END,
    last_at = CASE l.fate WHEN 'retry' THEN t.last_at ELSE greatest(l.now, t.last_at) END,
    status_at = CASE l.fate WHEN 'retry' THEN t.status_at ELSE date_trunc('milliseconds', greatest(l.now, t.last_at)) END,
    status_message_seq = CASE l.fate WHEN 'retry' THEN t.status_message_seq ELSE t.last_message_seq + 1 END,
    attempt = CASE l.fate WHEN 'input-required' THEN 0 ELSE t.attempt END,
    deadline_at = CASE l.fate WHEN 'retry' THEN t.deadline_at END,
    ready_at = CASE l.fate WHEN 'retry' THEN clock_timestamp() END,
    folded = l.fate = 'fail' AND t.has_artifacts AND t.last_seq >= sqlc.arg(fold_events)::bigint AND t.last_seq < sqlc.arg(fold_most_events)::bigint
      AND t.bytes <= sqlc.arg(fold_most_bytes)::bigint
  FROM l
  WHERE t.id = ANY (ARRAY[l.id])
  RETURNING t.id, t.lease_epoch, t.last_seq, t.last_message_seq, t.last_at, t.state, t.agent, t.tenant, t.priority, t.ready_at, t.folded, t.has_push, l.epoch AS dead_epoch, l.fate
), a AS (
  UPDATE a2a.task_attempts a SET ended_at = clock_timestamp(), outcome = 'expired'
  FROM u WHERE a.task_id = ANY (ARRAY[u.id]) AND a.epoch = u.dead_epoch
), w AS (
  SELECT u.id, u.last_message_seq, u.last_seq, u.last_at, u.state, gen_random_uuid() AS uid,
    json_build_object('messageId', gen_random_uuid(), 'parts', json_build_array(json_build_object('text',
      CASE WHEN u.fate = 'input-required' THEN 'The worker was lost while it ran this task. Send a message to go on.'
        ELSE 'The worker was lost while it ran this task.' END))) AS message
  FROM u WHERE u.fate <> 'retry'
), m AS (
  INSERT INTO a2a.messages (task_id, seq, at_seq, message_id, role, body)
  SELECT w.id, w.last_message_seq, w.last_seq, w.message->>'messageId', 2, w.message FROM w
), e AS (
  INSERT INTO a2a.task_events (task_id, seq, event_uid, kind, state, source, committed_at, body)
  SELECT w.id, w.last_seq, w.uid, 1, w.state, 3, w.last_at, json_build_object('message', w.message) FROM w
), r AS (
  INSERT INTO a2a.task_ready (queue, priority, run_at, task_id, tenant, reason)
  SELECT u.agent, u.priority, u.ready_at, u.id, u.tenant, 'the worker was lost' FROM u WHERE u.fate = 'retry'
)
SELECT u.id, u.agent, u.fate::text AS fate, u.folded, u.has_push FROM u;

-- CheckpointsDelete removes the checkpoints of tasks that the rescue has ended. It is a
-- statement of its own: one that was saved after the rescue took its snapshot and before it
-- had the task's row is not visible to the rescue itself.
-- name: CheckpointsDelete :exec
DELETE FROM a2a.task_checkpoints c WHERE c.task_id = ANY(sqlc.arg(task_ids)::uuid[]);

-- TaskSubmit creates tasks, one per array element, each with its first message, its first event and its entry in the
-- queue. It returns the ids of those that it created. An element whose idempotency key exists creates nothing:
-- TaskKeyed reads the task that the key belongs to.
-- name: TaskSubmit :many
WITH input AS (
  SELECT unnest(sqlc.arg(ids)::uuid[]) AS id, unnest(sqlc.arg(tenants)::text[]) AS tenant,
    unnest(sqlc.arg(owners)::text[]) AS owner, unnest(sqlc.arg(agents)::text[]) AS agent,
    unnest(sqlc.arg(context_ids)::text[]) AS context_id, unnest(sqlc.arg(keys)::text[]) AS key,
    unnest(sqlc.arg(digests)::bytea[]) AS digest, unnest(sqlc.arg(event_uids)::uuid[]) AS event_uid,
    unnest(sqlc.arg(message_ids)::text[]) AS message_id, unnest(sqlc.arg(messages)::json[]) AS message,
    unnest(sqlc.arg(sizes)::bigint[]) AS size, unnest(sqlc.arg(claimed)::boolean[]) AS claimed,
    unnest(sqlc.arg(claim_uids)::uuid[]) AS claim_uid, unnest(sqlc.arg(ttls)::bigint[]) AS ttl,
    unnest(sqlc.arg(deadlines)::bigint[]) AS deadline, unnest(sqlc.arg(traceparents)::text[]) AS traceparent,
    unnest(sqlc.arg(lanes)::smallint[]) AS lane, unnest(sqlc.arg(undecided)::boolean[]) AS undecided,
    -- Of a task that another one has called; the depth of others is 0.
    unnest(sqlc.arg(parents)::uuid[]) AS parent_id, unnest(sqlc.arg(parent_steps)::int[]) AS parent_step,
    unnest(sqlc.arg(depths)::smallint[]) AS depth
), new_key AS (
  INSERT INTO a2a.idempotency_keys (tenant, owner, key, digest, task_id)
  SELECT i.tenant, i.owner, i.key, i.digest, i.id
  FROM input i
  WHERE i.key <> ''
  ORDER BY i.tenant, i.owner, i.key -- two batches that insert in one order cannot deadlock
  ON CONFLICT DO NOTHING
  RETURNING task_id
), new AS (
  SELECT i.*, clock_timestamp() AS now
  FROM input i
  WHERE i.key = '' OR i.id IN (SELECT k.task_id FROM new_key k)
), task AS (
  -- A task that is claimed here does not wait in the queue: the worker of this process has it, as if TaskClaim had
  -- followed. It has a second event, a lease and an attempt.
  INSERT INTO a2a.tasks (
    id, tenant, owner, agent, context_id, state, status_at, last_seq, last_at, last_message_seq, last_user_seq,
    lease_epoch, attempt, deadline_at, ready_at, bytes, created_at, traceparent, priority, reply, list_key,
    parent_id, parent_step, depth)
  SELECT n.id, n.tenant, n.owner, n.agent, n.context_id,
    CASE WHEN n.claimed THEN a2a.state_working() ELSE a2a.state_submitted() END,
    date_trunc('milliseconds', n.now), CASE WHEN n.claimed THEN 2 ELSE 1 END, n.now, 1, 1,
    CASE WHEN n.claimed THEN 1 ELSE 0 END, CASE WHEN n.claimed THEN 1 ELSE 0 END,
    CASE WHEN n.deadline > 0 THEN n.now + n.deadline * interval '1 millisecond' END,
    CASE WHEN NOT n.claimed THEN n.now END, n.size, n.now, nullif(n.traceparent, ''), n.lane,
    CASE WHEN n.undecided THEN a2a.reply_open() ELSE a2a.reply_task() END,
    a2a.list_key(n.tenant, n.owner, n.agent), n.parent_id, CASE WHEN n.depth > 0 THEN n.parent_step END, n.depth
  FROM new n
), message AS (
  INSERT INTO a2a.messages (task_id, seq, at_seq, message_id, role, body, digest, idem_key, dedupe_mid)
  SELECT n.id, 1, 1, n.message_id, a2a.role_user(), n.message, n.digest,
    CASE WHEN n.key LIKE 'h:%' THEN substr(n.key, 3) END, n.key LIKE 'm:%'
  FROM new n
), submitted AS (
  INSERT INTO a2a.task_events (task_id, seq, event_uid, kind, state, source, committed_at, body)
  SELECT n.id, 1, n.event_uid, a2a.kind_status(), a2a.state_submitted(), a2a.source_caller(), n.now, '{}'
  FROM new n
), working AS (
  INSERT INTO a2a.task_events (task_id, seq, event_uid, kind, state, source, epoch, worker, committed_at, body)
  SELECT n.id, 2, n.claim_uid, a2a.kind_status(), a2a.state_working(), a2a.source_worker(), 1, sqlc.arg(worker)::text,
    n.now, '{}'
  FROM new n
  WHERE n.claimed
), ready AS (
  INSERT INTO a2a.task_ready (queue, priority, run_at, task_id, tenant)
  SELECT n.agent, n.lane, n.now, n.id, n.tenant
  FROM new n
  WHERE NOT n.claimed
), lease AS (
  INSERT INTO a2a.task_leases (task_id, epoch, worker, lease_until, through, holder)
  SELECT n.id, 1, sqlc.arg(worker), n.now + n.ttl * interval '1 millisecond', 1, nullif(sqlc.arg(holder)::text, '')
  FROM new n
  WHERE n.claimed
), attempt AS (
  INSERT INTO a2a.task_attempts (task_id, epoch, attempt, worker, claimed_at)
  SELECT n.id, 1, 1, sqlc.arg(worker), n.now
  FROM new n
  WHERE n.claimed
)
SELECT n.id::uuid AS id, n.now::timestamptz AS created_at
FROM new n;

-- TaskKeyed finds what an idempotency key was used for. Keys belong to their owner.
-- name: TaskKeyed :one
SELECT k.task_id, k.digest
FROM a2a.idempotency_keys k
WHERE k.tenant = sqlc.arg(tenant) AND k.owner = sqlc.arg(owner) AND k.key = sqlc.arg(key);

-- KeyInsert stores an idempotency key. It inserts no row when the key exists.
-- name: KeyInsert :execrows
INSERT INTO a2a.idempotency_keys (tenant, owner, key, digest, task_id)
VALUES (sqlc.arg(tenant), sqlc.arg(owner), sqlc.arg(key), sqlc.arg(digest), sqlc.arg(task_id))
ON CONFLICT DO NOTHING;

-- TaskLockForCaller locks one task of the caller, so that the rest of the transaction decides on its newest version.
-- No row means that the caller has no such task.
-- name: TaskLockForCaller :one
SELECT t.tenant, t.owner, t.agent, t.context_id, t.state, t.status_at, t.last_seq, t.last_message_seq, t.lease_epoch,
  t.priority, t.bytes, t.has_artifacts, t.has_push, t.ready_at, t.reply, t.steps, t.depth
FROM a2a.tasks t
WHERE t.id = CASE WHEN sqlc.arg(shared)::boolean
    -- Looked up together with the caller, as TaskHeadForCaller does.
    THEN (
      SELECT c.task_id FROM a2a.context_tasks c
      WHERE c.task_id = sqlc.arg(id) AND c.tenant = sqlc.arg(tenant))
    ELSE (
      SELECT c.task_id FROM a2a.context_tasks c
      WHERE c.task_id = sqlc.arg(id) AND c.tenant = sqlc.arg(tenant) AND c.owner = sqlc.arg(owner))
  END
  AND t.tenant = sqlc.arg(tenant)
  AND (t.owner = sqlc.arg(owner) OR sqlc.arg(shared))
FOR UPDATE;

-- TaskReveal makes the answer of an undecided task a task. It updates no row when the answer is decided already.
-- name: TaskReveal :execrows
UPDATE a2a.tasks
SET reply = a2a.reply_task()
WHERE id = sqlc.arg(id) AND reply = a2a.reply_open();

-- MessageAdd adds a client's message to a task that the transaction has locked. With resubmit the task goes back to
-- submitted, with an event, and into the queue. Its time differs from that of the question that the message answers,
-- also after the clock was set back: the next question is told from it by its time.
-- name: MessageAdd :one
WITH n AS (
  SELECT clock_timestamp() AS now
), task AS (
  UPDATE a2a.tasks t
  SET last_message_seq = t.last_message_seq + 1,
    last_user_seq = t.last_message_seq + 1,
    bytes = t.bytes + sqlc.arg(size)::bigint,
    traceparent = coalesce(nullif(sqlc.arg(traceparent)::text, ''), t.traceparent),
    last_seq = t.last_seq + CASE WHEN sqlc.arg(resubmit)::boolean THEN 1 ELSE 0 END,
    last_at = CASE
      WHEN sqlc.arg(resubmit) THEN greatest(n.now, t.last_at + interval '1 millisecond')
      ELSE t.last_at END,
    state = CASE WHEN sqlc.arg(resubmit) THEN a2a.state_submitted() ELSE t.state END,
    status_at = CASE
      WHEN sqlc.arg(resubmit)
        THEN date_trunc('milliseconds', greatest(n.now, t.last_at + interval '1 millisecond'))
      ELSE t.status_at END,
    status_message_seq = CASE WHEN sqlc.arg(resubmit) THEN NULL ELSE t.status_message_seq END,
    ready_at = CASE WHEN sqlc.arg(resubmit) THEN n.now ELSE t.ready_at END
  FROM n
  WHERE t.id = sqlc.arg(id)::uuid
  RETURNING t.id, t.last_seq, t.last_message_seq, t.last_at, t.ready_at, t.agent, t.priority, t.tenant
), message AS (
  -- Without an event of its own, the message shows from the next event on.
  INSERT INTO a2a.messages (task_id, seq, at_seq, message_id, role, body, digest, idem_key, dedupe_mid)
  SELECT t.id, t.last_message_seq, t.last_seq + CASE WHEN sqlc.arg(resubmit) THEN 0 ELSE 1 END,
    sqlc.arg(message_id)::text, a2a.role_user(), sqlc.arg(message)::json, sqlc.arg(digest)::bytea,
    CASE WHEN sqlc.arg(key)::text LIKE 'h:%' THEN substr(sqlc.arg(key), 3) END, sqlc.arg(key) LIKE 'm:%'
  FROM task t
), event AS (
  INSERT INTO a2a.task_events (task_id, seq, event_uid, kind, state, source, committed_at, body)
  SELECT t.id, t.last_seq, sqlc.arg(event_uid)::uuid, a2a.kind_status(), a2a.state_submitted(), a2a.source_caller(),
    t.last_at, '{}'
  FROM task t
  WHERE sqlc.arg(resubmit)
), ready AS (
  INSERT INTO a2a.task_ready (queue, priority, run_at, task_id, tenant)
  SELECT t.agent, t.priority, t.ready_at, t.id, t.tenant
  FROM task t
  WHERE sqlc.arg(resubmit)
)
SELECT t.last_seq
FROM task t;

-- TaskCancel ends a task that the transaction has locked: nothing that its agent writes from now on is stored. It
-- returns the worker that held the task, if one did. No row means that the task had ended.
-- name: TaskCancel :one
WITH n AS (
  SELECT clock_timestamp() AS now
), task AS (
  UPDATE a2a.tasks t
  SET state = a2a.state_canceled(),
    lease_epoch = t.lease_epoch + 1,
    last_seq = t.last_seq + 1,
    last_at = greatest(n.now, t.last_at),
    status_at = date_trunc('milliseconds', greatest(n.now, t.last_at)),
    status_message_seq = NULL,
    deadline_at = NULL,
    ready_at = NULL,
    folded = sqlc.arg(folds)::boolean,
    bytes = t.bytes + sqlc.arg(size)::bigint
  FROM n
  WHERE t.id = sqlc.arg(id)::uuid AND NOT a2a.state_terminal(t.state)
  RETURNING t.id, t.last_seq, t.last_at, t.tenant, t.owner, t.traceparent
), event AS (
  INSERT INTO a2a.task_events (task_id, seq, event_uid, kind, state, source, committed_at, body)
  SELECT t.id, t.last_seq, sqlc.arg(event_uid)::uuid, a2a.kind_status(), a2a.state_canceled(), a2a.source_caller(),
    t.last_at, sqlc.arg(body)::json
  FROM task t
), lease AS (
  DELETE FROM a2a.task_leases l
  USING task t
  WHERE l.task_id = ANY (ARRAY[t.id])
  RETURNING l.task_id, l.epoch, l.worker, l.queue, l.lease_until
), attempt AS (
  UPDATE a2a.task_attempts a
  SET ended_at = clock_timestamp(), outcome = 'canceled'
  FROM lease l
  WHERE a.task_id = ANY (ARRAY[l.task_id]) AND a.epoch = l.epoch AND a.ended_at IS NULL
), ready AS (
  -- A claim that has locked the entry finds that the task has ended, and drops it.
  SELECT r.queue, r.priority, r.run_at, r.task_id
  FROM a2a.task_ready r
  WHERE (r.queue, r.priority, r.run_at, r.task_id)
    = (sqlc.arg(agent)::text, sqlc.arg(priority)::smallint, sqlc.narg(ready_at)::timestamptz, sqlc.arg(id))
  FOR UPDATE SKIP LOCKED
), ready_deleted AS (
  DELETE FROM a2a.task_ready r
  USING ready q
  WHERE r.queue = ANY (ARRAY[q.queue]) AND (r.priority, r.run_at, r.task_id) = (q.priority, q.run_at, q.task_id)
), parked AS (
  DELETE FROM a2a.task_parked p
  USING task t
  WHERE p.task_id = ANY (ARRAY[t.id])
), wait AS (
  DELETE FROM a2a.task_waits w
  USING task t
  WHERE w.task_id = ANY (ARRAY[t.id])
  RETURNING w.task_id
), checkpoint AS (
  DELETE FROM a2a.task_checkpoints c
  USING task t
  WHERE c.task_id = ANY (ARRAY[t.id])
  RETURNING c.body
), cancel AS (
  -- The agent has saved work that runs elsewhere, and is to be told. While a worker holds the task, that worker tells
  -- it. CancelsClaim finds the row only after the time at which the lease would have expired.
  INSERT INTO a2a.task_cancels (task_id, queue, tenant, owner, traceparent, checkpoint, body, due_at)
  SELECT t.id, sqlc.arg(agent), t.tenant, t.owner, coalesce(t.traceparent, ''), c.body, sqlc.arg(body),
    coalesce((SELECT l.lease_until FROM lease l), clock_timestamp())
  FROM task t, checkpoint c
  RETURNING task_id
)
SELECT t.last_seq, coalesce((SELECT l.worker FROM lease l), '')::text AS worker,
  EXISTS (SELECT FROM lease l WHERE l.queue IS NOT NULL) AS counted,
  (EXISTS (SELECT FROM cancel) AND NOT EXISTS (SELECT FROM lease))::boolean AS cancel_due,
  EXISTS (SELECT FROM wait) AS waited
FROM task t;

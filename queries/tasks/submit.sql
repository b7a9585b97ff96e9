-- TaskSubmit makes new tasks, one per array element, with their first message, their first
-- event and their place in the queue. It returns the ids of those it made: an element whose
-- idempotency key is taken makes nothing, and TaskKeyed tells by whom. Keys are inserted in
-- one order, so that two batches cannot deadlock. A task that is taken does not wait in the
-- queue: it is claimed here, by the worker of this process, as TaskClaim would have done.
-- name: TaskSubmit :many
WITH i AS (
  SELECT unnest(sqlc.arg(ids)::uuid[]) AS id, unnest(sqlc.arg(tenants)::text[]) AS tenant, unnest(sqlc.arg(owners)::text[]) AS owner,
    unnest(sqlc.arg(agents)::text[]) AS agent, unnest(sqlc.arg(context_ids)::text[]) AS context_id, unnest(sqlc.arg(keys)::text[]) AS key,
    unnest(sqlc.arg(digests)::bytea[]) AS digest, unnest(sqlc.arg(event_uids)::uuid[]) AS event_uid,
    unnest(sqlc.arg(message_ids)::text[]) AS message_id, unnest(sqlc.arg(messages)::json[]) AS message, unnest(sqlc.arg(sizes)::bigint[]) AS size,
    unnest(sqlc.arg(taken)::boolean[]) AS taken, unnest(sqlc.arg(claim_uids)::uuid[]) AS claim_uid, unnest(sqlc.arg(ttls)::bigint[]) AS ttl,
    unnest(sqlc.arg(deadlines)::bigint[]) AS deadline,
    unnest(sqlc.arg(traceparents)::text[]) AS traceparent, unnest(sqlc.arg(lanes)::smallint[]) AS lane, unnest(sqlc.arg(undecided)::boolean[]) AS undecided
), k AS (
  INSERT INTO a2a.idempotency_keys (tenant, owner, key, digest, task_id)
  SELECT i.tenant, i.owner, i.key, i.digest, i.id FROM i WHERE i.key <> '' ORDER BY i.tenant, i.owner, i.key
  ON CONFLICT DO NOTHING
  RETURNING task_id
), n AS (
  SELECT i.*, clock_timestamp() AS now FROM i WHERE i.key = '' OR i.id IN (SELECT k.task_id FROM k)
), t AS (
  INSERT INTO a2a.tasks (id, tenant, owner, agent, context_id, state, status_at, last_seq, last_at, last_message_seq, last_user_seq,
    lease_epoch, attempt, deadline_at, ready_at, bytes, created_at, traceparent, priority, reply, list_key)
  SELECT n.id, n.tenant, n.owner, n.agent, n.context_id, 1 + n.taken::int, date_trunc('milliseconds', n.now), 1 + n.taken::int, n.now, 1, 1,
    n.taken::int, n.taken::int, CASE WHEN n.deadline > 0 THEN n.now + n.deadline * interval '1 millisecond' END,
    CASE WHEN NOT n.taken THEN n.now END, n.size, n.now, nullif(n.traceparent, ''), n.lane, CASE WHEN n.undecided THEN 1 ELSE 0 END,
    a2a.list_key(n.tenant, n.owner, n.agent)
  FROM n
), m AS (
  INSERT INTO a2a.messages (task_id, seq, at_seq, message_id, role, body, digest, idem_key, dedupe_mid)
  SELECT n.id, 1, 1, n.message_id, 1, n.message, n.digest, CASE WHEN n.key LIKE 'h:%' THEN substr(n.key, 3) END, n.key LIKE 'm:%' FROM n
), e AS (
  INSERT INTO a2a.task_events (task_id, seq, event_uid, kind, state, source, epoch, worker, committed_at, body)
  SELECT n.id, s.seq, CASE s.seq WHEN 1 THEN n.event_uid ELSE n.claim_uid END, 1, s.seq, 3 - s.seq, s.seq - 1,
    CASE s.seq WHEN 2 THEN sqlc.arg(worker)::text END, n.now, '{}'
  FROM n, LATERAL generate_series(1, 1 + n.taken::int) AS s(seq)
), r AS (
  INSERT INTO a2a.task_ready (queue, priority, run_at, task_id, tenant)
  SELECT n.agent, n.lane, n.now, n.id, n.tenant FROM n WHERE NOT n.taken
), le AS (
  INSERT INTO a2a.task_leases (task_id, epoch, worker, lease_until, through)
  SELECT n.id, 1, sqlc.arg(worker), n.now + n.ttl * interval '1 millisecond', 1 FROM n WHERE n.taken
), a AS (
  INSERT INTO a2a.task_attempts (task_id, epoch, attempt, worker, claimed_at)
  SELECT n.id, 1, 1, sqlc.arg(worker), n.now FROM n WHERE n.taken
)
SELECT n.id::uuid AS id, n.now::timestamptz AS created_at FROM n;

-- TaskKeyed finds what an idempotency key was used for. Keys belong to their owner.
-- name: TaskKeyed :one
SELECT k.task_id, k.digest
FROM a2a.idempotency_keys k
WHERE k.tenant = sqlc.arg(tenant) AND k.owner = sqlc.arg(owner) AND k.key = sqlc.arg(key);

-- KeyInsert takes an idempotency key; no row back means that it is taken.
-- name: KeyInsert :execrows
INSERT INTO a2a.idempotency_keys (tenant, owner, key, digest, task_id)
VALUES (sqlc.arg(tenant), sqlc.arg(owner), sqlc.arg(key), sqlc.arg(digest), sqlc.arg(task_id))
ON CONFLICT DO NOTHING;

-- TaskLockForCaller locks one task of the caller, so that what follows in the transaction
-- decides on its newest version. It is looked up as TaskHeadForCaller does.
-- name: TaskLockForCaller :one
SELECT t.tenant, t.owner, t.agent, t.context_id, t.state, t.last_seq, t.last_message_seq, t.lease_epoch, t.priority, t.bytes, t.has_artifacts, t.has_push, t.ready_at, t.reply
FROM a2a.tasks t
WHERE t.id = CASE WHEN sqlc.arg(shared)::boolean
    THEN (SELECT c.task_id FROM a2a.context_tasks c WHERE c.task_id = sqlc.arg(id) AND c.tenant = sqlc.arg(tenant))
    ELSE (SELECT c.task_id FROM a2a.context_tasks c WHERE c.task_id = sqlc.arg(id) AND c.tenant = sqlc.arg(tenant) AND c.owner = sqlc.arg(owner))
  END
  AND t.tenant = sqlc.arg(tenant) AND (t.owner = sqlc.arg(owner) OR sqlc.arg(shared))
FOR UPDATE;

-- TaskReveal makes a task of what may still be answered with a message. No row means that it
-- is decided.
-- name: TaskReveal :execrows
UPDATE a2a.tasks SET reply = 0 WHERE id = sqlc.arg(id) AND reply = 1;

-- MessageAdd adds a client's message to a task that the transaction has locked. With
-- resubmit the task goes back to submitted, with an event, and into the queue.
-- name: MessageAdd :one
WITH n AS (
  SELECT clock_timestamp() AS now
), u AS (
  UPDATE a2a.tasks t
  SET last_message_seq = t.last_message_seq + 1, last_user_seq = t.last_message_seq + 1, bytes = t.bytes + sqlc.arg(size)::bigint,
    traceparent = coalesce(nullif(sqlc.arg(traceparent)::text, ''), t.traceparent),
    last_seq = t.last_seq + CASE WHEN sqlc.arg(resubmit)::boolean THEN 1 ELSE 0 END,
    last_at = CASE WHEN sqlc.arg(resubmit) THEN greatest(n.now, t.last_at) ELSE t.last_at END,
    state = CASE WHEN sqlc.arg(resubmit) THEN 1 ELSE t.state END,
    status_at = CASE WHEN sqlc.arg(resubmit) THEN date_trunc('milliseconds', greatest(n.now, t.last_at)) ELSE t.status_at END,
    status_message_seq = CASE WHEN sqlc.arg(resubmit) THEN NULL ELSE t.status_message_seq END,
    ready_at = CASE WHEN sqlc.arg(resubmit) THEN n.now ELSE t.ready_at END
  FROM n
  WHERE t.id = sqlc.arg(id)::uuid
  RETURNING t.id, t.last_seq, t.last_message_seq, t.last_at, t.ready_at, t.agent, t.priority, t.tenant
), m AS (
  INSERT INTO a2a.messages (task_id, seq, at_seq, message_id, role, body, digest, idem_key, dedupe_mid)
  SELECT u.id, u.last_message_seq, u.last_seq + CASE WHEN sqlc.arg(resubmit) THEN 0 ELSE 1 END, sqlc.arg(message_id)::text, 1, sqlc.arg(message)::json, sqlc.arg(digest)::bytea,
    CASE WHEN sqlc.arg(key)::text LIKE 'h:%' THEN substr(sqlc.arg(key), 3) END, sqlc.arg(key) LIKE 'm:%'
  FROM u
), e AS (
  INSERT INTO a2a.task_events (task_id, seq, event_uid, kind, state, source, committed_at, body)
  SELECT u.id, u.last_seq, sqlc.arg(event_uid)::uuid, 1, 1, 2, u.last_at, '{}' FROM u WHERE sqlc.arg(resubmit)
), r AS (
  INSERT INTO a2a.task_ready (queue, priority, run_at, task_id, tenant)
  SELECT u.agent, u.priority, u.ready_at, u.id, u.tenant FROM u WHERE sqlc.arg(resubmit)
)
SELECT u.last_seq FROM u;

-- TaskCancel ends a task that the transaction has locked: whatever its agent does from now
-- on is fenced. It returns the worker that held it, if one did. What its agent has saved of work
-- elsewhere goes into task_cancels: while a worker holds the task that worker tells the agent, and
-- who reads the table does so only when the lease would have run out.
-- name: TaskCancel :one
WITH n AS (
  SELECT clock_timestamp() AS now
), u AS (
  UPDATE a2a.tasks t
  SET state = 102, lease_epoch = t.lease_epoch + 1, last_seq = t.last_seq + 1, last_at = greatest(n.now, t.last_at),
    status_at = date_trunc('milliseconds', greatest(n.now, t.last_at)), status_message_seq = NULL, deadline_at = NULL, ready_at = NULL,
    folded = sqlc.arg(folds)::boolean, bytes = t.bytes + sqlc.arg(size)::bigint
  FROM n
  WHERE t.id = sqlc.arg(id)::uuid AND t.state < 100
  RETURNING t.id, t.last_seq, t.last_at, t.tenant, t.owner, t.traceparent
), e AS (
  INSERT INTO a2a.task_events (task_id, seq, event_uid, kind, state, source, committed_at, body)
  SELECT u.id, u.last_seq, sqlc.arg(event_uid)::uuid, 1, 102, 2, u.last_at, sqlc.arg(body)::json FROM u
), l AS (
  DELETE FROM a2a.task_leases x USING u WHERE x.task_id = ANY (ARRAY[u.id]) RETURNING x.task_id, x.epoch, x.worker, x.queue, x.lease_until
), a AS (
  UPDATE a2a.task_attempts a SET ended_at = clock_timestamp(), outcome = 'canceled'
  FROM l WHERE a.task_id = ANY (ARRAY[l.task_id]) AND a.epoch = l.epoch AND a.ended_at IS NULL
), q AS (
  -- A claim that holds the row finds the task terminal and drops it.
  SELECT r.queue, r.priority, r.run_at, r.task_id FROM a2a.task_ready r
  WHERE (r.queue, r.priority, r.run_at, r.task_id) = (sqlc.arg(agent)::text, sqlc.arg(priority)::smallint, sqlc.narg(ready_at)::timestamptz, sqlc.arg(id))
  FOR UPDATE SKIP LOCKED
), d AS (
  DELETE FROM a2a.task_ready r USING q
  WHERE r.queue = ANY (ARRAY[q.queue]) AND (r.priority, r.run_at, r.task_id) = (q.priority, q.run_at, q.task_id)
), c AS (
  DELETE FROM a2a.task_checkpoints c USING u WHERE c.task_id = ANY (ARRAY[u.id]) RETURNING c.body
), w AS (
  INSERT INTO a2a.task_cancels (task_id, queue, tenant, owner, traceparent, checkpoint, body, due_at)
  SELECT u.id, sqlc.arg(agent), u.tenant, u.owner, coalesce(u.traceparent, ''), c.body, sqlc.arg(body), coalesce((SELECT l.lease_until FROM l), clock_timestamp())
  FROM u, c
  RETURNING task_id
)
SELECT u.last_seq, coalesce((SELECT l.worker FROM l), '')::text AS worker, EXISTS (SELECT FROM l WHERE l.queue IS NOT NULL) AS counted,
  (EXISTS (SELECT FROM w) AND NOT EXISTS (SELECT FROM l))::boolean AS untold
FROM u;

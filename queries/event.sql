-- EventAppend writes what runs report, in the order of the arrays. Elements of one task
-- carry one epoch; a task whose epoch has moved on, or that has ended, is left out: its rows
-- are not in the result and nothing of it was written. A run may end its turn with its last
-- element (state 3, 4 or from 100 on): then its lease goes too, and its epoch is past. A turn that would end while
-- the client has sent more than the run has seen (through) goes on instead: the task stays
-- working and is queued again. The epoch is part of every join: one batch may hold a zombie
-- and its successor. An element also names the newest event that its run knows of (after):
-- nobody else writes under its epoch, so a task with more events has been given this batch
-- before, by a try whose answer was lost or that is only now being carried out, and is left
-- out as well.
-- A task that has webhooks is skipped, and says so, unless with_push promises that their
-- heads are moved in the same transaction.
-- name: EventAppend :many
WITH i AS (
  SELECT unnest(sqlc.arg(task_ids)::uuid[]) AS task_id, unnest(sqlc.arg(epochs)::bigint[]) AS epoch, unnest(sqlc.arg(event_uids)::uuid[]) AS event_uid,
    unnest(sqlc.arg(kinds)::smallint[]) AS kind, unnest(sqlc.arg(states)::smallint[]) AS state, unnest(sqlc.arg(bodies)::json[]) AS body,
    unnest(sqlc.arg(artifact_ids)::text[]) AS artifact_id, unnest(sqlc.arg(parts)::json[]) AS parts,
    unnest(sqlc.arg(message_ids)::text[]) AS message_id, unnest(sqlc.arg(messages)::json[]) AS message,
    unnest(sqlc.arg(checkpoints)::json[]) AS checkpoint, unnest(sqlc.arg(throughs)::bigint[]) AS through,
    unnest(sqlc.arg(afters)::bigint[]) AS after, unnest(sqlc.arg(sizes)::bigint[]) AS size, unnest(sqlc.arg(errors)::text[]) AS error,
    generate_subscripts(sqlc.arg(task_ids)::uuid[], 1) AS ord
), k AS (
  SELECT i.task_id, i.epoch, count(*) FILTER (WHERE i.kind > 0) AS n, count(i.message) AS m, sum(i.size)::bigint AS bytes,
    bool_or(i.kind IN (2, 3)) AS art, max(i.through) AS through, max(i.after) AS after, max(i.error) AS error,
    (array_agg(i.state ORDER BY i.ord DESC) FILTER (WHERE i.state > 0))[1] AS state,
    (array_agg(i.message IS NOT NULL ORDER BY i.ord DESC) FILTER (WHERE i.state > 0))[1] AS said,
    (array_agg(i.checkpoint ORDER BY i.ord DESC) FILTER (WHERE i.checkpoint IS NOT NULL))[1] AS checkpoint
  FROM i
  GROUP BY i.task_id, i.epoch
), l AS (
  SELECT t.id, t.has_push, k.epoch, k.n, k.m, k.bytes, k.art, k.through, k.error, k.state AS asked, k.said, k.checkpoint, clock_timestamp() AS now,
    CASE WHEN k.state IN (3, 4, 100) AND t.last_user_seq > k.through THEN 2::smallint ELSE k.state END AS state
  FROM a2a.tasks t
  JOIN k ON k.task_id = t.id AND k.epoch = t.lease_epoch AND k.after = t.last_seq
  WHERE t.state < 100
  ORDER BY t.id
  FOR UPDATE OF t
), u AS (
  UPDATE a2a.tasks t
  SET last_seq = t.last_seq + l.n, last_message_seq = t.last_message_seq + l.m, bytes = t.bytes + l.bytes,
    has_artifacts = t.has_artifacts OR l.art, last_at = CASE WHEN l.n > 0 THEN greatest(l.now, t.last_at) ELSE t.last_at END,
    lease_epoch = t.lease_epoch + CASE WHEN l.asked > 2 THEN 1 ELSE 0 END, state = coalesce(l.state, t.state),
    status_at = CASE WHEN l.state IS NULL THEN t.status_at ELSE date_trunc('milliseconds', greatest(l.now, t.last_at)) END,
    status_message_seq = CASE WHEN l.state IS NULL THEN t.status_message_seq WHEN l.said THEN t.last_message_seq + l.m END,
    read_user_seq = CASE WHEN l.asked > 2 THEN l.through ELSE t.read_user_seq END,
    attempt = CASE WHEN l.asked > 2 AND l.asked <> 101 THEN 0 ELSE t.attempt END,
    deadline_at = CASE WHEN l.asked > 2 THEN NULL ELSE t.deadline_at END,
    ready_at = CASE WHEN l.asked <> l.state THEN clock_timestamp() END
  FROM l
  WHERE t.id = l.id AND t.lease_epoch = l.epoch AND (sqlc.arg(with_push)::boolean OR NOT l.has_push)
  RETURNING t.id, l.epoch, t.last_seq - l.n AS base, t.last_message_seq - l.m AS mbase, t.last_at, l.state, l.asked, l.error, l.checkpoint,
    t.has_artifacts, t.agent, t.priority, t.tenant, t.ready_at
), ld AS (
  DELETE FROM a2a.task_leases x USING u WHERE x.task_id = u.id AND x.epoch = u.epoch AND u.asked > 2
), at AS (
  UPDATE a2a.task_attempts a
  SET ended_at = clock_timestamp(), error = u.error,
    outcome = CASE u.asked WHEN 100 THEN 'completed' WHEN 101 THEN 'failed' WHEN 102 THEN 'canceled' WHEN 103 THEN 'rejected' ELSE 'input' END
  FROM u WHERE a.task_id = u.id AND a.epoch = u.epoch AND u.asked > 2
), rq AS (
  INSERT INTO a2a.task_ready (queue, priority, run_at, task_id, tenant)
  SELECT u.agent, u.priority, u.ready_at, u.id, u.tenant FROM u WHERE u.asked <> u.state
), x AS (
  SELECT i.*, u.base + row_number() OVER (PARTITION BY i.task_id ORDER BY i.ord) AS seq, u.mbase, u.last_at,
    CASE WHEN i.state > 2 THEN u.state ELSE nullif(i.state, 0) END AS logged
  FROM i JOIN u ON u.id = i.task_id AND u.epoch = i.epoch
  WHERE i.kind > 0
), mm AS (
  INSERT INTO a2a.messages (task_id, seq, at_seq, message_id, role, body)
  SELECT x.task_id, x.mbase + row_number() OVER (PARTITION BY x.task_id ORDER BY x.ord), x.seq, x.message_id, 2, x.message
  FROM x
  WHERE x.message IS NOT NULL
), cp AS (
  INSERT INTO a2a.task_checkpoints AS c (task_id, epoch, body)
  SELECT u.id, u.epoch, u.checkpoint FROM u WHERE u.checkpoint IS NOT NULL AND coalesce(u.state, 0) < 100
  ON CONFLICT (task_id) DO UPDATE SET epoch = excluded.epoch, body = excluded.body
), cd AS (
  DELETE FROM a2a.task_checkpoints c USING u WHERE c.task_id = u.id AND u.state >= 100
), ev AS (
  INSERT INTO a2a.task_events (task_id, seq, event_uid, kind, state, source, epoch, worker, committed_at, artifact_id, body, parts)
  SELECT x.task_id, x.seq, x.event_uid, x.kind, x.logged, 1, x.epoch, sqlc.arg(worker)::text, x.last_at, nullif(x.artifact_id, ''), x.body, x.parts
  FROM x
)
SELECT l.id, l.epoch::bigint AS epoch, coalesce(u.base, 0)::bigint AS base, u.last_at, coalesce(u.state, 0)::smallint AS state,
  (coalesce(u.state, 0) >= 100 AND u.has_artifacts)::boolean AS fold, coalesce(u.asked <> u.state, false)::boolean AS requeued,
  l.has_push, (u.id IS NULL)::boolean AS skipped
FROM l LEFT JOIN u ON u.id = l.id AND u.epoch = l.epoch;

-- ArtifactFold puts together the artifacts of tasks that ended, from their events. It is the
-- second statement of the transaction that ends them: the events of that transaction are
-- not visible to their own statement.
-- name: ArtifactFold :exec
WITH c AS (
  SELECT e.task_id, e.artifact_id, e.seq, e.kind, e.body, e.parts
  FROM a2a.task_events e
  WHERE e.task_id = ANY(sqlc.arg(task_ids)::uuid[]) AND e.artifact_id IS NOT NULL
), b AS (
  SELECT c.task_id, c.artifact_id, min(c.seq) AS position, coalesce(max(c.seq) FILTER (WHERE c.kind = 2), min(c.seq)) AS base, max(c.seq) AS last_seq
  FROM c
  GROUP BY c.task_id, c.artifact_id
), h AS (
  INSERT INTO a2a.artifacts (task_id, artifact_id, position, last_seq, header)
  SELECT b.task_id, b.artifact_id, b.position, b.last_seq, c.body
  FROM b JOIN c ON c.task_id = b.task_id AND c.artifact_id = b.artifact_id AND c.seq = b.base
)
INSERT INTO a2a.artifact_parts (task_id, artifact_id, seq, idx, part)
SELECT c.task_id, c.artifact_id, c.seq, p.idx, p.part
FROM c
JOIN b ON b.task_id = c.task_id AND b.artifact_id = c.artifact_id AND c.seq >= b.base,
LATERAL json_array_elements(c.parts) WITH ORDINALITY AS p(part, idx);

-- EventsAfter reads a task's log behind one event. Whoever calls it has checked that the
-- caller may see the task.
-- name: EventsAfter :many
SELECT e.seq, e.event_uid, e.kind, e.state, e.committed_at, e.artifact_id, e.body, e.parts
FROM a2a.task_events e
WHERE e.task_id = sqlc.arg(task_id) AND e.seq > sqlc.arg(after)
ORDER BY e.seq
LIMIT sqlc.arg(max)::int;

-- EventUID reads the uid of one event, to tell whether a client's resume id is of this log.
-- name: EventUID :one
SELECT e.event_uid FROM a2a.task_events e WHERE e.task_id = sqlc.arg(task_id) AND e.seq = sqlc.arg(seq);

-- TasksAhead returns the tasks that have events behind the given ones: the poll that backs
-- every stream of a replica.
-- name: TasksAhead :many
SELECT t.id
FROM (SELECT unnest(sqlc.arg(ids)::uuid[]) AS id, unnest(sqlc.arg(seen)::bigint[]) AS seen) s
JOIN a2a.tasks t ON t.id = s.id
WHERE t.last_seq > s.seen;

-- Notify sends wakes to the other replicas. It is never part of a transaction that writes:
-- NOTIFY holds a database-wide lock across the commit (STORAGE 1).
-- name: Notify :exec
SELECT pg_notify('a2ad', p.payload) FROM unnest(sqlc.arg(payloads)::text[]) AS p(payload);

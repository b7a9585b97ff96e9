-- EventAppend writes what runs report: one element of the first arrays for each batch of a run
-- (k), in the order of their tasks' ids, one of the second for each event (e), which names its batch
-- by position and its place in it, one of the third for each event that has a message (m), which counts
-- the messages of its batch. A batch whose epoch is not the task's any more, or whose task
-- has ended, is left out: its position is not in the result and nothing of it was written. A batch may end the turn
-- (asked 3, 4 or from 100 on): then the lease goes too, and its epoch is past. A turn that would
-- end while the client has sent more than the run has seen (through) goes on instead: the task
-- stays working, is queued again and is not folded. folds is for a batch that asks to end the task; where the task
-- does end, ArtifactFold follows. kept is for a task that may have a checkpoint: its end deletes it. The epoch is part of every join: one call may hold a zombie and its successor.
-- A batch also names the newest event that its run knows of (after): nobody else writes under
-- its epoch, so a task with more events has been given this batch before, by a try whose answer
-- was lost or that is only now being carried out, and is left out as well.
-- A task that has webhooks is left out, too, unless with_push promises that their heads
-- are moved in the same transaction.
-- What may still be answered with a message is a task from the first batch on that tells its
-- client something, unless that batch replies.
-- What ends is in g, with few columns: a join that deletes or updates carries along whole rows of its other side.
-- Rows of tasks and of leases are locked in the order of k. = ANY (ARRAY[x]) is = x for which the
-- planner knows one way alone: to look up each by its key, in that order. Nothing that statistics say
-- can turn it into a read of the whole table, as they would have it where the table is nearly empty.
-- name: EventAppend :many
WITH k AS (
  SELECT unnest(sqlc.arg(numbers)::int[]) AS pos, unnest(sqlc.arg(task_ids)::uuid[]) AS id, unnest(sqlc.arg(epochs)::bigint[]) AS epoch,
    unnest(sqlc.arg(counts)::int[]) AS n, unnest(sqlc.arg(message_counts)::int[]) AS m, unnest(sqlc.arg(sizes)::bigint[]) AS bytes,
    unnest(sqlc.arg(artifacts)::boolean[]) AS art, unnest(sqlc.arg(throughs)::bigint[]) AS through, unnest(sqlc.arg(afters)::bigint[]) AS after, unnest(sqlc.arg(errors)::text[]) AS error,
    unnest(sqlc.arg(asked)::smallint[]) AS asked, unnest(sqlc.arg(said)::boolean[]) AS said, unnest(sqlc.arg(folds)::boolean[]) AS folds,
    unnest(sqlc.arg(checkpoints)::json[]) AS checkpoint, unnest(sqlc.arg(kept)::boolean[]) AS kept, unnest(sqlc.arg(workers)::text[]) AS worker,
    unnest(sqlc.arg(tells)::boolean[]) AS tells, unnest(sqlc.arg(replies)::boolean[]) AS replies
), e AS (
  SELECT unnest(sqlc.arg(positions)::int[]) AS pos, unnest(sqlc.arg(places)::int[]) AS place,
    unnest(sqlc.arg(event_uids)::uuid[]) AS event_uid, unnest(sqlc.arg(kinds)::smallint[]) AS kind, unnest(sqlc.arg(states)::smallint[]) AS state,
    unnest(sqlc.arg(bodies)::json[]) AS body, unnest(sqlc.arg(artifact_ids)::text[]) AS artifact_id, unnest(sqlc.arg(parts)::json[]) AS parts
), m AS (
  SELECT unnest(sqlc.arg(message_positions)::int[]) AS pos, unnest(sqlc.arg(message_places)::int[]) AS place, unnest(sqlc.arg(message_numbers)::int[]) AS number,
    unnest(sqlc.arg(message_ids)::text[]) AS message_id, unnest(sqlc.arg(messages)::json[]) AS body
), u AS (
  UPDATE a2a.tasks t
  SET last_seq = t.last_seq + k.n, last_message_seq = t.last_message_seq + k.m, bytes = t.bytes + k.bytes,
    has_artifacts = t.has_artifacts OR k.art,
    folded = k.folds AND (t.has_artifacts OR k.art) AND (k.asked <> 100 OR t.last_user_seq <= k.through),
    last_at = CASE WHEN k.n > 0 THEN greatest(statement_timestamp(), t.last_at) ELSE t.last_at END,
    lease_epoch = t.lease_epoch + CASE WHEN k.asked > 2 THEN 1 ELSE 0 END,
    state = CASE WHEN k.asked = 0 THEN t.state WHEN k.asked IN (3, 4, 100) AND t.last_user_seq > k.through THEN 2 ELSE k.asked END,
    status_at = CASE WHEN k.asked = 0 THEN t.status_at ELSE date_trunc('milliseconds', greatest(statement_timestamp(), t.last_at)) END,
    status_message_seq = CASE WHEN k.asked = 0 THEN t.status_message_seq WHEN k.said THEN t.last_message_seq + k.m END,
    read_user_seq = CASE WHEN k.asked > 2 THEN k.through ELSE t.read_user_seq END,
    attempt = CASE WHEN k.asked > 2 AND k.asked <> 101 THEN 0 ELSE t.attempt END,
    deadline_at = CASE WHEN k.asked > 2 THEN NULL ELSE t.deadline_at END,
    ready_at = CASE WHEN k.asked IN (3, 4, 100) AND t.last_user_seq > k.through THEN clock_timestamp() END,
    reply = CASE WHEN t.reply <> 1 THEN t.reply WHEN k.replies AND k.asked = 100 AND t.last_user_seq <= k.through THEN 2 WHEN k.tells THEN 0 ELSE 1 END
  FROM k
  WHERE t.id = ANY (ARRAY[k.id]) AND t.lease_epoch = k.epoch AND t.last_seq = k.after AND t.state < 100 AND (sqlc.arg(with_push)::boolean OR NOT t.has_push)
  RETURNING k.pos, t.id, k.epoch, t.last_seq - k.n AS base, t.last_message_seq - k.m AS mbase, t.last_message_seq, t.last_at, CASE WHEN k.asked > 0 THEN t.state END AS state, k.asked,
    k.error, k.checkpoint, k.kept, k.worker, t.folded, t.has_push, t.ready_at
), g AS (
  SELECT u.id, u.epoch, u.error,
    CASE u.asked WHEN 100 THEN 'completed' WHEN 101 THEN 'failed' WHEN 102 THEN 'canceled' WHEN 103 THEN 'rejected' ELSE 'input' END AS outcome
  FROM u WHERE u.asked > 2
), ld AS (
  DELETE FROM a2a.task_leases x USING g WHERE x.task_id = ANY (ARRAY[g.id])
), at AS (
  UPDATE a2a.task_attempts a
  SET ended_at = clock_timestamp(), error = g.error, outcome = g.outcome
  FROM g WHERE a.task_id = ANY (ARRAY[g.id]) AND a.epoch = g.epoch
), rq AS (
  INSERT INTO a2a.task_ready (queue, priority, run_at, task_id, tenant)
  SELECT t.agent, t.priority, u.ready_at, u.id, t.tenant FROM u JOIN a2a.tasks t ON t.id = ANY (ARRAY[u.id]) WHERE u.asked <> u.state
), mm AS (
  INSERT INTO a2a.messages (task_id, seq, at_seq, message_id, role, body)
  SELECT u.id, u.mbase + m.number, u.base + m.place, m.message_id, 2, m.body FROM m JOIN u ON u.pos = m.pos
), cp AS (
  INSERT INTO a2a.task_checkpoints AS c (task_id, epoch, body)
  SELECT u.id, u.epoch, u.checkpoint FROM u WHERE u.checkpoint IS NOT NULL AND coalesce(u.state, 0) < 100
  ON CONFLICT (task_id) DO UPDATE SET epoch = excluded.epoch, body = excluded.body
), cd AS (
  DELETE FROM a2a.task_checkpoints c USING u WHERE c.task_id = ANY (ARRAY[u.id]) AND u.kept AND u.state >= 100
), ev AS (
  INSERT INTO a2a.task_events (task_id, seq, event_uid, kind, state, source, epoch, worker, committed_at, artifact_id, body, parts)
  SELECT u.id, u.base + e.place, e.event_uid, e.kind, CASE WHEN e.state > 2 THEN u.state ELSE nullif(e.state, 0) END, 1, u.epoch, u.worker, u.last_at, nullif(e.artifact_id, ''), e.body, e.parts
  FROM e JOIN u ON u.pos = e.pos
)
SELECT u.pos::int AS pos, u.id::uuid AS id, u.base::bigint AS base, u.last_message_seq, u.last_at, coalesce(u.state, 0)::smallint AS state,
  u.folded, coalesce(u.asked <> u.state, false)::boolean AS requeued, u.has_push
FROM u;

-- ArtifactFold puts together the artifacts of tasks that ended, from their events, for those
-- that have so many that readers should not do it each time. It is the second statement of
-- the transaction that ends them: the events of that transaction are not visible to their
-- own statement.
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

-- EventsAfter reads a task's log after one event: the next one, and as many more as do not exceed
-- bytes together, up to max. found is how many there are up to max. Whoever calls it has checked that the caller may see the task.
-- name: EventsAfter :many
WITH n AS MATERIALIZED (
  SELECT e.seq, sum(octet_length(e.body::text) + coalesce(octet_length(e.parts::text), 0)) OVER (ORDER BY e.seq) AS bytes
  FROM (
    SELECT e.seq, e.body, e.parts FROM a2a.task_events e
    WHERE e.task_id = sqlc.arg(task_id) AND e.seq > sqlc.arg(after)
    ORDER BY e.seq
    LIMIT sqlc.arg(max)::int
  ) e
)
SELECT e.seq, e.event_uid, e.kind, e.state, e.committed_at, e.artifact_id, e.body, e.parts, (SELECT count(*) FROM n) AS found
FROM a2a.task_events e
WHERE e.task_id = sqlc.arg(task_id) AND e.seq > sqlc.arg(after)
  AND e.seq <= greatest((SELECT min(n.seq) FROM n), (SELECT max(n.seq) FROM n WHERE n.bytes <= sqlc.arg(bytes)::bigint))
ORDER BY e.seq
LIMIT sqlc.arg(max)::int;

-- EventCancel reads the event that canceled a task.
-- name: EventCancel :one
SELECT e.body FROM a2a.task_events e WHERE e.task_id = sqlc.arg(task_id) AND e.state >= 100 AND e.state = 102;

-- EventUID reads the uid of one event, to tell whether a client's resume id is of this log.
-- name: EventUID :one
SELECT e.event_uid FROM a2a.task_events e WHERE e.task_id = sqlc.arg(task_id) AND e.seq = sqlc.arg(seq);

-- TasksAhead returns the tasks that have events behind the given ones, and those that are not there:
-- the poll that backs every stream of a replica.
-- name: TasksAhead :many
SELECT s.id::uuid AS id, (t.id IS NULL)::boolean AS gone
FROM (SELECT unnest(sqlc.arg(ids)::uuid[]) AS id, unnest(sqlc.arg(seen)::bigint[]) AS seen) s
LEFT JOIN a2a.tasks t ON t.id = s.id AND t.id = ANY (sqlc.arg(ids))
WHERE t.id IS NULL OR t.last_seq > s.seen;

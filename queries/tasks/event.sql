-- EventAppend writes what runs report. It returns the batches that it has written. A batch is missing from the result,
-- and nothing of it was written, when its epoch is not the task's any more, when the task has ended, when another try
-- has written it, or when the task has webhooks and with_push is false.
-- name: EventAppend :many
WITH batch AS (
  -- One row for each batch of a run, in the order of the tasks' ids, which is the order of locks. The epoch is part of
  -- every join: one call may hold a batch of a run that lost its lease, and one of the run that has it now.
  --   asked   the state that the batch asks for, 0 for none; one that ends the turn also ends the lease and its epoch
  --   through the newest message of the client that the run has seen
  --   after   the newest event that the run knows of
  --   folds   the batch asks to end a task whose artifacts are to be folded: ArtifactFold follows
  --   kept    the task may have a checkpoint, which its end deletes
  --   tells   the batch tells the client more than that its message is being worked on; replies: it is the reply
  --   steps   how many steps it adds: StepsAppend follows; step_after: the newest step that the run knows of
  --   waits   the run ends, and its turn goes on: WaitBegin follows
  SELECT unnest(sqlc.arg(numbers)::int[]) AS pos, unnest(sqlc.arg(task_ids)::uuid[]) AS id,
    unnest(sqlc.arg(epochs)::bigint[]) AS epoch, unnest(sqlc.arg(counts)::int[]) AS events,
    unnest(sqlc.arg(message_counts)::int[]) AS messages, unnest(sqlc.arg(sizes)::bigint[]) AS bytes,
    unnest(sqlc.arg(artifacts)::boolean[]) AS has_artifacts, unnest(sqlc.arg(throughs)::bigint[]) AS through,
    unnest(sqlc.arg(afters)::bigint[]) AS after, unnest(sqlc.arg(errors)::text[]) AS error,
    unnest(sqlc.arg(asked)::smallint[]) AS asked, unnest(sqlc.arg(said)::boolean[]) AS said,
    unnest(sqlc.arg(folds)::boolean[]) AS folds, unnest(sqlc.arg(checkpoints)::json[]) AS checkpoint,
    unnest(sqlc.arg(kept)::boolean[]) AS kept, unnest(sqlc.arg(workers)::text[]) AS worker,
    unnest(sqlc.arg(tells)::boolean[]) AS tells, unnest(sqlc.arg(replies)::boolean[]) AS replies,
    unnest(sqlc.arg(step_counts)::int[]) AS steps, unnest(sqlc.arg(step_afters)::int[]) AS step_after,
    unnest(sqlc.arg(step_sizes)::bigint[]) AS step_bytes, unnest(sqlc.arg(waits)::boolean[]) AS waits
), event AS (
  -- One row for each event: the batch that it belongs to, and its number in that.
  SELECT unnest(sqlc.arg(positions)::int[]) AS pos, unnest(sqlc.arg(places)::int[]) AS number,
    unnest(sqlc.arg(event_uids)::uuid[]) AS event_uid, unnest(sqlc.arg(kinds)::smallint[]) AS kind,
    unnest(sqlc.arg(states)::smallint[]) AS state, unnest(sqlc.arg(bodies)::json[]) AS body,
    unnest(sqlc.arg(artifact_ids)::text[]) AS artifact_id, unnest(sqlc.arg(parts)::json[]) AS parts
), message AS (
  -- One row for each event that has a message: its batch, the number of the event in that, and of the message.
  SELECT unnest(sqlc.arg(message_positions)::int[]) AS pos, unnest(sqlc.arg(message_places)::int[]) AS event_number,
    unnest(sqlc.arg(message_numbers)::int[]) AS number, unnest(sqlc.arg(message_ids)::text[]) AS message_id,
    unnest(sqlc.arg(messages)::json[]) AS body
),
task AS (
  UPDATE a2a.tasks t
  SET last_seq = t.last_seq + b.events,
    last_message_seq = t.last_message_seq + b.messages,
    bytes = t.bytes + b.bytes,
    steps = t.steps + b.steps,
    step_bytes = t.step_bytes + b.step_bytes,
    has_artifacts = t.has_artifacts OR b.has_artifacts,
    folded = b.folds AND (t.has_artifacts OR b.has_artifacts)
      AND (b.asked <> a2a.state_completed() OR t.last_user_seq <= b.through),
    last_at = CASE WHEN b.events > 0 THEN greatest(statement_timestamp(), t.last_at) ELSE t.last_at END,
    lease_epoch = t.lease_epoch + CASE WHEN b.waits OR a2a.state_ends_turn(b.asked) THEN 1 ELSE 0 END,
    -- The client has sent more than the run has seen: the turn does not end here. The task stays working, goes back
    -- into the queue, and is not folded.
    state = CASE
      WHEN b.asked = 0 THEN t.state
      WHEN (a2a.state_interrupted(b.asked) OR b.asked = a2a.state_completed()) AND t.last_user_seq > b.through
        THEN a2a.state_working()
      ELSE b.asked END,
    ready_at = CASE
      WHEN (a2a.state_interrupted(b.asked) OR b.asked = a2a.state_completed()) AND t.last_user_seq > b.through
        THEN clock_timestamp() END,
    status_at = CASE WHEN b.asked = 0 THEN t.status_at
      ELSE date_trunc('milliseconds', greatest(statement_timestamp(), t.last_at)) END,
    status_message_seq = CASE WHEN b.asked = 0 THEN t.status_message_seq
      WHEN b.said THEN t.last_message_seq + b.messages END,
    read_user_seq = CASE WHEN a2a.state_ends_turn(b.asked) AND NOT b.waits THEN b.through ELSE t.read_user_seq END,
    attempt = CASE WHEN b.waits OR a2a.state_ends_turn(b.asked) AND b.asked <> a2a.state_failed() THEN 0
      ELSE t.attempt END,
    deadline_at = CASE WHEN a2a.state_ends_turn(b.asked) THEN NULL ELSE t.deadline_at END,
    -- The first batch that tells the client something makes the answer a task, unless that batch replies.
    reply = CASE
      WHEN t.reply <> a2a.reply_open() THEN t.reply
      WHEN b.replies AND b.asked = a2a.state_completed() AND t.last_user_seq <= b.through THEN a2a.reply_message()
      WHEN b.tells THEN a2a.reply_task()
      ELSE a2a.reply_open() END
  FROM batch b
  -- = ANY (ARRAY[x]) is = x for which the planner knows one way alone: to look up each by its key, in the order of
  -- the batches. No statistics can turn it into a read of the whole table. So it is below, too.
  WHERE t.id = ANY (ARRAY[b.id])
    AND t.lease_epoch = b.epoch
    -- Only the run writes under its epoch. A task with more events has been given this batch before, by a try whose
    -- answer was lost or that is only now being carried out.
    AND t.last_seq = b.after
    AND t.steps = b.step_after
    AND NOT a2a.state_terminal(t.state)
    -- The heads of its webhooks must move in the same transaction, and with_push promises that.
    AND (sqlc.arg(with_push)::boolean OR NOT t.has_push)
  RETURNING b.pos, t.id, b.epoch, t.last_seq - b.events AS base, t.last_message_seq - b.messages AS message_base,
    t.last_message_seq, t.last_at, CASE WHEN b.asked > 0 THEN t.state END AS state, b.asked,
    b.error, b.checkpoint, b.kept, b.worker, t.folded, t.has_push, t.ready_at, b.waits
), ended AS (
  -- The runs that end here, with few columns: a join that deletes or updates carries along whole rows of its other
  -- side.
  SELECT t.id, t.epoch, t.error,
    CASE
      WHEN t.waits THEN 'waiting'
      WHEN t.asked = a2a.state_completed() THEN 'completed'
      WHEN t.asked = a2a.state_failed() THEN 'failed'
      WHEN t.asked = a2a.state_canceled() THEN 'canceled'
      WHEN t.asked = a2a.state_rejected() THEN 'rejected'
      ELSE 'input' END AS outcome
  FROM task t
  WHERE t.waits OR a2a.state_ends_turn(t.asked)
), lease_deleted AS (
  DELETE FROM a2a.task_leases l
  USING ended r
  WHERE l.task_id = ANY (ARRAY[r.id])
), attempt_ended AS (
  UPDATE a2a.task_attempts a
  SET ended_at = clock_timestamp(), error = r.error, outcome = r.outcome
  FROM ended r
  WHERE a.task_id = ANY (ARRAY[r.id]) AND a.epoch = r.epoch
), requeued AS (
  INSERT INTO a2a.task_ready (queue, priority, run_at, task_id, tenant)
  SELECT q.agent, q.priority, t.ready_at, t.id, q.tenant
  FROM task t
  JOIN a2a.tasks q ON q.id = ANY (ARRAY[t.id])
  WHERE t.asked <> t.state
), message_added AS (
  INSERT INTO a2a.messages (task_id, seq, at_seq, message_id, role, body)
  SELECT t.id, t.message_base + m.number, t.base + m.event_number, m.message_id, a2a.role_agent(), m.body
  FROM message m
  JOIN task t ON t.pos = m.pos
), checkpoint_saved AS (
  INSERT INTO a2a.task_checkpoints AS c (task_id, epoch, body)
  SELECT t.id, t.epoch, t.checkpoint
  FROM task t
  WHERE t.checkpoint IS NOT NULL AND NOT a2a.state_terminal(coalesce(t.state, 0::smallint))
  ON CONFLICT (task_id) DO UPDATE SET epoch = excluded.epoch, body = excluded.body
), checkpoint_deleted AS (
  DELETE FROM a2a.task_checkpoints c
  USING task t
  WHERE c.task_id = ANY (ARRAY[t.id]) AND t.kept AND a2a.state_terminal(t.state)
), event_added AS (
  INSERT INTO a2a.task_events (
    task_id, seq, event_uid, kind, state, source, epoch, worker, committed_at, artifact_id, body, parts)
  SELECT t.id, t.base + e.number, e.event_uid, e.kind,
    -- The event that asked for the end of the turn has the state that the task got.
    CASE WHEN a2a.state_ends_turn(e.state) THEN t.state ELSE nullif(e.state, 0) END,
    a2a.source_worker(), t.epoch, t.worker, t.last_at, nullif(e.artifact_id, ''), e.body, e.parts
  FROM event e
  JOIN task t ON t.pos = e.pos
)
SELECT t.pos::int AS pos, t.id::uuid AS id, t.base::bigint AS base, t.last_message_seq, t.last_at,
  coalesce(t.state, 0)::smallint AS state, t.folded, coalesce(t.asked <> t.state, false)::boolean AS requeued,
  t.has_push
FROM task t;

-- ArtifactFold puts the artifacts of tasks together from their events, so that readers need not do it each time. It is
-- the second statement of the transaction that ends the tasks: a statement does not see the events that it writes.
-- name: ArtifactFold :exec
WITH chunk AS (
  SELECT e.task_id, e.artifact_id, e.seq, e.kind, e.body, e.parts
  FROM a2a.task_events e
  WHERE e.task_id = ANY (sqlc.arg(task_ids)::uuid[]) AND e.artifact_id IS NOT NULL
), artifact AS (
  -- An artifact begins with the newest event that replaced it, or with its first chunk if none did.
  SELECT c.task_id, c.artifact_id, min(c.seq) AS position,
    coalesce(max(c.seq) FILTER (WHERE c.kind = a2a.kind_artifact()), min(c.seq)) AS base,
    max(c.seq) AS last_seq
  FROM chunk c
  GROUP BY c.task_id, c.artifact_id
), header AS (
  INSERT INTO a2a.artifacts (task_id, artifact_id, position, last_seq, header)
  SELECT a.task_id, a.artifact_id, a.position, a.last_seq, c.body
  FROM artifact a
  JOIN chunk c ON c.task_id = a.task_id AND c.artifact_id = a.artifact_id AND c.seq = a.base
)
INSERT INTO a2a.artifact_parts (task_id, artifact_id, seq, idx, part)
SELECT c.task_id, c.artifact_id, c.seq, p.idx, p.part
FROM chunk c
JOIN artifact a ON a.task_id = c.task_id AND a.artifact_id = c.artifact_id AND c.seq >= a.base,
LATERAL json_array_elements(c.parts) WITH ORDINALITY AS p(part, idx);

-- ArtifactAt reads what an artifact of a task was when event seq was the newest one: the event that replaced it last, and
-- its chunks after that. The first event after seq that changes it comes too, if there is one. The task's run holds its
-- lease, so its log is whole.
-- name: ArtifactAt :many
WITH base AS (
  SELECT coalesce(max(e.seq), 0) AS seq
  FROM a2a.task_events e
  WHERE e.task_id = sqlc.arg(task_id) AND e.artifact_id = sqlc.arg(artifact_id)::text
    AND e.seq <= sqlc.arg(seq)::bigint AND e.kind = a2a.kind_artifact()
), after AS (
  SELECT min(e.seq) AS seq
  FROM a2a.task_events e
  WHERE e.task_id = sqlc.arg(task_id) AND e.artifact_id = sqlc.arg(artifact_id)::text AND e.seq > sqlc.arg(seq)
)
SELECT e.seq, e.kind, e.body, e.parts
FROM a2a.task_events e
WHERE e.task_id = sqlc.arg(task_id) AND e.artifact_id = sqlc.arg(artifact_id)::text
  AND (e.seq >= (SELECT base.seq FROM base) AND e.seq <= sqlc.arg(seq) OR e.seq = (SELECT after.seq FROM after))
ORDER BY e.seq;

-- EventsAfter reads a task's log after one event: the next event, and as many more as do not exceed bytes together, up
-- to max. found is how many there are, up to max. The caller has checked that the client may see the task.
-- name: EventsAfter :many
WITH n AS MATERIALIZED (
  SELECT e.seq,
    sum(octet_length(e.body::text) + coalesce(octet_length(e.parts::text), 0)) OVER (ORDER BY e.seq) AS bytes
  FROM (
    SELECT e.seq, e.body, e.parts
    FROM a2a.task_events e
    WHERE e.task_id = sqlc.arg(task_id) AND e.seq > sqlc.arg(after)
    ORDER BY e.seq
    LIMIT sqlc.arg(max)::int
  ) e
)
SELECT e.seq, e.event_uid, e.kind, e.state, e.committed_at, e.artifact_id, e.body, e.parts,
  (SELECT count(*) FROM n) AS found
FROM a2a.task_events e
WHERE e.task_id = sqlc.arg(task_id)
  AND e.seq > sqlc.arg(after)
  AND e.seq <= greatest(
    (SELECT min(n.seq) FROM n),
    (SELECT max(n.seq) FROM n WHERE n.bytes <= sqlc.arg(bytes)::bigint))
ORDER BY e.seq
LIMIT sqlc.arg(max)::int;

-- EventCancel reads the event that canceled a task. No row means that the task was not canceled.
-- name: EventCancel :one
SELECT e.body
FROM a2a.task_events e
WHERE e.task_id = sqlc.arg(task_id)
  AND a2a.state_terminal(e.state) -- the predicate of the index task_events_terminal
  AND e.state = a2a.state_canceled();

-- EventUID reads the uid of one event, to tell whether a client's resume id is of this log.
-- name: EventUID :one
SELECT e.event_uid
FROM a2a.task_events e
WHERE e.task_id = sqlc.arg(task_id) AND e.seq = sqlc.arg(seq);

-- TasksAhead returns the tasks that have events after the given ones, and those that do not exist. Every replica polls
-- with it for all of its streams.
-- name: TasksAhead :many
SELECT s.id::uuid AS id, (t.id IS NULL)::boolean AS gone
FROM (SELECT unnest(sqlc.arg(ids)::uuid[]) AS id, unnest(sqlc.arg(seen)::bigint[]) AS seen) s
LEFT JOIN a2a.tasks t ON t.id = s.id AND t.id = ANY (sqlc.arg(ids))
WHERE t.id IS NULL OR t.last_seq > s.seen;

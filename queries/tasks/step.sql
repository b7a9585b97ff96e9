-- StepsAppend records new steps. A batch that has nothing else is written by this statement alone: it is fenced as by
-- EventAppend, and it is returned if it was written. Of a batch that is counted, EventAppend has written the rest, and
-- the number of its steps, in the same transaction.
-- name: StepsAppend :many
WITH batch AS (
  -- One row for each batch of a run, in the order of the tasks' ids: see EventAppend.
  SELECT unnest(sqlc.arg(numbers)::int[]) AS pos, unnest(sqlc.arg(task_ids)::uuid[]) AS id,
    unnest(sqlc.arg(epochs)::bigint[]) AS epoch, unnest(sqlc.arg(workers)::text[]) AS worker,
    unnest(sqlc.arg(afters)::bigint[]) AS after, unnest(sqlc.arg(step_counts)::int[]) AS steps,
    unnest(sqlc.arg(step_afters)::int[]) AS step_after, unnest(sqlc.arg(step_sizes)::bigint[]) AS step_bytes,
    unnest(sqlc.arg(counted)::boolean[]) AS counted
), step AS (
  -- One row for each step: the batch that it belongs to, and its number in the task. What is missing at the end of a
  -- column is NULL.
  SELECT unnest(sqlc.arg(positions)::int[]) AS pos, unnest(sqlc.arg(seqs)::int[]) AS seq,
    unnest(sqlc.arg(keys)::text[]) AS key, unnest(sqlc.arg(kinds)::smallint[]) AS kind,
    unnest(sqlc.arg(names)::text[]) AS name, unnest(sqlc.arg(inputs)::bytea[]) AS input,
    unnest(sqlc.arg(results)::json[]) AS result, unnest(sqlc.arg(errors)::json[]) AS error,
    unnest(sqlc.arg(attempts)::int[]) AS attempts, unnest(sqlc.arg(next_ats)::timestamptz[]) AS next_at,
    unnest(sqlc.arg(started_ats)::timestamptz[]) AS started_at, unnest(sqlc.arg(ended_ats)::timestamptz[]) AS ended_at,
    unnest(sqlc.arg(child_ids)::uuid[]) AS child_id, unnest(sqlc.arg(on_parent_ends)::smallint[]) AS on_parent_end,
    unnest(sqlc.arg(artifact_ids)::text[]) AS artifact_id, unnest(sqlc.arg(artifact_afters)::bigint[]) AS artifact_after
), task AS (
  UPDATE a2a.tasks t
  SET steps = t.steps + b.steps, step_bytes = t.step_bytes + b.step_bytes
  FROM batch b
  WHERE NOT b.counted
    AND t.id = ANY (ARRAY[b.id])
    AND t.lease_epoch = b.epoch
    AND t.last_seq = b.after
    AND t.steps = b.step_after
    AND NOT a2a.state_terminal(t.state)
  RETURNING b.pos, t.id, t.last_seq, t.last_message_seq, t.last_at, t.has_push
), added AS (
  INSERT INTO a2a.task_steps (
    task_id, seq, key, kind, name, input, result, error, attempts, next_at, started_at, ended_at, epoch, worker,
    child_id, on_parent_end, artifact_id, artifact_after)
  SELECT b.id, s.seq, s.key, s.kind, s.name, s.input, s.result, s.error, greatest(s.attempts, 1), s.next_at,
    s.started_at,
    -- A step that is final has ended, even if the agent does not say when. One that has only begun names its artifact.
    CASE WHEN s.kind = a2a.step_work() AND s.next_at IS NULL
        AND NOT (coalesce(s.artifact_id, '') <> '' AND s.result IS NULL AND s.error IS NULL)
      THEN coalesce(s.ended_at, clock_timestamp()) END,
    b.epoch, b.worker, s.child_id, nullif(s.on_parent_end, 0),
    nullif(s.artifact_id, ''), CASE WHEN s.artifact_id <> '' THEN s.artifact_after END
  FROM step s
  JOIN batch b ON b.pos = s.pos
  WHERE b.counted OR b.pos IN (SELECT t.pos FROM task t)
)
SELECT t.pos::int AS pos, t.id::uuid AS id, t.last_seq AS base, t.last_message_seq, t.last_at, t.has_push
FROM task t;

-- StepsRepeat records steps again that have begun, or that failed and were tried again. StepsAppend has written their
-- batches in the same transaction, and so has locked their tasks.
-- name: StepsRepeat :exec
WITH step AS (
  SELECT unnest(sqlc.arg(task_ids)::uuid[]) AS task_id, unnest(sqlc.arg(epochs)::bigint[]) AS epoch,
    unnest(sqlc.arg(workers)::text[]) AS worker, unnest(sqlc.arg(seqs)::int[]) AS seq,
    unnest(sqlc.arg(keys)::text[]) AS key, unnest(sqlc.arg(results)::json[]) AS result,
    unnest(sqlc.arg(errors)::json[]) AS error, unnest(sqlc.arg(attempts)::int[]) AS attempts,
    unnest(sqlc.arg(next_ats)::timestamptz[]) AS next_at, unnest(sqlc.arg(ended_ats)::timestamptz[]) AS ended_at,
    unnest(sqlc.arg(artifact_ids)::text[]) AS artifact_id, unnest(sqlc.arg(artifact_afters)::bigint[]) AS artifact_after
)
UPDATE a2a.task_steps o
SET result = s.result, error = s.error, attempts = s.attempts, next_at = s.next_at, epoch = s.epoch,
  worker = s.worker, artifact_id = nullif(s.artifact_id, ''),
  artifact_after = CASE WHEN s.artifact_id <> '' THEN s.artifact_after END,
  ended_at = CASE WHEN s.next_at IS NULL
      AND NOT (s.artifact_id <> '' AND s.result IS NULL AND s.error IS NULL)
    THEN coalesce(s.ended_at, clock_timestamp()) END
FROM step s
WHERE o.task_id = ANY (ARRAY[s.task_id]) AND o.seq = ANY (ARRAY[s.seq]) AND o.key = s.key AND o.ended_at IS NULL;

-- StepsAfter reads recorded steps of a task, in order: the next one, and as many more as do not exceed bytes together,
-- up to max.
-- name: StepsAfter :many
WITH n AS MATERIALIZED (
  SELECT s.seq,
    sum(length(s.key) + length(s.name) + octet_length(coalesce(s.result, s.error, 'null')::text))
      OVER (ORDER BY s.seq) AS bytes
  FROM (
    SELECT s.seq, s.key, s.name, s.result, s.error
    FROM a2a.task_steps s
    WHERE s.task_id = sqlc.arg(task_id) AND s.seq > sqlc.arg(after)::int
    ORDER BY s.seq
    LIMIT sqlc.arg(max)::int
  ) s
)
SELECT s.seq, s.key, s.kind, s.name, s.input, s.result, s.error, s.attempts, s.next_at, s.started_at, s.ended_at,
  s.epoch, s.child_id,
  coalesce(s.artifact_id, '')::text AS artifact_id, coalesce(s.artifact_after, 0)::bigint AS artifact_after
FROM a2a.task_steps s
WHERE s.task_id = sqlc.arg(task_id)
  AND s.seq > sqlc.arg(after)::int
  AND s.seq <= greatest(
    (SELECT min(n.seq) FROM n),
    (SELECT max(n.seq) FROM n WHERE n.bytes <= sqlc.arg(bytes)::bigint))
ORDER BY s.seq
LIMIT sqlc.arg(max)::int;

-- StepsKeyed reads the steps of a task that have one of the keys.
-- name: StepsKeyed :many
SELECT s.seq, s.key, s.kind, s.name, s.input, s.result, s.error, s.attempts, s.next_at, s.started_at, s.ended_at,
  s.epoch, s.child_id,
  coalesce(s.artifact_id, '')::text AS artifact_id, coalesce(s.artifact_after, 0)::bigint AS artifact_after
FROM a2a.task_steps s
WHERE s.task_id = sqlc.arg(task_id) AND s.key COLLATE "C" = ANY (sqlc.arg(keys)::text[]);

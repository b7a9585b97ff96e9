-- StepsAdd records steps of batches that EventAppend has written in the same transaction. It is a statement of its own,
-- so that batches without steps do not pay for it. A step that is recorded again has the number it had.
-- name: StepsAdd :exec
INSERT INTO a2a.task_steps AS o (
  task_id, seq, key, kind, name, input, result, error, attempts, next_at, started_at, ended_at, epoch, worker)
SELECT s.task_id, s.seq, s.key, s.kind, s.name, s.input, s.result, s.error, s.attempts, s.next_at, s.started_at,
  -- A step that is final has ended, even if the agent does not say when.
  CASE WHEN s.kind = a2a.step_work() AND s.next_at IS NULL THEN coalesce(s.ended_at, clock_timestamp()) END,
  s.epoch, s.worker
FROM (
  SELECT unnest(sqlc.arg(task_ids)::uuid[]) AS task_id, unnest(sqlc.arg(seqs)::int[]) AS seq,
    unnest(sqlc.arg(keys)::text[]) AS key, unnest(sqlc.arg(kinds)::smallint[]) AS kind,
    unnest(sqlc.arg(names)::text[]) AS name, unnest(sqlc.arg(inputs)::bytea[]) AS input,
    unnest(sqlc.arg(results)::json[]) AS result, unnest(sqlc.arg(errors)::json[]) AS error,
    unnest(sqlc.arg(attempts)::int[]) AS attempts, unnest(sqlc.arg(next_ats)::timestamptz[]) AS next_at,
    unnest(sqlc.arg(started_ats)::timestamptz[]) AS started_at, unnest(sqlc.arg(ended_ats)::timestamptz[]) AS ended_at,
    unnest(sqlc.arg(epochs)::bigint[]) AS epoch, unnest(sqlc.arg(workers)::text[]) AS worker
) s
-- A step that failed and was tried again.
ON CONFLICT (task_id, seq) DO UPDATE
SET result = excluded.result, error = excluded.error, attempts = excluded.attempts, next_at = excluded.next_at,
  ended_at = excluded.ended_at, epoch = excluded.epoch, worker = excluded.worker
WHERE o.key = excluded.key AND o.ended_at IS NULL;

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
  s.epoch
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
  s.epoch
FROM a2a.task_steps s
WHERE s.task_id = sqlc.arg(task_id) AND s.key = ANY (sqlc.arg(keys)::text[]);

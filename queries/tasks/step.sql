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

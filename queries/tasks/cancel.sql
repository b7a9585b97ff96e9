-- CancelsClaim claims cancels that are due, of each queue at most its slots, for one try each. A try must not last
-- longer than the first wait. Nothing fences a try: an agent that is told twice has ended the work already.
-- name: CancelsClaim :many
WITH due AS (
  SELECT x.task_id
  FROM (SELECT unnest(sqlc.arg(queues)::text[]) AS queue, unnest(sqlc.arg(slots)::int[]) AS slots) q,
  LATERAL (
    SELECT c.task_id
    FROM a2a.task_cancels c
    WHERE c.queue = q.queue AND c.due_at <= (SELECT clock_timestamp())
    ORDER BY c.due_at
    LIMIT q.slots
    FOR UPDATE SKIP LOCKED
  ) x
)
UPDATE a2a.task_cancels c
SET tries = c.tries + 1,
  set_at = clock_timestamp(),
  -- The wait doubles with each try, up to ten minutes.
  due_at = clock_timestamp() + least(interval '10 min', interval '15 s' * 2 ^ least(c.tries, 10))
FROM due
WHERE c.task_id = ANY (ARRAY[due.task_id])
RETURNING c.task_id, c.queue, c.tenant, c.owner, c.traceparent, c.checkpoint, c.body;

-- CancelDelete removes a cancel that the agent has been told of.
-- name: CancelDelete :exec
DELETE FROM a2a.task_cancels c
WHERE c.task_id = sqlc.arg(task_id)::uuid;

-- CancelsForget removes the cancels of agents that cannot be told, and those that are too old.
-- name: CancelsForget :many
DELETE FROM a2a.task_cancels c
WHERE c.queue = ANY (sqlc.arg(queues)::text[]) OR c.made_at < (SELECT clock_timestamp()) - sqlc.arg(age)::interval
RETURNING c.task_id, c.tries;

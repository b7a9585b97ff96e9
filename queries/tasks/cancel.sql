-- CancelsClaim takes cancels that are due, of each queue no more than its slots, for one try each, which must not last longer than the first of the
-- waits. Nothing fences a try: an agent that is told twice has ended the work already.
-- name: CancelsClaim :many
WITH due AS (
  SELECT x.task_id
  FROM (SELECT unnest(sqlc.arg(queues)::text[]) AS queue, unnest(sqlc.arg(slots)::int[]) AS slots) q, LATERAL (
    SELECT c.task_id
    FROM a2a.task_cancels c
    WHERE c.queue = q.queue AND c.due_at <= (SELECT clock_timestamp())
    ORDER BY c.due_at
    LIMIT q.slots
    FOR UPDATE SKIP LOCKED
  ) x
)
UPDATE a2a.task_cancels c
SET tries = c.tries + 1, set_at = clock_timestamp(), due_at = clock_timestamp() + least(interval '10 min', interval '15 s' * 2 ^ least(c.tries, 10))
FROM due
WHERE c.task_id = ANY (ARRAY[due.task_id])
RETURNING c.task_id, c.queue, c.tenant, c.owner, c.traceparent, c.checkpoint, c.body;

-- CancelDelete ends one that the agent has heard.
-- name: CancelDelete :exec
DELETE FROM a2a.task_cancels c WHERE c.task_id = sqlc.arg(task_id)::uuid;

-- CancelsForget ends those that nobody is to be told, and those that are too old.
-- name: CancelsForget :many
DELETE FROM a2a.task_cancels c
WHERE c.queue = ANY(sqlc.arg(queues)::text[]) OR c.made_at < (SELECT clock_timestamp()) - sqlc.arg(age)::interval
RETURNING c.task_id, c.tries;

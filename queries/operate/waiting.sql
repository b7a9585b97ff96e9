-- CountWaiting counts the tasks of each agent that wait without a worker, and reads when the next of these waits ends by
-- its time or its deadline; null: only an event ends them. If the table of waits has more than pages, it reads a sample
-- of them, and tasks is an estimate.
-- name: CountWaiting :many
WITH seen AS (
  SELECT least(1, sqlc.arg(pages)::bigint * current_setting('block_size')::float8
    / greatest(pg_relation_size('a2a.task_waits'), 1)) AS share
)
SELECT t.agent, round(count(*) / (SELECT s.share FROM seen s))::bigint AS tasks,
  nullif(min(least(w.due_at, w.deadline_at)), 'infinity')::timestamptz AS next_at
  -- The same pages each time: the estimate changes only if the waits do.
FROM a2a.task_waits w TABLESAMPLE SYSTEM ((SELECT 100 * s.share FROM seen s)) REPEATABLE (0)
CROSS JOIN LATERAL (
  -- A row of another epoch belongs to no wait any more.
  SELECT x.agent
  FROM a2a.tasks x
  WHERE x.id = ANY (ARRAY[w.task_id]) AND x.lease_epoch = w.epoch
  -- The limit keeps the order of the join. A sample has no index, so a scan of it for each task takes minutes.
  LIMIT 1
) t
GROUP BY t.agent
ORDER BY t.agent;

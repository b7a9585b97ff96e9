-- CountParked counts the parked tasks of each agent, and reads for how long the first of them has been parked.
-- name: CountParked :many
SELECT p.agent, count(*) AS tasks,
  (extract(epoch FROM clock_timestamp() - min(p.since)) * 1000)::bigint AS oldest_ms
FROM a2a.task_parked p
-- A row of another epoch means nothing: see the migration.
JOIN a2a.tasks t ON t.id = ANY (ARRAY[p.task_id]) AND t.lease_epoch = p.epoch
GROUP BY p.agent
ORDER BY p.agent;

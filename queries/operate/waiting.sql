-- CountWaiting counts the tasks of each agent that wait without a worker, and reads when the next of these waits ends by
-- its time or its deadline; null: only an event ends them.
-- name: CountWaiting :many
SELECT t.agent, count(*) AS tasks, nullif(min(least(w.due_at, w.deadline_at)), 'infinity')::timestamptz AS next_at
FROM a2a.task_waits w
-- A row of another epoch belongs to no wait any more.
JOIN a2a.tasks t ON t.id = w.task_id AND t.lease_epoch = w.epoch
GROUP BY t.agent
ORDER BY t.agent;

-- RecentTasks reads the newest tasks, at most max of those created since first_id, for the statistics of the console.
-- Ids are in the order of creation.
-- name: RecentTasks :many
SELECT t.agent, t.state, t.created_at, t.status_at
FROM a2a.tasks t
WHERE t.id >= sqlc.arg(first_id)::uuid
  AND (sqlc.arg(tenant)::text = '' OR t.tenant = sqlc.arg(tenant))
ORDER BY t.id DESC
LIMIT sqlc.arg(max)::int;

-- CountOpen counts the tasks that have not ended, by agent and state.
-- name: CountOpen :many
SELECT t.agent, t.state, count(*) AS tasks
FROM a2a.tasks t
WHERE t.state IN (a2a.state_submitted(), a2a.state_working()) -- the predicate of the index tasks_running
GROUP BY t.agent, t.state
UNION ALL
SELECT t.agent, t.state, count(*)
FROM a2a.tasks t
WHERE a2a.state_interrupted(t.state) -- the predicate of the index tasks_asking
GROUP BY t.agent, t.state
ORDER BY 1, 2;

-- RecentFailures reads the newest tasks that failed or were rejected, with the beginning of the message of their last
-- status, and that of the error of their last attempt. cut: there is more of the message.
-- name: RecentFailures :many
SELECT t.id, t.tenant, t.owner, t.agent, t.context_id, t.state, t.status_at, t.created_at,
  coalesce(m.beginning, '')::text AS message, coalesce(m.cut, false)::boolean AS cut,
  coalesce(left(a.error, 2000), '')::text AS error
FROM a2a.tasks t
LEFT JOIN LATERAL (
  SELECT left(x.body::text, 2000) AS beginning, length(x.body::text) > 2000 AS cut
  FROM a2a.messages x
  WHERE x.task_id = ANY (ARRAY[t.id]) AND x.seq = t.status_message_seq
) m ON true
LEFT JOIN LATERAL (
  SELECT CASE WHEN x.outcome IS DISTINCT FROM 'released' THEN x.error END AS error
  FROM a2a.task_attempts x
  WHERE x.task_id = ANY (ARRAY[t.id])
  ORDER BY x.epoch DESC
  LIMIT 1
) a ON true
WHERE t.state IN (a2a.state_failed(), a2a.state_rejected()) -- the predicate of the index tasks_failed
  AND t.id >= sqlc.arg(first_id)::uuid
  AND (sqlc.arg(tenant)::text = '' OR t.tenant = sqlc.arg(tenant))
ORDER BY t.id DESC
LIMIT sqlc.arg(max)::int;

-- Questions reads tasks that wait for a person, oldest first, with their question and what an answer must look like. Of
-- a question of more than most bytes it reads the beginning, and of such an expectation nothing.
-- name: Questions :many
SELECT t.id, t.tenant, t.owner, t.agent, t.context_id, t.state, t.status_at, t.created_at,
  coalesce(m.said, '')::text AS message, coalesce(m.cut, false)::boolean AS cut,
  coalesce(w.expects, '')::text AS expects, coalesce(w.cut, false)::boolean AS left_out,
  coalesce(g.assignee, '')::text AS assignee, coalesce(g.assigned_by, '')::text AS assigned_by, g.assigned_at
FROM a2a.tasks t
LEFT JOIN a2a.task_assignments g ON g.task_id = ANY (ARRAY[t.id]) AND g.asked_at = t.status_at
LEFT JOIN LATERAL (
  SELECT CASE WHEN s.cut THEN left(s.body, 2000) ELSE s.body END AS said, s.cut
  FROM (
    SELECT x.body::text AS body, octet_length(x.body::text) > sqlc.arg(most)::int AS cut
    FROM a2a.messages x
    WHERE x.task_id = ANY (ARRAY[t.id]) AND x.seq = t.status_message_seq
  ) s
) m ON true
LEFT JOIN LATERAL (
  SELECT CASE WHEN octet_length(x.expects::text) <= sqlc.arg(most) THEN x.expects::text END AS expects,
    octet_length(x.expects::text) > sqlc.arg(most) AS cut
  FROM a2a.task_waits x
  WHERE x.task_id = ANY (ARRAY[t.id]) AND x.epoch = t.lease_epoch
) w ON true
WHERE a2a.state_interrupted(t.state) -- the predicate of the index tasks_asking
  AND (sqlc.narg(task_id)::uuid IS NULL OR t.id = sqlc.narg(task_id))
  AND (sqlc.arg(tenant)::text = '' OR t.tenant = sqlc.arg(tenant))
  AND (sqlc.arg(owner)::text = '' OR t.owner = sqlc.arg(owner))
  AND (sqlc.arg(agent)::text = '' OR t.agent = sqlc.arg(agent))
  AND (sqlc.narg(assignee)::text IS NULL OR coalesce(g.assignee, '') = sqlc.narg(assignee))
  AND t.id > sqlc.arg(after)::uuid
ORDER BY t.id
LIMIT sqlc.arg(max)::int;

-- RecentWorkers reads which workers have ended attempts at the newest tasks, at most max of those created since
-- first_id. A worker without a lease is known by nothing else.
-- name: RecentWorkers :many
SELECT a.worker, count(*) AS attempts,
  count(*) FILTER (WHERE a.outcome IN ('failed', 'retry', 'expired')) AS failed,
  max(a.ended_at)::timestamptz AS ended_at, array_agg(DISTINCT t.agent ORDER BY t.agent)::text[] AS agents
FROM (
  SELECT x.id, x.agent
  FROM a2a.tasks x
  WHERE x.id >= sqlc.arg(first_id)::uuid
  ORDER BY x.id DESC
  LIMIT sqlc.arg(max)::int
) t
JOIN a2a.task_attempts a ON a.task_id = ANY (ARRAY[t.id]) AND a.ended_at IS NOT NULL
GROUP BY a.worker
ORDER BY a.worker
LIMIT 1000;

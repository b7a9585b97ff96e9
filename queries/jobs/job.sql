-- JobInsert stores a job. A server that is to run it holds its lease from the start.
-- name: JobInsert :one
INSERT INTO a2a.jobs (id, action, filter, webhooks, actor, reason, worker, epoch, lease_until, claimed_at)
SELECT sqlc.arg(id), sqlc.arg(action), sqlc.arg(filter), sqlc.arg(webhooks), sqlc.arg(actor), sqlc.arg(reason),
  sqlc.arg(worker)::text, CASE WHEN sqlc.arg(worker) = '' THEN 0 ELSE 1 END,
  CASE WHEN sqlc.arg(worker) <> '' THEN n.now + sqlc.arg(ttl)::interval END,
  CASE WHEN sqlc.arg(worker) <> '' THEN n.now END
FROM (SELECT clock_timestamp() AS now) n
RETURNING *;

-- JobClaim takes the lease of the running job that was claimed longest ago, if no server holds it. A lease that ends
-- later than any can was taken before the clock was set back. own restricts it to jobs of this worker, which holds them
-- already. A job of which the server does not know all is left to servers of a newer version.
-- name: JobClaim :one
UPDATE a2a.jobs j
SET worker = sqlc.arg(worker), epoch = j.epoch + 1, lease_until = n.now + sqlc.arg(ttl)::interval, claimed_at = n.now
FROM (SELECT clock_timestamp() AS now) n
WHERE j.id = (
  SELECT c.id
  FROM a2a.jobs c
  WHERE c.state = 'running'
    AND c.action = ANY (sqlc.arg(actions)::text[])
    -- Without a filter that it has, the job would act on more tasks.
    AND NOT EXISTS (
      SELECT
      FROM json_object_keys(replace(c.filter::text, '\u0000', '\u0001')::json) AS k (name) -- a NUL would be an error
      WHERE k.name <> ALL (sqlc.arg(filters)::text[]))
    AND CASE WHEN sqlc.arg(own)::boolean THEN c.worker = sqlc.arg(worker)
      ELSE c.lease_until IS NULL OR c.lease_until <= (SELECT clock_timestamp())
        OR c.lease_until > (SELECT clock_timestamp()) + sqlc.arg(ttl) END
  ORDER BY c.claimed_at NULLS FIRST, c.id
  LIMIT 1
  FOR UPDATE SKIP LOCKED)
RETURNING j.*;

-- JobRelease gives the lease of a job back.
-- name: JobRelease :execrows
UPDATE a2a.jobs j
SET lease_until = NULL
WHERE j.id = sqlc.arg(id) AND j.epoch = sqlc.arg(epoch) AND j.state = 'running';

-- JobCollect adds tasks to a job whose lease is held, in the order of the list. No row means that the lease is lost, or
-- that these tasks were added already: the task that was collected last is another one.
-- name: JobCollect :one
WITH job AS (
  UPDATE a2a.jobs j
  SET matched = j.matched + cardinality(sqlc.arg(tasks)::uuid[]),
    remaining = j.remaining + cardinality(sqlc.arg(tasks)::uuid[]),
    collected = sqlc.arg(complete), collected_at = coalesce(sqlc.narg(last_at), j.collected_at),
    collected_id = coalesce(sqlc.narg(last_id), j.collected_id),
    lease_until = (SELECT clock_timestamp()) + sqlc.arg(ttl)::interval
  WHERE j.id = sqlc.arg(id) AND j.epoch = sqlc.arg(epoch) AND j.state = 'running' AND NOT j.collected
    AND j.collected_id IS NOT DISTINCT FROM sqlc.narg(after)::uuid
  RETURNING j.id, j.matched, j.remaining
), added AS (
  INSERT INTO a2a.job_tasks (job_id, n, task_id)
  SELECT j.id, j.matched - cardinality(sqlc.arg(tasks)) + x.n, x.id
  FROM job j
  CROSS JOIN unnest(sqlc.arg(tasks)) WITH ORDINALITY AS x (id, n)
)
SELECT job.remaining FROM job;

-- JobNext reads the next task of a job whose lease is held, as the task is now. No row means that the lease is lost, or
-- that no task is left.
-- name: JobNext :one
SELECT x.n, x.task_id, coalesce(t.tenant, '')::text AS tenant, coalesce(t.owner, '')::text AS owner,
  coalesce(t.agent, '')::text AS agent, (t.id IS NOT NULL)::boolean AS found
FROM a2a.jobs j
JOIN a2a.job_tasks x ON x.job_id = j.id AND x.n = j.remaining
LEFT JOIN a2a.tasks t ON t.id = ANY (ARRAY[x.task_id])
WHERE j.id = sqlc.arg(id) AND j.epoch = sqlc.arg(epoch) AND j.state = 'running';

-- JobTaskLock locks a task that a job acts on. No row means that it was removed.
-- name: JobTaskLock :one
SELECT t.state
FROM a2a.tasks t
WHERE t.id = sqlc.arg(id)
FOR UPDATE;

-- JobTaskRetried reports whether a task was made from this one. It is a statement of its own, after the lock: so it
-- sees what others have committed before they unlocked the task.
-- name: JobTaskRetried :one
SELECT EXISTS (SELECT FROM a2a.audit_log r WHERE r.task_id = sqlc.arg(id)::uuid AND r.action = 'task.retry');

-- JobTaskParked reports whether a task is parked. Like JobTaskRetried, it comes after the lock.
-- name: JobTaskParked :one
SELECT EXISTS (
  SELECT
  FROM a2a.tasks t
  JOIN a2a.task_parked p ON p.task_id = ANY (ARRAY[t.id]) AND p.epoch = t.lease_epoch
  WHERE t.id = sqlc.arg(id)::uuid AND t.ready_at IS NULL);

-- JobAdvance records what became of task n of a job whose lease is held, and moves to the next one. No row means that
-- the lease is lost, the job was stopped, or the task was recorded before.
-- name: JobAdvance :one
WITH job AS (
  UPDATE a2a.jobs j
  SET remaining = j.remaining - 1,
    done = j.done + CASE WHEN sqlc.arg(outcome)::text = 'done' THEN 1 ELSE 0 END,
    skipped = j.skipped + CASE WHEN sqlc.arg(outcome) = 'skipped' THEN 1 ELSE 0 END,
    failed = j.failed + CASE WHEN sqlc.arg(outcome) = 'failed' THEN 1 ELSE 0 END,
    lease_until = (SELECT clock_timestamp()) + sqlc.arg(ttl)::interval
  WHERE j.id = sqlc.arg(id) AND j.epoch = sqlc.arg(epoch) AND j.state = 'running' AND j.remaining = sqlc.arg(n)::int
  RETURNING j.id, j.remaining
), task AS (
  UPDATE a2a.job_tasks x
  SET outcome = sqlc.arg(outcome), new_task_id = sqlc.narg(new_task), detail = sqlc.arg(detail)
  FROM job
  WHERE x.job_id = sqlc.arg(id) AND x.n = sqlc.arg(n)
)
SELECT job.remaining FROM job;

-- JobEnd ends a job whose lease is held. A job is done only if none of its tasks is left.
-- name: JobEnd :execrows
UPDATE a2a.jobs j
SET state = sqlc.arg(state), error = sqlc.arg(error), ended_at = clock_timestamp(), lease_until = NULL
WHERE j.id = sqlc.arg(id) AND j.epoch = sqlc.arg(epoch) AND j.state = 'running'
  AND (sqlc.arg(state)::text <> 'done' OR j.collected AND j.remaining = 0);

-- JobStop ends a running job in the name of an operator.
-- name: JobStop :execrows
UPDATE a2a.jobs j
SET state = 'stopped', ended_at = clock_timestamp(), lease_until = NULL
WHERE j.id = sqlc.arg(id) AND j.state = 'running';

-- JobList reads jobs, newest first.
-- name: JobList :many
SELECT j.*
FROM a2a.jobs j
WHERE (sqlc.arg(state)::text = '' OR j.state = sqlc.arg(state))
  AND (sqlc.narg(before)::uuid IS NULL OR j.id < sqlc.narg(before))
ORDER BY j.id DESC
LIMIT sqlc.arg(max)::int;

-- JobRange reads at most two jobs whose ids are in a range.
-- name: JobRange :many
SELECT j.*
FROM a2a.jobs j
WHERE j.id >= sqlc.arg(first)::uuid AND j.id <= sqlc.arg(last)::uuid
ORDER BY j.id
LIMIT 2;

-- JobTasks reads what became of the tasks of a job, in the order in which it came to them: those with numbers below
-- before. A task that was removed has no agent.
-- name: JobTasks :many
SELECT x.n, x.task_id, coalesce(x.outcome, '')::text AS outcome, x.new_task_id, x.detail,
  coalesce(t.agent, '')::text AS agent, coalesce(t.tenant, '')::text AS tenant, coalesce(t.owner, '')::text AS owner,
  coalesce(t.context_id, '')::text AS context_id
FROM a2a.job_tasks x
LEFT JOIN a2a.tasks t ON t.id = ANY (ARRAY[x.task_id])
WHERE x.job_id = sqlc.arg(job_id) AND x.outcome IS NOT NULL AND x.n < sqlc.arg(before)::int
  AND (NOT sqlc.arg(refused)::boolean OR x.outcome IN ('skipped', 'failed'))
ORDER BY x.n DESC
LIMIT sqlc.arg(max)::int;

-- JobRefusals counts the tasks that a job has skipped or failed with, by the reason.
-- name: JobRefusals :many
SELECT x.outcome::text AS outcome, x.detail, count(*) AS tasks
FROM a2a.job_tasks x
WHERE x.job_id = sqlc.arg(job_id) AND x.outcome IN ('skipped', 'failed')
GROUP BY x.outcome, x.detail
ORDER BY count(*) DESC, x.outcome, x.detail
LIMIT sqlc.arg(max)::int;

-- JobTasksForget removes a batch of the tasks of jobs that ended longer ago than keep.
-- name: JobTasksForget :execrows
DELETE FROM a2a.job_tasks d
USING (
  SELECT x.job_id, x.n
  FROM a2a.jobs j
  CROSS JOIN LATERAL (
    SELECT y.job_id, y.n
    FROM a2a.job_tasks y
    WHERE y.job_id = j.id
    LIMIT sqlc.arg(batch)::int) x
  WHERE j.ended_at < (SELECT clock_timestamp()) - sqlc.arg(keep)::interval
  LIMIT sqlc.arg(batch)) old
WHERE d.job_id = ANY (ARRAY[old.job_id]) AND d.n = ANY (ARRAY[old.n]);

-- JobsForget removes jobs that ended longer ago than keep and have no tasks left.
-- name: JobsForget :execrows
DELETE FROM a2a.jobs j
WHERE j.ended_at < (SELECT clock_timestamp()) - sqlc.arg(keep)::interval
  AND NOT EXISTS (SELECT FROM a2a.job_tasks x WHERE x.job_id = ANY (ARRAY[j.id]));

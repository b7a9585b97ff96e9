-- UsageAdd adds usage to the sums of tasks, and notes it for the sums by day. The transaction has written the batches of
-- the runs that report it, so it has locked the tasks. A task has each model once.
-- name: UsageAdd :exec
WITH usage AS (
  SELECT unnest(sqlc.arg(task_ids)::uuid[]) AS task_id, unnest(sqlc.arg(tenants)::text[]) AS tenant,
    unnest(sqlc.arg(owners)::text[]) AS owner, unnest(sqlc.arg(agents)::text[]) AS agent,
    unnest(sqlc.arg(models)::text[]) AS model, unnest(sqlc.arg(input_tokens)::bigint[]) AS input_tokens,
    unnest(sqlc.arg(output_tokens)::bigint[]) AS output_tokens,
    unnest(sqlc.arg(cached_input_tokens)::bigint[]) AS cached_input_tokens,
    unnest(sqlc.arg(reasoning_tokens)::bigint[]) AS reasoning_tokens, unnest(sqlc.arg(requests)::bigint[]) AS requests
), noted AS (
  INSERT INTO a2a.usage_pending (
    day, tenant, owner, agent, model, input_tokens, output_tokens, cached_input_tokens, reasoning_tokens, requests)
  SELECT (statement_timestamp() AT TIME ZONE 'UTC')::date, u.tenant, u.owner, u.agent, u.model, u.input_tokens,
    u.output_tokens, u.cached_input_tokens, u.reasoning_tokens, u.requests
  FROM usage u
)
INSERT INTO a2a.task_usage AS s (
  task_id, model, input_tokens, output_tokens, cached_input_tokens, reasoning_tokens, requests)
SELECT u.task_id, u.model, u.input_tokens, u.output_tokens, u.cached_input_tokens, u.reasoning_tokens, u.requests
FROM usage u
ON CONFLICT (task_id, model) DO UPDATE
SET input_tokens = s.input_tokens + excluded.input_tokens,
  output_tokens = s.output_tokens + excluded.output_tokens,
  cached_input_tokens = s.cached_input_tokens + excluded.cached_input_tokens,
  reasoning_tokens = s.reasoning_tokens + excluded.reasoning_tokens,
  requests = s.requests + excluded.requests;

-- UsageSum moves at most batch rows of pending usage into the sums by day. It returns how many. One process at a time
-- does this.
-- name: UsageSum :one
WITH moved AS (
  DELETE FROM a2a.usage_pending p
  WHERE p.ctid = ANY (ARRAY(SELECT x.ctid FROM a2a.usage_pending x LIMIT sqlc.arg(batch)::int))
  RETURNING p.day, p.tenant, p.owner, p.agent, p.model, p.input_tokens, p.output_tokens, p.cached_input_tokens,
    p.reasoning_tokens, p.requests
), summed AS (
  INSERT INTO a2a.usage_days AS d (
    day, tenant, owner, agent, model, input_tokens, output_tokens, cached_input_tokens, reasoning_tokens, requests)
  SELECT m.day, m.tenant, m.owner, m.agent, m.model, sum(m.input_tokens), sum(m.output_tokens),
    sum(m.cached_input_tokens), sum(m.reasoning_tokens), sum(m.requests)
  FROM moved m
  GROUP BY m.day, m.tenant, m.owner, m.agent, m.model
  ON CONFLICT (day, tenant, owner, agent, model) DO UPDATE
  SET input_tokens = d.input_tokens + excluded.input_tokens,
    output_tokens = d.output_tokens + excluded.output_tokens,
    cached_input_tokens = d.cached_input_tokens + excluded.cached_input_tokens,
    reasoning_tokens = d.reasoning_tokens + excluded.reasoning_tokens,
    requests = d.requests + excluded.requests
)
SELECT count(*)::int AS moved FROM moved m;

-- UsageForget removes at most batch sums of days that ended longer than keep ago.
-- name: UsageForget :execrows
DELETE FROM a2a.usage_days o
WHERE o.ctid = ANY (ARRAY(
  SELECT d.ctid
  FROM a2a.usage_days d
  WHERE d.day < (SELECT ((clock_timestamp() - sqlc.arg(keep)::interval) AT TIME ZONE 'UTC')::date)
  ORDER BY d.day
  LIMIT sqlc.arg(batch)::int
));

-- BatchWritten reports whether a run has written a batch with this id.
-- name: BatchWritten :one
SELECT EXISTS (
  SELECT
  FROM a2a.task_batches b
  WHERE b.task_id = sqlc.arg(task_id) AND b.epoch = sqlc.arg(epoch) AND b.batch_id = sqlc.arg(batch_id));

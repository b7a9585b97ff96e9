-- UsageOfTask reads the usage of a task, by model, for the operator: at most a thousand models.
-- name: UsageOfTask :many
SELECT u.model, u.input_tokens, u.output_tokens, u.cached_input_tokens, u.reasoning_tokens, u.requests
FROM a2a.task_usage u
WHERE u.task_id = sqlc.arg(task_id)
ORDER BY u.model
LIMIT 1000;

-- UsageByDay sums usage since a day, in UTC, for the operator: one row for each combination of what it is asked to
-- distinguish, by day and then by tokens. The other columns are empty.
-- name: UsageByDay :many
SELECT coalesce(CASE WHEN sqlc.arg(by_day)::boolean THEN u.day::text END, '')::text AS day,
  coalesce(CASE WHEN sqlc.arg(by_tenant)::boolean THEN u.tenant END, '')::text AS tenant,
  coalesce(CASE WHEN sqlc.arg(by_owner)::boolean THEN u.owner END, '')::text AS owner,
  coalesce(CASE WHEN sqlc.arg(by_agent)::boolean THEN u.agent END, '')::text AS agent,
  coalesce(CASE WHEN sqlc.arg(by_model)::boolean THEN u.model END, '')::text AS model,
  sum(u.input_tokens)::bigint AS input_tokens, sum(u.output_tokens)::bigint AS output_tokens,
  sum(u.cached_input_tokens)::bigint AS cached_input_tokens, sum(u.reasoning_tokens)::bigint AS reasoning_tokens,
  sum(u.requests)::bigint AS requests
FROM audit.usage_day u
WHERE u.day >= sqlc.arg(since)::date
GROUP BY 1, 2, 3, 4, 5
ORDER BY 1, sum(u.input_tokens + u.output_tokens) DESC, 2, 3, 4, 5
LIMIT sqlc.arg(max)::int;

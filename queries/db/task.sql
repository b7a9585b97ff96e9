-- PlanForArguments makes PostgreSQL plan the statements in the rest of the transaction for their arguments: which index
-- is best depends on which filters of a list are set.
-- name: PlanForArguments :exec
SELECT set_config('plan_cache_mode', 'force_custom_plan', true), set_config('enable_seqscan', 'on', true);

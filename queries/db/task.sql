-- PlanForArguments has the statements of the rest of the transaction planned for their
-- arguments: which of the filters of a list are in use decides on the index.
-- name: PlanForArguments :exec
SELECT set_config('plan_cache_mode', 'force_custom_plan', true), set_config('enable_seqscan', 'on', true);

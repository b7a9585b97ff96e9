-- +goose NO TRANSACTION

-- +goose Up
-- Webhooks that were deleted, by their task: its removal, and a delete that waits for a request under way, looked for
-- them in the whole table. The others have push_configs_task. It says IS NOT NULL in other words, so that a look-up by
-- task cannot be planned on the index of all deleted webhooks. One that a broken build left is made again.
DROP INDEX CONCURRENTLY IF EXISTS a2a.push_configs_deleted_task;
CREATE INDEX CONCURRENTLY push_configs_deleted_task ON a2a.push_configs (task_id) WHERE coalesce(deleted_at, 'infinity') <> 'infinity';

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS a2a.push_configs_deleted_task;

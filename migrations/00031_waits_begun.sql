-- +goose NO TRANSACTION

-- +goose Up
-- Waits that began in the future, which nearly always is none, are found without reading the others. An index that a
-- broken build left behind is made again.
DROP INDEX CONCURRENTLY IF EXISTS a2a.task_ready_made;
CREATE INDEX CONCURRENTLY task_ready_made ON a2a.task_ready (made_at);
DROP INDEX CONCURRENTLY IF EXISTS a2a.task_cancels_set;
CREATE INDEX CONCURRENTLY task_cancels_set ON a2a.task_cancels (set_at);

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS a2a.task_cancels_set;
DROP INDEX CONCURRENTLY IF EXISTS a2a.task_ready_made;

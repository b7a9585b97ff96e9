-- +goose NO TRANSACTION

-- +goose Up
-- The tasks that wait for their client, to count them without reading all others. Only these have an
-- entry. One that a broken build left behind is made again.
DROP INDEX CONCURRENTLY IF EXISTS a2a.tasks_asking;
CREATE INDEX CONCURRENTLY tasks_asking ON a2a.tasks (id) WHERE state IN (3, 4);

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS a2a.tasks_asking;

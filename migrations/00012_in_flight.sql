-- +goose NO TRANSACTION

-- +goose Up
-- The tasks of an owner that wait for an agent or are with one, to bound them. An event that
-- leaves the state as it is does not touch this index, and one that changes it writes to
-- tasks_list anyhow. One that a broken build left behind is made again.
DROP INDEX CONCURRENTLY IF EXISTS a2a.tasks_in_flight;
CREATE INDEX CONCURRENTLY tasks_in_flight ON a2a.tasks (tenant, owner) WHERE state IN (1, 2);

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS a2a.tasks_in_flight;

-- +goose NO TRANSACTION

-- +goose Up
-- For lists of the tasks of all callers, which are in the order of creation. The id does not tell this order: imported
-- tasks keep the ids of the server that made them. The id is not in the index, or a plan made while there is one task
-- would look up tasks by id in it, and read all of it ever after. An index that a broken build left is made again.
DROP INDEX CONCURRENTLY IF EXISTS a2a.tasks_created;
CREATE INDEX CONCURRENTLY tasks_created ON a2a.tasks (created_at);

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS a2a.tasks_created;

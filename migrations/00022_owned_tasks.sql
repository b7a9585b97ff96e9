-- +goose NO TRANSACTION

-- +goose Up
-- Whose a task is, by its id: callers' look-ups begin here, by the task and by who asks. For a
-- task of somebody else there is no such entry, as for one that does not exist, and no row is
-- read for either: the row of a2a.tasks took some microseconds to find and to refuse, and
-- those told that it is there. The tenant goes first, so that one look-up runs the same code as
-- the other. Ids are in the order of their making: an entry goes behind the others of its
-- tenant. An index that a broken build left behind is made again.
DROP INDEX CONCURRENTLY IF EXISTS a2a.context_tasks_owner;
CREATE UNIQUE INDEX CONCURRENTLY context_tasks_owner ON a2a.context_tasks (tenant, task_id, owner);

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS a2a.context_tasks_owner;

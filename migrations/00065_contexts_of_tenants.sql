-- +goose NO TRANSACTION

-- +goose Up
-- The tasks of a context are found for an owner, and also for a tenant whose owners share their tasks. With the owner
-- before the context, a list for a tenant read the entries of all its tasks. The new index is built without locking. A
-- rerun replaces an index whose build failed.
DROP INDEX CONCURRENTLY IF EXISTS a2a.context_tasks_context;
CREATE UNIQUE INDEX CONCURRENTLY context_tasks_context ON a2a.context_tasks (tenant, context_id, owner, task_id);
ALTER TABLE a2a.context_tasks
  DROP CONSTRAINT context_tasks_pkey,
  ADD CONSTRAINT context_tasks_pkey PRIMARY KEY USING INDEX context_tasks_context;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS a2a.context_tasks_context;
CREATE UNIQUE INDEX CONCURRENTLY context_tasks_context ON a2a.context_tasks (tenant, owner, context_id, task_id);
ALTER TABLE a2a.context_tasks
  DROP CONSTRAINT context_tasks_pkey,
  ADD CONSTRAINT context_tasks_pkey PRIMARY KEY USING INDEX context_tasks_context;

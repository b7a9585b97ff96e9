-- +goose Up

-- Which process runs the task: a2a.workers.instance. The process holds a presence lock while it is connected, so the
-- others learn that it is gone without waiting for its leases to expire. NULL: nothing but the lease tells, as for remote
-- workers, and for servers of the version before.
ALTER TABLE a2a.task_leases ADD COLUMN holder text;

-- +goose Down
ALTER TABLE a2a.task_leases DROP COLUMN holder;

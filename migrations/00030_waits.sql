-- +goose Up

-- Each time that is waited for has beside it the time at which it was set. A wait that began in the future tells that the
-- clock was set back since: WaitsAnchor begins it anew, so that it is no longer than it was meant to be. The defaults are set
-- in a step of their own, so that no table is rewritten. What was stored before has none, and waits as it did.
ALTER TABLE a2a.task_ready ADD COLUMN made_at timestamptz;
ALTER TABLE a2a.task_ready ALTER COLUMN made_at SET DEFAULT clock_timestamp();
ALTER TABLE a2a.task_leases ADD COLUMN held_at timestamptz; -- when it was taken or renewed; in no index: renewals stay HOT
ALTER TABLE a2a.task_leases ALTER COLUMN held_at SET DEFAULT clock_timestamp();
ALTER TABLE a2a.task_cancels ADD COLUMN set_at timestamptz;
ALTER TABLE a2a.task_cancels ALTER COLUMN set_at SET DEFAULT clock_timestamp();

-- +goose Down
ALTER TABLE a2a.task_cancels DROP COLUMN set_at;
ALTER TABLE a2a.task_leases DROP COLUMN held_at;
ALTER TABLE a2a.task_ready DROP COLUMN made_at;

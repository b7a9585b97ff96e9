-- +goose NO TRANSACTION

-- +goose Up
-- Waits that began in the future, which nearly always is none, are found without reading the others. An index that a
-- broken build left behind is made again.
DROP INDEX CONCURRENTLY IF EXISTS a2a.task_ready_made;
CREATE INDEX CONCURRENTLY task_ready_made ON a2a.task_ready (made_at);
DROP INDEX CONCURRENTLY IF EXISTS a2a.task_cancels_set;
CREATE INDEX CONCURRENTLY task_cancels_set ON a2a.task_cancels (set_at);
DROP INDEX CONCURRENTLY IF EXISTS a2a.push_configs_waits;
-- Of webhooks that are being delivered or have something to deliver. It says so in other words than the statements of
-- deliverers, which would else be planned on it.
CREATE INDEX CONCURRENTLY push_configs_waits ON a2a.push_configs (waits_at)
WHERE coalesce(lease_until, '-infinity') <> '-infinity' OR coalesce(state, '') = 'active' AND head_seq - cursor_seq > 0;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS a2a.push_configs_waits;
DROP INDEX CONCURRENTLY IF EXISTS a2a.task_cancels_set;
DROP INDEX CONCURRENTLY IF EXISTS a2a.task_ready_made;

-- +goose NO TRANSACTION

-- +goose Up
-- What a claim looks at: webhooks with something to deliver that are not parked, over all tenants and by tenant; and
-- those that are, by destination. Servers of the version before use push_configs_due, which the next version removes.
DROP INDEX CONCURRENTLY IF EXISTS a2a.push_configs_ready;
CREATE INDEX CONCURRENTLY push_configs_ready ON a2a.push_configs (next_attempt_at)
WHERE state = 'active' AND deleted_at IS NULL AND cursor_seq < head_seq AND NOT parked;
DROP INDEX CONCURRENTLY IF EXISTS a2a.push_configs_tenant;
CREATE INDEX CONCURRENTLY push_configs_tenant ON a2a.push_configs (tenant, next_attempt_at)
WHERE state = 'active' AND deleted_at IS NULL AND cursor_seq < head_seq AND NOT parked;
DROP INDEX CONCURRENTLY IF EXISTS a2a.push_configs_parked;
CREATE INDEX CONCURRENTLY push_configs_parked ON a2a.push_configs (tenant, origin, next_attempt_at)
WHERE state = 'active' AND deleted_at IS NULL AND cursor_seq < head_seq AND parked;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS a2a.push_configs_parked;
DROP INDEX CONCURRENTLY IF EXISTS a2a.push_configs_tenant;
DROP INDEX CONCURRENTLY IF EXISTS a2a.push_configs_ready;

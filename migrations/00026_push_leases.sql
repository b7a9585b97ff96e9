-- +goose NO TRANSACTION

-- +goose Up
-- A claim of webhooks counts those that are being delivered. By the end of their leases it finds them without the entries
-- of all that was delivered before, which stay as long as somebody holds a snapshot. One that a broken build left behind
-- is made again.
DROP INDEX CONCURRENTLY IF EXISTS a2a.push_configs_lease;
CREATE INDEX CONCURRENTLY push_configs_lease ON a2a.push_configs (lease_until) WHERE lease_until IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS a2a.push_configs_leased;

-- +goose Down
CREATE INDEX CONCURRENTLY IF NOT EXISTS push_configs_leased ON a2a.push_configs (origin) WHERE lease_until IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS a2a.push_configs_lease;

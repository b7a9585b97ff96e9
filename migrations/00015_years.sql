-- +goose NO TRANSACTION
-- +goose Up

-- The oldest servers that this schema still serves, by the newest migration that they have. A
-- migration that takes away what older servers use raises it; they refuse to start then.
CREATE TABLE IF NOT EXISTS a2a.schema_floor (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  version bigint NOT NULL
);
INSERT INTO a2a.schema_floor (version) VALUES (10) ON CONFLICT DO NOTHING;
ALTER TABLE a2a.schema_floor OWNER TO a2a_owner;
ALTER TABLE a2a.schema_floor ENABLE ROW LEVEL SECURITY;
ALTER TABLE a2a.schema_floor FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS server ON a2a.schema_floor;
CREATE POLICY server ON a2a.schema_floor TO a2a_owner, a2a_worker USING (true) WITH CHECK (true);
GRANT SELECT ON a2a.schema_floor TO a2a_worker;

-- Keys without what could be used to sign in.
CREATE OR REPLACE VIEW audit.api_key AS
SELECT k.id, k.tenant, k.owner, k.name, k.scopes, k.agents, k.created_at, k.expires_at, k.revoked_at, k.last_used_at FROM a2a.api_keys k;
ALTER VIEW audit.api_key OWNER TO a2a_owner;
GRANT SELECT ON audit.api_key TO a2a_worker, a2a_audit;

-- A list is always of one agent: without it in the index, the list of an agent whose owner has
-- very many tasks of another walks over all of those.
DROP INDEX CONCURRENTLY IF EXISTS a2a.tasks_list_agent;
CREATE INDEX CONCURRENTLY tasks_list_agent ON a2a.tasks (tenant, owner, agent, status_at DESC, id DESC);
DROP INDEX CONCURRENTLY IF EXISTS a2a.tasks_list;

-- +goose Down
CREATE INDEX CONCURRENTLY IF NOT EXISTS tasks_list ON a2a.tasks (tenant, owner, status_at DESC, id DESC);
DROP INDEX CONCURRENTLY IF EXISTS a2a.tasks_list_agent;
DROP VIEW IF EXISTS audit.api_key;
DROP TABLE IF EXISTS a2a.schema_floor;

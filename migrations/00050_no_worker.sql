-- +goose NO TRANSACTION

-- +goose Up
-- When a remote worker of an agent was last in touch: it asked for tasks or reported on one. An agent of which no worker was
-- seen for a while is unreachable, as long as tasks wait for it.
CREATE TABLE IF NOT EXISTS a2a.agent_workers (
  agent text PRIMARY KEY,
  seen_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
ALTER TABLE a2a.agent_workers OWNER TO a2a_owner;
ALTER TABLE a2a.agent_workers ENABLE ROW LEVEL SECURITY;
ALTER TABLE a2a.agent_workers FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS server ON a2a.agent_workers;
CREATE POLICY server ON a2a.agent_workers TO a2a_owner, a2a_worker USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON a2a.agent_workers TO a2a_worker;

-- The clients of waiting tasks that became ready before this time know that there is no worker.
ALTER TABLE a2a.agent_outages ADD COLUMN IF NOT EXISTS told_until timestamptz NOT NULL DEFAULT '-infinity';

-- Tasks that wait for an unreachable agent are found without reading others that wait for a later time. Other rows of the
-- queue are not in this index, and their inserts do not pay for it. A rerun replaces an index whose build failed.
DROP INDEX CONCURRENTLY IF EXISTS a2a.task_ready_unreachable;
CREATE INDEX CONCURRENTLY task_ready_unreachable ON a2a.task_ready (queue, run_at) WHERE reason = 'agent unreachable';

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS a2a.task_ready_unreachable;
ALTER TABLE a2a.agent_outages DROP COLUMN IF EXISTS told_until;
DROP TABLE IF EXISTS a2a.agent_workers;

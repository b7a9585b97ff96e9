-- +goose Up

-- An agent that cannot be reached costs its tasks no attempt. The attempt is recorded with the outcome unreachable, and since
-- when the agent has been unreachable for this task.
ALTER TABLE a2a.task_attempts ADD COLUMN unreachable_since timestamptz;
-- As 00024_cheap_statistics.sql does for the other columns.
ALTER TABLE a2a.task_attempts ALTER COLUMN unreachable_since SET STATISTICS 10;
ALTER TABLE a2a.task_attempts DROP CONSTRAINT task_attempts_outcome_check;
ALTER TABLE a2a.task_attempts ADD CONSTRAINT task_attempts_outcome_check
  CHECK (outcome IN ('completed', 'failed', 'rejected', 'canceled', 'input', 'retry', 'released', 'expired', 'unreachable')) NOT VALID;

-- The claim of a task that was postponed writes no event: its client was told a moment ago.
ALTER TABLE a2a.task_ready ADD COLUMN quiet boolean NOT NULL DEFAULT false;

-- One row for each agent whose circuit breaker is open in some replica. Its tasks wait meanwhile; all replicas together send
-- one task at a time to find out whether the agent is back.
CREATE TABLE a2a.agent_outages (
  agent text PRIMARY KEY,
  since timestamptz NOT NULL DEFAULT clock_timestamp(),
  reason text NOT NULL,                         -- why the newest connection failed
  replica text NOT NULL,                        -- that made it
  probes int NOT NULL DEFAULT 0,                -- tasks that were sent since, to no avail
  probe_at timestamptz NOT NULL                 -- no replica sends the next one before
);
ALTER TABLE a2a.agent_outages OWNER TO a2a_owner;
ALTER TABLE a2a.agent_outages ENABLE ROW LEVEL SECURITY;
ALTER TABLE a2a.agent_outages FORCE ROW LEVEL SECURITY;
CREATE POLICY server ON a2a.agent_outages TO a2a_owner, a2a_worker USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON a2a.agent_outages TO a2a_worker;

-- +goose Down
DROP TABLE a2a.agent_outages;
ALTER TABLE a2a.task_ready DROP COLUMN quiet;
UPDATE a2a.task_attempts SET outcome = 'retry' WHERE outcome = 'unreachable';
ALTER TABLE a2a.task_attempts DROP CONSTRAINT task_attempts_outcome_check;
ALTER TABLE a2a.task_attempts ADD CONSTRAINT task_attempts_outcome_check
  CHECK (outcome IN ('completed', 'failed', 'rejected', 'canceled', 'input', 'retry', 'released', 'expired')) NOT VALID;
ALTER TABLE a2a.task_attempts DROP COLUMN unreachable_since;

-- +goose Up

-- The last attempt at a task that was parked because its attempts are used up.
ALTER TABLE a2a.task_attempts DROP CONSTRAINT task_attempts_outcome_check;
ALTER TABLE a2a.task_attempts ADD CONSTRAINT task_attempts_outcome_check
  CHECK (outcome IN ('completed', 'failed', 'rejected', 'canceled', 'input', 'retry', 'released', 'expired', 'unreachable',
    'parked')) NOT VALID;

-- One row for each task that is working, has no lease and is not in the queue: an operator decides what becomes of it. A
-- server of an earlier version leaves the row when it cancels the task. Then the task has another epoch, and the row
-- means nothing.
CREATE TABLE a2a.task_parked (
  task_id uuid PRIMARY KEY,
  epoch bigint NOT NULL,                        -- of the task since it was parked
  agent text NOT NULL,
  tenant text NOT NULL,
  since timestamptz NOT NULL,
  until timestamptz NOT NULL,                   -- the task fails after that; infinity: it stays
  reason text NOT NULL,                         -- why the last attempt failed
  attempts int NOT NULL
);
CREATE INDEX task_parked_until ON a2a.task_parked (until) WHERE until < 'infinity';
ALTER TABLE a2a.task_parked OWNER TO a2a_owner;
ALTER TABLE a2a.task_parked ENABLE ROW LEVEL SECURITY;
ALTER TABLE a2a.task_parked FORCE ROW LEVEL SECURITY;
CREATE POLICY server ON a2a.task_parked TO a2a_owner, a2a_worker USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON a2a.task_parked TO a2a_worker;

CREATE VIEW audit.parked AS
SELECT p.task_id, p.epoch AS token, p.tenant, p.agent, p.since, nullif(p.until, 'infinity') AS until, p.reason, p.attempts
FROM a2a.task_parked p;
ALTER VIEW audit.parked OWNER TO a2a_owner;
GRANT SELECT ON audit.parked TO a2a_worker, a2a_audit;

-- +goose Down
DROP VIEW audit.parked;
DROP TABLE a2a.task_parked;
UPDATE a2a.task_attempts SET outcome = 'failed' WHERE outcome = 'parked';
ALTER TABLE a2a.task_attempts DROP CONSTRAINT task_attempts_outcome_check;
ALTER TABLE a2a.task_attempts ADD CONSTRAINT task_attempts_outcome_check
  CHECK (outcome IN ('completed', 'failed', 'rejected', 'canceled', 'input', 'retry', 'released', 'expired', 'unreachable'))
  NOT VALID;

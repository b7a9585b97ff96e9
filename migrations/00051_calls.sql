-- +goose NO TRANSACTION

-- +goose Up

-- A run may call other agents: each call is a step that makes a task, a child of the task of the run. The end of the
-- child ends the step.
ALTER TABLE a2a.tasks ADD COLUMN IF NOT EXISTS parent_id uuid;  -- the task whose run has called this one; null: a client's
ALTER TABLE a2a.tasks ADD COLUMN IF NOT EXISTS parent_step int; -- the step of the call
ALTER TABLE a2a.tasks ADD COLUMN IF NOT EXISTS depth smallint NOT NULL DEFAULT 0; -- how many calls have led to it

ALTER TABLE a2a.task_steps ADD COLUMN IF NOT EXISTS child_id uuid;          -- of a call: the task that it has made
ALTER TABLE a2a.task_steps ADD COLUMN IF NOT EXISTS on_parent_end smallint; -- of a call: 1 cancel the child, 2 abandon it
-- kind: 1 work of the agent, 2 a wait, 3 a call
ALTER TABLE a2a.task_steps DROP CONSTRAINT IF EXISTS task_steps_kind_check;
ALTER TABLE a2a.task_steps ADD CONSTRAINT task_steps_kind_check CHECK (kind IN (1, 2, 3)) NOT VALID;
ALTER TABLE a2a.task_steps DROP CONSTRAINT IF EXISTS task_steps_call_check;
ALTER TABLE a2a.task_steps ADD CONSTRAINT task_steps_call_check
  CHECK (kind <> 3 OR child_id IS NOT NULL AND on_parent_end IN (1, 2)) NOT VALID;
-- A rerun replaces an index whose build failed.
DROP INDEX CONCURRENTLY IF EXISTS a2a.task_steps_calls;
CREATE INDEX CONCURRENTLY task_steps_calls ON a2a.task_steps (task_id, seq) WHERE kind = 3 AND ended_at IS NULL;
-- Keys are compared as bytes: the rules of a language cost more, for each step that is recorded.
DROP INDEX CONCURRENTLY IF EXISTS a2a.task_steps_key;
CREATE UNIQUE INDEX CONCURRENTLY task_steps_key ON a2a.task_steps (task_id, key COLLATE "C");
ALTER TABLE a2a.task_steps DROP CONSTRAINT IF EXISTS task_steps_task_id_key_key;

-- A task may wait for tasks that it has called.
ALTER TABLE a2a.task_waits ADD COLUMN IF NOT EXISTS calls int[];                    -- the steps of these calls
ALTER TABLE a2a.task_waits ADD COLUMN IF NOT EXISTS pending int NOT NULL DEFAULT 0; -- how many of them must still end

-- Children to be canceled, because the task that called them has ended.
CREATE TABLE IF NOT EXISTS a2a.task_orphans (
  task_id uuid PRIMARY KEY,
  parent_id uuid NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

ALTER TABLE a2a.task_orphans OWNER TO a2a_owner;
ALTER TABLE a2a.task_orphans ENABLE ROW LEVEL SECURITY;
ALTER TABLE a2a.task_orphans FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS server ON a2a.task_orphans;
CREATE POLICY server ON a2a.task_orphans TO a2a_owner, a2a_worker USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON a2a.task_orphans TO a2a_worker;

-- What the end of a task does to the children that it has called.
CREATE OR REPLACE FUNCTION a2a.call_cancel() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 1::smallint;
ALTER FUNCTION a2a.call_cancel() OWNER TO a2a_owner;
GRANT EXECUTE ON FUNCTION a2a.call_cancel() TO a2a_app, a2a_worker;
CREATE OR REPLACE FUNCTION a2a.call_abandon() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 2::smallint;
ALTER FUNCTION a2a.call_abandon() OWNER TO a2a_owner;
GRANT EXECUTE ON FUNCTION a2a.call_abandon() TO a2a_app, a2a_worker;
CREATE OR REPLACE FUNCTION a2a.step_call() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 3::smallint;
ALTER FUNCTION a2a.step_call() OWNER TO a2a_owner;
GRANT EXECUTE ON FUNCTION a2a.step_call() TO a2a_app, a2a_worker;

CREATE OR REPLACE VIEW audit.step AS
SELECT s.task_id, s.seq, s.key, CASE s.kind WHEN 1 THEN 'step' WHEN 2 THEN 'wait' ELSE 'call' END AS kind, s.name,
  encode(s.input, 'hex') AS input_sha, s.result, s.error, s.attempts, s.next_at, s.started_at, s.ended_at,
  s.epoch AS token, s.worker, s.recorded_at, s.child_id,
  CASE s.on_parent_end WHEN 1 THEN 'cancel' WHEN 2 THEN 'abandon' END AS on_parent_end
FROM a2a.task_steps s;

CREATE OR REPLACE VIEW audit.wait AS
SELECT w.task_id, w.step, nullif(w.due_at, 'infinity') AS due_at, w.deadline_at, w.on_message, w.on_signal,
  w.calls, w.pending
FROM a2a.task_waits w;

CREATE OR REPLACE VIEW audit.task AS
SELECT t.id, t.tenant, t.owner, t.context_id, audit.state_name(t.state) AS state, t.last_seq,
  l.worker AS lease_worker, coalesce(l.epoch, 0) AS lease_token, l.lease_until,
  t.created_at, t.last_at AS updated_at, t.agent,
  CASE WHEN t.reply = 2 THEN 'message' WHEN t.reply = 1 AND t.state <= 2 THEN 'undecided' ELSE 'task' END AS answer,
  t.first_seq, t.parent_id, t.parent_step
FROM a2a.tasks t
LEFT JOIN a2a.task_leases l ON l.task_id = t.id;

-- +goose Down
DROP VIEW IF EXISTS audit.task;
CREATE VIEW audit.task AS
SELECT t.id, t.tenant, t.owner, t.context_id, audit.state_name(t.state) AS state, t.last_seq,
  l.worker AS lease_worker, coalesce(l.epoch, 0) AS lease_token, l.lease_until,
  t.created_at, t.last_at AS updated_at, t.agent,
  CASE WHEN t.reply = 2 THEN 'message' WHEN t.reply = 1 AND t.state <= 2 THEN 'undecided' ELSE 'task' END AS answer,
  t.first_seq
FROM a2a.tasks t
LEFT JOIN a2a.task_leases l ON l.task_id = t.id;
ALTER VIEW audit.task OWNER TO a2a_owner;
GRANT SELECT ON audit.task TO a2a_worker, a2a_audit;
DROP VIEW IF EXISTS audit.wait;
CREATE VIEW audit.wait AS
SELECT w.task_id, w.step, nullif(w.due_at, 'infinity') AS due_at, w.deadline_at, w.on_message, w.on_signal
FROM a2a.task_waits w;
ALTER VIEW audit.wait OWNER TO a2a_owner;
GRANT SELECT ON audit.wait TO a2a_worker, a2a_audit;
DROP VIEW IF EXISTS audit.step;
-- The version before knows no calls. It shows them as waits that are over.
ALTER TABLE a2a.task_steps DROP CONSTRAINT IF EXISTS task_steps_call_check;
ALTER TABLE a2a.task_steps DROP CONSTRAINT IF EXISTS task_steps_kind_check;
UPDATE a2a.task_steps SET kind = 2, ended_at = coalesce(ended_at, clock_timestamp()) WHERE kind = 3;
ALTER TABLE a2a.task_steps ADD CONSTRAINT task_steps_kind_check CHECK (kind IN (1, 2));
CREATE VIEW audit.step AS
SELECT s.task_id, s.seq, s.key, CASE s.kind WHEN 1 THEN 'step' ELSE 'wait' END AS kind, s.name,
  encode(s.input, 'hex') AS input_sha, s.result, s.error, s.attempts, s.next_at, s.started_at, s.ended_at,
  s.epoch AS token, s.worker, s.recorded_at
FROM a2a.task_steps s;
ALTER VIEW audit.step OWNER TO a2a_owner;
GRANT SELECT ON audit.step TO a2a_worker, a2a_audit;
DROP FUNCTION IF EXISTS a2a.step_call(), a2a.call_abandon(), a2a.call_cancel();
DROP TABLE IF EXISTS a2a.task_orphans;
ALTER TABLE a2a.task_waits DROP COLUMN IF EXISTS pending, DROP COLUMN IF EXISTS calls;
DROP INDEX CONCURRENTLY IF EXISTS a2a.task_steps_calls;
ALTER TABLE a2a.task_steps DROP CONSTRAINT IF EXISTS task_steps_task_id_key_key;
ALTER TABLE a2a.task_steps ADD CONSTRAINT task_steps_task_id_key_key UNIQUE (task_id, key);
DROP INDEX CONCURRENTLY IF EXISTS a2a.task_steps_key;
ALTER TABLE a2a.task_steps DROP COLUMN IF EXISTS on_parent_end, DROP COLUMN IF EXISTS child_id;
ALTER TABLE a2a.tasks DROP COLUMN IF EXISTS depth, DROP COLUMN IF EXISTS parent_step, DROP COLUMN IF EXISTS parent_id;

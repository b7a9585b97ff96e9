-- +goose Up

-- Steps that runs of a task have recorded. A later run gets them, and does not do that work again.
ALTER TABLE a2a.tasks ADD COLUMN steps int NOT NULL DEFAULT 0; -- newest step; steps are 1..steps without a gap
ALTER TABLE a2a.tasks ADD COLUMN step_bytes bigint NOT NULL DEFAULT 0; -- of what they say

CREATE TABLE a2a.task_steps (
  task_id uuid NOT NULL,
  seq int NOT NULL CHECK (seq > 0),
  key text NOT NULL,                            -- chosen by the agent
  kind smallint NOT NULL CHECK (kind IN (1, 2)), -- 1 work of the agent, 2 a wait
  name text NOT NULL DEFAULT '',
  input bytea,                                  -- the agent's digest of what the step was given
  result json,
  error json,
  attempts int NOT NULL DEFAULT 1,
  next_at timestamptz,                          -- when the agent tries a failed step again
  started_at timestamptz,                       -- by the agent's clock
  ended_at timestamptz,                         -- null: it is waited for, or to be tried again
  epoch bigint NOT NULL,                        -- the claim that recorded it, and its worker
  worker text NOT NULL,
  recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (task_id, seq),
  UNIQUE (task_id, key),
  CHECK (result IS NULL OR error IS NULL),
  CHECK (kind <> 1 OR (next_at IS NULL) = (ended_at IS NOT NULL))
) WITH (autovacuum_vacuum_insert_scale_factor = 0.1, toast_tuple_target = 4096);

-- A task that waits without a worker: it has no lease and is not in the queue. One row says what ends the wait. Whatever
-- ends it sets due_at; one loop of each replica puts the tasks that are due into the queue.
CREATE TABLE a2a.task_waits (
  task_id uuid PRIMARY KEY,
  epoch bigint NOT NULL,                        -- lease_epoch of the task while it waits
  step int NOT NULL,                            -- the step that records the wait
  due_at timestamptz NOT NULL,                  -- infinity: only an event ends the wait
  set_at timestamptz DEFAULT clock_timestamp(), -- when due_at was set; null for a time that the agent named
  deadline_at timestamptz,                      -- of the turn; the task fails then
  on_message boolean NOT NULL DEFAULT false,    -- a message of the client ends it
  on_signal text,                               -- the signal that ends it
  expects json,                                 -- what an answer of the client must look like
  result json                                   -- what has ended the wait; null: its time
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_threshold = 1000000000);
CREATE INDEX task_waits_due ON a2a.task_waits (due_at);
CREATE INDEX task_waits_set ON a2a.task_waits (set_at) WHERE set_at IS NOT NULL;
CREATE INDEX task_waits_deadline ON a2a.task_waits (deadline_at) WHERE deadline_at IS NOT NULL;

-- Named values that others have sent to a task.
CREATE TABLE a2a.task_signals (
  task_id uuid NOT NULL,
  seq int NOT NULL CHECK (seq > 0),
  name text NOT NULL,
  key text NOT NULL,                            -- of idempotency
  digest bytea NOT NULL,                        -- SHA-256 of name and value
  value json,
  sender text NOT NULL,                         -- who sent it, as the audit log names it
  received_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  step int,                                     -- the wait that it has ended
  PRIMARY KEY (task_id, seq),
  UNIQUE (task_id, key)
);

-- +goose StatementBegin
DO $$
DECLARE
  t text;
BEGIN
  FOREACH t IN ARRAY ARRAY['task_steps', 'task_waits', 'task_signals'] LOOP
    EXECUTE format('ALTER TABLE a2a.%I OWNER TO a2a_owner', t);
    EXECUTE format('ALTER TABLE a2a.%I ENABLE ROW LEVEL SECURITY', t);
    EXECUTE format('ALTER TABLE a2a.%I FORCE ROW LEVEL SECURITY', t);
    EXECUTE format('CREATE POLICY server ON a2a.%I TO a2a_owner, a2a_worker USING (true) WITH CHECK (true)', t);
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON a2a.%I TO a2a_worker', t);
  END LOOP;
END $$;
-- +goose StatementEnd

-- The kinds of steps, for statements that people read: see 00045_named_numbers.sql.
CREATE FUNCTION a2a.step_work() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 1::smallint;
CREATE FUNCTION a2a.step_wait() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 2::smallint;
-- +goose StatementBegin
DO $$
DECLARE
  f regprocedure;
BEGIN
  FOR f IN
    SELECT p.oid
    FROM pg_proc p
    WHERE p.pronamespace = 'a2a'::regnamespace AND p.proname IN ('step_work', 'step_wait')
  LOOP
    EXECUTE format('ALTER FUNCTION %s OWNER TO a2a_owner', f);
    EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO a2a_app, a2a_worker', f);
  END LOOP;
END $$;
-- +goose StatementEnd

CREATE VIEW audit.step AS
SELECT s.task_id, s.seq, s.key, CASE s.kind WHEN 1 THEN 'step' ELSE 'wait' END AS kind, s.name,
  encode(s.input, 'hex') AS input_sha, s.result, s.error, s.attempts, s.next_at, s.started_at, s.ended_at,
  s.epoch AS token, s.worker, s.recorded_at
FROM a2a.task_steps s;

CREATE VIEW audit.wait AS
SELECT w.task_id, w.step, nullif(w.due_at, 'infinity') AS due_at, w.deadline_at, w.on_message, w.on_signal
FROM a2a.task_waits w;

CREATE VIEW audit.signal AS
SELECT s.task_id, s.seq, s.name, s.key, s.value, s.sender, s.received_at, s.step
FROM a2a.task_signals s;

-- +goose StatementBegin
DO $$
DECLARE
  v text;
BEGIN
  FOREACH v IN ARRAY ARRAY['step', 'wait', 'signal'] LOOP
    EXECUTE format('ALTER VIEW audit.%I OWNER TO a2a_owner', v);
    EXECUTE format('GRANT SELECT ON audit.%I TO a2a_worker, a2a_audit', v);
  END LOOP;
END $$;
-- +goose StatementEnd

ALTER TABLE a2a.task_attempts DROP CONSTRAINT task_attempts_outcome_check;
ALTER TABLE a2a.task_attempts ADD CONSTRAINT task_attempts_outcome_check
  CHECK (outcome IN ('completed', 'failed', 'rejected', 'canceled', 'input', 'retry', 'released', 'expired',
    'unreachable', 'parked', 'waiting')) NOT VALID;

-- +goose Down
DROP VIEW audit.signal, audit.wait, audit.step;
DROP TABLE a2a.task_signals, a2a.task_waits, a2a.task_steps;
DROP FUNCTION a2a.step_wait(), a2a.step_work();
ALTER TABLE a2a.tasks DROP COLUMN step_bytes, DROP COLUMN steps;
UPDATE a2a.task_attempts SET outcome = 'released' WHERE outcome = 'waiting';
ALTER TABLE a2a.task_attempts DROP CONSTRAINT task_attempts_outcome_check;
ALTER TABLE a2a.task_attempts ADD CONSTRAINT task_attempts_outcome_check
  CHECK (outcome IN ('completed', 'failed', 'rejected', 'canceled', 'input', 'retry', 'released', 'expired',
    'unreachable', 'parked')) NOT VALID;

-- +goose Up

-- The schedules of the agent files, one row each: what the file that was loaded last says, and how far the schedule is.
CREATE TABLE a2a.schedules (
  agent text NOT NULL,
  name text NOT NULL,
  cron text NOT NULL,
  timezone text NOT NULL,
  message json NOT NULL,
  tenant text NOT NULL,
  owner text NOT NULL,
  overlap text NOT NULL CHECK (overlap IN ('skip', 'queue', 'allow')),
  catch_up interval NOT NULL,                   -- how late a tick may start its task
  jitter interval NOT NULL,
  paused boolean NOT NULL,                      -- by the file
  loaded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  loaded_by text NOT NULL,                      -- the replica whose file it is
  paused_at timestamptz,                        -- by an operator
  removed_at timestamptz,                       -- the file no longer has the schedule
  next_tick timestamptz,                        -- null while it is paused or removed
  next_at timestamptz,                          -- next_tick and its share of the jitter
  queued_tick timestamptz,                      -- starts when last_task has ended
  last_tick timestamptz,                        -- the newest that started a task
  last_task uuid,
  PRIMARY KEY (agent, name),
  CHECK ((next_tick IS NULL) = (next_at IS NULL)),
  CHECK (next_tick IS NULL OR removed_at IS NULL AND paused_at IS NULL AND NOT paused)
);

-- What became of each tick. The primary key is why no tick starts two tasks.
CREATE TABLE a2a.schedule_ticks (
  agent text NOT NULL,
  name text NOT NULL,
  tick timestamptz NOT NULL,
  outcome text NOT NULL CHECK (outcome IN ('started', 'queued', 'skipped', 'missed')),
  task_id uuid,
  at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (agent, name, tick),
  CHECK ((outcome = 'started') = (task_id IS NOT NULL))
);
CREATE INDEX schedule_ticks_at ON a2a.schedule_ticks (at);

CREATE VIEW audit.schedule AS
SELECT s.agent, s.name, s.cron, s.timezone, s.tenant, s.owner, s.overlap, s.paused, s.paused_at, s.removed_at,
  s.next_tick, s.next_at, s.last_tick, s.last_task, s.loaded_at, s.loaded_by
FROM a2a.schedules s;
CREATE VIEW audit.schedule_tick AS
SELECT t.agent, t.name, t.tick, t.outcome, t.task_id, t.at FROM a2a.schedule_ticks t;

ALTER TABLE a2a.schedules OWNER TO a2a_owner;
ALTER TABLE a2a.schedule_ticks OWNER TO a2a_owner;
ALTER VIEW audit.schedule OWNER TO a2a_owner;
ALTER VIEW audit.schedule_tick OWNER TO a2a_owner;
ALTER TABLE a2a.schedules ENABLE ROW LEVEL SECURITY;
ALTER TABLE a2a.schedules FORCE ROW LEVEL SECURITY;
ALTER TABLE a2a.schedule_ticks ENABLE ROW LEVEL SECURITY;
ALTER TABLE a2a.schedule_ticks FORCE ROW LEVEL SECURITY;
CREATE POLICY server ON a2a.schedules TO a2a_owner, a2a_worker USING (true) WITH CHECK (true);
CREATE POLICY server ON a2a.schedule_ticks TO a2a_owner, a2a_worker USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON a2a.schedules, a2a.schedule_ticks TO a2a_worker;
GRANT SELECT ON audit.schedule, audit.schedule_tick TO a2a_worker, a2a_audit;

-- +goose Down
DROP VIEW audit.schedule_tick;
DROP VIEW audit.schedule;
DROP TABLE a2a.schedule_ticks;
DROP TABLE a2a.schedules;

-- +goose Up

-- 0.1 made the table before anything could write to it.
DROP VIEW audit.delivery;
DROP VIEW audit.push_config;
DROP TABLE a2a.push_configs;

-- A webhook of a task: a durable cursor over its log. What is between cursor and head is to
-- be delivered; whether a config is due is decided by its own row alone. A
-- deleted config stays as a tombstone.
CREATE TABLE a2a.push_configs (
  id uuid PRIMARY KEY,                          -- internal: clients know (task, config_id)
  task_id uuid NOT NULL,
  config_id text NOT NULL,
  tenant text NOT NULL,
  owner text NOT NULL CHECK (owner <> ''),
  agent text NOT NULL,
  url text NOT NULL,
  origin text NOT NULL,                         -- scheme://host:port of url: what the breaker is about
  schemes text[] NOT NULL,
  token bytea,                                  -- sealed
  credentials bytea,                            -- sealed
  wire_version smallint NOT NULL CHECK (wire_version IN (3, 10)), -- generation of its client: 0.3 or 1.0
  state text NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'done', 'dead', 'disabled')),
  reason text,                                  -- why it is dead or disabled
  from_seq bigint NOT NULL,                     -- events behind it are this config's
  cursor_seq bigint NOT NULL,                   -- newest event that is settled
  head_seq bigint NOT NULL,                     -- newest event of the task
  target_seq bigint,                            -- what the next try delivers: the same on every retry; null: not chosen yet
  attempt int NOT NULL DEFAULT 0,               -- failed tries at the target
  next_attempt_at timestamptz NOT NULL DEFAULT 'infinity',
  lease_epoch bigint NOT NULL DEFAULT 0,
  lease_until timestamptz,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  deleted_at timestamptz,
  deleted_after_seq bigint,
  CHECK (from_seq <= cursor_seq AND cursor_seq <= head_seq AND (target_seq > cursor_seq AND target_seq <= head_seq) IS NOT FALSE)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_cost_delay = 0);
CREATE UNIQUE INDEX push_configs_task ON a2a.push_configs (task_id, config_id) WHERE deleted_at IS NULL;
CREATE INDEX push_configs_due ON a2a.push_configs (next_attempt_at) WHERE state = 'active' AND deleted_at IS NULL AND cursor_seq < head_seq;
CREATE INDEX push_configs_leased ON a2a.push_configs (origin) WHERE lease_until IS NOT NULL;

-- Every try, and every event that was settled without one: the ledger. It covers the events
-- behind from_seq up to seq.
CREATE TABLE a2a.push_attempts (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  push_id uuid NOT NULL,
  task_id uuid NOT NULL,
  from_seq bigint NOT NULL,
  seq bigint NOT NULL,
  outcome text NOT NULL CHECK (outcome IN ('delivered', 'failed', 'skipped')),
  attempt int NOT NULL,
  trigger text NOT NULL CHECK (trigger IN ('auto', 'manual')),
  started_at timestamptz NOT NULL,
  duration_ms int NOT NULL DEFAULT 0,
  remote_ip text,
  status int,
  class text,                                   -- of a failure: timeout, dns, server_error …
  reason text,
  answer bytea                                  -- the head of what came back, without our secrets
);
CREATE INDEX push_attempts_config ON a2a.push_attempts (push_id, seq);

-- The breaker of one destination of one tenant.
CREATE TABLE a2a.push_destinations (
  tenant text NOT NULL,
  origin text NOT NULL,
  fails int NOT NULL DEFAULT 0,                 -- in a row
  openings int NOT NULL DEFAULT 0,              -- in a row
  first_failure_at timestamptz,
  open_until timestamptz,
  disabled_at timestamptz,
  PRIMARY KEY (tenant, origin)
);

-- A task without webhooks pays nothing for them: this is read with the row that every
-- append locks anyway.
ALTER TABLE a2a.tasks ADD COLUMN has_push boolean NOT NULL DEFAULT false;

CREATE VIEW audit.push_config AS
SELECT p.config_id AS id, p.task_id, p.from_seq, p.deleted_after_seq, p.tenant, p.owner, p.url, p.state, p.reason,
  p.cursor_seq, p.head_seq, p.created_at, p.deleted_at
FROM a2a.push_configs p;

-- One row per config and event, derived from the cursor and the ledger.
CREATE VIEW audit.delivery AS
SELECT p.config_id, p.task_id, e.seq,
  CASE
    WHEN d.delivered_at IS NOT NULL THEN 'delivered'
    WHEN d.skipped IS NOT NULL THEN 'skipped'
    WHEN p.deleted_at IS NOT NULL THEN 'cancelled'
    WHEN p.state IN ('dead', 'disabled') THEN 'dead'
    ELSE 'pending'
  END AS state,
  coalesce(d.tries, 0)::int AS tries,
  CASE WHEN d.delivered_at IS NOT NULL THEN NULL WHEN d.skipped IS NOT NULL THEN d.skipped
    WHEN p.deleted_at IS NULL AND p.state IN ('dead', 'disabled') THEN coalesce(p.reason, p.state) END AS reason,
  d.delivered_at
FROM a2a.push_configs p
JOIN a2a.task_events e ON e.task_id = p.task_id AND e.seq > p.from_seq AND e.seq <= coalesce(p.deleted_after_seq, e.seq)
LEFT JOIN LATERAL (
  SELECT min(a.started_at + make_interval(secs => a.duration_ms / 1000.0)) FILTER (WHERE a.outcome = 'delivered') AS delivered_at,
    min(a.reason) FILTER (WHERE a.outcome = 'skipped') AS skipped,
    count(*) FILTER (WHERE a.outcome <> 'skipped') AS tries
  FROM a2a.push_attempts a
  WHERE a.push_id = p.id AND a.from_seq < e.seq AND a.seq >= e.seq
) d ON true;

-- +goose Down
DROP VIEW audit.delivery;
DROP VIEW audit.push_config;
ALTER TABLE a2a.tasks DROP COLUMN has_push;
DROP TABLE a2a.push_destinations;
DROP TABLE a2a.push_attempts;
DROP TABLE a2a.push_configs;
CREATE TABLE a2a.push_configs (
  id uuid PRIMARY KEY,
  task_id uuid NOT NULL,
  config_id text NOT NULL DEFAULT 'default',
  tenant text NOT NULL,
  owner text NOT NULL CHECK (owner <> ''),
  from_seq bigint NOT NULL,
  cursor_seq bigint NOT NULL,
  head_seq bigint NOT NULL,
  deleted_at timestamptz,
  deleted_after_seq bigint,
  CHECK (cursor_seq <= head_seq)
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX push_configs_task ON a2a.push_configs (task_id, config_id) WHERE deleted_at IS NULL;
CREATE VIEW audit.push_config AS
SELECT p.config_id AS id, p.task_id, p.from_seq, p.deleted_after_seq
FROM a2a.push_configs p;
CREATE VIEW audit.delivery AS
SELECT p.config_id, p.task_id, e.seq, 'pending'::text AS state, 0 AS tries, NULL::text AS reason, NULL::timestamptz AS delivered_at
FROM a2a.push_configs p
JOIN a2a.task_events e ON e.task_id = p.task_id AND e.seq > p.from_seq AND e.seq <= coalesce(p.deleted_after_seq, e.seq);

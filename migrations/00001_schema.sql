-- +goose Up

CREATE SCHEMA a2a;

-- One row per task: what is true of it now. Every append updates the row, so nothing that
-- moves with every event is indexed (last_seq, last_at …): such updates stay HOT.
CREATE TABLE a2a.tasks (
  id uuid PRIMARY KEY,                          -- UUIDv7, made by the server
  tenant text NOT NULL,
  owner text NOT NULL CHECK (owner <> ''),
  agent text NOT NULL,
  context_id text NOT NULL,
  state smallint NOT NULL CHECK (state BETWEEN 1 AND 4 OR state BETWEEN 100 AND 103),
  status_at timestamptz NOT NULL,               -- when the state was set; whole milliseconds
  status_message_seq bigint,                    -- the row of a2a.messages that is the message of the status
  last_seq bigint NOT NULL,                     -- newest event; events are 1..last_seq without a gap
  last_at timestamptz NOT NULL,                 -- its time; never runs backwards
  last_message_seq bigint NOT NULL,             -- newest message
  last_user_seq bigint NOT NULL,                -- newest message of the client
  read_user_seq bigint NOT NULL DEFAULT 0,      -- newest message of the client that a finished turn has read
  lease_epoch bigint NOT NULL DEFAULT 0,        -- the fence: only grows
  attempt int NOT NULL DEFAULT 0,               -- the retry budget: given back at shutdown, reset by a finished turn
  priority smallint NOT NULL DEFAULT 0,
  ready_at timestamptz,                         -- run_at of its row in a2a.task_ready, null without one
  has_artifacts boolean NOT NULL DEFAULT false,
  folded boolean NOT NULL DEFAULT false,        -- they are in a2a.artifacts; else they are in the log
  bytes bigint NOT NULL DEFAULT 0,              -- stored payload, for the limit per task
  metadata json,
  created_at timestamptz NOT NULL,
  deadline_at timestamptz,                      -- of the turn that is being worked on
  CHECK (NOT folded OR has_artifacts AND state >= 100),
  CHECK (read_user_seq <= last_user_seq AND last_user_seq <= last_message_seq)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX tasks_list ON a2a.tasks (tenant, owner, status_at DESC, id DESC);
CREATE INDEX tasks_context ON a2a.tasks (tenant, owner, context_id, id);

-- The log that streams, resumed streams, blocking sends, webhooks and auditors read.
CREATE TABLE a2a.task_events (
  task_id uuid NOT NULL,
  seq bigint NOT NULL CHECK (seq > 0),
  event_uid uuid NOT NULL,                      -- random: its first eight digits are part of the SSE id
  kind smallint NOT NULL CHECK (kind BETWEEN 1 AND 4), -- 1 status, 2 artifact, 3 artifact with append=true, 4 message
  state smallint CHECK ((kind = 1) = (state IS NOT NULL)),
  source smallint NOT NULL CHECK (source BETWEEN 1 AND 3), -- 1 worker, 2 a caller, 3 the server itself
  epoch bigint NOT NULL DEFAULT 0,              -- the claim that wrote it, and its worker; 0 and null unless source = 1
  worker text CHECK ((source = 1) = (worker IS NOT NULL)),
  committed_at timestamptz NOT NULL,
  xid xid8 NOT NULL DEFAULT pg_current_xact_id(), -- order of commits over all tasks, for exports
  artifact_id text CHECK ((kind IN (2, 3)) = (artifact_id IS NOT NULL)),
  body json NOT NULL,
  parts json,                                   -- of an artifact
  PRIMARY KEY (task_id, seq)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.1, toast_tuple_target = 4096);
CREATE UNIQUE INDEX task_events_terminal ON a2a.task_events (task_id) WHERE state >= 100;

-- What waits for a worker. Insert and delete only: an index entry is never updated.
CREATE TABLE a2a.task_ready (
  queue text NOT NULL,                          -- the agent
  priority smallint NOT NULL,
  run_at timestamptz NOT NULL,
  task_id uuid NOT NULL,
  tenant text NOT NULL,
  reason text,                                  -- why it waits again; null the first time
  PRIMARY KEY (queue, priority, run_at, task_id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_threshold = 1000000000);

-- One row per running task. No second index: renewals must stay HOT.
CREATE TABLE a2a.task_leases (
  task_id uuid PRIMARY KEY,
  epoch bigint NOT NULL,
  worker text NOT NULL,
  lease_until timestamptz NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_threshold = 1000000000);

-- Every claim, for ever: the record of executions.
CREATE TABLE a2a.task_attempts (
  task_id uuid NOT NULL,
  epoch bigint NOT NULL,
  attempt int NOT NULL,
  worker text NOT NULL,
  claimed_at timestamptz NOT NULL,
  ended_at timestamptz,
  outcome text CHECK (outcome IN ('completed', 'failed', 'rejected', 'canceled', 'input', 'retry', 'released', 'expired')),
  error text,
  PRIMARY KEY (task_id, epoch),
  CHECK ((ended_at IS NULL) = (outcome IS NULL))
) WITH (fillfactor = 80);

-- History in its own order: the client's messages and those of the agent's statuses.
CREATE TABLE a2a.messages (
  task_id uuid NOT NULL,
  seq bigint NOT NULL,
  at_seq bigint NOT NULL,                       -- first event whose snapshot shows it: its own, else the next one
  message_id text NOT NULL,
  role smallint NOT NULL CHECK (role IN (1, 2)), -- 1 user, 2 agent
  body json NOT NULL,
  digest bytea,                                 -- SHA-256 of the request; client messages only
  idem_key text,                                -- its Idempotency-Key
  dedupe_mid boolean NOT NULL DEFAULT false,    -- the agent ran with dedupe: message_id
  PRIMARY KEY (task_id, seq)
);

-- The artifacts of finished tasks with a long log, folded from their events; those of others are in the log.
CREATE TABLE a2a.artifacts (
  task_id uuid NOT NULL,
  artifact_id text NOT NULL,
  position bigint NOT NULL,                     -- seq of its first event: the order of artifacts
  last_seq bigint NOT NULL,
  header json NOT NULL,
  PRIMARY KEY (task_id, artifact_id)
);
CREATE TABLE a2a.artifact_parts (
  task_id uuid NOT NULL,
  artifact_id text NOT NULL,
  seq bigint NOT NULL,
  idx bigint NOT NULL,
  part json NOT NULL,
  PRIMARY KEY (task_id, artifact_id, seq, idx)
);

CREATE TABLE a2a.task_checkpoints (
  task_id uuid PRIMARY KEY,
  epoch bigint NOT NULL,
  body json NOT NULL
) WITH (fillfactor = 50);

-- Lives as long as its task. key has a prefix: h: from the header, m: a message id.
CREATE TABLE a2a.idempotency_keys (
  tenant text NOT NULL,
  owner text NOT NULL,
  key text NOT NULL,
  digest bytea NOT NULL,
  task_id uuid NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (tenant, owner, key)
);

-- A webhook of a task: a durable cursor over its log. A deleted one stays as a tombstone.
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

CREATE TABLE a2a.api_keys (
  id text PRIMARY KEY,
  secret_sha256 bytea NOT NULL CHECK (length(secret_sha256) = 32),
  tenant text NOT NULL CHECK (tenant <> ''),
  owner text NOT NULL CHECK (owner <> ''),
  name text NOT NULL DEFAULT '',                -- what people call it
  scopes text[] NOT NULL,
  agents text[],                                -- null: all
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  expires_at timestamptz,
  revoked_at timestamptz,
  last_used_at timestamptz                      -- to the minute or so
);

-- Keys that replicas must share, made once by whichever comes first.
CREATE TABLE a2a.server_keys (
  name text PRIMARY KEY,
  key bytea NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- +goose Down
DROP SCHEMA a2a CASCADE;

-- +goose Up

-- The usage of models that runs have reported, summed by task and model. It stays when the log of the task is removed.
CREATE TABLE a2a.task_usage (
  task_id uuid NOT NULL,
  model text COLLATE "C" NOT NULL,              -- as the agent names it; empty: it named none
  input_tokens bigint NOT NULL,
  output_tokens bigint NOT NULL,
  cached_input_tokens bigint NOT NULL,          -- of the input tokens
  reasoning_tokens bigint NOT NULL,             -- of the output tokens
  requests bigint NOT NULL,
  PRIMARY KEY (task_id, model)
) WITH (fillfactor = 80);

-- The same by day, in UTC, without the tasks, so that it survives them. A run adds a row to usage_pending: if it added to
-- a sum, all runs of an owner would wait for each other. A loop moves these rows into usage_days, so that there are few.
CREATE TABLE a2a.usage_pending (
  day date NOT NULL,
  tenant text NOT NULL,
  owner text NOT NULL,
  agent text NOT NULL,
  model text NOT NULL,
  input_tokens bigint NOT NULL,
  output_tokens bigint NOT NULL,
  cached_input_tokens bigint NOT NULL,
  reasoning_tokens bigint NOT NULL,
  requests bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE a2a.usage_days (
  day date NOT NULL,
  tenant text COLLATE "C" NOT NULL,
  owner text COLLATE "C" NOT NULL,
  agent text COLLATE "C" NOT NULL,
  model text COLLATE "C" NOT NULL,
  input_tokens bigint NOT NULL,
  output_tokens bigint NOT NULL,
  cached_input_tokens bigint NOT NULL,
  reasoning_tokens bigint NOT NULL,
  requests bigint NOT NULL,
  PRIMARY KEY (day, tenant, owner, agent, model)
) WITH (fillfactor = 80);

-- +goose StatementBegin
DO $$
DECLARE
  t text;
BEGIN
  FOREACH t IN ARRAY ARRAY['task_usage', 'usage_pending', 'usage_days'] LOOP
    EXECUTE format('ALTER TABLE a2a.%I OWNER TO a2a_owner', t);
    EXECUTE format('ALTER TABLE a2a.%I ENABLE ROW LEVEL SECURITY', t);
    EXECUTE format('ALTER TABLE a2a.%I FORCE ROW LEVEL SECURITY', t);
    EXECUTE format('CREATE POLICY server ON a2a.%I TO a2a_owner, a2a_worker USING (true) WITH CHECK (true)', t);
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON a2a.%I TO a2a_worker', t);
  END LOOP;
END $$;
-- +goose StatementEnd

-- A server of the version before removes a task without its usage. The join hides what is left of it.
CREATE VIEW audit.usage AS
SELECT u.task_id, u.model, u.input_tokens, u.output_tokens, u.cached_input_tokens, u.reasoning_tokens, u.requests
FROM a2a.task_usage u
JOIN a2a.tasks t ON t.id = u.task_id;

CREATE VIEW audit.usage_day AS
SELECT u.day, u.tenant, u.owner, u.agent, u.model, sum(u.input_tokens)::bigint AS input_tokens,
  sum(u.output_tokens)::bigint AS output_tokens, sum(u.cached_input_tokens)::bigint AS cached_input_tokens,
  sum(u.reasoning_tokens)::bigint AS reasoning_tokens, sum(u.requests)::bigint AS requests
FROM (
  SELECT d.day, d.tenant, d.owner, d.agent, d.model, d.input_tokens, d.output_tokens, d.cached_input_tokens,
    d.reasoning_tokens, d.requests
  FROM a2a.usage_days d
  UNION ALL
  SELECT p.day, p.tenant, p.owner, p.agent, p.model, p.input_tokens, p.output_tokens, p.cached_input_tokens,
    p.reasoning_tokens, p.requests
  FROM a2a.usage_pending p
) u
GROUP BY u.day, u.tenant, u.owner, u.agent, u.model;

ALTER VIEW audit.usage OWNER TO a2a_owner;
ALTER VIEW audit.usage_day OWNER TO a2a_owner;
GRANT SELECT ON audit.usage, audit.usage_day TO a2a_worker, a2a_audit;

-- +goose Down
DROP VIEW audit.usage_day, audit.usage;
DROP TABLE a2a.usage_days, a2a.usage_pending, a2a.task_usage;

-- +goose Up

-- Who did what beside tasks' own events: sign-ins that failed, keys, cancels, whatever an
-- operator does. Append only, for the server too: it may add and read, and nothing else.
CREATE TABLE a2a.audit_log (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at timestamptz NOT NULL DEFAULT clock_timestamp(),
  actor text NOT NULL CHECK (actor <> ''),      -- "key <id>", "operator <user>@<host>", "replica <name>", "address <ip>"
  action text NOT NULL CHECK (action <> ''),    -- docs/reference/audit.md lists them
  tenant text NOT NULL DEFAULT '',              -- whose object it was about, as far as it had one
  owner text NOT NULL DEFAULT '',
  task_id uuid,
  detail json NOT NULL DEFAULT '{}'
);
CREATE INDEX audit_log_at ON a2a.audit_log (at);
CREATE INDEX audit_log_task ON a2a.audit_log (task_id) WHERE task_id IS NOT NULL;

CREATE VIEW audit.action AS
SELECT l.id, l.at, l.actor, l.action, l.tenant, l.owner, l.task_id, l.detail FROM a2a.audit_log l;

ALTER TABLE a2a.audit_log OWNER TO a2a_owner;
ALTER VIEW audit.action OWNER TO a2a_owner;
ALTER TABLE a2a.audit_log ENABLE ROW LEVEL SECURITY;
ALTER TABLE a2a.audit_log FORCE ROW LEVEL SECURITY;
CREATE POLICY server ON a2a.audit_log TO a2a_owner, a2a_worker USING (true) WITH CHECK (true);
GRANT SELECT, INSERT ON a2a.audit_log TO a2a_worker;
GRANT SELECT ON audit.action TO a2a_worker, a2a_audit;

-- +goose Down
DROP VIEW audit.action;
DROP TABLE a2a.audit_log;

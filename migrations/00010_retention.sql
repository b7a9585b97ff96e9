-- +goose Up

-- Where the log of a task begins: behind 1 once the events of a task that ended long ago were removed.
ALTER TABLE a2a.tasks ADD COLUMN first_seq bigint NOT NULL DEFAULT 1;

CREATE OR REPLACE VIEW audit.task AS
SELECT t.id, t.tenant, t.owner, t.context_id, audit.state_name(t.state) AS state, t.last_seq,
  l.worker AS lease_worker, coalesce(l.epoch, 0) AS lease_token, l.lease_until,
  t.created_at, t.last_at AS updated_at, t.agent,
  CASE WHEN t.reply = 2 THEN 'message' WHEN t.reply = 1 AND t.state <= 2 THEN 'undecided' ELSE 'task' END AS answer,
  t.first_seq
FROM a2a.tasks t
LEFT JOIN a2a.task_leases l ON l.task_id = t.id;

-- +goose Down
DROP VIEW audit.task;
CREATE VIEW audit.task AS
SELECT t.id, t.tenant, t.owner, t.context_id, audit.state_name(t.state) AS state, t.last_seq,
  l.worker AS lease_worker, coalesce(l.epoch, 0) AS lease_token, l.lease_until,
  t.created_at, t.last_at AS updated_at, t.agent,
  CASE WHEN t.reply = 2 THEN 'message' WHEN t.reply = 1 AND t.state <= 2 THEN 'undecided' ELSE 'task' END AS answer
FROM a2a.tasks t
LEFT JOIN a2a.task_leases l ON l.task_id = t.id;
ALTER VIEW audit.task OWNER TO a2a_owner;
GRANT SELECT ON audit.task TO a2a_worker, a2a_audit;
ALTER TABLE a2a.tasks DROP COLUMN first_seq;

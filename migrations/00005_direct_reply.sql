-- +goose Up

-- An agent with direct_reply may answer with a message in place of a task. What is not
-- decided yet, or was answered so, is no task to clients.
ALTER TABLE a2a.tasks ADD COLUMN reply smallint NOT NULL DEFAULT 0; -- 0 a task; 1 may still be a message, while state <= 2; 2 the message of its status is the answer
ALTER TABLE a2a.tasks ADD CONSTRAINT tasks_reply CHECK (reply BETWEEN 0 AND 1 OR reply = 2 AND state = 100 AND status_message_seq IS NOT NULL) NOT VALID;

CREATE OR REPLACE VIEW audit.task AS
SELECT t.id, t.tenant, t.owner, t.context_id, audit.state_name(t.state) AS state, t.last_seq,
  l.worker AS lease_worker, coalesce(l.epoch, 0) AS lease_token, l.lease_until,
  t.created_at, t.last_at AS updated_at, t.agent,
  CASE WHEN t.reply = 2 THEN 'message' WHEN t.reply = 1 AND t.state <= 2 THEN 'undecided' ELSE 'task' END AS answer
FROM a2a.tasks t
LEFT JOIN a2a.task_leases l ON l.task_id = t.id;

-- +goose Down
DROP VIEW audit.task;
CREATE VIEW audit.task AS
SELECT t.id, t.tenant, t.owner, t.context_id, audit.state_name(t.state) AS state, t.last_seq,
  l.worker AS lease_worker, coalesce(l.epoch, 0) AS lease_token, l.lease_until,
  t.created_at, t.last_at AS updated_at, t.agent
FROM a2a.tasks t
LEFT JOIN a2a.task_leases l ON l.task_id = t.id;
ALTER TABLE a2a.tasks DROP COLUMN reply;

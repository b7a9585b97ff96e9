-- +goose Up

-- Schema audit is the published contract for auditors and checkers: its columns keep
-- their names and meanings whatever becomes of the tables behind them.
CREATE SCHEMA audit;

CREATE FUNCTION audit.state_name(state smallint) RETURNS text
  LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN CASE state
    WHEN 1 THEN 'SUBMITTED' WHEN 2 THEN 'WORKING' WHEN 3 THEN 'INPUT_REQUIRED' WHEN 4 THEN 'AUTH_REQUIRED'
    WHEN 100 THEN 'COMPLETED' WHEN 101 THEN 'FAILED' WHEN 102 THEN 'CANCELED' WHEN 103 THEN 'REJECTED' END;

CREATE VIEW audit.task AS
SELECT t.id, t.tenant, t.owner, t.context_id, audit.state_name(t.state) AS state, t.last_seq,
  l.worker AS lease_worker, coalesce(l.epoch, 0) AS lease_token, l.lease_until,
  t.created_at, t.last_at AS updated_at, t.agent
FROM a2a.tasks t
LEFT JOIN a2a.task_leases l ON l.task_id = t.id;

CREATE VIEW audit.event AS
SELECT e.task_id, e.seq, e.event_uid,
  CASE WHEN e.kind = 1 THEN 'status' WHEN e.kind = 4 THEN 'message' ELSE 'artifact' END AS kind,
  audit.state_name(e.state) AS state, e.epoch AS token, e.worker,
  CASE e.source WHEN 1 THEN 'worker' WHEN 2 THEN 'api' ELSE 'system' END AS source,
  encode(sha256(convert_to(e.body::text || coalesce(e.parts::text, ''), 'UTF8')), 'hex') AS payload_sha,
  e.committed_at
FROM a2a.task_events e;

CREATE VIEW audit.attempt AS
SELECT a.task_id, a.epoch AS token, a.worker, a.claimed_at, a.ended_at, a.outcome, a.attempt, a.error
FROM a2a.task_attempts a;

CREATE VIEW audit.message AS
SELECT t.tenant, t.owner, m.message_id, m.task_id, encode(m.digest, 'hex') AS digest, m.idem_key, m.dedupe_mid
FROM a2a.messages m
JOIN a2a.tasks t ON t.id = m.task_id
WHERE m.role = 1;

CREATE VIEW audit.push_config AS
SELECT p.config_id AS id, p.task_id, p.from_seq, p.deleted_after_seq
FROM a2a.push_configs p;

-- No webhook is delivered yet, so nothing is settled.
CREATE VIEW audit.delivery AS
SELECT p.config_id, p.task_id, e.seq, 'pending'::text AS state, 0 AS tries, NULL::text AS reason, NULL::timestamptz AS delivered_at
FROM a2a.push_configs p
JOIN a2a.task_events e ON e.task_id = p.task_id AND e.seq > p.from_seq AND e.seq <= coalesce(p.deleted_after_seq, e.seq);

-- +goose Down
DROP SCHEMA audit CASCADE;

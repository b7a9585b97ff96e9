-- +goose Up

-- The trace of the request that brought the task's newest message, if it had one.
ALTER TABLE a2a.tasks ADD COLUMN traceparent text;

-- Up to it, what is delivered is delivered again because an operator asked for it.
ALTER TABLE a2a.push_configs ADD COLUMN replay_seq bigint NOT NULL DEFAULT 0;

-- What the sweep looks for: it must not read what stays.
CREATE INDEX push_configs_deleted ON a2a.push_configs (deleted_at) WHERE deleted_at IS NOT NULL;
CREATE INDEX push_attempts_detail ON a2a.push_attempts (started_at) WHERE outcome = 'failed' OR answer IS NOT NULL;

CREATE OR REPLACE VIEW audit.delivery AS
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
  d.delivered_at,
  coalesce(d.manual_tries, 0)::int AS manual_tries
FROM a2a.push_configs p
JOIN a2a.task_events e ON e.task_id = p.task_id AND e.seq > p.from_seq AND e.seq <= coalesce(p.deleted_after_seq, e.seq)
LEFT JOIN LATERAL (
  SELECT min(a.started_at + make_interval(secs => a.duration_ms / 1000.0)) FILTER (WHERE a.outcome = 'delivered') AS delivered_at,
    min(a.reason) FILTER (WHERE a.outcome = 'skipped') AS skipped,
    count(*) FILTER (WHERE a.outcome <> 'skipped') AS tries,
    count(*) FILTER (WHERE a.outcome <> 'skipped' AND a.trigger = 'manual') AS manual_tries
  FROM a2a.push_attempts a
  WHERE a.push_id = p.id AND a.from_seq < e.seq AND a.seq >= e.seq
) d ON true;

-- +goose Down
DROP VIEW audit.delivery;
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
DROP INDEX a2a.push_attempts_detail;
DROP INDEX a2a.push_configs_deleted;
ALTER TABLE a2a.push_configs DROP COLUMN replay_seq;
ALTER TABLE a2a.tasks DROP COLUMN traceparent;

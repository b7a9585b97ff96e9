-- +goose Up

-- A run may record that a step begins whose output goes to an artifact while the step runs. If it begins again, the
-- artifact is set back to what it was.
ALTER TABLE a2a.task_steps ADD COLUMN artifact_id text;      -- the artifact that the step writes
ALTER TABLE a2a.task_steps ADD COLUMN artifact_after bigint; -- the newest event of the task when the step began first
ALTER TABLE a2a.task_steps DROP CONSTRAINT task_steps_check1;
ALTER TABLE a2a.task_steps ADD CONSTRAINT task_steps_open_check CHECK (kind <> 1 OR
  (ended_at IS NULL) = (next_at IS NOT NULL OR artifact_id IS NOT NULL AND result IS NULL AND error IS NULL)) NOT VALID;
ALTER TABLE a2a.task_steps ADD CONSTRAINT task_steps_artifact_check
  CHECK (artifact_id IS NULL OR kind = 1 AND artifact_after IS NOT NULL) NOT VALID;

CREATE OR REPLACE VIEW audit.step AS
SELECT s.task_id, s.seq, s.key, CASE s.kind WHEN 1 THEN 'step' WHEN 2 THEN 'wait' ELSE 'call' END AS kind, s.name,
  encode(s.input, 'hex') AS input_sha, s.result, s.error, s.attempts, s.next_at, s.started_at, s.ended_at,
  s.epoch AS token, s.worker, s.recorded_at, s.child_id,
  CASE s.on_parent_end WHEN 1 THEN 'cancel' WHEN 2 THEN 'abandon' END AS on_parent_end, s.artifact_id, s.artifact_after
FROM a2a.task_steps s;

-- +goose Down
DROP VIEW audit.step;
CREATE VIEW audit.step AS
SELECT s.task_id, s.seq, s.key, CASE s.kind WHEN 1 THEN 'step' WHEN 2 THEN 'wait' ELSE 'call' END AS kind, s.name,
  encode(s.input, 'hex') AS input_sha, s.result, s.error, s.attempts, s.next_at, s.started_at, s.ended_at,
  s.epoch AS token, s.worker, s.recorded_at, s.child_id,
  CASE s.on_parent_end WHEN 1 THEN 'cancel' WHEN 2 THEN 'abandon' END AS on_parent_end
FROM a2a.task_steps s;
ALTER VIEW audit.step OWNER TO a2a_owner;
GRANT SELECT ON audit.step TO a2a_worker, a2a_audit;
ALTER TABLE a2a.task_steps DROP CONSTRAINT task_steps_artifact_check;
ALTER TABLE a2a.task_steps DROP CONSTRAINT task_steps_open_check;
-- The version before knows no step that has only begun. It shows it as one that failed and is to be tried again.
UPDATE a2a.task_steps SET next_at = clock_timestamp() WHERE kind = 1 AND ended_at IS NULL AND next_at IS NULL;
ALTER TABLE a2a.task_steps ADD CONSTRAINT task_steps_check1
  CHECK (kind <> 1 OR (next_at IS NULL) = (ended_at IS NOT NULL)) NOT VALID;
ALTER TABLE a2a.task_steps DROP COLUMN artifact_after, DROP COLUMN artifact_id;

-- +goose NO TRANSACTION

-- +goose Up
-- What belongs to a task is seen by whoever sees the task. PostgreSQL could answer the old condition from a hash of all
-- tasks, which cost every read more, the more tasks there were. Now the tasks that a transaction names are checked once
-- for each statement. Rows of tasks that it does not name are checked one by one: OFFSET 0 rules the hash out.
-- A server of the version before names none.
ALTER POLICY caller ON a2a.messages USING (
  task_id = ANY (ARRAY(SELECT t.id FROM a2a.tasks t WHERE t.id = ANY (nullif(current_setting('a2a.tasks', true), '')::uuid[])))
  OR EXISTS (SELECT FROM a2a.tasks t WHERE t.id = task_id OFFSET 0));
ALTER POLICY caller ON a2a.task_events USING (
  task_id = ANY (ARRAY(SELECT t.id FROM a2a.tasks t WHERE t.id = ANY (nullif(current_setting('a2a.tasks', true), '')::uuid[])))
  OR EXISTS (SELECT FROM a2a.tasks t WHERE t.id = task_id OFFSET 0));
ALTER POLICY caller ON a2a.artifacts USING (
  task_id = ANY (ARRAY(SELECT t.id FROM a2a.tasks t WHERE t.id = ANY (nullif(current_setting('a2a.tasks', true), '')::uuid[])))
  OR EXISTS (SELECT FROM a2a.tasks t WHERE t.id = task_id OFFSET 0));
ALTER POLICY caller ON a2a.artifact_parts USING (
  task_id = ANY (ARRAY(SELECT t.id FROM a2a.tasks t WHERE t.id = ANY (nullif(current_setting('a2a.tasks', true), '')::uuid[])))
  OR EXISTS (SELECT FROM a2a.tasks t WHERE t.id = task_id OFFSET 0));

-- +goose Down
ALTER POLICY caller ON a2a.messages USING (EXISTS (SELECT FROM a2a.tasks t WHERE t.id = task_id));
ALTER POLICY caller ON a2a.task_events USING (EXISTS (SELECT FROM a2a.tasks t WHERE t.id = task_id));
ALTER POLICY caller ON a2a.artifacts USING (EXISTS (SELECT FROM a2a.tasks t WHERE t.id = task_id));
ALTER POLICY caller ON a2a.artifact_parts USING (EXISTS (SELECT FROM a2a.tasks t WHERE t.id = task_id));

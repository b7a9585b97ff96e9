-- +goose Up

-- Which person is to answer the question of a task. A row is about the question that the task asked at asked_at, which
-- is tasks.status_at: an answer changes that, and so ends the assignment without a write.
CREATE TABLE a2a.task_assignments (
  task_id uuid PRIMARY KEY,
  asked_at timestamptz NOT NULL,
  assignee text NOT NULL CHECK (assignee <> '' AND char_length(assignee) <= 100),
  assigned_by text NOT NULL,
  assigned_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
ALTER TABLE a2a.task_assignments OWNER TO a2a_owner;
ALTER TABLE a2a.task_assignments ENABLE ROW LEVEL SECURITY;
ALTER TABLE a2a.task_assignments FORCE ROW LEVEL SECURITY;
CREATE POLICY server ON a2a.task_assignments TO a2a_owner, a2a_worker USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON a2a.task_assignments TO a2a_worker;

-- +goose Down
DROP TABLE a2a.task_assignments;

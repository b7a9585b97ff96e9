-- +goose Up

-- Cancels that an agent elsewhere has yet to hear of: of tasks whose work goes on there and which no
-- run was there to tell, or one whose worker may be dead. The checkpoint says where the work is.
CREATE TABLE a2a.task_cancels (
  task_id uuid PRIMARY KEY,
  queue text NOT NULL,                          -- the agent
  tenant text NOT NULL,
  owner text NOT NULL,
  traceparent text NOT NULL,
  checkpoint json NOT NULL,
  body json NOT NULL,                           -- of the event that canceled the task
  tries int NOT NULL DEFAULT 0,
  made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  due_at timestamptz NOT NULL                   -- moved ahead by whoever tries, for as long as that may take
);
CREATE INDEX task_cancels_due ON a2a.task_cancels (queue, due_at);

ALTER TABLE a2a.task_cancels OWNER TO a2a_owner;
ALTER TABLE a2a.task_cancels ENABLE ROW LEVEL SECURITY;
ALTER TABLE a2a.task_cancels FORCE ROW LEVEL SECURITY;
CREATE POLICY server ON a2a.task_cancels TO a2a_owner, a2a_worker USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON a2a.task_cancels TO a2a_worker;

-- +goose Down
DROP TABLE a2a.task_cancels;

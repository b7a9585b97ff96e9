-- +goose Up

-- Bulk jobs: one action of an operator on all tasks that filters select. A server claims a job under a lease. The
-- epoch fences what it writes. A job first collects its tasks in job_tasks, the newest task as number 1, and then acts
-- on them from the highest number down to 1. remaining is the number of the next task.
CREATE TABLE a2a.jobs (
  id uuid PRIMARY KEY,
  action text NOT NULL CHECK (action IN ('cancel', 'retry', 'resume')),
  filter json NOT NULL,
  webhooks boolean NOT NULL, -- a retry copies the webhooks
  actor text NOT NULL,
  reason text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  state text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'done', 'stopped', 'failed')),
  ended_at timestamptz,
  error text NOT NULL DEFAULT '', -- why it failed
  worker text NOT NULL DEFAULT '', -- that holds the lease, or held it last
  epoch bigint NOT NULL DEFAULT 0,
  lease_until timestamptz,
  claimed_at timestamptz,
  collected boolean NOT NULL DEFAULT false, -- all its tasks are in job_tasks
  collected_at timestamptz, -- the time of creation and the id of the task that was collected last
  collected_id uuid,
  matched int NOT NULL DEFAULT 0,
  remaining int NOT NULL DEFAULT 0,
  done int NOT NULL DEFAULT 0,
  skipped int NOT NULL DEFAULT 0,
  failed int NOT NULL DEFAULT 0,
  CHECK (matched = remaining + done + skipped + failed),
  CHECK ((state = 'running') = (ended_at IS NULL))
) WITH (fillfactor = 50); -- a row changes with every task
CREATE INDEX jobs_running ON a2a.jobs (id) WHERE state = 'running';
CREATE INDEX jobs_ended ON a2a.jobs (ended_at);

CREATE TABLE a2a.job_tasks (
  job_id uuid NOT NULL REFERENCES a2a.jobs (id) ON DELETE CASCADE,
  n int NOT NULL,
  task_id uuid NOT NULL,
  outcome text CHECK (outcome IN ('done', 'skipped', 'failed')), -- null: the job has not come to it
  new_task_id uuid, -- that a retry made
  detail text NOT NULL DEFAULT '', -- why it was skipped or failed, or why a resumed task was parked
  PRIMARY KEY (job_id, n)
) WITH (fillfactor = 80);
CREATE INDEX job_tasks_refused ON a2a.job_tasks (job_id, n) WHERE outcome IN ('skipped', 'failed');

ALTER TABLE a2a.jobs OWNER TO a2a_owner;
ALTER TABLE a2a.jobs ENABLE ROW LEVEL SECURITY;
ALTER TABLE a2a.jobs FORCE ROW LEVEL SECURITY;
CREATE POLICY server ON a2a.jobs TO a2a_owner, a2a_worker USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON a2a.jobs TO a2a_worker;
ALTER TABLE a2a.job_tasks OWNER TO a2a_owner;
ALTER TABLE a2a.job_tasks ENABLE ROW LEVEL SECURITY;
ALTER TABLE a2a.job_tasks FORCE ROW LEVEL SECURITY;
CREATE POLICY server ON a2a.job_tasks TO a2a_owner, a2a_worker USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON a2a.job_tasks TO a2a_worker;

-- +goose Down
DROP TABLE a2a.job_tasks;
DROP TABLE a2a.jobs;

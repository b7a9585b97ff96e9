-- +goose Up

-- Workers far away hold leases too. What the process of a worker remembers of its run stands
-- here for them, since any replica may be asked.
ALTER TABLE a2a.task_leases
  ADD COLUMN through bigint,                    -- newest message of the client that the run was given
  ADD COLUMN queue text;                        -- the agent, where its runs are counted over all replicas; else null
-- Renewals stay HOT: they touch no column of this index.
CREATE INDEX task_leases_queue ON a2a.task_leases (queue) WHERE queue IS NOT NULL;

-- What a worker far away has sent under an id, so that it may send it again.
CREATE TABLE a2a.task_batches (
  task_id uuid NOT NULL,
  epoch bigint NOT NULL,
  batch_id text NOT NULL,
  last_seq bigint NOT NULL,                     -- the answer
  lease_until timestamptz NOT NULL,
  made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (task_id, epoch, batch_id)
);
CREATE INDEX task_batches_made ON a2a.task_batches (made_at);

-- +goose Down
-- The version before claims from lane 0 alone.
UPDATE a2a.task_ready SET priority = 0 WHERE priority <> 0;
UPDATE a2a.tasks SET priority = 0 WHERE priority <> 0;
DROP TABLE a2a.task_batches;
ALTER TABLE a2a.task_leases DROP COLUMN through, DROP COLUMN queue;

-- +goose Up

-- What operators have stopped: the tasks of an agent are not claimed, or a worker claims none. Claims read this table,
-- so a stop holds for all replicas from its commit on. Runs that have begun continue.
CREATE TABLE a2a.claim_stops (
  kind text NOT NULL CHECK (kind IN ('agent', 'worker')),
  name text NOT NULL,
  since timestamptz NOT NULL DEFAULT clock_timestamp(),
  actor text NOT NULL,
  reason text NOT NULL,
  PRIMARY KEY (kind, name)
);
ALTER TABLE a2a.claim_stops OWNER TO a2a_owner;
ALTER TABLE a2a.claim_stops ENABLE ROW LEVEL SECURITY;
ALTER TABLE a2a.claim_stops FORCE ROW LEVEL SECURITY;
CREATE POLICY server ON a2a.claim_stops TO a2a_owner, a2a_worker USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON a2a.claim_stops TO a2a_worker;

-- +goose Down
DROP TABLE a2a.claim_stops;

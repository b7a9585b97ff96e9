-- +goose Up

-- The servers and the remote workers that were in touch lately: what the leases do not say. A row is written every 15 s
-- at most, never by a claim, and is removed an hour after the last one. A tenant has a limited number of rows, because
-- remote workers choose their names.
CREATE TABLE a2a.workers (
  tenant text NOT NULL, -- of the credentials of a remote worker; empty for a server
  name text NOT NULL, -- as in leases and in claim_stops
  instance text NOT NULL, -- of a server, different for each start; empty for a remote worker
  version text NOT NULL, -- of the server, or what a remote worker says in User-Agent
  host text NOT NULL, -- of the server; empty for a remote worker
  agents text[] NOT NULL, -- that a remote worker asks for
  slots integer NOT NULL, -- of a server: attempts that may run at once
  busy integer NOT NULL, -- slots in use
  busy_share real NOT NULL, -- 0 to 1: the part of the slots that was in use since the heartbeat before
  clock_ahead interval NOT NULL, -- the clock of the server minus the one of the database
  started_at timestamptz NOT NULL, -- of the first heartbeat
  seen_at timestamptz NOT NULL, -- of the last heartbeat
  PRIMARY KEY (tenant, name, instance)
) WITH (fillfactor = 50);
ALTER TABLE a2a.workers OWNER TO a2a_owner;
ALTER TABLE a2a.workers ENABLE ROW LEVEL SECURITY;
ALTER TABLE a2a.workers FORCE ROW LEVEL SECURITY;
CREATE POLICY server ON a2a.workers TO a2a_owner, a2a_worker USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON a2a.workers TO a2a_worker;

-- +goose Down
DROP TABLE a2a.workers;

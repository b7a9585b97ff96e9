-- +goose Up

-- Filters of the console's list of tasks that operators have named. All operators of the server see them.
CREATE TABLE a2a.saved_views (
  name text PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 60),
  query text NOT NULL CHECK (length(query) BETWEEN 1 AND 2000), -- of the URL
  saved_by text NOT NULL,
  saved_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
ALTER TABLE a2a.saved_views OWNER TO a2a_owner;
ALTER TABLE a2a.saved_views ENABLE ROW LEVEL SECURITY;
ALTER TABLE a2a.saved_views FORCE ROW LEVEL SECURITY;
CREATE POLICY server ON a2a.saved_views TO a2a_owner, a2a_worker USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, DELETE ON a2a.saved_views TO a2a_worker;

-- +goose Down
DROP TABLE a2a.saved_views;

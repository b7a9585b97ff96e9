-- +goose NO TRANSACTION

-- +goose Up
-- Browser sessions of the console. A session is a random token, of which only the hash is stored, and the API key that
-- it was exchanged for: what the session may do is what the key may do at that moment.
CREATE TABLE IF NOT EXISTS a2a.browser_sessions (
  token_sha256 bytea PRIMARY KEY CHECK (length(token_sha256) = 32),
  key_id text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  used_at timestamptz NOT NULL DEFAULT clock_timestamp(), -- to the minute or so
  expires_at timestamptz NOT NULL
);
ALTER TABLE a2a.browser_sessions OWNER TO a2a_owner;
ALTER TABLE a2a.browser_sessions ENABLE ROW LEVEL SECURITY;
ALTER TABLE a2a.browser_sessions FORCE ROW LEVEL SECURITY;
-- +goose StatementBegin
DO $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_policy WHERE polrelid = 'a2a.browser_sessions'::regclass AND polname = 'server') THEN
    CREATE POLICY server ON a2a.browser_sessions TO a2a_owner, a2a_worker USING (true) WITH CHECK (true);
  END IF;
END $$;
-- +goose StatementEnd
GRANT SELECT, INSERT, UPDATE, DELETE ON a2a.browser_sessions TO a2a_worker;
CREATE INDEX IF NOT EXISTS browser_sessions_expires ON a2a.browser_sessions (expires_at);

-- The tasks that failed or were rejected, so that the console groups the newest of them without reading all others. An
-- invalid index from a failed build is replaced.
DROP INDEX CONCURRENTLY IF EXISTS a2a.tasks_failed;
CREATE INDEX CONCURRENTLY tasks_failed ON a2a.tasks (id) WHERE state IN (101, 103);

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS a2a.tasks_failed;
DROP TABLE IF EXISTS a2a.browser_sessions;

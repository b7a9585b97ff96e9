-- +goose Up

-- A session of the console is that of an API key, as before, or of a person whom the identity provider has signed in.
-- The session of a person has what the ID token said in its own row, and no key. A server of the previous version finds
-- no key '' and asks the person to sign in.
ALTER TABLE a2a.browser_sessions
  ADD COLUMN id text NOT NULL UNIQUE DEFAULT left(replace(gen_random_uuid()::text, '-', ''), 12), -- no secret
  ADD COLUMN tenant text NOT NULL DEFAULT '', -- '' if a server of the previous version made the session
  ADD COLUMN owner text NOT NULL DEFAULT '',
  ADD COLUMN subject text,                    -- of the ID token
  ADD COLUMN scopes text[],                   -- of the person; a key has its own
  ADD COLUMN authenticated_at timestamptz,    -- when the person last proved who it is; null: not known
  ADD CONSTRAINT browser_sessions_of_one CHECK (
    key_id <> '' OR tenant <> '' AND owner <> '' AND subject IS NOT NULL AND scopes IS NOT NULL);

-- Sign-ins with the identity provider that a browser has come back from, so that none is used twice, on any replica.
CREATE TABLE a2a.browser_signins (
  state_sha256 bytea PRIMARY KEY CHECK (length(state_sha256) = 32),
  expires_at timestamptz NOT NULL
);
ALTER TABLE a2a.browser_signins OWNER TO a2a_owner;
ALTER TABLE a2a.browser_signins ENABLE ROW LEVEL SECURITY;
ALTER TABLE a2a.browser_signins FORCE ROW LEVEL SECURITY;
CREATE POLICY server ON a2a.browser_signins TO a2a_owner, a2a_worker USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON a2a.browser_signins TO a2a_worker;
CREATE INDEX browser_signins_expires ON a2a.browser_signins (expires_at);

-- +goose Down
DROP TABLE a2a.browser_signins;
DELETE FROM a2a.browser_sessions WHERE key_id = '';
ALTER TABLE a2a.browser_sessions
  DROP CONSTRAINT browser_sessions_of_one, DROP COLUMN id, DROP COLUMN tenant, DROP COLUMN owner, DROP COLUMN subject,
  DROP COLUMN scopes, DROP COLUMN authenticated_at;

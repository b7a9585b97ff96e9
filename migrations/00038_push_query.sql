-- +goose Up

-- The query of a webhook's URL, encrypted: many receivers take a signature or a key there. url then ends in
-- ?[redacted].
ALTER TABLE a2a.push_configs ADD COLUMN query bytea;

-- Servers of the version before know url alone, and would send their requests without the query: they do not get a
-- webhook that has one. A server that opens queries says so on its connections. Where the version before sets a
-- webhook again, url is whole and the old query is none of it.
-- +goose StatementBegin
CREATE FUNCTION a2a.push_query() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
  IF NEW.url <> OLD.url AND NEW.query = OLD.query THEN
    NEW.query := NULL;
  END IF;
  IF NEW.query IS NOT NULL AND NEW.lease_epoch > OLD.lease_epoch AND current_setting('a2a.opens_queries', true) IS DISTINCT FROM 'on' THEN
    RETURN NULL;
  END IF;
  RETURN NEW;
END $$;
-- +goose StatementEnd
ALTER FUNCTION a2a.push_query() OWNER TO a2a_owner;
CREATE TRIGGER push_query BEFORE UPDATE ON a2a.push_configs FOR EACH ROW
WHEN (OLD.query IS NOT NULL AND (NEW.lease_epoch > OLD.lease_epoch OR NEW.url <> OLD.url))
EXECUTE FUNCTION a2a.push_query();

CREATE OR REPLACE VIEW audit.push_config AS
SELECT p.config_id AS id, p.task_id, p.from_seq, p.deleted_after_seq, p.tenant, p.owner, regexp_replace(p.url, '[?].*$', '?[redacted]') AS url, p.state, p.reason,
  p.cursor_seq, p.head_seq, p.created_at, p.deleted_at
FROM a2a.push_configs p;

-- +goose Down
CREATE OR REPLACE VIEW audit.push_config AS
SELECT p.config_id AS id, p.task_id, p.from_seq, p.deleted_after_seq, p.tenant, p.owner, p.url, p.state, p.reason,
  p.cursor_seq, p.head_seq, p.created_at, p.deleted_at
FROM a2a.push_configs p;
DROP TRIGGER push_query ON a2a.push_configs;
DROP FUNCTION a2a.push_query();
ALTER TABLE a2a.push_configs DROP COLUMN query;

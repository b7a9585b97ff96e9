-- +goose Up

-- A webhook that its destination cannot take now is parked: it waits in the list of its destination, which is not
-- looked at before the destination can take something. No claim walks over it.
ALTER TABLE a2a.push_configs ADD COLUMN parked boolean NOT NULL DEFAULT false;

-- The destinations that have parked webhooks: none of these without its row here. look_at is at most a minute ahead,
-- so that what another server did to the destination is noticed, and a row far ahead was written before the clock
-- was set back.
CREATE TABLE a2a.push_parked (
  tenant text NOT NULL,
  origin text NOT NULL,
  look_at timestamptz NOT NULL,
  PRIMARY KEY (tenant, origin)
);
CREATE INDEX push_parked_look ON a2a.push_parked (look_at);
ALTER TABLE a2a.push_parked OWNER TO a2a_owner;
ALTER TABLE a2a.push_parked ENABLE ROW LEVEL SECURITY;
ALTER TABLE a2a.push_parked FORCE ROW LEVEL SECURITY;
CREATE POLICY server ON a2a.push_parked TO a2a_owner, a2a_worker USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON a2a.push_parked TO a2a_worker;

-- A webhook that is claimed, or gets another destination, has left the list, whoever did it: servers of the version
-- before know of no list.
-- +goose StatementBegin
CREATE FUNCTION a2a.push_unpark() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
  NEW.parked := false;
  RETURN NEW;
END $$;
-- +goose StatementEnd
ALTER FUNCTION a2a.push_unpark() OWNER TO a2a_owner;
CREATE TRIGGER push_unpark BEFORE UPDATE ON a2a.push_configs FOR EACH ROW
WHEN (OLD.parked AND NEW.parked AND (NEW.lease_epoch <> OLD.lease_epoch OR NEW.origin <> OLD.origin))
EXECUTE FUNCTION a2a.push_unpark();

-- +goose Down
DROP TRIGGER push_unpark ON a2a.push_configs;
DROP FUNCTION a2a.push_unpark();
DROP TABLE a2a.push_parked;
ALTER TABLE a2a.push_configs DROP COLUMN parked;

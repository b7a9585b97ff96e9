-- +goose Up

-- Each time that is waited for has beside it the time at which it was set. A wait that began in the future tells that the
-- clock was set back since: WaitsAnchor begins it anew, so that it is no longer than it was meant to be. The defaults are set
-- in a step of their own, so that no table is rewritten. What was stored before has none, and waits as it did.
ALTER TABLE a2a.task_ready ADD COLUMN made_at timestamptz;
ALTER TABLE a2a.task_ready ALTER COLUMN made_at SET DEFAULT clock_timestamp();
ALTER TABLE a2a.task_leases ADD COLUMN held_at timestamptz; -- when it was taken or renewed; in no index: renewals stay HOT
ALTER TABLE a2a.task_leases ALTER COLUMN held_at SET DEFAULT clock_timestamp();
ALTER TABLE a2a.task_cancels ADD COLUMN set_at timestamptz;
ALTER TABLE a2a.task_cancels ALTER COLUMN set_at SET DEFAULT clock_timestamp();

-- Waits of webhooks are set in many places, also by servers of the version before, so a trigger notes when.
ALTER TABLE a2a.push_configs ADD COLUMN waits_at timestamptz;
ALTER TABLE a2a.push_configs ALTER COLUMN waits_at SET DEFAULT clock_timestamp();
ALTER TABLE a2a.push_destinations ADD COLUMN waits_at timestamptz;
ALTER TABLE a2a.push_destinations ALTER COLUMN waits_at SET DEFAULT clock_timestamp();
-- +goose StatementBegin
CREATE FUNCTION a2a.push_waits() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
  NEW.waits_at := clock_timestamp();
  RETURN NEW;
END $$;
-- +goose StatementEnd
ALTER FUNCTION a2a.push_waits() OWNER TO a2a_owner;
CREATE TRIGGER push_waits BEFORE UPDATE ON a2a.push_configs FOR EACH ROW
WHEN (NEW.next_attempt_at IS DISTINCT FROM OLD.next_attempt_at OR NEW.lease_until IS DISTINCT FROM OLD.lease_until)
EXECUTE FUNCTION a2a.push_waits();
CREATE TRIGGER push_waits BEFORE UPDATE ON a2a.push_destinations FOR EACH ROW
WHEN (NEW.open_until IS DISTINCT FROM OLD.open_until)
EXECUTE FUNCTION a2a.push_waits();

-- +goose Down
DROP TRIGGER push_waits ON a2a.push_destinations;
DROP TRIGGER push_waits ON a2a.push_configs;
DROP FUNCTION a2a.push_waits();
ALTER TABLE a2a.push_destinations DROP COLUMN waits_at;
ALTER TABLE a2a.push_configs DROP COLUMN waits_at;
ALTER TABLE a2a.task_cancels DROP COLUMN set_at;
ALTER TABLE a2a.task_leases DROP COLUMN held_at;
ALTER TABLE a2a.task_ready DROP COLUMN made_at;

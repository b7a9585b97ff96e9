-- +goose Up

-- The clock may be set back while a webhook is claimed. An event of its task then moves the next attempt, and so the start of the
-- wait, while the lease still ends where the clock was. WaitsAnchor, which looks for waits that begin in the future, passed over
-- such a lease: if its holder was gone, the webhook waited until the clock was there again. The lease now moves with the wait.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION a2a.push_waits() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
  NEW.waits_at := clock_timestamp();
  IF TG_TABLE_NAME = 'push_configs' THEN
    IF NEW.next_attempt_at IS NOT DISTINCT FROM OLD.next_attempt_at AND NEW.next_attempt_at > NEW.waits_at AND isfinite(NEW.next_attempt_at) THEN
      NEW.next_attempt_at := NEW.waits_at;
    END IF;
    IF NEW.lease_until IS NOT DISTINCT FROM OLD.lease_until AND OLD.waits_at > NEW.waits_at AND isfinite(NEW.lease_until) THEN
      NEW.lease_until := NEW.waits_at + greatest(OLD.lease_until - OLD.waits_at, interval '0');
    END IF;
  END IF;
  RETURN NEW;
END $$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION a2a.push_waits() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
  NEW.waits_at := clock_timestamp();
  IF TG_TABLE_NAME = 'push_configs' THEN
    IF NEW.next_attempt_at IS NOT DISTINCT FROM OLD.next_attempt_at AND NEW.next_attempt_at > NEW.waits_at AND isfinite(NEW.next_attempt_at) THEN
      NEW.next_attempt_at := NEW.waits_at;
    END IF;
  END IF;
  RETURN NEW;
END $$;
-- +goose StatementEnd

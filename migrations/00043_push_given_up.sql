-- +goose Up

-- A webhook that is claimed was due. When only its lease changes, and its next attempt is in the future, the clock was set back
-- meanwhile. The wait was noted as begun now, so WaitsAnchor passed it over, and the webhook waited until the clock was there again.
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

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION a2a.push_waits() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
  NEW.waits_at := clock_timestamp();
  RETURN NEW;
END $$;
-- +goose StatementEnd

-- +goose NO TRANSACTION
-- +goose Up

-- The server may add to the audit log and remove nothing from it, but for what this function takes: actions that
-- are older than it says. No setting, and nobody who has taken over a server, can take younger ones:
-- failed sign-ins stay for a day at least, all else for 30 days. NULL keeps for ever.
CREATE INDEX CONCURRENTLY IF NOT EXISTS audit_log_signins ON a2a.audit_log (at) WHERE action = 'signin.failed';
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION a2a.forget_actions(keep interval, keep_signins interval, batch int) RETURNS int
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  WITH gone AS (
    DELETE FROM a2a.audit_log l
    WHERE l.ctid = ANY (ARRAY(
      SELECT x.ctid FROM a2a.audit_log x
      WHERE x.action = 'signin.failed' AND x.at < (SELECT least(clock_timestamp() - keep_signins, CASE WHEN keep_signins IS NOT NULL THEN clock_timestamp() - interval '1 day' END))
      ORDER BY x.at
      LIMIT batch
    ) || ARRAY(
      SELECT x.ctid FROM a2a.audit_log x
      WHERE x.at < (SELECT least(clock_timestamp() - keep, CASE WHEN keep IS NOT NULL THEN clock_timestamp() - interval '30 days' END))
      ORDER BY x.at
      LIMIT batch
    ))
    RETURNING 1
  )
  SELECT count(*)::int FROM gone
$$;
-- +goose StatementEnd
ALTER FUNCTION a2a.forget_actions OWNER TO a2a_owner;
REVOKE ALL ON FUNCTION a2a.forget_actions FROM PUBLIC;
GRANT EXECUTE ON FUNCTION a2a.forget_actions TO a2a_worker;

-- +goose Down
DROP FUNCTION IF EXISTS a2a.forget_actions(interval, interval, int);
DROP INDEX CONCURRENTLY IF EXISTS a2a.audit_log_signins;

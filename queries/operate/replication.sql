-- ReadStanding reads whether the server is a standby, whether it receives WAL now, and for how many milliseconds it has
-- replayed no transaction. A standby that has replayed all that it has received is up to date as far as it knows.
-- name: ReadStanding :one
SELECT pg_catalog.pg_is_in_recovery()::boolean AS standby,
  (EXISTS (SELECT FROM pg_catalog.pg_stat_wal_receiver))::boolean AS receives,
  coalesce(pg_catalog.pg_last_wal_receive_lsn() = pg_catalog.pg_last_wal_replay_lsn(), false)::boolean AS replayed,
  coalesce(
    (extract(epoch FROM clock_timestamp() - pg_catalog.pg_last_xact_replay_timestamp()) * 1000)::bigint,
    -1)::bigint AS newest_ms;

-- ListStandbys reads how many bytes of WAL each standby has not yet replayed, and whether commits wait for it. A login
-- without pg_read_all_stats sees that there are standbys, and no more.
-- name: ListStandbys :many
SELECT coalesce(r.application_name, '')::text AS name, coalesce(r.client_addr::text, '')::text AS address,
  coalesce(r.state, '')::text AS state, coalesce(r.sync_state, '')::text AS sync_state,
  coalesce(pg_catalog.pg_wal_lsn_diff(
    CASE WHEN pg_catalog.pg_is_in_recovery()
      THEN pg_catalog.pg_last_wal_replay_lsn()
      ELSE pg_catalog.pg_current_wal_lsn()
    END,
    r.replay_lsn)::bigint, -1)::bigint AS bytes
FROM pg_catalog.pg_stat_replication r
WHERE coalesce(r.state, '') <> 'backup'
ORDER BY 1, 2;

-- ListSlots reads how many bytes of WAL each replication slot keeps on the disk, and whether it is in use.
-- name: ListSlots :many
SELECT s.slot_name::text AS name, s.active::boolean AS active,
  greatest(coalesce(pg_catalog.pg_wal_lsn_diff(
    CASE WHEN pg_catalog.pg_is_in_recovery()
      THEN pg_catalog.pg_last_wal_replay_lsn()
      ELSE pg_catalog.pg_current_wal_lsn()
    END,
    s.restart_lsn)::bigint, 0), 0)::bigint AS bytes
FROM pg_catalog.pg_replication_slots s
ORDER BY 1;

-- ReadArchiving reads whether the newest attempt to archive WAL has failed, and which standbys commits wait for.
-- name: ReadArchiving :one
SELECT coalesce(
    pg_catalog.current_setting('archive_mode') <> 'off'
      AND s.last_failed_time > coalesce(s.last_archived_time, '-infinity'),
    false)::boolean AS failing,
  pg_catalog.current_setting('synchronous_standby_names')::text AS sync_names
FROM pg_catalog.pg_stat_archiver s;

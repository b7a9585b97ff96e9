-- The statements of this file are for "a2ad doctor". They run as the login and need no table of a2ad.

-- InspectServer reads what the server is.
-- name: InspectServer :one
SELECT pg_catalog.current_setting('server_version_num')::int AS version,
  pg_catalog.current_setting('server_version')::text AS version_text,
  pg_catalog.clock_timestamp()::timestamptz AS now,
  session_user::text AS login, r.rolsuper::boolean AS super, r.rolconnlimit::int AS login_limit,
  d.datname::text AS database, d.datconnlimit::int AS database_limit,
  pg_catalog.pg_encoding_to_char(d.encoding)::text AS encoding, pg_catalog.age(d.datfrozenxid)::bigint AS xid_age,
  pg_catalog.pg_has_role(session_user, 'pg_read_all_stats', 'USAGE')::boolean AS sees_all
FROM pg_catalog.pg_database d, pg_catalog.pg_roles r
WHERE d.datname = pg_catalog.current_database() AND r.rolname = session_user;

-- InspectCollation reads the version of the collation that the database was created with, and that of the library now.
-- name: InspectCollation :one
SELECT d.datcollate::text AS name, coalesce(d.datcollversion, '')::text AS made,
  coalesce(pg_catalog.pg_database_collation_actual_version(d.oid), '')::text AS actual
FROM pg_catalog.pg_database d
WHERE d.datname = pg_catalog.current_database();

-- InspectSettings reads settings as they are for this login and database.
-- name: InspectSettings :many
SELECT s.name::text AS name, s.setting::text AS setting, coalesce(s.unit, '')::text AS unit,
  s.source::text AS source
FROM pg_catalog.pg_settings s
WHERE s.name = ANY (sqlc.arg(names)::text[])
ORDER BY s.name;

-- InspectRoles reads those of the named roles that exist.
-- name: InspectRoles :many
SELECT r.rolname::text AS name, r.rolsuper::boolean AS super, r.rolbypassrls::boolean AS bypass,
  r.rolcreaterole::boolean AS creates_roles,
  pg_catalog.pg_has_role(session_user, r.oid, 'MEMBER')::boolean AS member
FROM pg_catalog.pg_roles r
WHERE r.rolname = ANY (sqlc.arg(names)::text[])
ORDER BY r.rolname;

-- InspectTables reads which role may do what with the tables and views of a2ad. All roles must exist.
-- name: InspectTables :many
SELECT n.nspname::text AS schema, c.relname::text AS name, (c.relkind = 'v')::boolean AS is_view,
  pg_catalog.pg_get_userbyid(c.relowner)::text AS owner,
  (c.relrowsecurity AND c.relforcerowsecurity)::boolean AS secured,
  pg_catalog.has_table_privilege('a2a_worker', c.oid, 'SELECT')::boolean AS worker_reads,
  pg_catalog.has_table_privilege('a2a_worker', c.oid, 'INSERT')::boolean AS worker_adds,
  pg_catalog.has_table_privilege('a2a_app', c.oid, 'SELECT')::boolean AS app_reads,
  pg_catalog.has_table_privilege('a2a_app', c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE')::boolean AS app_writes,
  pg_catalog.has_table_privilege('a2a_audit', c.oid, 'SELECT')::boolean AS audit_reads,
  coalesce(
    'autovacuum_enabled=false' = ANY (c.reloptions) OR 'autovacuum_enabled=off' = ANY (c.reloptions),
    false)::boolean AS unvacuumed,
  coalesce(pg_catalog.pg_stat_get_live_tuples(c.oid), 0)::bigint AS live,
  coalesce(pg_catalog.pg_stat_get_dead_tuples(c.oid), 0)::bigint AS dead,
  pg_catalog.pg_total_relation_size(c.oid)::bigint AS bytes
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname IN ('a2a', 'audit') AND c.relkind IN ('r', 'p', 'v')
ORDER BY 1, 2;

-- InspectIndexes returns the indexes that an interrupted migration has left unusable.
-- name: InspectIndexes :many
SELECT c.relname::text AS name
FROM pg_catalog.pg_index i
JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'a2a' AND NOT (i.indisvalid AND i.indisready)
ORDER BY 1;

-- InspectHolders reads what else than sessions keeps dead rows: replication slots and prepared transactions.
-- name: InspectHolders :many
SELECT 'replication slot'::text AS kind, s.slot_name::text AS name,
  greatest(
    coalesce(pg_catalog.age(s.xmin), 0),
    coalesce(pg_catalog.age(s.catalog_xmin), 0))::bigint AS xmin_age
FROM pg_catalog.pg_replication_slots s
WHERE s.xmin IS NOT NULL OR s.catalog_xmin IS NOT NULL
UNION ALL
SELECT 'prepared transaction', p.gid::text, pg_catalog.age(p.transaction)::bigint
FROM pg_catalog.pg_prepared_xacts p
ORDER BY 3 DESC;

-- InspectArchiver reads whether the newest attempt to archive WAL has failed, how many attempts have failed, and for
-- how long none has succeeded.
-- name: InspectArchiver :one
SELECT coalesce(
    pg_catalog.current_setting('archive_mode') <> 'off'
      AND s.last_failed_time > coalesce(s.last_archived_time, '-infinity'),
    false)::boolean AS failing,
  coalesce(s.failed_count, 0)::bigint AS failures, coalesce(s.last_failed_wal, '')::text AS wal,
  coalesce(
    (extract(epoch FROM clock_timestamp() - coalesce(s.last_archived_time, s.stats_reset)) * 1000)::bigint,
    0)::bigint AS quiet_ms
FROM pg_catalog.pg_stat_archiver s;

-- InspectConnections counts the client connections to the whole server. A connection of another login counts when the
-- login may not see its type.
-- name: InspectConnections :one
SELECT count(*) FROM pg_catalog.pg_stat_activity s
WHERE coalesce(s.backend_type, 'client backend') = 'client backend' AND s.usename IS NOT NULL;

-- InspectNotify sends a notification on a channel that only the doctor listens on.
-- name: InspectNotify :exec
SELECT pg_catalog.pg_notify(sqlc.arg(channel)::text, '');

-- InspectRole sets the role of the rest of the transaction.
-- name: InspectRole :exec
SELECT pg_catalog.set_config('role', sqlc.arg(role)::text, true);

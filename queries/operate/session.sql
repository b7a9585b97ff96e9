-- SessionSet gives a connection its settings, in their order, for as long as it lives. "role" may be one of them.
-- name: SessionSet :exec
SELECT pg_catalog.set_config(s.name, s.value, false)
FROM (SELECT unnest(sqlc.arg(names)::text[]) AS name, unnest(sqlc.arg(vals)::text[]) AS value) s;

-- MigrationRights reads which rights the login has of those that the first migrations need. missing are roles that do
-- not exist, unjoined those that it is no member of and cannot join. early is true until the migration that creates the
-- roles.
-- name: MigrationRights :one
SELECT current_user::text AS login, current_database()::text AS database, p.rolsuper::boolean AS super,
  p.rolcreaterole::boolean AS makes_roles,
  (NOT EXISTS (
    SELECT
    FROM pg_catalog.pg_namespace n
    JOIN pg_catalog.pg_roles o ON o.oid = n.nspowner
    WHERE n.nspname = 'a2a' AND o.rolname = 'a2a_owner'))::boolean AS early,
  ARRAY(
    SELECT r.name
    FROM unnest(sqlc.arg(roles)::text[]) r(name)
    WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_roles o WHERE o.rolname = r.name)
    ORDER BY r.name)::text[] AS missing,
  ARRAY(
    SELECT o.rolname::text
    FROM pg_catalog.pg_roles o
    WHERE o.rolname = ANY (sqlc.arg(roles)::text[])
      AND o.rolname <> 'a2a_audit'
      AND NOT pg_catalog.pg_has_role(o.oid, 'MEMBER')
      AND NOT pg_catalog.pg_has_role(o.oid, 'MEMBER WITH ADMIN OPTION')
      -- Before PostgreSQL 16, CREATEROLE was enough to join any role.
      AND NOT (p.rolcreaterole AND current_setting('server_version_num')::int < 160000)
    ORDER BY o.rolname)::text[] AS unjoined,
  pg_catalog.has_database_privilege(current_database(), 'CREATE')::boolean AS creates,
  (pg_catalog.pg_has_role(d.datdba, 'USAGE') OR EXISTS (
    SELECT
    FROM pg_catalog.pg_roles o
    WHERE o.rolname = 'a2a_owner'
      AND pg_catalog.has_database_privilege(o.oid, d.oid, 'CREATE')))::boolean AS owner_creates,
  pg_catalog.has_schema_privilege('public', 'CREATE')::boolean AS creates_in_public
FROM pg_catalog.pg_roles p, pg_catalog.pg_database d
WHERE p.rolname = current_user AND d.datname = current_database();

-- LockHolders reads which sessions the given ones wait for. What the login may not see of other sessions is empty.
-- name: LockHolders :many
SELECT b.pid::int AS pid, coalesce(a.backend_type, '')::text AS kind,
  coalesce(a.application_name, '')::text AS application,
  coalesce(extract(epoch FROM clock_timestamp() - a.xact_start), 0)::float8 AS seconds
FROM (
  SELECT DISTINCT unnest(pg_catalog.pg_blocking_pids(w.pid)) AS pid
  FROM (SELECT unnest(sqlc.arg(waiters)::int[]) AS pid) w
) b
LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = b.pid
ORDER BY b.pid;

-- IndexesInvalid returns those of the named indexes that an interrupted statement has left unusable, and that no
-- session is building now.
-- name: IndexesInvalid :many
SELECT c.relname::text AS name
FROM pg_catalog.pg_index i
JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'a2a'
  AND NOT i.indisvalid
  AND c.relname = ANY (sqlc.arg(names)::text[])
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_stat_progress_create_index p WHERE p.index_relid = c.oid);

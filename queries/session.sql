-- SessionSet gives a connection its settings, in their order, for as long as it lives. "role" is one.
-- name: SessionSet :exec
SELECT pg_catalog.set_config(s.name, s.value, false)
FROM (SELECT unnest(sqlc.arg(names)::text[]) AS name, unnest(sqlc.arg(vals)::text[]) AS value) s;

-- MigrationRights reads what the login may do of what the first migrations need. missing are roles that do not exist, unjoined
-- those that it neither is a member of nor can make itself a member of. early is true until the migration that makes the roles.
-- name: MigrationRights :one
SELECT current_user::text AS login, current_database()::text AS database, p.rolsuper::boolean AS super, p.rolcreaterole::boolean AS makes_roles,
  (NOT EXISTS (SELECT FROM pg_catalog.pg_namespace n JOIN pg_catalog.pg_roles o ON o.oid = n.nspowner
    WHERE n.nspname = 'a2a' AND o.rolname = 'a2a_owner'))::boolean AS early,
  ARRAY(SELECT r.name FROM unnest(sqlc.arg(roles)::text[]) r(name)
    WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_roles o WHERE o.rolname = r.name))::text[] AS missing,
  ARRAY(SELECT o.rolname::text FROM pg_catalog.pg_roles o
    WHERE o.rolname = ANY (sqlc.arg(roles)::text[]) AND o.rolname <> 'a2a_audit' AND NOT pg_catalog.pg_has_role(o.oid, 'MEMBER')
      AND NOT pg_catalog.pg_has_role(o.oid, 'MEMBER WITH ADMIN OPTION')
      AND NOT (p.rolcreaterole AND current_setting('server_version_num')::int < 160000)
    ORDER BY o.rolname)::text[] AS unjoined,
  pg_catalog.has_database_privilege(current_database(), 'CREATE')::boolean AS creates,
  (pg_catalog.pg_has_role(d.datdba, 'USAGE') OR EXISTS (SELECT FROM pg_catalog.pg_roles o
    WHERE o.rolname = 'a2a_owner' AND pg_catalog.has_database_privilege(o.oid, d.oid, 'CREATE')))::boolean AS owner_creates,
  pg_catalog.has_schema_privilege('public', 'CREATE')::boolean AS creates_in_public
FROM pg_catalog.pg_roles p, pg_catalog.pg_database d
WHERE p.rolname = current_user AND d.datname = current_database();

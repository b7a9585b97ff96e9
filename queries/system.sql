-- The system columns and views that queries use. Only sqlc reads this file: PostgreSQL has them already.
ALTER TABLE a2a.task_ready ADD COLUMN ctid tid NOT NULL;
CREATE TABLE pg_stat_activity (
  pid int, application_name text, backend_type text, xact_start timestamptz, backend_xid xid, backend_xmin xid,
  datname name, usesysid oid
);
CREATE TABLE pg_prepared_xacts (prepared timestamptz);
CREATE TABLE pg_locks (locktype text, granted boolean, mode text, pid int, virtualtransaction text);

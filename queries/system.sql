-- What queries use of the system. PostgreSQL has it of itself; only sqlc must be told, and it alone reads this.
ALTER TABLE a2a.task_ready ADD COLUMN ctid tid NOT NULL;
CREATE TABLE pg_stat_activity (pid int, application_name text, backend_type text, xact_start timestamptz, backend_xid xid, backend_xmin xid);
CREATE TABLE pg_prepared_xacts (prepared timestamptz);

#!/bin/sh
# Runs when PostgreSQL finds its volume empty. A superuser creates the roles of docs/adr/0031, so that the migration
# needs no superuser. a2ad_migrate owns the tables. a2ad_server may act as a2a_app and a2a_worker, and cannot change a
# table's definition. It sees other users' transactions, which the alert on old transactions needs.
set -eu
secrets=${A2AD_SECRETS:-/run/secrets/postgres}
psql -qX -v ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" \
	-v migrate="$(cat "$secrets/migrate")" -v server="$(cat "$secrets/server")" <<'SQL'
CREATE ROLE a2a_owner NOLOGIN;
CREATE ROLE a2a_app NOLOGIN;
CREATE ROLE a2a_worker NOLOGIN BYPASSRLS;
CREATE ROLE a2a_audit NOLOGIN;
CREATE ROLE a2ad_migrate LOGIN PASSWORD :'migrate' IN ROLE a2a_owner, a2a_app, a2a_worker, a2a_audit;
CREATE ROLE a2ad_server LOGIN PASSWORD :'server' IN ROLE a2a_app, a2a_worker;
GRANT pg_read_all_stats TO a2ad_server;
ALTER DATABASE :"DBNAME" OWNER TO a2ad_migrate;
SQL

#!/bin/sh
# The part of the contract of the image postgres:17 on which docker-compose.yml relies: an empty volume is initialized
# with POSTGRES_USER, POSTGRES_PASSWORD (or _FILE) and POSTGRES_DB, scripts in /docker-entrypoint-initdb.d run once, and the
# server does not run as root.
set -eu
PATH=/usr/lib/postgresql/17/bin:$PATH
export PGDATA="${PGDATA:-/var/lib/postgresql/data}"

if [ "${1:-}" != postgres ]; then
	exec "$@"
fi
if [ "$(id -u)" = 0 ]; then
	mkdir -p "$PGDATA"
	chown -R postgres:postgres "$PGDATA"
	chmod 700 "$PGDATA"
	exec setpriv --reuid=postgres --regid=postgres --init-groups "$0" "$@"
fi
if [ ! -s "$PGDATA/PG_VERSION" ]; then
	if [ -z "${POSTGRES_PASSWORD_FILE:-}" ]; then
		POSTGRES_PASSWORD_FILE=$(mktemp)
		printf '%s\n' "$POSTGRES_PASSWORD" >"$POSTGRES_PASSWORD_FILE"
	fi
	initdb --username="$POSTGRES_USER" --pwfile="$POSTGRES_PASSWORD_FILE" --auth-host=scram-sha-256 --auth-local=trust
	printf 'host all all all scram-sha-256\n' >>"$PGDATA/pg_hba.conf"
	pg_ctl --wait start --options="-c listen_addresses=" # so that nobody connects before the logins exist
	export PGUSER="$POSTGRES_USER"
	if [ "$POSTGRES_DB" != postgres ]; then
		createdb "$POSTGRES_DB"
	fi
	for script in /docker-entrypoint-initdb.d/*.sh; do
		[ -e "$script" ] || continue
		sh "$script"
	done
	pg_ctl --wait --mode=fast stop
fi
shift
exec postgres -c listen_addresses='*' "$@"

#!/usr/bin/env bash
# PgBouncer 1.24.1 (built from Debian's source), PostgreSQL 15 and its psql: after a promotion, clients are told
# that the server is a standby.
#
# PostgreSQL reports in_hot_standby to each session, at its start and when it changes (since version 14). PgBouncer
# keeps what the first session of a pool was told, and tells that to each new client, also after the server was
# promoted and restarted, so that all its sessions are new. psql believes it: with target_session_attrs=read-write it
# refuses the promoted primary, and with standby it accepts it. A good guess is that target_session_attrs works through
# PgBouncer in session mode. A client must ask the server (SHOW in_hot_standby), or the administrator must say RECONNECT.
#
# Seen, before the promotion, after promotion and restart, and after RECONNECT:
#   read-write, directly         refused       accepted      accepted
#   read-write, PgBouncer        refused       refused       accepted
#   standby, directly            accepted      refused       refused
#   standby, PgBouncer           accepted      accepted      refused
#   SHOW, PgBouncer              on            off           off
#
# The script fails if a line differs. It needs root on Debian, postgresql, libevent-dev and a C compiler.
set -euo pipefail
dir=$(mktemp -d)
bin=$(ls -d /usr/lib/postgresql/15/bin)
as() { runuser -u postgres -- "$@"; }
stop() {
	[[ -f $dir/pgbouncer.pid ]] && kill "$(cat "$dir/pgbouncer.pid")"
	for cluster in primary standby; do as "$bin/pg_ctl" -D "$dir/$cluster" -m immediate stop >/dev/null || true; done
	rm -rf "$dir"
}
trap stop EXIT
chown postgres "$dir"
cd "$dir"

curl --silent --fail --show-error --output pgbouncer.tar.gz \
	https://deb.debian.org/debian/pool/main/p/pgbouncer/pgbouncer_1.24.1.orig.tar.gz
echo "da72a3aba13072876d055a3e58dd4aba4a5de4ed6148e73033185245598fd3e0  pgbouncer.tar.gz" | sha256sum --check --quiet
tar -xzf pgbouncer.tar.gz
(cd pgbouncer-1.24.1 && ./configure --without-openssl --without-cares && make) >build.log 2>&1 ||
	{ tail build.log && exit 1; }

as "$bin/initdb" -D primary --auth=trust --username=postgres >/dev/null
as "$bin/pg_ctl" -D primary -l primary.log -w -o "-p 16501 -k $dir -c listen_addresses=127.0.0.1" start >/dev/null
as "$bin/pg_basebackup" -h 127.0.0.1 -p 16501 -U postgres -D standby -R
as "$bin/pg_ctl" -D standby -l standby.log -w -o "-p 16502 -k $dir -c listen_addresses=127.0.0.1" start >/dev/null
cat >pgbouncer.ini <<END
[databases]
postgres = host=127.0.0.1 port=16502
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = 16503
unix_socket_dir =
auth_type = any
pidfile = $dir/pgbouncer.pid
logfile = $dir/pgbouncer.log
admin_users = postgres
END
sed -i 's/^postgres = .*/& user=postgres/' pgbouncer.ini
as pgbouncer-1.24.1/pgbouncer --daemon pgbouncer.ini 2>/dev/null

try() { # kind of server, port
	if psql "host=127.0.0.1 port=$2 user=postgres dbname=postgres target_session_attrs=$1" -c '' >/dev/null 2>&1; then
		echo accepted
	else
		echo refused
	fi
}
look() {
	try read-write 16502
	try read-write 16503
	try standby 16502
	try standby 16503
	psql -h 127.0.0.1 -p 16503 -U postgres -Atc 'SHOW in_hot_standby' postgres
}
look >before
psql -h 127.0.0.1 -p 16502 -U postgres -Atqc 'SELECT pg_promote()' postgres >/dev/null
as "$bin/pg_ctl" -D standby -l standby.log -w restart >/dev/null
look >after
psql -h 127.0.0.1 -p 16503 -U postgres -qc RECONNECT pgbouncer
look >reconnected
printf '%s\n' 'read-write, directly' 'read-write, PgBouncer' 'standby, directly' 'standby, PgBouncer' \
	'SHOW, PgBouncer' | paste - before after reconnected |
	awk -F '\t' '{ printf "%-28s %-13s %-13s %s\n", $1, $2, $3, $4 }' | tee seen
diff seen - <<'END'
read-write, directly         refused       accepted      accepted
read-write, PgBouncer        refused       refused       accepted
standby, directly            accepted      refused       refused
standby, PgBouncer           accepted      accepted      refused
SHOW, PgBouncer              on            off           off
END

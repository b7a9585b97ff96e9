#!/bin/sh
# make-secrets.sh DIR: creates the passwords and the key of an installation with Docker Compose. It keeps existing
# files. DIR has a directory for each reader. To change a password, change it in PostgreSQL too. A2AD_DATABASE_HOSTS lists
# the PostgreSQL nodes, if there are several.
set -eu
umask 077
dir=$1
hosts=${A2AD_DATABASE_HOSTS:-postgres:5432}
case $hosts in
*,*) writable='&target_session_attrs=read-write' ;; # finds the leader
*) writable= ;;
esac

# keep FILE COMMAND…: writes the command's output to the file unless it exists. A crash leaves no partial file.
keep() {
	file=$dir/$1
	shift
	if [ ! -s "$file" ]; then
		"$@" >"$file.new"
		mv "$file.new" "$file"
	fi
}
password() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }
key() { printf 'k1:%s' "$(head -c 32 /dev/urandom | base64 | tr -d '\n')"; }
url() { printf 'postgres://%s:%s@%s/a2ad?sslmode=disable%s' "$1" "$(cat "$dir/postgres/$2")" "$hosts" "$writable"; }

mkdir -p "$dir/postgres" "$dir/migrate" "$dir/server"
keep postgres/superuser password
keep postgres/migrate password
keep postgres/server password
keep postgres/replication password # this one and the next are for Patroni: ha.yml
keep postgres/restapi password
keep migrate/database-url url a2ad_migrate migrate
keep server/database-url url a2ad_server server
keep server/keys key

# The users of the images: postgres, and the user in docker-compose.yml.
if [ "$(id -u)" = 0 ]; then
	chown -R 999:999 "$dir/postgres"
	chown -R 65532:65532 "$dir/migrate" "$dir/server"
fi

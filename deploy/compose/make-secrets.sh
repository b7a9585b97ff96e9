#!/bin/sh
# make-secrets.sh DIR: creates the passwords and the key of an installation with Docker Compose. It keeps existing
# files. DIR has a directory for each reader. To change a password, change it in PostgreSQL too.
set -eu
umask 077
dir=$1

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
url() { printf 'postgres://%s:%s@postgres:5432/a2ad?sslmode=disable' "$1" "$(cat "$dir/postgres/$2")"; }

mkdir -p "$dir/postgres" "$dir/migrate" "$dir/server"
keep postgres/superuser password
keep postgres/migrate password
keep postgres/server password
keep migrate/database-url url a2ad_migrate migrate
keep server/database-url url a2ad_server server
keep server/keys key

# The users of the images: postgres, and the user in docker-compose.yml.
if [ "$(id -u)" = 0 ]; then
	chown -R 999:999 "$dir/postgres"
	chown -R 65532:65532 "$dir/migrate" "$dir/server"
fi

#!/bin/sh
# Makes sure that PostgreSQL is installed: `ensure-postgres.sh run` for `make run`, `test` for `make test`. If it is not
# and apt is available, it installs the distribution's package without creating or starting a cluster: a2ad runs its
# own server. On other systems it says what to do.
set -eu

purpose=${1:?usage: ensure-postgres.sh run|test}

# The directories that internal/devpg searches.
have_server() {
	if [ -n "${A2AD_PG_BINDIR:-}" ]; then
		[ -x "$A2AD_PG_BINDIR/initdb" ] && [ -x "$A2AD_PG_BINDIR/postgres" ]
		return
	fi
	if initdb=$(command -v initdb); then
		[ -x "$(dirname "$(readlink -f "$initdb")")/postgres" ] && return 0
	fi
	for bin in /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /usr/libexec/postgresql* \
		/opt/homebrew/opt/postgresql@*/bin /usr/local/opt/postgresql@*/bin; do
		[ -x "$bin/initdb" ] && [ -x "$bin/postgres" ] && return 0
	done
	return 1
}

# as_root is the prefix that runs a command as root: empty for root, or sudo if it needs no password.
as_root() {
	if [ "$(id -u)" = 0 ]; then
		as_root=
	elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
		as_root="sudo -n"
	else
		return 1
	fi
}

install_by_apt() {
	echo "no PostgreSQL found: installing the distribution's package (it creates no cluster and starts nothing)" >&2
	# By default Debian's package creates and starts a cluster on port 5432. The file that prevents it is removed
	# afterwards, so that later installations behave as usual.
	conf=/etc/postgresql-common/createcluster.d/a2ad-no-cluster.conf
	$as_root mkdir -p "$(dirname "$conf")"
	echo "create_main_cluster = false" | $as_root tee "$conf" >/dev/null
	status=0
	{
		$as_root apt-get update -q &&
			$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends postgresql
	} >&2 </dev/null || status=$?
	$as_root rm -f "$conf"
	return $status
}

advice() {
	cat >&2 <<END
No PostgreSQL server was found (15 or newer is needed). Do one of these:
  Debian, Ubuntu:  sudo apt-get install postgresql
  Fedora, RHEL:    sudo dnf install postgresql-server
  Alpine:          sudo apk add postgresql
  Arch:            sudo pacman -S postgresql
  macOS:           brew install postgresql@17
or set A2AD_PG_BINDIR to the directory that holds initdb and postgres,
END
	if [ "$purpose" = run ]; then
		echo "or set A2AD_DATABASE_URL to a database for a2ad, or start everything in containers: make up" >&2
	else
		echo "or set A2AD_TEST_DATABASE_URL to a server where tests may create databases, or start Docker" >&2
	fi
}

if [ "$purpose" = run ] && [ -n "${A2AD_DATABASE_URL:-}" ]; then
	exit 0
fi
if have_server; then
	exit 0
fi
if [ -z "${A2AD_PG_BINDIR:-}" ] && command -v apt-get >/dev/null 2>&1 && as_root; then
	if install_by_apt && have_server; then
		exit 0
	fi
	echo "the installation failed" >&2
fi
# With another server most tests run. Tests that crash their own server fail and say why.
if [ "$purpose" = test ] && { [ -n "${A2AD_TEST_DATABASE_URL:-}" ] || docker info >/dev/null 2>&1; }; then
	echo "no PostgreSQL binaries: tests that stop and crash their own server will fail" >&2
	exit 0
fi
advice
exit 1

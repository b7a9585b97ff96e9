#!/bin/sh
# Runs TestPatroni: a2ad on three Patroni nodes, whose leader is paused and cut off. The nodes, etcd and their network
# run in separate namespaces and end with this script. It needs Linux, root, and Debian's packages.
set -eu

fail() {
	echo "make patroni: $*" >&2
	exit 1
}

[ "$(uname -s)" = Linux ] && [ "$(id -u)" = 0 ] || fail "this needs root on Linux, for network namespaces"
missing=
for program in patroni etcd haproxy ip unshare setpriv; do
	command -v "$program" >/dev/null 2>&1 || missing="$missing $program"
done
packages="patroni etcd-server haproxy iproute2 util-linux postgresql"
[ -z "$missing" ] || fail "missing:$missing. On Debian: apt-get install $packages"
id postgres >/dev/null 2>&1 || fail "there is no user postgres; Debian's package postgresql makes it"

cd "$(dirname "$0")/.."
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
# The test is built outside the namespaces, because the build may download modules.
"${GO:-go}" test -c -tags patroni -o "$bin/e2e.test" ./internal/e2e
CGO_ENABLED=0 "${GO:-go}" build -buildvcs=false -o "$bin/a2ad" ./cmd/a2ad
cd internal/e2e
# The shell is the first process of the namespace and reaps daemons that end: Patroni waits until its PostgreSQL has
# ended.
A2AD_TEST_PATRONI_BIN="$bin/a2ad" unshare --net --mount --pid --fork --kill-child --mount-proc \
	sh -c '"$@"; status=$?; exit $status' sh \
	"$bin/e2e.test" -test.run '^TestPatroni$' -test.v -test.count=1 -test.timeout 30m "$@"

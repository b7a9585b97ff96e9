#!/usr/bin/env bash
# Runs the tests of internal/dockertest on a Docker daemon of their own: make docker-test
#
# It needs root and Debian, because it installs Docker and makes the images on which Dockerfile and docker-compose.yml
# build from Debian's packages. It keeps images and the cache of builds (A2AD_TEST_DOCKER_CACHE), and stops and removes
# all that it started. With arguments, it runs them in place of the tests: scripts/docker-test.sh bash
set -euo pipefail
cd "$(dirname "$0")/.."
here=internal/dockertest/images
cache=${A2AD_TEST_DOCKER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/a2ad-docker}
suite=trixie # Debian 13: it has PostgreSQL 17, and a Docker Compose that can read the file

if [[ $(id -u) != 0 || ! -e /etc/debian_version ]]; then
	echo "docker-test needs root and Debian: it installs Docker" >&2
	exit 1
fi

# install adds Docker and what makes images. On Debian 12 the package docker.io has the client, too. Another apt-get may
# be running: this one waits for it.
install() {
	local missing=()
	command -v dockerd >/dev/null || missing+=(docker.io)
	command -v iptables >/dev/null || missing+=(iptables)
	command -v debootstrap >/dev/null || missing+=(debootstrap)
	command -v docker >/dev/null || ! apt-cache show docker-cli >/dev/null 2>&1 || missing+=(docker-cli)
	if ((${#missing[@]} == 0)); then
		return
	fi
	apt-get update -q >/dev/null
	DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
		-o DPkg::Lock::Timeout=600 "${missing[@]}" >/dev/null
}

# clear removes what tests have made. Images stay.
clear() {
	docker ps --all --quiet | xargs --no-run-if-empty docker rm --force >/dev/null
	docker volume ls --quiet | xargs --no-run-if-empty docker volume rm --force >/dev/null
	docker network prune --force >/dev/null
}

finish() {
	local status=$?
	if [[ -n $daemon ]]; then
		clear || true
		docker image prune --force >/dev/null || true
		docker builder prune --force --keep-storage 3gb >/dev/null || true
		kill "$daemon" || true
		wait "$daemon" || true
	fi
	rm -rf "$dir"
	exit "$status"
}

start_daemon() {
	dockerd --data-root "$cache/root" --exec-root "$dir/exec" --pidfile "$dir/pid" --host "$DOCKER_HOST" \
		>"$dir/dockerd.log" 2>&1 &
	daemon=$!
	for ((i = 0; i < 300; i++)); do
		if docker version >/dev/null 2>&1; then return; fi
		if ! kill -0 "$daemon" 2>/dev/null; then break; fi
		sleep 0.1
	done
	tail -n 20 "$dir/dockerd.log" >&2
	return 1
}

# debian makes the base image. It trusts the certificates that this machine trusts.
debian() {
	if docker image inspect debian:13 >/dev/null 2>&1; then
		return
	fi
	local mirror
	mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -v security | head -n 1)
	debootstrap --variant=minbase --include=ca-certificates "$suite" "$dir/rootfs" "$mirror" >"$dir/debootstrap.log" ||
		{ tail -n 20 "$dir/debootstrap.log" >&2 && return 1; }
	cp /etc/ssl/certs/ca-certificates.crt "$dir/rootfs/etc/ssl/certs/"
	tar --create --directory "$dir/rootfs" . | docker import - debian:13 >/dev/null
	rm -rf "$dir/rootfs"
}

# plugins installs Compose 2, unless this machine has it. Debian 12 has only Compose 1.
plugins() {
	if docker compose version >/dev/null 2>&1; then
		return
	fi
	if [[ ! -e $cache/docker-compose ]]; then
		docker run --name plugins debian:13 sh -c \
			'cd /tmp && apt-get update -q >/dev/null && apt-get download -q docker-compose docker-buildx >/dev/null'
		docker cp plugins:/tmp "$dir/debs" >/dev/null
		docker rm plugins >/dev/null
		for deb in "$dir"/debs/*.deb; do
			dpkg-deb --extract "$deb" "$dir/plugins"
		done
		cp "$dir"/plugins/usr/libexec/docker/cli-plugins/* "$cache/"
	fi
	mkdir -p "$DOCKER_CONFIG/cli-plugins"
	cp "$cache/docker-compose" "$cache/docker-buildx" "$DOCKER_CONFIG/cli-plugins/"
}

# stand_in builds an image under the name of one that this machine cannot pull: stand_in TAG FILE CONTEXT [ARG…]
stand_in() {
	docker build --quiet --tag "$1" --file "$here/$2" "${@:4}" "$3" >/dev/null
}

install
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9 # two daemons cannot share the directory
dir=$(mktemp -d /var/tmp/a2ad-docker-XXXXXX)
daemon=
export DOCKER_HOST=unix://$dir/docker.sock DOCKER_CONFIG=$dir/config DOCKER_BUILDKIT=1
unset DOCKER_CONTEXT
trap finish EXIT
start_daemon
clear # what a killed run left
debian
docker tag debian:13 debian:13-slim
plugins
stand_in postgres:17 postgres.dockerfile "$here"
stand_in haproxy:3.2-alpine haproxy.dockerfile "$here"
stand_in prom/prometheus:v3.5.0 prometheus.dockerfile "$here"
stand_in golang:1.26 golang.dockerfile "$(go env GOROOT)" \
	--build-arg "GOPROXY=$(go env GOPROXY)" --build-arg "GOSUMDB=$(go env GOSUMDB)"
docker version --format 'Docker {{.Server.Version}}'
docker compose version

# What a killed run leaves must not hold the lock.
run() { "$@" 9>&-; }
if (($#)); then
	run "$@"
else
	A2AD_TEST_DOCKER=1 run go test ./internal/dockertest -skip TestHighAvailability -count=1 -timeout 40m ${TESTFLAGS:-}
	# The path of the tests through testcontainers. Its reaper is an image that cannot be made here; the containers end
	# with the daemon.
	A2AD_TEST_CONTAINER=1 TESTCONTAINERS_RYUK_DISABLED=true \
		run go test ./internal/store/storetest ./internal/store/access ./internal/store/schedules -count=1
fi

#!/usr/bin/env bash
# Installs the programs that tests call, where apt has them: `ensure-packages.sh test` for `make test`, and
# `ensure-packages.sh slow` for `make test-slow`. It needs root, or a sudo that needs no password. PostgreSQL is
# installed by ensure-postgres.sh.
set -euo pipefail

missing=()
need() { command -v "$1" >/dev/null || missing+=("${@:2}"); }

need make make
need curl curl       # the documents call it
need openssl openssl # as they do this
need zsh zsh         # cmd/a2ad types at its prompt
need fish fish       # the same
need python3 python3 # for the agents of examples/, with its standard library
need jq jq             # the agent in shell that `a2ad new agent` makes
need cc gcc libc6-dev # the race detector
if [[ ${1:?usage: ensure-packages.sh test|slow} == slow ]]; then
	need haproxy haproxy     # internal/e2e runs the proxy of docker-compose.yml
	need pgbouncer pgbouncer # internal/e2e puts it in front of PostgreSQL
	need chromium chromium   # the tests of the console drive it
	need psql postgresql-client # the tests of the console read the database with it
	need node nodejs         # for a receiver of docs/how-to/verify-webhooks.md, and the JavaScript client
	need npm npm             # it downloads other versions of PostgreSQL
	python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv) # for the Python clients
fi
if ((${#missing[@]} == 0)); then
	exit
fi
root=()
if [[ $(id -u) != 0 ]]; then root=(sudo -n); fi
"${root[@]}" apt-get update -q
"${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"

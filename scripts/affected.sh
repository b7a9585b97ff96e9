#!/usr/bin/env bash
# Runs the targets that the changes since a commit call for: affected.sh origin/main. DRY=1 only prints them.
# CONTRIBUTING.md has the table for people; internal/doctest compares the two.
set -euo pipefail
cd "$(dirname "$0")/.."

base=$(git merge-base "${1:?usage: affected.sh COMMIT}" HEAD)
changed=$(git diff --name-only "$base"; git ls-files --others --exclude-standard)

targets=(test)
# call adds a target if a changed path matches.
call() {
	if grep -qE "$2" <<<"$changed"; then targets+=("$1"); fi
}
call test-crash '^(cmd|migrations|queries|internal/(store|worker|push|notify|stream|engine|workerapi|maintenance|replica|e2e)|deploy/compose)/'
call test-race '^internal/(worker|stream|push|notify|engine|workerapi|rpc|store|lifecycle|budget|throttle)/'
call test-pg-all '^(migrations|queries|internal/(store|devpg))/'
call test-plans '^(migrations|queries)/'
call test-upgrade '^(migrations|queries|internal/store)/'
call test-docs '^(README\.md|docs|examples|cmd|internal/doctest)'
call interop '^(internal/(rpc|wire|jsonrpc|sse|a2a|importer|interop|client|executor/a2a)|examples/front-js)/'
call sdk-python '^(sdk/python|internal/(workerapi|attempt|scaffold))/'
call sdk-go '^(sdk/go|internal/(workerapi|attempt|scaffold))/'
call sdk-typescript '^(sdk/typescript|internal/(workerapi|attempt|scaffold))/'
call sdk-conformance '^(sdk|internal/(workerapi|attempt|store/tasks))/'
call console-browser '^internal/(console|demo|admin)/'
call promcheck '^(deploy/(prometheus|grafana)|internal/(metrics|promcheck))/'
call deploycheck '^(deploy|internal/deploycheck)/|^docker-compose\.yml'
call chaos '^internal/(store/tasks|worker|notify)/'

echo "${targets[*]}"
if [[ -n ${DRY:-} ]]; then exit; fi
for target in "${targets[@]}"; do
	echo "--- $target"
	"${MAKE:-make}" --no-print-directory "$target"
done

#!/bin/sh
# Fails when a test sleeps outside testing/synctest: it is slow on a fast machine and fails on a slow one. Inside
# testing/synctest the clock is fake.
set -eu
cd "$(dirname "$0")/.."

bad=$(find . -name '*_test.go' -not -path './bin/*' -not -path '*/node_modules/*' \
	-exec grep -l 'time\.Sleep(' {} + 2>/dev/null | xargs -r grep -L '"testing/synctest"' || true)
[ -z "$bad" ] && exit 0
echo "these tests sleep; wait for an event, or use testing/synctest:" >&2
echo "$bad" >&2
exit 1

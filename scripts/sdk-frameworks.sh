#!/usr/bin/env bash
# Checks the adapters of the library for Python: types, and tests with each framework, its own fake model, and a real
# server whose workers are killed. Each framework has its own environment, because their packages conflict.
#   A2AD_BIN=bin/a2ad scripts/sdk-frameworks.sh [NAME…]    # pydantic_ai langgraph openai_agents google_adk
set -euo pipefail
cd "$(dirname "$0")/.."
here=sdk/python/tests/frameworks
export A2AD_BIN=${A2AD_BIN:-$PWD/bin/a2ad}
types=$PWD/bin/mypy # mypy reads all that a framework imports: it keeps what it has found out

names=("$@")
if ((${#names[@]} == 0)); then
	for file in "$here"/test_*.py; do
		name=${file##*/test_}
		names+=("${name%.py}")
	done
fi

# The environments first: the tests take at most five minutes, but what is downloaded takes as long as it takes.
declare -A pythons
for name in "${names[@]}"; do
	pythons[$name]=$(scripts/python-env.sh "$here/$name.txt")
done

cd sdk/python
export PYTHONPATH=$PWD/src:$PWD/tests:$PWD/tests/frameworks
check() {
	local name=$1 python=$2
	"$python" -m ruff format --check "src/a2ad/$name.py" tests/frameworks &&
		"$python" -m ruff check "src/a2ad/$name.py" tests/frameworks &&
		MYPYPATH=src "$python" -m mypy --strict --cache-dir "$types/$name" "src/a2ad/$name.py" &&
		"$python" -m pytest -q -p no:cacheprovider "tests/frameworks/test_$name.py"
}

# Most of the time, the tests wait for the lease of a killed worker: they run at once.
out=$(mktemp -d)
declare -A running
trap 'kill "${running[@]}" 2>/dev/null || true; wait; rm -rf "$out"' EXIT
for name in "${names[@]}"; do
	check "$name" "${pythons[$name]}" >"$out/$name" 2>&1 &
	running[$name]=$!
done
failed=()
for name in "${names[@]}"; do
	wait "${running[$name]}" || failed+=("$name")
	echo "--- $name"
	cat "$out/$name"
done
if ((${#failed[@]})); then
	echo "failed: ${failed[*]}" >&2
	exit 1
fi

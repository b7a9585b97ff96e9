#!/usr/bin/env bash
# Drives a2ad with the A2A clients of frameworks: scripts/interop-frameworks.sh [NAME…], a test_NAME.py or js.
# Each framework has its own environment, because their package versions conflict. The pins work with Python 3.11 to
# 3.13; without it, the Python frameworks are skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
here=internal/interop/frameworks
export A2AD_BIN=$PWD/bin/a2ad

python=
for candidate in python3 python3.11 python3.12 python3.13; do
	supported='import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 14))'
	if "$candidate" -c "$supported" 2>/dev/null; then
		python=$candidate
		break
	fi
done

names=("$@")
if ((${#names[@]} == 0)); then
	for file in "$here"/test_*.py; do
		name=${file##*/test_}
		names+=("${name%.py}")
	done
	names+=(js)
fi

failed=()
report=()
for name in "${names[@]}"; do
	from=$SECONDS
	echo "--- $name"
	if [[ $name == js ]]; then
		if ! command -v npm >/dev/null; then
			echo "npm not found: skipping the JavaScript frameworks" >&2
			continue
		fi
		(cd "$here/js" && npm ci --ignore-scripts --no-audit --no-fund)
		made=$SECONDS
		(cd "$here/js" && npm test) || failed+=("$name")
	elif [[ -z $python ]]; then
		echo "no Python 3.11 to 3.13 with venv found: skipping $name" >&2
		continue
	else
		interpreter=$(scripts/python-env.sh "$here/$name.txt" "$python")
		made=$SECONDS
		"$interpreter" -B "$here/test_$name.py" -v || failed+=("$name")
	fi
	report+=("$(printf '%5ds to install, %5ds to test  %s' $((made - from)) $((SECONDS - made)) "$name")")
done

echo "---"
if ((${#report[@]})); then printf '%s\n' "${report[@]}"; fi
if ((${#failed[@]})); then
	echo "failed: ${failed[*]}" >&2
	exit 1
fi

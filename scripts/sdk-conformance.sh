#!/usr/bin/env bash
# Runs the conformance suite with the libraries for Go, Python and TypeScript. Arguments are those of `go test`:
#   scripts/sdk-conformance.sh -run 'TestConformance/python/case/ask'
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
python=$(scripts/python-env.sh sdk/python/requirements-dev.txt)

(
	cd sdk/python
	"$python" -m ruff format --check ../conformance/python
	"$python" -m ruff check --config pyproject.toml ../conformance/python
	MYPYPATH=src "$python" -m mypy --strict ../conformance/python
)
(
	cd sdk/typescript
	npm ci --ignore-scripts --no-audit --no-fund --silent
	npm run --silent build
	node_modules/.bin/tsc -p ../conformance/typescript
)
mkdir -p bin/conformance/node_modules/@a2ad
ln -sfn "$root/sdk/typescript" bin/conformance/node_modules/@a2ad/worker

driver="env PYTHONPATH=$root/sdk/python/src $python -B $root/sdk/conformance/python/driver.py"
# The cases wait more than they work, so more of them run at once than there are processors.
go test ./sdk/conformance -count=1 -parallel 8 -timeout 30m "$@" -args \
	-driver "python=$driver" -driver "python-sync=$driver --sync" \
	-driver "typescript=node $root/bin/conformance/driver.mjs"

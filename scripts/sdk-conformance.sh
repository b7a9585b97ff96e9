#!/usr/bin/env bash
# Runs the conformance suite with the libraries for Python, Go and TypeScript. Arguments go to `go test`:
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
	npm run --silent compile
)
mkdir -p bin
(cd sdk/go && go build -o "$root/bin/conformance-go" ./internal/conformance)

driver="env PYTHONPATH=$root/sdk/python/src $python -B $root/sdk/conformance/python/driver.py"
# Cases mostly wait, so more of them run at once than there are processors.
go test ./sdk/conformance -count=1 -parallel 8 -timeout 30m "$@" -args ${UPDATE:+-update} \
	-driver "python=$driver" -driver "go=$root/bin/conformance-go" \
	-driver "typescript=node $root/sdk/typescript/build/test/conformance/driver.js" -driver "python-sync=$driver --sync"

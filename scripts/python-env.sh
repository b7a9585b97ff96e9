#!/usr/bin/env bash
# Creates a Python environment below bin/python with the packages of a requirements file, and prints its interpreter:
#   scripts/python-env.sh REQUIREMENTS [PYTHON]
# Its name is a hash of the file and of the Python version, so it is rebuilt only when one of them changes.
set -euo pipefail
cd "$(dirname "$0")/.."
requirements=$1
python=${2:-python3}

hash=$({ "$python" -c 'import sys; print(sys.version)'; cat "$requirements"; } | cksum | cut -d' ' -f1)
name=${requirements#internal/interop/}
name=${name%.txt}
env=bin/python/${name//\//-}-$hash
if [[ ! -e $env/complete ]]; then
	rm -rf "$env"
	"$python" -m venv "$env"
	"$env/bin/pip" install --quiet --disable-pip-version-check --no-deps --requirement "$requirements" >&2
	touch "$env/complete"
fi
echo "$PWD/$env/bin/python"

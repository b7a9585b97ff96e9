#!/usr/bin/env bash
# Makes a Python environment with the packages of a requirements file, below bin/python, and prints its interpreter:
#   scripts/python-env.sh REQUIREMENTS [PYTHON]
# The environment is named by a hash of the file and of the version of Python, so it is made once and made anew when one changes.
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

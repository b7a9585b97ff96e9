#!/usr/bin/env bash
# Checks the Python library: format, lint, types, tests with a real server, and the package that users install.
#   A2AD_BIN=bin/a2ad PYTHON=python3.10 scripts/sdk-python.sh    # default: python3
set -euo pipefail
cd "$(dirname "$0")/.."
python=$(scripts/python-env.sh sdk/python/requirements-dev.txt "${PYTHON:-python3}")
export A2AD_BIN=${A2AD_BIN:-$PWD/bin/a2ad}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

cd sdk/python
"$python" -m ruff format --check src tests bench
"$python" -m ruff check src tests bench
MYPYPATH=src:../conformance/python "$python" -m mypy
PYTHONPATH=$PWD/src "$python" -m pytest -q -p no:cacheprovider "$@"

# Install the built package, and use it without the checkout.
"$python" -m build --no-isolation --outdir "$out/dist" . >"$out/build.log" || { cat "$out/build.log"; exit 1; }
"$python" -m venv "$out/env"
"$out/env/bin/pip" install --quiet --disable-pip-version-check --no-deps --no-index "$out"/dist/*.whl
"$out/env/bin/python" - <<'END'
import pathlib
import sys

import a2ad
from a2ad import testing

package = pathlib.Path(a2ad.__file__)
assert sys.prefix in str(package), package
assert (package.parent / "py.typed").exists()


async def hello(task, message):
    await task.write(f"Hello, {message.text}!")


assert testing.crash_everywhere(hello, "you").artifact() == "Hello, you!"
print("installed", package.parent.name, "from the wheel")
END
# Type-check a user's program against the installed package.
cat >"$out/agent.py" <<'END'
from a2ad import Message, Task, Worker

worker = Worker()


def plan(city: str) -> int:
    return len(city)


@worker.agent("trip")
async def trip(task: Task, message: Message) -> str:
    days: int = await task.step("plan", plan, message.text)
    first, second = await task.gather(task.step("a", plan, "x"), task.step("b", plan, "y"))
    answer: str = await task.ask("Book?", choices=["yes", "no"])
    return f"{days} {first} {second} {answer}"
END
"$python" -m mypy --strict --python-executable "$out/env/bin/python" --cache-dir "$out/mypy" "$out/agent.py"

cd ../.. # run the commands of the README
A2AD_TEST_PIP=1 go test ./internal/doctest -count=1 -run 'TestDocuments/sdk/python|TestNewAgents/python'

"""A test that imports an agent does not start its worker."""

from __future__ import annotations

import importlib.util
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import a2ad
from a2ad import UsageError, Worker

AGENT = """
from a2ad import Worker

worker = Worker()

@worker.agent("a")
async def agent(task, message): ...

def main():
    worker.run()

main()
"""


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    file = tmp_path / "some_agent.py"
    file.write_text(AGENT)
    return file


def test_run_is_refused_while_pytest_imports_the_file(agent: Path) -> None:
    spec = importlib.util.spec_from_file_location("some_agent", agent)
    assert spec is not None and spec.loader is not None
    with pytest.raises(UsageError, match='put it below if __name__ == "__main__":') as caught:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    assert caught.value.where == f"{agent}:10"


def test_run_is_refused_while_unittest_imports_the_file(agent: Path) -> None:
    (agent.parent / "test_it.py").write_text("from some_agent import agent\n")
    ran = subprocess.run(
        [sys.executable, "-m", "unittest"],
        check=False,
        cwd=agent.parent,
        env=os.environ | {"PYTHONPATH": str(Path(a2ad.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "some_agent.py:10: this starts a worker while a test imports the file" in ran.stderr


def test_run_works_in_a_program(agent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[Worker] = []

    async def serve(worker: Worker, *, signals: bool) -> None:
        served.append(worker)

    monkeypatch.setattr(Worker, "serve", serve)
    runpy.run_path(str(agent), run_name="__main__")
    Worker.run(served[0])  # a test that runs a worker
    assert len(served) == 2

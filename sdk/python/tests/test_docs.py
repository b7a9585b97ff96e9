"""What the library says about itself."""

from __future__ import annotations

import asyncio
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import a2ad
from a2ad import testing
from a2ad._session import Session
from a2ad._threads import Threads
from a2ad._wire import Run

PUBLIC = [getattr(a2ad, name) for name in a2ad.__all__ if inspect.isclass(getattr(a2ad, name))]
SYNC = [(a2ad.SyncTask, a2ad.Task), (a2ad.SyncArtifactWriter, a2ad.ArtifactWriter)]


@pytest.mark.parametrize("cls", [*PUBLIC, testing.Result], ids=lambda c: str(c.__name__))
def test_help_explains_every_method(cls: type[Any]) -> None:
    assert cls.__doc__
    for name, member in vars(cls).items():
        if not name.startswith("_") and (
            inspect.isfunction(member) or isinstance(member, property)
        ):
            assert inspect.getdoc(member), f"{cls.__name__}.{name} has no docstring"


@pytest.mark.parametrize(("sync", "of"), SYNC)
def test_methods_for_threads_have_the_same_parameters(sync: type[Any], of: type[Any]) -> None:
    for name, method in inspect.getmembers(of, inspect.isfunction):
        if not name.startswith("_") and name != "gather":
            of_both = [
                [(p.name, p.kind, p.default) for p in inspect.signature(m).parameters.values()]
                for m in (method, getattr(sync, name))
            ]
            assert of_both[0] == of_both[1], name


def test_help_explains_every_attribute_of_a_task() -> None:
    async def attributes() -> list[str]:
        reporter: Any = None
        run = Run.decode({"taskId": "t", "epoch": 1, "messages": [{"messageId": "m"}]})
        return [n for n in vars(a2ad.Task(Session(run, reporter, Threads()))) if n[0] != "_"]

    explained = a2ad.Task.__doc__ or ""
    names = asyncio.run(attributes())
    assert len(names) > 10
    assert [n for n in names if f"``{n}``" not in explained] == []


def test_the_version_is_that_of_the_newest_release() -> None:
    """As ``make build`` reads it for the server."""
    library = Path(__file__).parents[1]
    changelog = (library.parents[1] / "CHANGELOG.md").read_text()
    released = re.search(r"^## \[(\d[^]]*)\]", changelog, re.MULTILINE)
    built = re.search(r'^version = "(.*)"$', (library / "pyproject.toml").read_text(), re.MULTILINE)
    assert built is not None and released is not None
    assert built[1] == released[1]

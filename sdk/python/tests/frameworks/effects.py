"""What the fakes of a framework do to the world. A test reads it, and says where a fake stops."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

done: list[str] = []
"""What was done in this process."""

_directory = os.environ.get("EFFECTS")
"""Set in the process of a worker: the directory of the files of Effects."""


def did(what: str) -> None:
    """Note that something was done. If the test says so, stop here until the process is killed.

    Only for code in a thread of its own: ``do`` is for coroutines.
    """
    if _note(what):
        threading.Event().wait()


async def do(what: str) -> None:
    """Do the same as did, and let the event loop go on."""
    if _note(what):
        await asyncio.Event().wait()


def _note(what: str) -> bool:
    """Return whether to stop."""
    done.append(what)
    if _directory is None:
        return False
    effects = Effects(Path(_directory))
    effects.add(what)
    return effects.stop_at() == what


class Effects:
    """Two files, which a test and the process of its worker share."""

    def __init__(self, directory: Path) -> None:
        self._done = directory / "done"
        self._stop = directory / "stop"

    def add(self, what: str) -> None:
        with self._done.open("a") as f:
            f.write(what + "\n")

    def list(self) -> list[str]:
        return self._done.read_text().splitlines() if self._done.exists() else []

    def stop_next_at(self, what: str) -> None:
        self._stop.write_text(what)

    def stop_at(self) -> str:
        return self._stop.read_text() if self._stop.exists() else ""

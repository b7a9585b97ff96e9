"""A watch that warns if the agent's code blocks the event loop.

While it is blocked, no lease is renewed, so all runs of the worker may be lost. Heartbeats from a
thread of their own would only hide that: nothing could be reported or stopped meanwhile, and a
process that hangs for ever would keep its leases for ever.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from types import FrameType

from ._failures import in_package, in_program

log = logging.getLogger("a2ad")

BLOCKED = 1.0
"""Seconds after which the event loop counts as blocked."""
_LOOP = tuple(f"{asyncio.__path__[0]}/{name}.py" for name in ("base_events", "events", "runners"))


class Watch:
    """A thread that watches the event loop in which it was made, until ``close``."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._closed = threading.Event()
        self._alive = threading.Event()
        threading.Thread(target=self._work, name="a2ad-watch", daemon=True).start()

    def close(self) -> None:
        self._closed.set()
        self._alive.set()

    def _work(self) -> None:
        while not self._closed.wait(BLOCKED / 2):
            self._alive.clear()
            asked = time.monotonic()
            try:
                self._loop.call_soon_threadsafe(self._alive.set)
            except RuntimeError:
                return  # the event loop is closed
            if self._alive.wait(BLOCKED):
                continue
            frame = sys._current_frames().get(self._thread)
            where = blocking(frame) if frame is not None else ""
            if not where:  # the machine is slow, or the process was suspended
                continue
            log.warning(
                "the event loop is blocked for more than %.1f s at %s: no lease is renewed "
                "meanwhile. Call such code in a thread, for example in a step that is not async",
                *(time.monotonic() - asked, where),
            )
            self._alive.wait()
            log.info("the event loop was blocked for %.1f s", time.monotonic() - asked)


def blocking(frame: FrameType | None) -> str:
    """Return FILE:LINE of the code that an event loop executes, or "" if it is idle.

    That is the innermost line of the program, or else of an installed library.
    """
    library = ""
    while frame is not None:
        file, line = frame.f_code.co_filename, f"{frame.f_code.co_filename}:{frame.f_lineno}"
        if file.startswith(_LOOP):
            break
        if in_program(file):
            return line
        if in_package(file):
            library = library or line
        frame = frame.f_back
    return library

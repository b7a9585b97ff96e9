"""SIGTERM and SIGINT stop a worker."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable

from ._errors import misuse

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_handled: set[signal.Signals] = set()
"""The signals that stop the worker now."""


def check() -> None:
    """Raise UsageError if this process cannot handle signals in an event loop."""
    if sys.platform == "win32":
        raise misuse("run needs Linux or macOS: on Windows, use `await worker.serve()`")
    if threading.current_thread() is not threading.main_thread():
        raise misuse("run needs the main thread: in another one, use `await worker.serve()`")


def handle(stop: Callable[[], None]) -> None:
    """Call ``stop`` in this event loop at the first signal. The second one ends the process."""
    loop = asyncio.get_running_loop()

    def told() -> None:
        restore()
        stop()

    for s in _SIGNALS:
        loop.add_signal_handler(s, told)
        _handled.add(s)


def restore() -> None:
    """Let signals end the process again. Call it in the event loop of ``handle``."""
    while _handled:
        asyncio.get_running_loop().remove_signal_handler(_handled.pop())


def _after_fork() -> None:
    """Forget the handlers in a child process.

    It has inherited them, and the socket that wakes up the event loop of the worker: a signal for
    the child would stop the worker instead.
    """
    if _handled:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

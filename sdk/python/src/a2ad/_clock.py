"""The time of runs, and when they send streamed text."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import datetime, timezone

FLUSH_EVERY = 0.05
"""Seconds between two requests with streamed text."""
BEGAN = time.monotonic()
"""The time of the first tick at which streamed text is sent."""


class Clock:
    """The time of a session. Tests have a faster one."""

    def now(self) -> datetime:
        return datetime.now(timezone.utc)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def send_later(self, seconds: float, send: Callable[[], None]) -> asyncio.Handle:
        """Call ``send`` after a pause, in which the agent may write more."""
        return asyncio.get_running_loop().call_later(seconds, send)


def next_tick(sent_at: float) -> float:
    """Return when a run that sent streamed text at ``sent_at`` sends more.

    All runs of a process send at the same ticks, so that the server, the database and the worker
    wake up once for many requests.
    """
    after = sent_at + FLUSH_EVERY / 2 - BEGAN
    return BEGAN + (after // FLUSH_EVERY + 1) * FLUSH_EVERY

"""What one run has not sent yet. It is sent in order, one request at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from . import _values
from ._clock import Clock, next_tick
from ._errors import Stopped
from ._wire import Run

FLUSH_BYTES = 32 << 10
BLOCK_BYTES = 256 << 10
"""Bytes of unsent text from which on ``write`` waits."""
CHUNK_CHARACTERS = 128 << 10
"""Characters of one piece of streamed text. Encoded in UTF-8, they fit into a part."""
MAX_EVENTS = 1000
MAX_BATCH = 1 << 20
"""Bytes of a request with several units. One unit may have more: the server takes 4 MiB."""

Unit = tuple[str, ...]
"""Events, as JSON, that are stored together: all or none."""


class Reporter(Protocol):
    """What a session needs of the server, or of its replacement in a test."""

    async def report(self, run: Run, events: Sequence[str], batch: str) -> bool:
        """Store events, all or none. Return whether the task was canceled.

        It retries until the lease is lost, and then raises Stopped. It raises Refused for invalid
        events.
        """
        ...


@dataclass
class Chunk:
    """Text that is appended to an artifact."""

    artifact: str
    name: str
    text: list[str] = field(default_factory=list)
    size: int = 0


class Outbox:
    """Sends units and text, until the run has ended."""

    def __init__(self, run: Run, reporter: Reporter, clock: Clock) -> None:
        self.run = run
        self.clock = clock
        self.stopped: BaseException | None = None
        self.canceled = False
        self.working: set[asyncio.Future[None]] = set()
        """The steps whose functions are running, and records that are still to be sent."""
        self._reporter = reporter
        self._pending: list[Unit | Chunk] = []
        self._bytes = 0
        self._batches = 0
        self._text_sent_at = 0.0
        self._flushing = 0
        self._sender: asyncio.Task[None] | None = None
        self._timer: asyncio.Handle | None = None

    def put(self, unit: Unit | Chunk) -> None:
        self._pending.append(unit)
        self._bytes += _size(unit)

    def check(self) -> None:
        """Raise the reason if the run has ended."""
        if self.stopped is not None:
            raise self.stopped

    def stop(self, reason: BaseException) -> None:
        """End the run: from now on the agent's calls raise the reason."""
        if self.stopped is None:
            self.stopped = reason

    async def chunk(self, artifact: str, name: str, text: str) -> None:
        """Append text to an artifact without recording it: a segment or a step does."""
        self.check()
        for at in range(0, len(text), CHUNK_CHARACTERS):
            self._add_text(artifact, name, text[at : at + CHUNK_CHARACTERS])
        if self._bytes >= BLOCK_BYTES:
            await self.flush()
        elif self._bytes >= FLUSH_BYTES:
            self._send_text()
        elif self._timer is None and self._sender is None:
            self._send_text_later()

    def _add_text(self, artifact: str, name: str, text: str) -> None:
        last = self._pending[-1] if self._pending else None
        if (
            not isinstance(last, Chunk)
            or last.artifact != artifact
            or last.size + len(text) > CHUNK_CHARACTERS
        ):
            last = Chunk(artifact, name)
            self.put(last)
        last.text.append(text)
        last.size += len(text)
        self._bytes += len(text)

    def _send_text_later(self) -> None:
        """Send the first text at once, and later text at a tick."""
        delay = next_tick(self._text_sent_at) - time.monotonic()
        if delay <= 0:
            self._send_text()
        else:
            self._timer = self.clock.send_later(delay, self._send_text)

    def _send_text(self) -> None:
        self._timer = None
        if self._sender is None and self._pending and self.stopped is None:
            self._sender = asyncio.ensure_future(self._send())

    async def flush(self) -> None:
        """Send what waits, and return when the server has stored it."""
        self._flushing += 1
        try:
            while True:
                if self._sender is None:
                    self.check()
                    if not self._pending:
                        return
                    self._sender = asyncio.ensure_future(self._send())
                # A caller may stop waiting. The request continues: nothing is lost or sent twice.
                await asyncio.shield(self._sender)
        finally:
            self._flushing -= 1

    async def store(self) -> None:
        """Flush the record of work. If the caller is canceled, ``settle`` waits for it."""
        try:
            await self.flush()
        except asyncio.CancelledError:
            if self.stopped is None:
                rest = asyncio.ensure_future(self.flush())
                self.working.add(rest)
                rest.add_done_callback(self._settled)
            raise

    def _settled(self, work: asyncio.Future[None]) -> None:
        self.working.discard(work)
        if not work.cancelled():
            work.exception()  # it is that of the run

    async def settle(self) -> None:
        """Wait until the steps that are at work have ended and are recorded."""
        if self.working:
            await asyncio.wait(self.working)

    async def _send(self) -> None:
        """Send what waits. Text that is added meanwhile is sent later, unless ``flush`` waits."""
        try:
            while self._pending and self.stopped is None:
                events = self._take()
                self._batches += 1
                if await self._reporter.report(self.run, events, str(self._batches)):
                    self.canceled = True
                    self.stop(Stopped("canceled", "the task was canceled"))
                if not self._flushing and self._bytes < FLUSH_BYTES:
                    break
        except (Exception, Stopped) as err:
            self.stop(err)
        except asyncio.CancelledError:  # by `close`, or because the event loop ends
            self.stop(Stopped("released", "the worker stops"))
            raise
        finally:
            self._sender = None
        if self._pending and self._timer is None and self.stopped is None:
            self._send_text_later()

    def _take(self) -> list[str]:
        """Remove and return the events of one request."""
        events: list[str] = []
        size = taken = 0
        for unit in self._pending:
            more = (_encode_chunk(unit),) if isinstance(unit, Chunk) else unit
            size += sum(len(e) if e.isascii() else len(e.encode()) for e in more)
            if events and (size > MAX_BATCH or len(events) + len(more) > MAX_EVENTS):
                break
            events += more
            taken += 1
            if isinstance(unit, Chunk):
                self._text_sent_at = time.monotonic()
        del self._pending[:taken]
        self._bytes = sum(map(_size, self._pending))
        return events

    async def close(self) -> None:
        """Stop the background requests."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.gather(self._sender, return_exceptions=True)

    def clear(self) -> list[Unit]:
        """Remove and return the units that were not sent."""
        units = [unit for unit in self._pending if not isinstance(unit, Chunk)]
        self._pending.clear()
        return units


def _size(unit: Unit | Chunk) -> int:
    return unit.size if isinstance(unit, Chunk) else sum(map(len, unit))


def _encode_chunk(c: Chunk) -> str:
    artifact: dict[str, Any] = {"artifactId": c.artifact, "parts": [{"text": "".join(c.text)}]}
    if c.name:
        artifact["name"] = c.name
    return _values.compact({"artifactUpdate": {"artifact": artifact, "append": True}})

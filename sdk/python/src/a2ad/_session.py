"""One run of an agent: what is recorded of it, and what is still to be sent."""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, Protocol

from . import _values
from ._errors import NondeterminismError, Stopped
from ._threads import Threads
from ._tracing import Tracer
from ._wire import Part, Recorded, Run

log = logging.getLogger("a2ad")

FLUSH_EVERY = 0.05
"""Seconds between two requests with streamed text."""
BEGAN = time.monotonic()
"""The ticks at which streamed text is sent are counted from here."""
FLUSH_BYTES = 32 << 10
BLOCK_BYTES = 256 << 10
"""Streamed text that may wait to be sent before ``write`` waits."""
CHUNK_CHARACTERS = 128 << 10
"""Characters of one piece of streamed text. In UTF-8, they fit into a part."""
MAX_EVENTS = 1000
MAX_BATCH = 1 << 20
branch_prefix: contextvars.ContextVar[str] = contextvars.ContextVar("a2ad_prefix", default="")
"""The prefix of keys in a branch of ``gather``."""
POSTPONED = "postponed"
"""The key of the step that says why a task waits for a corrected program."""
POSTPONE_FIRST = 5.0
POSTPONE_MOST = 300.0
"""Seconds that such a task waits."""


class Clock:
    """The time of a session. Tests have a faster one."""

    def now(self) -> datetime:
        return datetime.now(timezone.utc)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def send_later(self, seconds: float, send: Callable[[], None]) -> asyncio.Handle:
        """Let the agent write more before what it has written is sent."""
        return asyncio.get_running_loop().call_later(seconds, send)


def next_tick(sent_at: float) -> float:
    """Return when a run sends streamed text again that has sent some at that time.

    All runs of a process do so at the same ticks. Then the server, the database and the worker wake
    up for many requests instead of each.
    """
    after = sent_at + FLUSH_EVERY / 2 - BEGAN
    return BEGAN + (after // FLUSH_EVERY + 1) * FLUSH_EVERY


class Reporter(Protocol):
    """What a session needs of the server, or of what stands in for it in a test."""

    async def report(self, run: Run, events: Sequence[str], batch: str) -> bool:
        """Store events, all or none. Return whether the task was canceled.

        It tries again until the lease is lost. Then it raises Stopped. It raises Refused for
        events that are not valid.
        """
        ...


@dataclass
class _Segment:
    """Successive writes to an artifact, which are recorded as one step."""

    key: str
    replayed: bool


@dataclass
class _Chunk:
    artifact: str
    name: str
    text: list[str] = field(default_factory=list)
    size: int = 0


class Session:
    """Numbers and compares what the agent records, and sends it in order."""

    def __init__(
        self,
        run: Run,
        reporter: Reporter,
        threads: Threads,
        *,
        replay: bool = True,
        clock: Clock | None = None,
    ) -> None:
        self.run = run
        self.threads = threads
        self.clock = clock or Clock()
        self.tracer = Tracer(run)
        self.replay = replay
        self.known: dict[str, Recorded] = {s.key: s for s in run.steps}
        self.stopped: BaseException | None = None
        self.canceled = False
        self.released = False
        """The worker gives the run back, because it was told to stop."""
        self._reporter = reporter
        self._counts: dict[str, int] = {}
        self._segments: dict[str, _Segment] = {}
        self._held: list[tuple[str, tuple[str, ...]]] = []  # failures, each with its branch
        self._pending: list[str | _Chunk] = []
        self._bytes = 0
        self._batches = 0
        self._text_sent_at = 0.0
        self._flushing = 0
        self._sender: asyncio.Task[None] | None = None
        self._timer: asyncio.Handle | None = None

    # Keys

    def next_key(self, name: str) -> str:
        """Return the key of the next use of a name: ``plan#1``, then ``plan#2``."""
        n = self._counts[name] = self._counts.get(name, 0) + 1
        return f"{name}#{n}"

    def recorded(self, key: str, kind: str, name: str, sha: str = "") -> Recorded | None:
        """Return what is recorded under a key, or raise NondeterminismError."""
        old = self.known.get(key)
        if old is None:
            return None
        expected, got = f"a {old.kind}", f"a {kind}"
        if old.kind == kind and old.name != name:
            expected, got = f"{expected} named {old.name!r}", f"{got} named {name!r}"
        elif old.kind == kind and kind == "step" and old.input_sha != sha:
            expected = f"a step with the input {old.input_sha[:12] or 'nothing'}"
            got = f"a step with the input {sha[:12] or 'nothing'}"
        elif old.kind == kind:
            return old
        raise NondeterminismError(key, expected, got)

    # Events

    def add(self, *events: dict[str, Any]) -> None:
        """Add events to those that wait to be sent, after what the agent has done before."""
        self.add_raw(*(json.dumps(e, separators=(",", ":"), ensure_ascii=False) for e in events))

    def add_raw(self, *events: str) -> None:
        """Add events that are JSON already."""
        self.check()
        self.close_segments()
        self._release_held()
        for e in events:
            self._put(e)

    def hold(self, *events: str) -> None:
        """Keep the record of a failure until the agent does something else: it has handled it."""
        self._held.append((branch_prefix.get(), events))

    def _release_held(self) -> None:
        """Record failures of this branch, and of branches in it. Others may not be handled."""
        here, held = branch_prefix.get(), self._held
        self._held = [h for h in held if not h[0].startswith(here)]
        for within, events in held:
            if within.startswith(here):
                for e in events:
                    self._put(e)

    def _put(self, event: str | _Chunk) -> None:
        self._pending.append(event)
        if isinstance(event, str):
            self._bytes += len(event)

    def check(self) -> None:
        """Raise what has ended the run, if it has ended."""
        if self.stopped is not None:
            raise self.stopped

    def stop(self, reason: BaseException) -> None:
        """End the run: from now on the agent's calls raise the reason."""
        if self.stopped is None:
            self.stopped = reason

    # Streams

    async def write(self, artifact: str, name: str, text: str) -> None:
        """Append text to an artifact. Send it soon."""
        self.check()
        if self.replay:
            segment = self._segments.get(artifact)
            if segment is None:
                segment = self._open_segment(artifact)
            if segment.replayed:
                return
        await self.chunk(artifact, name, text)

    async def chunk(self, artifact: str, name: str, text: str) -> None:
        """Send text to an artifact, whoever records it."""
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
            not isinstance(last, _Chunk)
            or last.artifact != artifact
            or last.size + len(text) > CHUNK_CHARACTERS
        ):
            last = _Chunk(artifact, name)
            self._put(last)
        last.text.append(text)
        last.size += len(text)
        self._bytes += len(text)

    def _send_text_later(self) -> None:
        """Send the first text at once, and what follows after a pause."""
        delay = next_tick(self._text_sent_at) - time.monotonic()
        if delay <= 0:
            self._send_text()
        else:
            self._timer = self.clock.send_later(delay, self._send_text)

    def _send_text(self) -> None:
        self._timer = None
        if self._sender is None and self._pending and self.stopped is None:
            self._sender = asyncio.ensure_future(self._send())

    def _open_segment(self, artifact: str) -> _Segment:
        key = self.next_key(f"write:{artifact}")
        old = self.recorded(key, "step", "write")
        segment = _Segment(key, old is not None and old.ended)
        self._release_held()
        if not segment.replayed:
            event = {"step": {"key": key, "name": "write", "artifact": artifact}}
            self._put(json.dumps(event, separators=(",", ":")))
        self._segments[artifact] = segment
        return segment

    def close_segments(self) -> None:
        """Record that the writes until now are complete."""
        for segment in self._segments.values():
            if not segment.replayed:
                self._put(
                    f'{{"step":{{"key":{json.dumps(segment.key)},"name":"write","result":null}}}}'
                )
        self._segments.clear()
        self._text_sent_at = 0.0

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
                # A caller may give up waiting. The request goes on: nothing is lost or sent twice.
                await asyncio.shield(self._sender)
        finally:
            self._flushing -= 1

    async def _send(self) -> None:
        """Send what waits. Text that comes meanwhile is sent later, unless someone waits for it."""
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
        finally:
            self._sender = None
        if self._pending and self._timer is None and self.stopped is None:
            self._send_text_later()

    def _take(self) -> list[str]:
        """Remove the events of one request from those that wait."""
        events: list[str] = []
        size = taken = 0
        for event in self._pending[:MAX_EVENTS]:
            text = event if isinstance(event, str) else _encode_chunk(event)
            size += len(text) if text.isascii() else len(text.encode())
            if events and size > MAX_BATCH:
                break
            events.append(text)
            taken += 1
            if not isinstance(event, str):
                self._text_sent_at = time.monotonic()
        del self._pending[:taken]
        self._bytes = sum(len(e) if isinstance(e, str) else e.size for e in self._pending)
        return events

    async def close(self) -> None:
        """Stop what runs in the background."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.gather(self._sender, return_exceptions=True)

    def drop(self) -> None:
        """Forget what was not sent: the attempt has failed, and the next one does it again."""
        self._pending.clear()
        self._segments.clear()
        self._held.clear()

    async def postpone(self, reason: str) -> None:
        """Record why the agent cannot go on, and let the task wait. Its attempts are not counted.

        The program is wrong, and a corrected one will continue the task.
        """
        self.drop()
        old = self.known.get(POSTPONED)
        times = old.attempts + 1 if old is not None else 1
        pause = min(POSTPONE_FIRST * 2 ** min(times - 1, 20), POSTPONE_MOST)
        at = (self.clock.now() + timedelta(seconds=pause)).strftime("%Y-%m-%dT%H:%M:%SZ")
        step = {
            "key": POSTPONED,
            "name": POSTPONED,
            "error": {"type": "UsageError", "message": _values.clean(reason, 4000)},
            "attempts": times,
            "nextAt": at,
        }
        wait = {"key": f"{POSTPONED}/pause#{times}", "for": f"{pause:.3f}s"}
        events = [json.dumps(e, ensure_ascii=False) for e in ({"step": step}, {"wait": wait})]
        await self._reporter.report(self.run, events, "postponed")


def _encode_chunk(c: _Chunk) -> str:
    artifact: dict[str, Any] = {"artifactId": c.artifact, "parts": [{"text": "".join(c.text)}]}
    if c.name:
        artifact["name"] = c.name
    event = {"artifactUpdate": {"artifact": artifact, "append": True}}
    return json.dumps(event, separators=(",", ":"), ensure_ascii=False)


def message(parts: Sequence[Part]) -> dict[str, Any]:
    """Return an agent's message on the wire."""
    return {"parts": [p.encode() for p in parts]}

"""One run of an agent: what is recorded, and what is still to be sent."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

from . import _keys, _segments, _values
from ._clock import Clock, next_tick
from ._errors import Error, NondeterminismError, Stopped, UsageError
from ._keys import POSTPONED
from ._segments import Segment
from ._threads import Threads
from ._tracing import Tracer
from ._wire import Recorded, Run

log = logging.getLogger("a2ad")

FLUSH_BYTES = 32 << 10
BLOCK_BYTES = 256 << 10
"""Bytes of unsent text from which on ``write`` waits."""
CHUNK_CHARACTERS = 128 << 10
"""Characters of one piece of streamed text. Encoded in UTF-8, they fit into a part."""
MAX_EVENTS = 1000
MAX_BATCH = 1 << 20
"""Bytes of a request with several units. One unit may have more: the server takes 4 MiB."""
branch_prefix: contextvars.ContextVar[str] = contextvars.ContextVar("a2ad_prefix", default="")
"""The prefix of keys in a branch of ``gather``."""
POSTPONE_FIRST = 5.0
POSTPONE_MOST = 300.0
"""Seconds that such a task waits: at first, and at most."""


class Reporter(Protocol):
    """What a session needs of the server, or of its replacement in a test."""

    async def report(self, run: Run, events: Sequence[str], batch: str) -> bool:
        """Store events, all or none. Return whether the task was canceled.

        It retries until the lease is lost, and then raises Stopped. It raises Refused for invalid
        events.
        """
        ...


@dataclass
class _Chunk:
    artifact: str
    name: str
    text: list[str] = field(default_factory=list)
    size: int = 0


_Unit = tuple[str, ...]
"""Events, as JSON, that are stored together: all or none."""


class Session:
    """Numbers what the agent records, compares it with the record, and sends it in order."""

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
        self.number = run.number(0 if replay else -1)
        self.turn = f"m{self.number}/" if self.number > 1 else ""
        """The prefix of keys if the function does not get the first message: work for one message
        is not the work for another."""
        self.scope = self.turn
        """The prefix of keys. That of a handler also has the checkpoint where it begins again."""
        self.stopped: BaseException | None = None
        self.mistake: Error | None = None
        """The first mistake of the program. After it, the agent may begin no other call."""
        self.working: set[asyncio.Future[None]] = set()
        """The steps in progress."""
        self.calling: dict[str, str] = {}
        """By the prefix of their branch: where the calls in progress were made."""
        self.canceled = False
        self.answered = 0
        """The message of the turn that has answered the last question, or the first message."""
        self.streams: dict[str, str] = {}
        """By artifact that steps write: the prefix of their branch."""
        self._reporter = reporter
        self._counts: dict[str, int] = {}
        self._used: set[str] = set()  # keys of recorded steps that the agent has come to
        self._segments: dict[str, Segment] = {}
        self._held: list[tuple[str, _Unit]] = []  # failures, each with its branch
        self._pending: list[_Unit | _Chunk] = []
        self._bytes = 0
        self._batches = 0
        self._text_sent_at = 0.0
        self._flushing = 0
        self._sender: asyncio.Task[None] | None = None
        self._timer: asyncio.Handle | None = None
        if not replay:
            self.saved(run.checkpoint)
            for event in _segments.take_back(run.steps):
                self._put((event,))

    # Keys

    def saved(self, checkpoint: Any) -> None:
        """Begin new keys after a checkpoint of a handler."""
        if not self.replay:
            text = _values.compact(_values.in_order(checkpoint))
            self.scope = self.turn + ("" if text == "null" else f"{_values.digest(text)[:8]}/")

    def next_key(self, name: str) -> str:
        """Return the key of the next use of a name: ``plan#1``, then ``plan#2``."""
        n = self._counts[name] = self._counts.get(name, 0) + 1
        return f"{name}#{n}"

    def recorded(self, key: str, kind: str, name: str, sha: str = "") -> Recorded | None:
        """Return what is recorded under a key, or raise NondeterminismError.

        ``sha`` is the hash of the input of a step or a wait, or of the message of a call.
        """
        old = self.known.get(key)
        if old is None:
            return None
        self._used.add(key)
        expected, got = f"a {old.kind}", f"a {kind}"
        if old.kind == kind and old.name != name:
            expected, got = f"{expected} named {old.name!r}", f"{got} named {name!r}"
        elif old.kind == kind and old.input_sha != sha and (kind == "step" or old.input_sha):
            # A wait may have been recorded by a server that did not store its hash.
            expected = f"a {kind} with the input hash {old.input_sha[:12] or 'none'}"
            got = f"a {kind} with the input hash {sha[:12] or 'none'}"
        elif old.kind == kind:
            return old
        raise NondeterminismError(key, expected, got)

    def unused(self) -> list[str]:
        """Return the keys of recorded steps that the agent has not come to in this run."""
        here = {_keys.scope(name) for name in self._counts}
        left = [k for k in self.known if k not in self._used and not _keys.of_library(k)]
        return [k for k in left if _keys.scope(k) in here]

    # Events

    def add(self, *events: dict[str, Any]) -> None:
        """Add events to those that wait to be sent. They are stored together."""
        self.add_raw(*(_values.compact(e) for e in events))

    def add_raw(self, *events: str) -> None:
        """Add events that are JSON already."""
        self.check()
        self.close_segments()
        self._release_held()
        self._put(events)

    def hold(self, *events: str) -> None:
        """Keep the record of a failure until the agent does something else, so has handled it."""
        self._held.append((branch_prefix.get(), events))

    def _release_held(self) -> None:
        """Record failures of this branch and of branches in it. Others may not be handled yet."""
        here, held = branch_prefix.get(), self._held
        self._held = [h for h in held if not h[0].startswith(here)]
        for within, events in held:
            if within.startswith(here):
                self._put(events)

    def _put(self, unit: _Unit | _Chunk) -> None:
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

    def refuse(self, mistake: Error) -> None:
        """From now on refuse calls, so that a mistake that the agent catches is not forgotten.

        Calls in progress go on: the work of a step is recorded.
        """
        if self.mistake is None:
            self.mistake = mistake
            self._release_held()  # the agent did something else, if only a mistake

    # Streams

    async def write(self, artifact: str, name: str, text: str) -> None:
        """Append text to an artifact, as part of its current segment."""
        self.check()
        if not self.segment(artifact).replayed:
            await self.chunk(artifact, name, text)

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

    def segment(self, artifact: str) -> Segment:
        """Return the current segment of an artifact. Without one, begin the next."""
        segment = self._segments.get(artifact)
        if segment is None:
            segment = self._segments[artifact] = self._open_segment(artifact)
        return segment

    def _open_segment(self, artifact: str) -> Segment:
        key = self.next_key(f"{self.scope}write:{artifact}")
        while not self.replay and key in self.known:  # of an earlier attempt, and over
            key = self.next_key(f"{self.scope}write:{artifact}")
        old = self.recorded(key, "step", "write")
        segment = Segment(key, old is not None and old.ended)
        self._release_held()
        if not segment.replayed:
            self._put((_segments.begin(key, artifact),))
        return segment

    def close_segments(self) -> None:
        """Record that the writes until now are complete.

        Those of a handler are complete when it saves a checkpoint or ends: see end_segments.
        """
        if self.replay:
            self.end_segments(*self._segments)

    def end_segments(self, *artifacts: str) -> None:
        for artifact in artifacts:
            segment = self._segments.pop(artifact, None)
            if segment is not None and not segment.replayed:
                self._put((_segments.end(segment.key),))
        self._text_sent_at = 0.0

    def end_all_segments(self) -> None:
        self.end_segments(*self._segments)

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
        finally:
            self._sender = None
        if self._pending and self._timer is None and self.stopped is None:
            self._send_text_later()

    def _take(self) -> list[str]:
        """Remove and return the events of one request."""
        events: list[str] = []
        size = taken = 0
        for unit in self._pending:
            more = (_encode_chunk(unit),) if isinstance(unit, _Chunk) else unit
            size += sum(len(e) if e.isascii() else len(e.encode()) for e in more)
            if events and (size > MAX_BATCH or len(events) + len(more) > MAX_EVENTS):
                break
            events += more
            taken += 1
            if isinstance(unit, _Chunk):
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

    async def drop(self) -> None:
        """Drop what was not sent, because the next attempt does it again. Only its usage counts."""
        units = [unit for _, unit in self._held]
        units += [unit for unit in self._pending if not isinstance(unit, _Chunk)]
        usage = [event for unit in units for event in unit if event.startswith('{"usage":')]
        self._pending.clear()
        self._segments.clear()
        self._held.clear()
        if usage:
            with contextlib.suppress(Stopped, UsageError):
                await self._reporter.report(self.run, usage, "usage")

    async def postpone(self, reason: str) -> None:
        """Record a mistake in the program, and let the task wait for a corrected one.

        It does not count as an attempt. What the agent has done until then is recorded first.
        """
        if self.working:
            await asyncio.wait(self.working)
        with contextlib.suppress(UsageError):  # if that is what the server has refused
            await self.flush()
        await self.drop()
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


def _size(unit: _Unit | _Chunk) -> int:
    return unit.size if isinstance(unit, _Chunk) else sum(map(len, unit))


def _encode_chunk(c: _Chunk) -> str:
    artifact: dict[str, Any] = {"artifactId": c.artifact, "parts": [{"text": "".join(c.text)}]}
    if c.name:
        artifact["name"] = c.name
    return _values.compact({"artifactUpdate": {"artifact": artifact, "append": True}})

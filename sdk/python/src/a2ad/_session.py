"""One run of an agent: what is recorded, and what is still to be sent."""

from __future__ import annotations

import contextlib
import contextvars
import json
from datetime import timedelta
from typing import Any

from . import _keys, _segments, _values
from ._clock import Clock
from ._errors import Error, NondeterminismError, Stopped, UsageError
from ._keys import POSTPONED
from ._outbox import Outbox, Reporter, Unit
from ._segments import Segment
from ._threads import Threads
from ._tracing import Tracer
from ._wire import Recorded, Run

branch_prefix: contextvars.ContextVar[str] = contextvars.ContextVar("a2ad_prefix", default="")
"""The prefix of keys in a branch of ``gather``."""
POSTPONE_FIRST = 5.0
POSTPONE_MOST = 300.0
"""Seconds that such a task waits: at first, and at most."""


class Session(Outbox):
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
        super().__init__(run, reporter, clock or Clock())
        self.threads = threads
        self.tracer = Tracer(run)
        self.replay = replay
        self.known: dict[str, Recorded] = {s.key: s for s in run.steps}
        self.number = run.number(0 if replay else -1)
        self.turn = f"m{self.number}/" if self.number > 1 else ""
        """The prefix of keys if the function does not get the first message: work for one message
        is not the work for another."""
        self.scope = self.turn
        """The prefix of keys. That of a handler also has the checkpoint where it begins again."""
        self.mistake: Error | None = None
        """The first mistake of the program. After it, the agent may begin no other call."""
        self.calling: dict[str, str] = {}
        """By the prefix of their branch: where the calls in progress were made."""
        self.answered = 0
        """The message of the turn that has answered the last question, or the first message."""
        self.streams: dict[str, str] = {}
        """By artifact that steps write: the prefix of their branch."""
        self._counts: dict[str, int] = {}
        self._used: set[str] = set()  # keys of recorded steps that the agent has come to
        self._segments: dict[str, Segment] = {}
        self._places = {key: n for n, key in enumerate(self.known)}
        self._passed: dict[str, int] = {}  # by artifact: the place where the handler is at least
        self._held: list[tuple[str, Unit]] = []  # failures, each with its branch
        if not replay:
            self.saved(run.checkpoint)
            for event in _segments.take_back(run.steps):
                self.put((event,))

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
        self.release_held()
        self.put(events)

    def hold(self, *events: str) -> None:
        """Keep the record of a failure until the agent does something else, so has handled it."""
        self._held.append((branch_prefix.get(), events))

    def release_held(self) -> None:
        """Record failures of this branch and of branches in it. Others may not be handled yet."""
        here, held = branch_prefix.get(), self._held
        self._held = [h for h in held if not h[0].startswith(here)]
        for within, events in held:
            if within.startswith(here):
                self.put(events)

    def refuse(self, mistake: Error) -> None:
        """From now on refuse calls, so that a mistake that the agent catches is not forgotten.

        Calls in progress go on: the work of a step is recorded.
        """
        if self.mistake is None:
            self.mistake = mistake
            self.release_held()  # the agent did something else, if only a mistake

    def check_open(self) -> None:
        """Raise an error if no work and no wait may begin.

        The run has ended, the agent's function is over, or it has made a mistake.
        """
        self.check()
        if self.mistake is not None:
            raise self.mistake

    def in_progress(self, what: str) -> UsageError | None:
        """Return the mistake if a function or a branch has left a call in progress."""
        here = branch_prefix.get()
        for branch, where in self.calling.items():
            if branch.startswith(here):
                left = UsageError(
                    f"the {what} has ended, but this call is still in progress: await it"
                )
                left.where = where
                return left
        return None

    def check_ended(self, what: str) -> None:
        """Raise that mistake. What was left in progress begins no other call."""
        if left := self.in_progress(what):
            self.refuse(left)
            raise left

    # Streams

    async def write(self, artifact: str, name: str, text: str) -> None:
        """Append text to an artifact, as part of its current segment."""
        self.check()
        segment = self.segment(artifact)
        while segment.replayed:
            text = segment.skip(text)
            if not text:
                return
            segment = self._next_segment(artifact)
        if not self.replay:
            segment.say(text)
        await self.chunk(artifact, name, text)

    def changed(self, artifact: str, event: str) -> bool:
        """Note a change of an artifact by a handler, other than text.

        Return whether it is recorded, so that it is not sent again.
        """
        self.check()
        change = _segments.change(event)
        segment = self.segment(artifact)
        while segment.replayed:
            if not segment.skip(change):
                return True
            segment = self._next_segment(artifact)
        segment.say(change)
        return False

    def _next_segment(self, artifact: str) -> Segment:
        """Return the segment after a replayed one, which the handler has left."""
        del self._segments[artifact]
        return self.segment(artifact)

    def segment(self, artifact: str) -> Segment:
        """Return the current segment of an artifact. Without one, begin the next."""
        segment = self._segments.get(artifact)
        if segment is None:
            segment = self._segments[artifact] = self._open_segment(artifact)
        return segment

    def _open_segment(self, artifact: str) -> Segment:
        key = self.next_key(f"{self.scope}write:{artifact}")
        while not self.replay and key in self.known and not self._follows(key, artifact):
            key = self.next_key(f"{self.scope}write:{artifact}")
        segment = _segments.replay(key, self.recorded(key, "step", "write"))
        self.release_held()
        if not segment.replayed:
            self.put((_segments.begin(key, artifact),))
        return segment

    def _follows(self, key: str, artifact: str) -> bool:
        """Return whether the handler can come to a recorded segment, which was not taken back."""
        kept = _segments.continued(self.known[key]) is not None
        return kept and self._places[key] >= self._passed.get(artifact, 0)

    def close_segments(self) -> None:
        """Record that the writes until now are complete.

        Those of a handler are complete when it saves a checkpoint or ends: see end_segments.
        """
        if self.replay:
            self.end_segments()

    def continue_segment(self, artifact: str, recorded: str = "") -> None:
        """Record that a step continues an artifact, so that what it has is not taken back.

        ``recorded`` is the key of a step that is replayed. What follows another one is new.
        """
        place = self._places[recorded] if recorded else len(self._places)
        self._passed[artifact] = max(place, self._passed.get(artifact, 0))
        segment = self._segments.pop(artifact, None)
        if segment is not None and not segment.replayed:
            self.put((_segments.end(segment.key, None if self.replay else segment.result()),))
        self._text_sent_at = 0.0

    def end_segments(self) -> None:
        """Record that the writes until now are complete, also those of a handler."""
        for segment in self._segments.values():
            if not segment.replayed:
                self.put((_segments.end(segment.key),))
        self._segments.clear()
        self._text_sent_at = 0.0

    async def drop(self) -> None:
        """Drop what was not sent, because the next attempt does it again. Only its usage counts."""
        units = [unit for _, unit in self._held]
        units += self.clear()
        usage = [event for unit in units for event in unit if event.startswith('{"usage":')]
        self._segments.clear()
        self._held.clear()
        if usage:
            with contextlib.suppress(Stopped, UsageError):
                await self._reporter.report(self.run, usage, "usage")

    async def postpone(self, reason: str) -> None:
        """Record a mistake in the program, and let the task wait for a corrected one.

        It does not count as an attempt. What the agent has done until then is recorded first.
        """
        await self.settle()
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

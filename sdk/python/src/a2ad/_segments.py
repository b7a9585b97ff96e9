"""Segments: what is written to an artifact between two other calls, recorded as one step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from . import _keys, _values
from ._wire import Recorded

CONTINUED = "continued"
"""The member of the result of a handler's segment that a step has continued: what it has said."""
MAX_SAID = 128 << 10
"""Characters. What comes after them is not recorded, so it is sent again."""


@dataclass
class Segment:
    """Successive changes of an artifact, which are recorded as one step."""

    key: str
    replayed: bool = False
    said: list[str] = field(default_factory=list)
    """What a handler has written, and for each other change its hash."""
    size: int = 0
    recorded: str | None = None
    """What a replayed segment of a handler has said. None: everything is replayed."""
    at: int = 0
    """How much of that the handler has said again."""

    def say(self, text: str) -> None:
        """Note what a handler has written."""
        self.size += len(text)
        if self.size <= MAX_SAID:
            self.said.append(text)

    def result(self) -> dict[str, str]:
        """Return the result of the segment of a handler that a step continues."""
        return {CONTINUED: "".join(self.said)}

    def skip(self, text: str) -> str:
        """Return what of a text is not recorded: all from the first difference on."""
        if self.recorded is None or self.recorded.startswith(text, self.at):
            self.at += len(text)
            return ""
        same = 0
        for new in text:
            if not self.recorded.startswith(new, self.at + same):
                break
            same += 1
        return text[same:]


def change(event: str) -> str:
    """Return how a change other than text is noted."""
    return f"\ufffc{_values.digest(event)}"


def replay(key: str, old: Recorded | None) -> Segment:
    """Return a segment, of which a part or all may be recorded."""
    if old is None or not old.ended:
        return Segment(key)
    return Segment(key, replayed=True, recorded=continued(old))


def continued(old: Recorded) -> str | None:
    """Return what a segment has said that a step has continued, or None for another one."""
    said = old.result.get(CONTINUED) if isinstance(old.result, dict) else None
    return said if isinstance(said, str) else None


def begin(key: str, artifact: str) -> str:
    """Return the event that begins a segment. If it began before, the artifact is restored."""
    return _values.compact({"step": {"key": key, "name": "write", "artifact": artifact}})


def end(key: str, result: dict[str, str] | None = None) -> str:
    return _values.compact({"step": {"key": key, "name": "write", "result": result}})


def take_back(steps: Sequence[Recorded]) -> list[str]:
    """Return events that remove what a handler wrote after its last checkpoint.

    If it has asked the client, and the client has answered, that text remains.
    """
    answered = {_keys.turn(s.key) for s in steps if s.kind == "wait" and s.by == "message"}
    events = []
    for s in steps:
        if is_segment(s) and not s.ended:
            if _keys.turn(s.key) not in answered:
                events.append(begin(s.key, s.artifact))
            events.append(end(s.key))
    return events


def is_segment(step: Recorded) -> bool:
    return step.name == "write" and f"write:{step.artifact}#" in step.key

"""Segments: what is written to an artifact between two other calls, recorded as one step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from . import _keys, _values
from ._wire import Recorded


@dataclass
class Segment:
    """Successive writes to an artifact, which are recorded as one step."""

    key: str
    replayed: bool


def begin(key: str, artifact: str) -> str:
    """Return the event that begins a segment. If it began before, the artifact is restored."""
    return _values.compact({"step": {"key": key, "name": "write", "artifact": artifact}})


def end(key: str) -> str:
    return _values.compact({"step": {"key": key, "name": "write", "result": None}})


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

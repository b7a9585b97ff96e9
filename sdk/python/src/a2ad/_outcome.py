"""What a test compares of two outcomes of a task, and how it shows the difference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import _keys, _segments

if TYPE_CHECKING:
    from .testing import Result

_WIDTH = 400


def outcome(r: Result) -> dict[str, Any]:
    """Return what a crash must not change, by a name for people."""
    made: dict[str, Any] = {"state": r.state, "text": r.text, "data": r.data}
    for id, parts in r.artifacts.items():
        text = "".join(p.text or "" for p in parts)
        made[f"artifact {id!r}"] = text or [p.encode() for p in parts]
    # A handler writes its text again under another key.
    keys = [k for k, step in r.steps.items() if not _segments.is_segment(step)]
    for branch, steps in _branches(keys).items():
        made[f"steps of {branch}" if branch else "steps"] = steps
    for model, counts in r.usage.items():
        made[f"usage of {model!r}" if model else "usage"] = counts
    return made


def _branches(keys: Sequence[str]) -> dict[str, list[str]]:
    """Sort keys by their branch of ``gather``: the order within one does not depend on time."""
    made: dict[str, list[str]] = {}
    for key in keys:
        made.setdefault(_keys.branch(key).rstrip("/"), []).append(key)
    return made


def difference(expected: Any, got: Any) -> str:
    """Say what differs, one under the other."""
    if not isinstance(expected, Mapping) or not isinstance(got, Mapping):
        return "\n".join(_pair(expected, got))
    lines: list[str] = []
    for name in {**expected, **got}:
        if expected.get(name) != got.get(name):
            lines += [f"  {name}", *(f"  {line}" for line in _pair(*_at(name, expected, got)))]
    return "\n".join(lines)


def _at(name: Any, expected: Mapping[Any, Any], got: Mapping[Any, Any]) -> tuple[Any, Any]:
    return expected.get(name, _Nothing()), got.get(name, _Nothing())


class _Nothing:
    def __repr__(self) -> str:
        return "nothing"


def _pair(expected: Any, got: Any) -> Iterator[str]:
    if isinstance(expected, list) and isinstance(got, list):
        both = [v for v in expected if v in got]
        if len(both) < len(expected) or len(both) < len(got):
            expected = [v for v in expected if v not in both]
            got = [v for v in got if v not in both]
    yield f"  without the crash: {_short(expected)}"
    yield f"  with the crash:    {_short(got)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH]}… ({len(text)} characters)"


def request(events: Sequence[Mapping[str, Any]]) -> str:
    """Say in a few words what a request to the server records."""
    said = list(dict.fromkeys(_event(kind, v) for e in events for kind, v in e.items()))
    said = [s for s in said if s] or ["recording text"]
    return ", ".join(said[:3]) + (f" and {len(said) - 3} more" if len(said) > 3 else "")


def _event(kind: str, v: Any) -> str:
    if kind == "step":
        if v.get("name") == "write":  # text that the agent writes, which the update shows
            return ""
        if "error" in v:
            return f"recording the failure of step {v['key']!r}"
        return f"{'beginning' if 'artifact' in v else 'recording'} step {v['key']!r}"
    if kind == "statusUpdate":
        state = v["status"]["state"].removeprefix("TASK_STATE_").lower()
        return "sending a status" if state == "working" else f"ending the task as {state}"
    if kind == "artifactUpdate":
        return f"writing artifact {v['artifact']['artifactId']!r}"
    if kind == "wait":
        return f"beginning the wait {v['key']!r}"
    if kind == "call":
        return f"calling agent {v['agent']!r}"
    return {"checkpoint": "saving a checkpoint", "usage": "reporting usage"}.get(kind, kind)

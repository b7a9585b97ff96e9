"""What an agent sends to the client: text that streams, artifacts, statuses."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from . import _check, _scope, _step, _values
from ._call import Caller
from ._errors import UsageError
from ._mistakes import explained
from ._session import Session
from ._wire import Part, encode_parts

USAGE = {
    "input_tokens": "inputTokens",
    "output_tokens": "outputTokens",
    "cached_input_tokens": "cachedInputTokens",
    "reasoning_tokens": "reasoningTokens",
    "requests": "requests",
}
"""The members of an event with usage, by argument."""
MAX_USAGE = 1_000_000_000
"""The largest number in one report of usage."""


async def write(session: Session, id: str, name: str, text: str) -> None:
    """Append text to an artifact, from the running step or from the agent's function."""
    _check.text(text, "the text", most=_check.MAX_COUNT)
    running = _scope.current_step(session)
    if running is None:
        _scope.outside_gather("write")
        await session.write(id, name, text)
        return
    if running.begun != id:
        if running.begun:
            raise UsageError(
                f"step {running.name!r} writes to {running.begun!r} and {id!r}; "
                "a step can write to only one artifact"
            )
        session.continue_segment(id)  # what is written before the step does not belong to it
        _step.begin(running, id)
    await session.chunk(id, name, text)


async def send(
    session: Session, id: str, name: str, kind: str, content: Any, how: dict[str, Any], append: bool
) -> None:
    """Send a part: add it to an artifact, or replace the artifact. ``kind`` is a field of Part."""
    _check.flag(append, "append")
    _scope.outside_gather("an artifact")
    if content is None and kind != "data":
        raise UsageError("the content of an artifact must not be None")
    part = Part(**{kind: content}, **how)
    artifact: dict[str, Any] = {"artifactId": id, "parts": encode_parts([part])}
    if name:
        artifact["name"] = name
    event: dict[str, Any] = {"artifact": artifact}
    if append:
        event["append"] = True
    await once(session, f"artifact:{id}", "artifact", {"artifactUpdate": event})


async def once(session: Session, name: str, kind: str, event: dict[str, Any]) -> bool:
    """Send an event, and record in the same transaction that it was sent.

    Return whether this attempt sent it.
    """
    _scope.outside_steps(session, kind)
    if not session.replay:
        text = _values.compact(event)
        if "artifactUpdate" in event:
            changed = event["artifactUpdate"]["artifact"]["artifactId"]
            if session.changed(changed, _values.fingerprint(text)):
                return False
        session.add_raw(text)
    else:
        key, text = _scope.key(session, name), _values.compact(event)
        # Work that is done again may use another number of tokens.
        sent = None if kind == "usage" else _values.fingerprint(text)
        if session.recorded(key, "step", kind, _values.digest(sent)) is not None:
            session.check()
            session.close_segments()
            return False
        step = _values.with_input({"key": key, "name": kind}, sent)
        session.add_raw(text, f'{{"step":{step}}}')
    await session.flush()
    return True


async def usage(session: Session, model: str, counts: dict[str, int | None]) -> None:
    """Report what a model used: with the record of the running step, or by itself."""
    event: dict[str, Any] = {
        USAGE[name]: _check.count(n, name, most=MAX_USAGE)
        for name, n in counts.items()
        if n is not None
    }
    if model:
        event["model"] = _check.name(model, "model")
    elif model != "":
        raise UsageError(f"model must be a str, not {type(model).__name__}")
    if not event:
        raise UsageError("usage needs a model or a number")
    running = _scope.current_step(session)
    if running is not None:
        _add_usage(running.usage, event)
        session.tracer.usage(event)
        return
    if await once(session, "usage", "usage", {"usage": event}):
        session.tracer.usage(event)


def _add_usage(reports: list[dict[str, Any]], event: dict[str, Any]) -> None:
    """Add a report to those of a step. The sums by model fit into one request."""
    numbers = {member: n for member, n in event.items() if member != "model"}
    for old in reports:
        sums = {member: old.get(member, 0) + n for member, n in numbers.items()}
        if old.get("model") == event.get("model") and max(sums.values(), default=0) <= MAX_USAGE:
            old.update(sums)
            return
    reports.append(event)


@explained
class ArtifactWriter:
    """An artifact that the agent writes. ``Task.artifact`` returns it.

    Await its methods. They raise UsageError for content that the server would refuse.
    """

    def __init__(self, caller: Caller, id: str, name: str) -> None:
        self._caller = caller.of("task.artifact(…)")
        self.id = id
        self.name = name

    def write(self, text: str) -> Coroutine[Any, Any, None]:
        """Append text, like ``Task.write``."""
        return self._caller.start(write, self.id, self.name, text)

    def data(self, value: Any, *, append: bool = False) -> Coroutine[Any, Any, None]:
        """Send a value of up to 1 MiB of JSON. Without ``append`` it replaces the artifact."""
        return self._send("data", value, append)

    def file(
        self, content: bytes, *, filename: str = "", media_type: str = "", append: bool = False
    ) -> Coroutine[Any, Any, None]:
        """Send a file of up to 768 KiB. Without ``append`` it replaces the artifact."""
        return self._send("raw", content, append, filename=filename, media_type=media_type)

    def link(
        self, url: str, *, filename: str = "", media_type: str = "", append: bool = False
    ) -> Coroutine[Any, Any, None]:
        """Send a link to a file. Without ``append`` it replaces the artifact."""
        return self._send("url", url, append, filename=filename, media_type=media_type)

    def replace(self, text: str) -> Coroutine[Any, Any, None]:
        """Replace the artifact with text of up to 1 MiB."""
        return self._send("text", text, False)

    def _send(self, kind: str, content: Any, append: bool, **how: Any) -> Coroutine[Any, Any, None]:
        return self._caller.start(send, self.id, self.name, kind, content, how, append)

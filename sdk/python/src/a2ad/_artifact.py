"""What an agent sends to the client: text that streams, artifacts, statuses."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from . import _check, _scope, _step
from ._errors import NondeterminismError, UsageError, caller
from ._session import Session
from ._wire import Part, encode_parts

P = ParamSpec("P")
R = TypeVar("R")


async def write(session: Session, id: str, name: str, text: str) -> None:
    """Append text to an artifact: of the step that runs, or of the agent's function."""
    _check.text(text, "the text", most=_check.MAX_COUNT)
    running = _scope.current_step(session)
    if running is None:
        await session.write(id, name, text)
        return
    if running.begun != id:
        if running.begun:
            raise UsageError(
                f"step {running.name!r} writes {running.begun!r} and {id!r}; "
                "a step writes one artifact"
            )
        _step.begin(running, id)
    await session.chunk(id, name, text)


async def send(
    session: Session, id: str, name: str, kind: str, content: Any, how: dict[str, Any], append: bool
) -> None:
    """Send a part of an artifact, or the whole of it. ``kind`` is the member of Part."""
    _check.flag(append, "append")
    if content is None and kind != "data":
        raise UsageError(f"the {kind} of an artifact must not be None")
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

    Return whether this attempt has sent it.
    """
    _scope.outside_steps(session, kind)
    if not session.replay:
        session.add(event)
    else:
        key = _scope.key(session, name)
        if session.recorded(key, "step", kind) is not None:
            session.check()
            session.close_segments()
            return False
        session.add(event, {"step": {"key": key, "name": kind}})
    await session.flush()
    return True


async def usage(session: Session, model: str, counts: dict[str, int | None]) -> None:
    """Report what a model used: with the record of the step that runs, or by itself."""
    event: dict[str, Any] = {
        member: _check.count(n, member) for member, n in counts.items() if n is not None
    }
    if model:
        event["model"] = _check.name(model, "model")
    elif model != "":
        raise UsageError(f"model must be a str, not {type(model).__name__}")
    if not event:
        raise UsageError("usage needs a model or a number")
    running = _scope.current_step(session)
    if running is not None:
        running.usage.append(event)
        session.tracer.usage(event)
        return
    if await once(session, "usage", "usage", {"usage": event}):
        session.tracer.usage(event)


class Caller:
    """Starts the calls of one task, and remembers where the agent's code made them."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, str] = {}
        self._numbers = itertools.count()  # which threads may share

    def start(
        self, work: Callable[Concatenate[Session, P], Awaitable[R]], *args: P.args, **how: P.kwargs
    ) -> Coroutine[Any, Any, R]:
        """Return the coroutine of a call, whose errors name the line of the agent's code."""
        number = next(self._numbers)
        self._waiting[number] = where = caller()
        return self._run(number, where, work, args, how)

    async def _run(
        self,
        number: int,
        where: str,
        work: Callable[..., Awaitable[R]],
        args: tuple[Any, ...],
        how: dict[str, Any],
    ) -> R:
        del self._waiting[number]
        try:
            if asyncio.get_running_loop() is not self._loop:
                raise UsageError("a task belongs to the event loop of its agent")
            return await work(self.session, *args, **how)
        except (UsageError, NondeterminismError) as err:
            err.where = err.where or where
            raise

    def check_awaited(self) -> None:
        """Raise UsageError if a call was not awaited: it did nothing."""
        for where in self._waiting.values():
            err = UsageError("this call was not awaited, so it did nothing: write await before it")
            err.where = where
            raise err


class ArtifactWriter:
    """An artifact that the agent writes. ``Task.artifact`` returns it."""

    def __init__(self, caller: Caller, id: str, name: str) -> None:
        self._caller = caller
        self.id = id
        self.name = name

    def write(self, text: str) -> Coroutine[Any, Any, None]:
        """Append text. The client sees it at once."""
        return self._caller.start(write, self.id, self.name, text)

    def data(self, value: Any, *, append: bool = False) -> Coroutine[Any, Any, None]:
        """Send a JSON value. Without ``append`` it replaces the artifact."""
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
        """Replace the artifact with a text."""
        return self._send("text", text, False)

    def _send(self, kind: str, content: Any, append: bool, **how: Any) -> Coroutine[Any, Any, None]:
        return self._caller.start(send, self.id, self.name, kind, content, how, append)

"""Calls of a task: what its methods return, and where the agent's code made them."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from typing import Any, Concatenate, ParamSpec, TypeVar

from . import _scope
from ._errors import NondeterminismError, Stopped, UsageError, call_site
from ._session import Session

P = ParamSpec("P")
R = TypeVar("R")


class NotAwaited(UsageError, AttributeError):
    """A call was used as if it were its result.

    It is an AttributeError too, so that ``hasattr`` works on a call.
    """


class Call(Coroutine[Any, Any, R]):
    """What a method of a task returns: an awaitable that does nothing until it is awaited.

    Any use of it as a value raises NotAwaited. It makes its coroutine only when it is awaited, so
    Python does not warn about a forgotten one in addition to this library.
    """

    __slots__ = ("_begin", "_coroutine", "_name", "_waiting", "where")

    def __init__(
        self,
        begin: Callable[[], Coroutine[Any, Any, R]],
        name: str,
        where: str,
        waiting: dict[int, Call[Any]],
    ) -> None:
        self._begin = begin
        self._name = name
        self.where = where
        self._coroutine: Coroutine[Any, Any, R] | None = None
        self._waiting = waiting
        waiting[id(self)] = self

    def _begun(self) -> Coroutine[Any, Any, R]:
        if self._coroutine is None:
            self.handed_over()
            self._coroutine = self._begin()
        return self._coroutine

    def handed_over(self) -> None:
        """Note that something else awaits this call, or that it has begun."""
        self._waiting.pop(id(self), None)

    def __await__(self) -> Generator[Any, Any, R]:
        return self._begun().__await__()

    def send(self, value: Any) -> Any:
        return self._begun().send(value)

    def throw(self, *error: Any) -> Any:
        return self._begun().throw(*error)

    def close(self) -> None:
        self._begun().close()

    def not_awaited(self) -> NotAwaited:
        err = NotAwaited(f"write await before {self._name}(…), which has done nothing yet")
        err.where = self.where
        return err

    def _refuse(self, *_: object) -> Any:
        raise self.not_awaited()

    __str__ = __format__ = __bool__ = __getitem__ = __iter__ = __getattr__ = _refuse

    def __repr__(self) -> str:
        return f"<{self._name}(…) without await>"

    def __eq__(self, other: object) -> bool:
        return self is other if isinstance(other, Call) else self._refuse()

    __hash__ = object.__hash__


class Caller:
    """Starts the calls of one task, and remembers where the agent's code made them."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._owner = "task"
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, Call[Any]] = {}
        """The calls that nothing has awaited yet, by id."""

    def of(self, owner: str) -> Caller:
        """Return the same caller for the methods of another object."""
        made = copy.copy(self)
        made._owner = owner
        return made

    def start(
        self, work: Callable[Concatenate[Session, P], Awaitable[R]], *args: P.args, **how: P.kwargs
    ) -> Call[R]:
        """Return a call. Its errors name the line of the agent's code."""
        where, name = call_site()
        running = _scope.current_step(self.session)
        waiting = self._waiting if running is None else running.waiting
        return Call(
            lambda: self._run(where, work, args, how), f"{self._owner}.{name}", where, waiting
        )

    async def _run(
        self,
        where: str,
        work: Callable[..., Awaitable[R]],
        args: tuple[Any, ...],
        how: dict[str, Any],
    ) -> R:
        session = self.session
        try:
            if asyncio.get_running_loop() is not self._loop:
                raise UsageError("await the methods of a task in the event loop of its agent")
            running = _scope.current_step(session)
            if running is not None:
                running.check()
                return await work(session, *args, **how)
            if session.mistake is not None:
                raise session.mistake
            branch = _scope.current_branch().prefix
            _refuse_at_once(session.calling.get(branch))
            session.calling[branch] = where
            try:
                return await work(session, *args, **how)
            finally:
                del session.calling[branch]
        except Stopped as err:
            err.where = err.where or where
            raise
        except (UsageError, NondeterminismError) as err:
            err.where = err.where or where
            self.mistaken(err)
            raise

    def mistaken(self, err: UsageError | NondeterminismError) -> None:
        """Remember a mistake: the running step fails with it, or the agent may not go on."""
        running = _scope.current_step(self.session)
        if running is None or running.ended:
            self.session.refuse(err)
        elif running.mistake is None:
            running.mistake = err

    def check_awaited(self, cause: Exception | None = None) -> None:
        """Raise UsageError if a call was not awaited. It may be what caused another error."""
        if isinstance(cause, NotAwaited):
            return
        mistake = forgotten(self._waiting, may_begin=cause is not None)
        if mistake is not None:
            raise mistake from cause


def forgotten(waiting: dict[int, Call[Any]], *, may_begin: bool = True) -> NotAwaited | None:
    """Return the mistake if a call was not awaited.

    With ``may_begin``, a call in a task of asyncio may only have had no time to begin.
    """
    if not waiting:
        return None
    tasks = {t.get_coro() for t in asyncio.all_tasks()} if may_begin else ()
    calls = (call for call in list(waiting.values()) if call not in tasks)
    return next((call.not_awaited() for call in calls), None)


def _refuse_at_once(other: str | None) -> None:
    """Refuse a call while another one of the same branch is in progress.

    The order of the two may change in the next attempt, and with it their keys.
    """
    if other is not None:
        raise UsageError(
            f"the call at {other or 'another place'} is still in progress: await one call before "
            "the next, or use task.gather. A thread that a step starts may only write and report "
            "usage, in a copy of the step's context (contextvars.copy_context)"
        )


def refuse_calls(values: Iterable[Any]) -> None:
    """Raise UsageError if one of the values is a call that was not awaited."""
    for value in values:
        if isinstance(value, Call):
            raise value.not_awaited()

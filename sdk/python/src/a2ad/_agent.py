"""An agent: a function, and how one run of it ends."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from . import _values
from ._errors import (
    Fail,
    NondeterminismError,
    Reject,
    Retry,
    StepError,
    Stopped,
    UsageError,
    caller,
    misuse,
    no_exit,
)
from ._failures import fields, log_failure, log_mistake
from ._mistakes import signature_of, wrong_call
from ._session import Session
from ._sync import SyncTask
from ._task import Task, parts_of
from ._wire import Message

log = logging.getLogger("a2ad")

AsyncFunction = Callable[[Task, Message], Awaitable[Any]]
SyncFunction = Callable[[SyncTask, Message], Any]

MAX_REASON = 4000
"""Characters of the reason of a failure."""


@dataclass(frozen=True)
class Agent:
    """A function that does the tasks of one agent of the server."""

    name: str
    function: Callable[..., Any]
    concurrency: int = 1
    replay: bool = True
    """Whether the function is for whole tasks and runs again from its start, or for messages."""


@dataclass(frozen=True)
class Ending:
    """How a run ended.

    ``outcome`` is ``finished``, ``waiting``, ``canceled``, ``lost``, ``postponed`` or ``released``,
    which the server knows, or ``retry``, which the worker must tell it.
    """

    outcome: str
    reason: str = ""
    after: float | None = None
    error: UsageError | None = None


async def execute(agent: Agent, session: Session) -> Ending:
    """Call the function of the agent, and record how its task ends."""
    with session.tracer.attempt():
        try:
            ending = await _execute(agent, session)
        except asyncio.CancelledError:
            ending = await _canceled(session)
        session.stop(Stopped("ended", "the attempt has ended"))  # for what the agent left running
        session.tracer.outcome(ending.outcome)
    return ending


async def _execute(agent: Agent, session: Session) -> Ending:
    task = Task(session)
    try:
        state, value = "TASK_STATE_COMPLETED", await _invoke(agent, task)
        task._caller.check_awaited()
    except (Fail, Reject) as err:
        state = "TASK_STATE_FAILED" if isinstance(err, Fail) else "TASK_STATE_REJECTED"
        value = _values.clean(str(err), MAX_REASON)
    except Retry as err:
        return await _again(session, str(err) or "the agent asked for another attempt", err.after)
    except Stopped:
        return _stopped(session)
    except UsageError as err:
        return await _postpone(session, err)
    except NondeterminismError as err:
        log.error("nondeterminism: %s", err, extra=fields(session.run))
        # Without the path of a file, because a client may read it.
        return await _again(session, f"nondeterminism: {err.args[0]}")
    except StepError as err:
        if err.__cause__ is None:  # it failed in an earlier attempt, whose log says where
            log.warning("step failed: %s", err, extra=fields(session.run))
        if err.recorded:
            return await _end(session, "TASK_STATE_FAILED", _values.clean(str(err), MAX_REASON))
        return await _again(session, str(err))
    except (KeyboardInterrupt, GeneratorExit, asyncio.CancelledError):
        raise  # the process or the event loop ends, or the worker ends the run
    except BaseException as err:  # also those of other libraries, which would end heartbeats
        log_failure(logging.ERROR, "attempt failed", err, session.run)
        return await _again(session, f"{type(err).__name__}: {err}")
    if unused := session.unused() if session.replay else []:
        log.warning(
            "the function ended without these recorded steps: %s; take the same path each time",
            ", ".join(unused[:10]) + (f" and {len(unused) - 10} more" if unused[10:] else ""),
            extra=fields(session.run),
        )
    try:
        return await _end(session, state, value)
    except UsageError as err:
        code = inspect.unwrap(agent.function).__code__
        err.where = err.where or f"{code.co_filename}:{code.co_firstlineno}"
        return await _postpone(session, err)


async def _invoke(agent: Agent, task: Task) -> Any:
    session = task._session
    try:
        result = await _call(agent, task)
    except asyncio.CancelledError as err:
        if isinstance(session.stopped, Stopped):
            raise session.stopped from err
        await _leave(session)
        raise
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as err:
        # The agent, or a framework between it and the library, may have caught what ended the run,
        # wrapped it or replaced it, for example in an exception group of parallel tool calls.
        ended = session.stopped or session.mistake or err
        await _leave(session)
        ended = session.stopped or ended
        if isinstance(ended, Exception):
            task._caller.check_awaited(ended)
            ended = wrong_call(ended) or ended
        if ended is not err:
            raise ended from err
        raise
    session.check()
    if session.mistake is not None:
        raise session.mistake
    session.check_ended("function")
    session.mistake = UsageError("the function has ended")  # for calls that it has left to others
    return result


async def _leave(session: Session) -> None:
    """After the function has raised an exception, record the work that it left in progress.

    No other work may begin. A failure that the function has raised is not handled, so its record
    is not released.
    """
    if session.stopped is not None:
        return
    if session.mistake is None:
        if left := session.in_progress("function"):
            log.warning("%s. The attempt ends after it", left, extra=fields(session.run))
        session.mistake = left or UsageError("the function has ended")
    await session.settle()


async def _call(agent: Agent, task: Task) -> Any:
    first = task.message if agent.replay else task.messages[-1]
    if inspect.iscoroutinefunction(agent.function):
        with no_exit():
            return await agent.function(task, first)
    sync = SyncTask(task, asyncio.get_running_loop())
    return await task._session.threads.run(lambda: agent.function(sync, first))


async def _end(session: Session, state: str, value: Any) -> Ending:
    status: dict[str, Any] = {"state": state}
    if value is not None and value != "":
        status["message"] = {"parts": parts_of(value)}
    try:
        session.check()
        session.end_segments()
        session.add_raw(json.dumps({"statusUpdate": {"status": status}}, ensure_ascii=False))
        await session.flush()
    except Stopped:
        return _stopped(session)
    return Ending("finished")


async def _postpone(session: Session, err: UsageError) -> Ending:
    """Let the task wait for a corrected program. The client sees no failure."""
    log_mistake(err, session.run)
    try:
        await session.postpone(str(err))
    except UsageError as refused:  # such as a task with too many steps
        return await _again(session, f"{err} ({refused})")
    except Stopped as stopped:
        return Ending(stopped.why, str(stopped))
    return Ending("postponed", error=err)


async def _canceled(session: Session) -> Ending:
    """Return how a function that was canceled ended: by the worker, or by itself."""
    if session.stopped is not None:
        return _stopped(session)
    return await _again(session, "the agent's function canceled itself")


def _stopped(session: Session) -> Ending:
    why = session.stopped
    return Ending(why.why, str(why)) if isinstance(why, Stopped) else Ending("lost", str(why))


async def _again(session: Session, reason: str, after: float | None = None) -> Ending:
    await session.drop()
    return Ending("retry", _values.clean(reason, MAX_REASON), after)


def check_function(name: str, function: Any) -> None:
    """Raise UsageError if this cannot be the function of an agent."""
    if not callable(function):
        raise misuse(f"the agent {name!r} must be a function, not {type(function).__name__}")
    signature = signature_of(function)
    if signature is None:
        return
    try:
        signature.bind(None, None)
    except TypeError:
        err = UsageError(
            f"the function of the agent {name!r} must take two arguments, (task, message), "
            f"not {signature}"
        )
        code = getattr(function, "__code__", None)
        err.where = f"{code.co_filename}:{code.co_firstlineno}" if code else caller()
        raise err from None

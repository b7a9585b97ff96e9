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
)
from ._session import Session
from ._sync import SyncTask
from ._task import Task, parts_of
from ._wire import Message, Run

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
    """The function is for whole tasks, and runs again from its start. False: for messages."""


@dataclass(frozen=True)
class Ending:
    """How a run ended.

    ``outcome`` is ``finished``, ``waiting``, ``canceled``, ``lost`` or ``postponed``, of which the
    server knows, or ``retry``, which it must be told.
    """

    outcome: str
    reason: str = ""
    after: float | None = None
    error: UsageError | None = None


async def execute(agent: Agent, session: Session) -> Ending:
    """Call the function of the agent, and record how its task ends."""
    with session.tracer.attempt():
        ending = await _execute(agent, session)
        session.tracer.outcome(ending.outcome)
    return ending


async def _execute(agent: Agent, session: Session) -> Ending:
    task = Task(session)
    try:
        state, value = "TASK_STATE_COMPLETED", await _invoke(agent, task)
        session.check()
        task._caller.check_awaited()
    except (Fail, Reject) as err:
        state = "TASK_STATE_FAILED" if isinstance(err, Fail) else "TASK_STATE_REJECTED"
        value = _values.clean(str(err), MAX_REASON)
    except Retry as err:
        return _again(session, str(err) or "the agent asked for another attempt", err.after)
    except Stopped:
        return _stopped(session)
    except asyncio.CancelledError:
        return _canceled(session)
    except UsageError as err:
        return await _postpone(session, err)
    except NondeterminismError as err:
        log.error("nondeterminism: %s", err, extra=fields(session.run))
        return _again(session, f"nondeterminism: {err.args[0]}")  # no path: a client may read it
    except StepError as err:
        log.warning("step failed: %s", err, extra=fields(session.run))
        if err.recorded:
            return await _end(session, "TASK_STATE_FAILED", _values.clean(str(err), MAX_REASON))
        return _again(session, str(err))
    except Exception as err:
        log.exception("attempt failed", extra=fields(session.run))
        return _again(session, f"{type(err).__name__}: {err}")
    try:
        return await _end(session, state, value)
    except UsageError as err:
        code = inspect.unwrap(agent.function).__code__
        err.where = err.where or f"{code.co_filename}:{code.co_firstlineno}"
        return await _postpone(session, err)


async def _invoke(agent: Agent, task: Task) -> Any:
    try:
        return await _call(agent, task)
    except BaseException as err:
        # A framework between the library and the agent may have wrapped or replaced Stopped, such
        # as in the group of exceptions of its parallel tool calls.
        stopped = task._session.stopped
        if isinstance(stopped, Stopped) and err is not stopped:
            raise stopped from err
        raise


async def _call(agent: Agent, task: Task) -> Any:
    first = task.message if agent.replay else task.messages[-1]
    if inspect.iscoroutinefunction(agent.function):
        return await agent.function(task, first)
    sync = SyncTask(task, asyncio.get_running_loop())
    return await task._session.threads.run(lambda: agent.function(sync, first))


async def _end(session: Session, state: str, value: Any) -> Ending:
    status: dict[str, Any] = {"state": state}
    if value is not None and value != "":
        status["message"] = {"parts": parts_of(value)}
    try:
        session.add_raw(json.dumps({"statusUpdate": {"status": status}}, ensure_ascii=False))
        await session.flush()
    except Stopped:
        return _stopped(session)
    return Ending("finished")


async def _postpone(session: Session, err: UsageError) -> Ending:
    """Let the task wait for a corrected program. Its client sees no failure."""
    log.error("the program is wrong: %s", err, exc_info=err, extra=fields(session.run))
    try:
        await session.postpone(str(err))
    except UsageError as refused:  # such as a task with too many steps
        return _again(session, f"{err} ({refused})")
    except Stopped as stopped:
        return Ending(stopped.why, str(stopped))
    return Ending("postponed", str(err), error=err)


def _canceled(session: Session) -> Ending:
    """Return the ending of a function that was canceled: by the worker, or by itself."""
    if session.stopped is not None:
        return _stopped(session)
    if session.released:
        raise asyncio.CancelledError
    return _again(session, "the agent's function was canceled from inside")


def _stopped(session: Session) -> Ending:
    why = session.stopped
    return Ending(why.why, str(why)) if isinstance(why, Stopped) else Ending("lost", str(why))


def _again(session: Session, reason: str, after: float | None = None) -> Ending:
    session.drop()
    return Ending("retry", _values.clean(reason, MAX_REASON), after)


def fields(run: Run) -> dict[str, Any]:
    """Return what log records say about a run."""
    return {
        "task_id": run.task_id,
        "agent": run.agent,
        "epoch": run.epoch,
        "attempt": run.attempt,
    }

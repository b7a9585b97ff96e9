"""Steps: work that is recorded, and not done again."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from . import _check, _scope, _values, _wait
from ._errors import (
    Fail,
    NondeterminismError,
    Reject,
    Retry,
    StepError,
    UsageError,
)
from ._session import Session
from ._wire import parse_time

LONG_PAUSE = 10.0
"""Seconds of a pause between two tries of a step from which on the task waits without a worker."""
LONGEST_PAUSE = 3600.0
MAX_RETRIES = 1000


@dataclass(frozen=True)
class Options:
    """How often and how long a step is tried."""

    retries: int
    backoff: float
    timeout: float | None

    @staticmethod
    def read(retries: Any, backoff: Any, timeout: Any) -> Options:
        return Options(
            retries=_check.count(retries, "retries", most=MAX_RETRIES),
            backoff=_check.seconds(backoff, "backoff"),
            timeout=None if timeout is None else _check.seconds(timeout, "timeout"),
        )


async def run(
    session: Session,
    name: str,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    options: Options,
    returns: Any,
) -> Any:
    """Return what is recorded of a step, or do it and record it."""
    sent = _values.inputs(args, kwargs)
    key = _scope.key(session, name)
    old = session.recorded(key, "step", name, _values.digest(sent) if sent is not None else "")
    kind = returns if returns is not None else _values.returned(fn)
    session.check()
    if old is not None and old.ended:
        session.close_segments()
        if old.error is not None:
            raise _recorded_error(name, old.error)
        return _values.restore(old.result, kind)
    step = _scope.Step(session, key, name, old.artifact if old is not None else "", sent)
    begin_again(step)
    tried = 0
    if old is not None and old.next_at:
        tried = old.attempts
        await _pause_until(session, key, tried, parse_time(old.next_at))
    with session.tracer.step(name, key):
        result, tried, started = await _try(step, fn, args, kwargs, options, tried)
        text, value = _values.plain(result, f"the result of step {name!r}")
        _record(step, {"attempts": tried, **_times(started)}, text)
        await session.flush()
    return _values.restore(value, kind)


async def _try(
    step: _scope.Step,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    options: Options,
    tried: int,
) -> tuple[Any, int, datetime]:
    """Call the function until it returns. Return its result, the number of tries, and its start."""
    session = step.session
    while True:
        tried += 1
        started = datetime.now(timezone.utc)
        try:
            return await _call(step, fn, args, kwargs, options.timeout), tried, started
        except (Retry, Fail, Reject, UsageError, NondeterminismError):
            raise
        except Exception as err:
            failure = StepError(
                step.name, type(err).__name__, _values.clean(str(err), 4000), recorded=False
            )
            record: dict[str, Any] = {
                "error": {"type": failure.type, "message": failure.message},
                "attempts": tried,
            }
            if tried > options.retries:
                await _give_up(step, failure, {**record, **_times(started)}, options.retries > 0)
                raise failure from err
            delay = min(options.backoff * 2 ** min(tried - 1, 60), LONGEST_PAUSE)
            at = session.clock.now() + timedelta(seconds=delay)
            _record(step, {**record, "nextAt": _scope.stamp(at)})
            await session.flush()
            await _pause_until(session, step.key, tried, at)
            begin_again(step)


async def _call(
    step: _scope.Step,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    timeout: float | None,
) -> Any:
    async def call() -> Any:
        token = _scope.step.set(step)
        try:
            if inspect.iscoroutinefunction(fn):
                return await fn(*args, **kwargs)
            result = await step.session.threads.run(lambda: fn(*args, **kwargs))
            return await result if inspect.isawaitable(result) else result
        finally:
            _scope.step.reset(token)

    return await (call() if timeout is None else asyncio.wait_for(call(), timeout))


async def _give_up(
    step: _scope.Step, failure: StepError, record: dict[str, Any], final: bool
) -> None:
    """Record a failure: now if its retries are used up, else with what the agent does next."""
    event = _event(step, record)
    if not final:
        step.session.hold(*_usage(step), event)
        return
    failure.recorded = True
    step.session.add_raw(*_usage(step), event)
    await step.session.flush()


def _record(step: _scope.Step, record: dict[str, Any], result: str | None = None) -> None:
    step.session.add_raw(*_usage(step), _event(step, record, result))


def _usage(step: _scope.Step) -> list[str]:
    """Return the usage that a try of the step reported. It is sent with the record of that try."""
    events = [json.dumps({"usage": u}, separators=(",", ":")) for u in step.usage]
    step.usage.clear()
    return events


def _event(step: _scope.Step, more: dict[str, Any], result: str | None = None) -> str:
    text = json.dumps(
        {"key": step.key, "name": step.name, **more}, separators=(",", ":"), ensure_ascii=False
    )[:-1]
    if step.input is not None:
        text += f',"input":{step.input}'
    if result is not None:
        text += f',"result":{result}'
    return f'{{"step":{text}}}}}'


def begin(step: _scope.Step, artifact: str) -> None:
    """Record that the step writes an artifact from now on."""
    step.begun = artifact
    step.session.add_raw(_event(step, {"artifact": artifact}))


def begin_again(step: _scope.Step) -> None:
    """Set the artifact back that an earlier try of the step has written."""
    if step.begun:
        begin(step, step.begun)


async def _pause_until(session: Session, key: str, tried: int, at: datetime) -> None:
    delay = (at - session.clock.now()).total_seconds()
    pause = f"{key}/pause#{tried}"
    old = session.recorded(pause, "wait", "")
    if old is not None and old.ended:
        return
    # A branch of gather cannot end the run, because others still work.
    if (old is None and delay < LONG_PAUSE) or _scope.current_branch().group is not None:
        await session.clock.sleep(max(delay, 0.0))
        return
    await _wait.wait(session, pause, {"until": _scope.stamp(at)})


def _times(started: datetime) -> dict[str, str]:
    ended = datetime.now(timezone.utc)
    return {"startedAt": _scope.stamp(started), "endedAt": _scope.stamp(ended)}


def _recorded_error(name: str, error: Any) -> StepError:
    if not isinstance(error, dict):
        error = {"message": str(error)}
    kind, text = str(error.get("type", "Error")), str(error.get("message", ""))
    return StepError(name, kind, text, recorded=True)

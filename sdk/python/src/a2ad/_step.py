"""Steps: work that is recorded, and not done again."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from . import _check, _scope, _values, _wait
from ._call import forgotten
from ._errors import Error, Fail, Reject, Retry, StepError, UsageError, no_exit
from ._failures import log_failure, log_mistake
from ._mistakes import wrong_call
from ._session import Session
from ._wire import parse_time

LONG_PAUSE = 10.0
"""Seconds. From here on, a pause between two tries is a wait without a worker."""
LONGEST_PAUSE = 3600.0
MAX_RETRIES = 1000


@dataclass(frozen=True)
class Options:
    """How often a step is tried, with what pauses, and how long each try may take."""

    retries: int
    backoff: float
    timeout: float | None

    @staticmethod
    def read(retries: Any, backoff: Any, timeout: Any) -> Options:
        return Options(
            retries=_check.count(retries, "retries", most=MAX_RETRIES),
            backoff=_check.seconds(backoff, "backoff"),
            timeout=None if timeout is None else _check.seconds_left(timeout, "timeout"),
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
    """Return the recorded result of a step, or do the step and record it."""
    sent = _values.inputs(args, kwargs)
    key = _scope.key(session, name)
    old = session.recorded(key, "step", name, _values.digest(sent))
    kind = returns if returns is not None else _values.returned(fn)
    session.check()
    if old is not None and old.artifact:
        _scope.stream(session, old.artifact)
        session.continue_segment(old.artifact, key if old.ended else "")
    session.close_segments()  # now, so that it does not depend on how the step ends
    if old is not None and old.ended:
        if old.error is not None:
            raise _recorded_error(name, old.error)
        return _restore(old.result, kind, f"the recorded result of step {name!r}")
    step = _scope.Step(session, key, name, old.artifact if old is not None else "", sent)
    begin_again(step)
    tried = 0
    if old is not None and old.next_at:
        tried = old.attempts
        await _pause_until(session, key, tried, parse_time(old.next_at))
    with session.tracer.step(name, key):
        while True:
            tried += 1
            session.check_open()
            done = asyncio.get_running_loop().create_future()
            session.working.add(done)
            try:
                result = await _try(step, fn, args, kwargs, options, kind, tried)
            finally:
                session.working.discard(done)
                done.set_result(None)
            if not isinstance(result, _Again):
                return result
            await _pause_until(session, key, tried, result.at)
            step = step.again()
            begin_again(step)


@dataclass(frozen=True)
class _Again:
    """The function has failed, and is called again."""

    at: datetime


async def _try(
    step: _scope.Step,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    options: Options,
    kind: Any,
    tried: int,
) -> Any:
    """Call the function once, and record the result or the failure. Return the result, or _Again.

    ``tried`` is the number of this try.
    """
    session = step.session
    started = datetime.now(timezone.utc)
    try:
        result = await _call(step, fn, args, kwargs, options.timeout)
        if mistake := step.mistake or forgotten(step.waiting):
            raise mistake
        text, value = _values.plain(result, f"the result of step {step.name!r}")
        # What cannot be restored now could not be restored in a later attempt either.
        value = _restore(value, kind, f"the result of step {step.name!r}")
    except asyncio.CancelledError:  # by the agent, or because the run ends
        session.hold(*_usage(step))
        raise
    except Exception as err:
        cause = step.mistake or forgotten(step.waiting) or wrong_call(err) or err
    else:
        _record(step, {"attempts": tried, **_times(started)}, text)
        await session.store()
        return value
    failure = _failure(step, cause)
    _log(step, cause, f" (try {tried} of {options.retries + 1})" if options.retries else "")
    record: dict[str, Any] = {
        "error": {"type": failure.type, "message": failure.message},
        "attempts": tried,
    }
    if isinstance(cause, (Retry, Fail, Reject)):
        _hold(step, {**record, **_times(started)})
        raise cause
    if isinstance(cause, UsageError) or tried > options.retries:
        final = isinstance(cause, UsageError) or options.retries > 0
        await _give_up(step, failure, {**record, **_times(started)}, final)
        raise failure from cause
    delay = min(options.backoff * 2 ** min(tried - 1, 60), LONGEST_PAUSE)
    at = session.clock.now() + timedelta(seconds=delay)
    _record(step, {**record, "nextAt": _scope.stamp(at)})
    await session.store()
    return _Again(at)


def _log(step: _scope.Step, cause: Exception, tries: str) -> None:
    run = step.session.run
    if isinstance(cause, UsageError):
        log_mistake(cause, run, step.session.calling.get(_scope.current_branch().prefix, ""))
    elif not isinstance(cause, (Retry, Fail, Reject)):
        log_failure(logging.WARNING, f"step {step.name} failed{tries}", cause, run)


def _failure(step: _scope.Step, cause: Exception) -> StepError:
    kind, text = type(cause).__name__, str(cause)
    if isinstance(cause, UsageError):  # without the path of a file, because a client may read it
        what = Exception.__str__(cause)
        text = f"{what}. The step is not done again, because its function was called"
        kind = "UsageError"
    for ending in (Retry, Fail, Reject):
        if isinstance(cause, ending):
            kind = f"a2ad.{ending.__name__}"
    return StepError(step.name, kind, _values.clean(text, 4000), recorded=False)


def _restore(value: Any, kind: Any, what: str) -> Any:
    try:
        return _values.restore(value, kind)
    except Exception as err:  # raised by the class
        name = getattr(kind, "__name__", kind)
        raise UsageError(f"{what} cannot be read back as {name}: {err}") from err


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
            with no_exit():
                if inspect.iscoroutinefunction(fn):
                    result = await fn(*args, **kwargs)
                else:
                    result = await step.session.threads.run(lambda: fn(*args, **kwargs))
                    if inspect.isawaitable(result):
                        result = await result
            step.returned = True
            return result
        finally:
            step.ended = True
            _scope.step.reset(token)

    return await (call() if timeout is None else asyncio.wait_for(call(), timeout))


async def _give_up(
    step: _scope.Step, failure: StepError, record: dict[str, Any], final: bool
) -> None:
    """Record a failure: now if it is final, otherwise with what the agent does next."""
    if not final:
        _hold(step, record)
        return
    failure.recorded = True
    _record(step, record)
    await step.session.store()


def _hold(step: _scope.Step, record: dict[str, Any]) -> None:
    """Record a failure with what the agent does next."""
    step.session.hold(*_usage(step), _event(step, record))


def _record(step: _scope.Step, record: dict[str, Any], result: str | None = None) -> None:
    step.session.add_raw(*_usage(step), _event(step, record, result))


def _usage(step: _scope.Step) -> list[str]:
    """Return the events of the usage that a try of the step reported, to send with its record."""
    events = [_values.compact({"usage": u}) for u in step.usage]
    step.usage.clear()
    return events


def _event(step: _scope.Step, more: dict[str, Any], result: str | None = None) -> str:
    text = _values.with_input({"key": step.key, "name": step.name, **more}, step.input)
    if result is not None:
        text = f'{text[:-1]},"result":{result}}}'
    return f'{{"step":{text}}}'


def begin(step: _scope.Step, artifact: str) -> None:
    """Record that the step begins to write an artifact."""
    _scope.stream(step.session, artifact)
    step.begun = artifact
    step.session.add_raw(_event(step, {"artifact": artifact}))


def begin_again(step: _scope.Step) -> None:
    """Restore the artifact that an earlier try of the step wrote."""
    if step.begun:
        begin(step, step.begun)


async def _pause_until(session: Session, key: str, tried: int, at: datetime) -> None:
    first = pause = f"{key}/pause#{tried}"
    n = 1
    while (old := session.known.get(pause)) is not None:
        if old.by != "tasks":
            return
        n += 1  # a call of another branch has ended before the pause
        pause = f"{first}.{n}"
    # The clock may have been set back.
    delay = min(max((at - session.clock.now()).total_seconds(), 0.0), LONGEST_PAUSE)
    if delay < LONG_PAUSE:
        await session.clock.sleep(delay)
        return
    until = session.clock.now() + timedelta(seconds=delay)
    branch = _scope.current_branch()
    wait = _scope.Wait([], until, pause)
    if branch.group is None:
        await _wait.begin(session, wait, pause)
    else:
        await branch.group.block(branch.number, wait, delay)


def _times(started: datetime) -> dict[str, str]:
    ended = datetime.now(timezone.utc)
    return {"startedAt": _scope.stamp(started), "endedAt": _scope.stamp(ended)}


def _recorded_error(name: str, error: Any) -> Error:
    if not isinstance(error, dict):
        error = {"message": str(error)}
    kind, text = str(error.get("type", "Error")), str(error.get("message", ""))
    for ending in (Retry, Fail, Reject):
        if kind == f"a2ad.{ending.__name__}":
            return ending(text)
    return StepError(name, kind, text, recorded=True)

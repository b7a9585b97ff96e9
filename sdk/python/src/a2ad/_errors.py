"""Exceptions that an agent may raise or catch."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Iterator

PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
RUNNERS = (os.path.dirname(asyncio.__file__) + os.sep, threading.__file__)
RETRY_LIMIT = 7 * 86400.0
"""The longest delay of another attempt, in seconds."""


def caller() -> str:
    """Return FILE:LINE of the agent's code that called this library, or an empty text."""
    return call_site()[0]


def call_site() -> tuple[str, str]:
    """Return FILE:LINE of the agent's code, and the name of the method that it called."""
    frame, name = sys._getframe(1), ""
    while frame.f_code.co_filename.startswith(PACKAGE):
        name = frame.f_code.co_name
        if frame.f_back is None:
            return "", name
        frame = frame.f_back
    file = frame.f_code.co_filename
    if file.startswith(RUNNERS):  # a method of a task is itself the function of a step
        return "", name
    return f"{file}:{frame.f_lineno}", name


class Error(Exception):
    """Base class of the errors of this library."""

    where = ""
    """FILE:LINE of the agent's call if the error is about that call, or empty."""

    def __str__(self) -> str:
        text = super().__str__()
        return f"{self.where}: {text}" if self.where else text


class UsageError(Error):
    """A call of the library has a wrong argument or is in the wrong place.

    Nothing of the call is sent. The task does not fail: it is retried later, so that a corrected
    program can continue it. If the agent catches the error, each later call raises it again, and
    the function ends with it. In a step, it fails the step instead: see ``Task.step``.
    """


class Refused(UsageError):
    """The server refused what the agent did, such as a call to an unknown agent."""


class Exited(Error):
    """The agent's code called sys.exit. That is an ordinary error of the attempt."""


@contextlib.contextmanager
def no_exit() -> Iterator[None]:
    """Turn SystemExit of the agent's code into an error.

    In a task of the event loop, it would end the worker and with it the runs of other tasks.
    """
    try:
        yield
    except SystemExit as err:
        raise Exited(f"the agent's code called sys.exit({err.code!r})") from err


def misuse(text: str) -> UsageError:
    """Return a UsageError with the line of the agent's code."""
    err = UsageError(text)
    err.where = caller()
    return err


class NondeterminismError(Error):
    """The agent's code took another path than the recorded one. It ends the attempt.

    If the agent catches the error, each later call raises it again, and the attempt fails.

    ``key`` is the key of the step, ``expected`` describes what is recorded, and ``got`` what the
    code does now.
    """

    def __init__(self, key: str, expected: str, got: str) -> None:
        kind, _, hashed = expected.partition(" with ")
        if hashed and got.startswith(f"{kind} with "):
            what = (
                f"the arguments of {kind.removeprefix('a ')} {key!r} differ from the recorded ones"
            )
            repair = "read changing values inside a step"
        else:
            what = "the code takes another path than the recorded one"
            repair = "take the same path each time"
        super().__init__(
            f"{what}; {repair} (step {key!r} is recorded as {expected}, "
            f"but the code now does {got})"
        )
        self.key = key
        self.expected = expected
        self.got = got


class StepError(Error):
    """A step failed. If the failure is recorded, each later attempt raises it again.

    ``step`` is the name of the step, ``type`` the class name of the original exception, and
    ``message`` its text. In the attempt in which the step failed, ``__cause__`` is the original
    exception. A timeout of a step has the type ``TimeoutError``, and a mistake that was found after
    the work has the type ``UsageError``.
    """

    def __init__(self, step: str, type: str, message: str, *, recorded: bool = False) -> None:
        super().__init__(f"{step}: {type}: {message}" if message else f"{step}: {type}")
        self.step = step
        self.type = type
        self.message = message
        self.recorded = recorded
        """Whether the failure was recorded when it was raised. Uncaught, it then fails the task."""


class CallError(Error):
    """A called agent did not complete its task.

    ``state`` is such as ``failed``, ``rejected`` or ``canceled``. ``text`` is the text of its last
    message or, if that has none, of its artifacts.
    """

    def __init__(self, agent: str, state: str, text: str) -> None:
        super().__init__(
            f"agent {agent!r} ended its task as {state}" + (f": {text}" if text else "")
        )
        self.agent = agent
        self.state = state
        self.text = text


class Timeout(Error):
    """No answer or signal came before the timeout of the wait."""


class Retry(Error):
    """Raise it to end this attempt. The server starts another one, if attempts are left.

    ``after`` is the delay, rounded up to whole seconds; at most seven days. A negative one counts
    as 0. Without it, the server uses the backoff of the agent.
    """

    def __init__(self, reason: str = "", *, after: float | None = None) -> None:
        _check_reason(reason)
        if after is not None:
            if isinstance(after, bool) or not isinstance(after, (int, float)):
                raise misuse(f"after must be a number of seconds, not {after!r:.60}")
            if after > RETRY_LIMIT:
                raise misuse(f"after must be between 0 and 7 days in seconds, not {after!r}")
            after = max(after, 0) if after <= RETRY_LIMIT else None  # which it is for NaN
        super().__init__(reason)
        self.after = after


class Fail(Error):
    """Raise it to fail the task permanently. The client sees at most 4,000 characters of reason."""

    def __init__(self, reason: str) -> None:
        _check_reason(reason)
        super().__init__(reason)


class Reject(Error):
    """Raise it to reject the task. The client sees at most 4,000 characters of reason."""

    def __init__(self, reason: str) -> None:
        _check_reason(reason)
        super().__init__(reason)


def _check_reason(reason: object) -> None:
    if not isinstance(reason, str):
        raise misuse(f"the reason must be a str, not {type(reason).__name__}")


class Stopped(BaseException):
    """The run has ended, so the agent's code must not continue. Do not catch it.

    ``why`` is ``waiting`` (the task waits without this process), ``canceled``, ``lost`` (the lease)
    or ``released`` (the worker stops, and the task returns to the queue). It is not an
    ``Exception``, so ``except Exception`` does not catch it. ``finally`` blocks run.
    """

    where = ""
    """FILE:LINE of the call that waits, or empty."""

    def __init__(self, why: str, text: str = "") -> None:
        super().__init__(text or why)
        self.why = why

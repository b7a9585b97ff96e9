"""What an agent may raise, and what it may have to catch."""

from __future__ import annotations

import asyncio
import math
import os
import sys
import threading

PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_RUNNERS = (os.path.dirname(asyncio.__file__) + os.sep, threading.__file__)
RETRY_LIMIT = 7 * 86400.0
"""Seconds that the server delays another attempt at most."""


def caller() -> str:
    """Return the file and the line of the agent's code that called this library, or nothing."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(PACKAGE):
        if frame.f_back is None:
            return ""
        frame = frame.f_back
    file = frame.f_code.co_filename
    if file.startswith(_RUNNERS):  # a method of a task is itself the function of a step
        return ""
    return f"{file}:{frame.f_lineno}"


class Error(Exception):
    """Base of the errors of this library."""

    where = ""
    """The file and the line of the agent's code that made the call, if the call was wrong."""

    def __str__(self) -> str:
        text = super().__str__()
        return f"{self.where}: {text}" if self.where else text


class UsageError(Error):
    """The agent's code calls the library in a way that cannot work.

    Nothing of the call is sent. The task does not fail: it waits, and tries again later, so that a
    corrected program can continue it.
    """


class Refused(UsageError):
    """The server does not accept what the agent did, such as the call of an unknown agent."""


def misuse(text: str) -> UsageError:
    """Return a UsageError with the line of the caller of the running method."""
    err = UsageError(text)
    err.where = caller()
    return err


class NondeterminismError(Error):
    """The agent's code has taken another path than the one that is recorded.

    ``key`` names the step, ``expected`` is what is recorded, and ``got`` what the code did now.
    """

    def __init__(self, key: str, expected: str, got: str) -> None:
        super().__init__(f"step {key!r} is recorded as {expected}, but the code now does {got}")
        self.key = key
        self.expected = expected
        self.got = got


class StepError(Error):
    """A step failed. It is raised again, with the same text, when the agent runs again.

    ``type`` is the name of the original exception's class. In the attempt in which the step failed,
    ``__cause__`` is the original exception.
    """

    def __init__(self, step: str, type: str, message: str, *, recorded: bool = False) -> None:
        super().__init__(f"{step}: {type}: {message}" if message else f"{step}: {type}")
        self.step = step
        self.type = type
        self.message = message
        self.recorded = recorded
        """The failure is final: another attempt would get it again."""


class CallError(Error):
    """A called agent did not complete its task. ``state`` and ``text`` say what it did instead."""

    def __init__(self, agent: str, state: str, text: str) -> None:
        super().__init__(
            f"agent {agent!r} ended its task as {state}" + (f": {text}" if text else "")
        )
        self.agent = agent
        self.state = state
        self.text = text


class Timeout(Error):
    """What the agent waited for did not come in time."""


class Retry(Error):
    """Raise it to end this attempt. The server starts another one, if attempts are left.

    ``after`` is the delay in seconds, up to seven days. Without it, the server's backoff for the
    agent applies.
    """

    def __init__(self, reason: str = "", *, after: float | None = None) -> None:
        _check_reason(reason)
        if after is not None:
            if isinstance(after, bool) or not isinstance(after, (int, float)):
                raise misuse(f"after must be a number of seconds, not {after!r:.60}")
            if not (math.isfinite(after) and 0 <= after <= RETRY_LIMIT):
                raise misuse(f"after must be between 0 and 7 days in seconds, not {after!r}")
        super().__init__(reason)
        self.after = after


class Fail(Error):
    """Raise it to fail the task for good. The client reads the reason."""

    def __init__(self, reason: str) -> None:
        _check_reason(reason)
        super().__init__(reason)


class Reject(Error):
    """Raise it to reject the task. The client reads the reason."""

    def __init__(self, reason: str) -> None:
        _check_reason(reason)
        super().__init__(reason)


def _check_reason(reason: object) -> None:
    if not isinstance(reason, str):
        raise misuse(f"the reason must be a str, not {type(reason).__name__}")


class Stopped(BaseException):
    """The run has ended, so the agent's code must not go on. ``why`` is waiting, canceled or lost.

    The library raises it where the code waits for more than this process will see: an answer that
    may take days, or a lost lease. It is not an ``Exception``, so that ``except Exception`` does
    not catch it. ``finally`` blocks run.
    """

    def __init__(self, why: str, text: str = "") -> None:
        super().__init__(text or why)
        self.why = why

"""Checks of the arguments of an agent. They refuse what the server would refuse."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from ._errors import UsageError

Duration = float | str | timedelta
"""Seconds, a timedelta, or a str such as "90s", "1h30m" or "7d". At most ten years.

For a wait, a negative one counts as 0.
"""

MAX_NAME = 200
"""Bytes of a name. A key is a name with a number, and has at most 256."""
MAX_ID = 256
MAX_TEXT = 1 << 20
"""Bytes of a text, or of another part of a message."""
MAX_PARTS = 100
MAX_CHOICES = 100
MAX_COUNT = 1 << 53

_AGENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_DURATION = re.compile(r"(\d+(\.\d+)?(ms|s|m|h|d))+")
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_YEARS = 10 * 365 * 86400.0
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def text(value: Any, what: str, *, most: int = MAX_TEXT) -> str:
    """Return the value if it is a str that the server can store."""
    if not isinstance(value, str):
        raise UsageError(f"{what} must be a str, not {type(value).__name__}")
    if value.isascii():
        size = len(value)
    else:
        try:
            size = len(value.encode())
        except UnicodeEncodeError as err:
            raise UsageError(f"{what} is not valid Unicode: {err}") from None
    if size > most:
        raise UsageError(f"{what} has {size} bytes; at most {most} are allowed")
    return value


def name(value: Any, what: str, *, most: int = MAX_NAME) -> str:
    """Return the value if it can be a name or an id."""
    text(value, what, most=most)
    if not value or "\0" in value:
        raise UsageError(f"{what} must have 1 to {most} bytes and no NUL: {value!r:.60}")
    return str(value)


def agent(value: Any) -> str:
    if not isinstance(value, str) or not _AGENT.fullmatch(value):
        raise UsageError(
            "the name of an agent must have 1 to 64 letters, digits, - and _, and begin with a "
            f"letter or a digit: {value!r:.80}"
        )
    return value


def count(value: Any, what: str, *, least: int = 0, most: int = MAX_COUNT) -> int:
    """Return the value if it is an int within bounds. A bool is not a number here."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"{what} must be a whole number, not {value!r:.60}")
    if not least <= value <= most:
        raise UsageError(f"{what} must be between {least} and {most}, not {value!r:.60}")
    return value


def flag(value: Any, what: str) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{what} must be True or False, not {value!r:.60}")
    return value


def seconds(duration: Any, what: str) -> float:
    """Read a duration: seconds, a timedelta, or a str such as "90s", "1h30m" or "7d"."""
    if isinstance(duration, timedelta):
        total = duration.total_seconds()
    elif isinstance(duration, str):
        if not _DURATION.fullmatch(duration):
            raise UsageError(
                f'{what} must be a duration such as "90s", "24h" or "7d", not {duration!r:.60}'
            )
        total = sum(float(n) * _UNITS[unit] for n, unit in _DURATION_PART.findall(duration))
    elif isinstance(duration, (int, float)) and not isinstance(duration, bool):
        total = float(duration) if abs(duration) <= _YEARS else math.inf
    else:
        raise UsageError(
            f"{what} must be seconds, a timedelta or a str, not {type(duration).__name__}"
        )
    if not 0 <= total <= _YEARS:
        raise UsageError(f"{what} must be between 0 and ten years, not {duration!r:.60}")
    return total


def seconds_left(duration: Any, what: str) -> float:
    """Read a duration that may be over: a negative one counts as 0.

    Such is the time until a recorded moment when the function runs again.
    """
    if isinstance(duration, timedelta):
        duration = duration.total_seconds()
    if isinstance(duration, (int, float)) and duration < 0:
        duration = 0
    return seconds(duration, what)


def wait_seconds(duration: Any, what: str) -> str:
    """Return a duration for the server, which refuses a wait of zero."""
    return f"{max(seconds_left(duration, what), 0.001):.3f}s"


def moment(value: Any, what: str) -> datetime:
    """Return a time in UTC."""
    if not isinstance(value, datetime):
        raise UsageError(f"{what} must be a datetime, not {type(value).__name__}")
    try:
        at = value.astimezone(timezone.utc)
    except (OverflowError, ValueError, OSError):
        at = _EPOCH - timedelta(days=1)
    if not at >= _EPOCH or at.year >= 9999:
        raise UsageError(f"{what} must be between the years 1970 and 9998, not {value}")
    return at


def choices(value: Any) -> list[str]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise UsageError(f"choices must be a list of str, not {value!r:.60}")
    texts = list(value)
    if not 1 <= len(texts) <= MAX_CHOICES:
        raise UsageError(f"choices must have 1 to {MAX_CHOICES} items, not {len(texts)}")
    for i, one in enumerate(texts):
        text(one, f"choices[{i}]")
        if not one or one != one.strip():
            raise UsageError(
                f"choices[{i}] must not be empty or have spaces around it: {one!r:.60}"
            )
    return texts


def function(value: Any, what: str) -> None:
    if hasattr(value, "close") and hasattr(value, "send"):  # a coroutine
        value.close()
        raise UsageError(
            f"{what} is a coroutine: pass the function and then its arguments, "
            "such as step(name, fn, argument)"
        )
    if not callable(value):
        raise UsageError(f"{what} must be a function, not {type(value).__name__}")


def sequence(value: Any, what: str) -> Sequence[Any]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise UsageError(f"{what} must be a list, not {type(value).__name__}")
    return value

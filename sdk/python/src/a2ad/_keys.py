"""The form of the keys of recorded steps, such as ``m2/6b86b273/gather#1.1/plan#1``."""

from __future__ import annotations

import re

POSTPONED = "postponed"
"""The key of the step that records why a task waits for a corrected program."""

_TURN = r"(?:m\d+/)?"
_SCOPE = _TURN + r"(?:[0-9a-f]{8}/)?"
_BRANCH = _SCOPE + r"(?:gather#\d+\.\d+/)*"
_INNER = re.compile(rf"{POSTPONED}($|/)|/pause#[\d.]+$|/wait(#\d+)?$")


def turn(key: str) -> str:
    """Return the prefix that names the message, or an empty text for the first message."""
    return _prefix(_TURN, key)


def scope(key: str) -> str:
    """Return the prefix that names the message and the checkpoint of a handler."""
    return _prefix(_SCOPE, key)


def branch(key: str) -> str:
    """Return the prefix of the branch of ``gather``, with that of the message."""
    return _prefix(_BRANCH, key)


def of_library(key: str) -> bool:
    """Return whether the library makes the key for itself, without a call of the agent."""
    return _INNER.search(key) is not None


def _prefix(pattern: str, key: str) -> str:
    found = re.match(pattern, key)
    return found[0] if found else ""

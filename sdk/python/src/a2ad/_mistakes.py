"""Calls that Python itself refuses: unknown names and wrong arguments, explained to the author."""

from __future__ import annotations

import difflib
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from ._errors import PACKAGE, UsageError, caller, misuse

C = TypeVar("C", bound=type[Any])

STEP_OPTIONS = ("retries", "backoff", "timeout", "returns")
_CALLED = re.compile(r"(\w+)\.(\w+)\(\) (.*)")
_UNKNOWN = re.compile(r"got an unexpected keyword argument '(\w+)'")

_explained: dict[str, type[Any]] = {}
"""The classes whose methods agents call, by name."""


class UnknownName(UsageError, AttributeError):
    """The agent used a method that does not exist. ``hasattr`` and ``getattr`` work as usual."""


def explained(cls: C) -> C:
    """Let wrong calls of a class raise UsageError with the line of the agent's code."""
    _explained[cls.__name__] = cls

    def unknown(self: Any, name: str) -> Any:
        err = UnknownName(f"{cls.__name__} has no {name!r}{_similar(name, dir(self))}")
        err.where = caller()
        raise err

    cls.__getattr__ = unknown  # not in the class body, where type checkers would accept any name
    return cls


def refuse_import() -> None:
    """Raise UsageError if a test runner imports the module that calls this library."""
    frame, imported = sys._getframe(1), False
    while (caller_of := frame.f_back) is not None:
        frame, name = caller_of, caller_of.f_globals.get("__name__", "")
        if frame.f_code.co_name == "<module>" and name != "__main__":
            imported = True
        elif imported and name.split(".")[0] in ("_pytest", "unittest"):
            raise misuse(
                "this starts a worker while a test imports the file: "
                'put it below if __name__ == "__main__":'
            )


def wrong_call(err: BaseException) -> UsageError | None:
    """Return the mistake if the error is Python's, about the arguments of a method of a task."""
    found = _CALLED.fullmatch(str(err)) if type(err) is TypeError else None
    method = getattr(_explained.get(found[1]), found[2], None) if found else None
    if found is None or method is None:
        return None
    *_, last = traceback.extract_tb(err.__traceback__)
    if last.filename.startswith(PACKAGE):
        return None
    text = found[3]
    if unknown := _UNKNOWN.match(text):
        names = inspect.signature(method).parameters
        text = f"takes no {unknown[1]!r}{_similar(unknown[1], names)}"
    mistake = UsageError(f"{found[1]}.{found[2]}() {text}")
    mistake.where = f"{last.filename}:{last.lineno}"
    return mistake


def check_arguments(fn: Callable[..., Any], args: Iterable[Any], kwargs: dict[str, Any]) -> None:
    """Raise UsageError if the function of a step cannot be called with these arguments."""
    signature = signature_of(fn)
    if signature is None:
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as err:
        name, text = getattr(fn, "__name__", type(fn).__name__), str(err)
        if unknown := _UNKNOWN.match(text):
            word = unknown[1]
            similar = _similar(word, (f"{o}=" for o in STEP_OPTIONS), "the step's ")
            text = f"() takes no {word!r}{similar or _similar(word, signature.parameters)}"
        elif missing := re.fullmatch(r"missing a required .*argument: ('\w+')", text):
            text = f"() needs {missing[1]}: pass it to the step after the function"
        else:
            text = f"{signature}: {text}"
        raise UsageError(f"{name}{text}") from None


def signature_of(fn: Callable[..., Any]) -> inspect.Signature | None:
    """Return how a function can be called, or None if that is not known.

    A decorator may pass other arguments to the function that it wraps.
    """
    if getattr(fn, "__signature__", None) is not None:
        return None
    try:
        return inspect.signature(fn, follow_wrapped=False)
    except (TypeError, ValueError):  # a built-in function
        return None


def _similar(word: str, names: Iterable[str], whose: str = "") -> str:
    """Return a question for the most similar name: the one that begins most like the word."""
    public = [n for n in names if not n.startswith("_") and n != "self"]
    found = difflib.get_close_matches(word, public)
    if not found:
        return ""
    return f"; did you mean {whose}{max(found, key=lambda n: n.startswith(word[:4]))}?"

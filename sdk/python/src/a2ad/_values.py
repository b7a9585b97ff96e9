"""Values that are recorded: how they become JSON, and come back."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import json
import typing
from collections.abc import Callable
from datetime import date, datetime
from enum import Enum
from typing import Any

from ._errors import UsageError

MAX_RESULT = 1 << 20
"""Bytes of one recorded value."""
MAX_DEPTH = 56
"""Levels of a value. An event has 64, and the value is some levels down."""


def encode(value: Any, what: str) -> str:
    """Return the value as JSON. ``what`` names it in the error."""
    text, _ = plain(value, what)
    return text


def plain(value: Any, what: str) -> tuple[str, Any]:
    """Return the value as JSON, and what that JSON is when it is read."""
    try:
        text = _encoder.encode(value)
        size = len(text) if text.isascii() else len(text.encode())
        if size > MAX_RESULT:
            raise UsageError(
                f"{what} is {size} bytes of JSON; at most {MAX_RESULT} can be recorded"
            )
        if _depth(text) > MAX_DEPTH:
            raise UsageError(f"{what} is nested deeper than {MAX_DEPTH} levels")
        return text, json.loads(text, object_pairs_hook=_object)
    except UsageError:
        raise
    except RecursionError:
        raise UsageError(f"{what} is nested deeper than {MAX_DEPTH} levels") from None
    except Exception as err:  # also of the value's own methods, and text that is not valid Unicode
        raise UsageError(f"{what} cannot be recorded as JSON: {err}") from err


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("two keys of a dict are the same text")
    return made


def _depth(text: str) -> int:
    """Return how deep JSON is nested. It counts brackets in texts, too, if there are many."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return 0
    depth = most = 0
    quoted = escaped = False
    for c in text:
        if escaped:
            escaped = False
        elif quoted:
            escaped = c == "\\"
            quoted = c != '"'
        elif c == '"':
            quoted = True
        elif c in "[{":
            depth += 1
            most = max(most, depth)
        elif c in "]}":
            depth -= 1
    return most


def _plain(value: Any) -> Any:
    if isinstance(value, type):
        raise TypeError(f"the class {value.__name__} has no form in JSON")
    if hasattr(value, "model_dump"):  # a Pydantic model
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


_encoder = json.JSONEncoder(
    separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_plain
)


def digest(value: str) -> str:
    """Return the SHA-256 of JSON, as the server computes it."""
    return hashlib.sha256(value.encode()).hexdigest()


def inputs(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Return the arguments of a step as JSON, or None if they are no data."""
    if not args and not kwargs:
        return None
    try:
        return encode({"args": args, **({"kwargs": kwargs} if kwargs else {})}, "input")
    except UsageError:
        return None


def clean(text: str, most: int) -> str:
    """Return a text of at most so many characters that can be sent, whatever was in it."""
    return text[:most].encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def returned(fn: Callable[..., Any]) -> Any:
    """Return the type that a function says it returns, or None."""
    try:
        plain = inspect.unwrap(fn)
        if "return" not in getattr(plain, "__annotations__", ()):
            return None
        return typing.get_type_hints(plain).get("return")
    except Exception:
        return None


def schema(kind: Any) -> Any:
    """Return the JSON Schema of a Pydantic model or, with Pydantic, of any other type."""
    try:
        if hasattr(kind, "model_json_schema"):
            return kind.model_json_schema()
        return _adapter(kind).json_schema()
    except Exception as err:
        raise UsageError(f"returns must be a Pydantic model, not {kind!r:.80}") from err


def restore(value: Any, kind: Any) -> Any:
    """Return the recorded value as an object of the type, if that is a model or a dataclass."""
    if kind is None or value is None:
        return value
    if hasattr(kind, "model_validate"):
        return kind.model_validate(value)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type) and isinstance(value, dict):
        adapter = _adapter(kind)  # it also restores what the dataclass holds
        return kind(**value) if adapter is None else adapter.validate_python(value)
    return value


@functools.lru_cache(maxsize=1000)
def _adapter(kind: Any) -> Any:
    try:
        from pydantic import TypeAdapter  # noqa: PLC0415 (only if it is installed)

        return TypeAdapter(kind)
    except Exception:
        return None

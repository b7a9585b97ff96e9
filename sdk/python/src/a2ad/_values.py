"""Recorded values: to JSON and back."""

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
"""Levels of nesting of a value. An event has at most 64, and contains the value."""
MAX_INPUT = 16 << 10
"""Characters of an input that is sent itself. Of a larger one, only the hash is sent."""


def encode(value: Any, what: str) -> str:
    """Return the value as JSON. ``what`` names it in the error."""
    text, _ = plain(value, what)
    return text


def plain(value: Any, what: str, *, most: int = MAX_RESULT) -> tuple[str, Any]:
    """Return the value as JSON, and that JSON decoded."""
    try:
        text = _encoder.encode(value)
        size = len(text) if text.isascii() else len(text.encode())
        if size > most:
            raise UsageError(f"{what} is {size} bytes of JSON; at most {most} can be recorded")
        if _depth(text) > MAX_DEPTH:
            raise UsageError(f"{what} is nested deeper than {MAX_DEPTH} levels")
        return text, json.loads(text, object_pairs_hook=_object)
    except UsageError:
        raise
    except RecursionError:
        raise UsageError(f"{what} is nested deeper than {MAX_DEPTH} levels") from None
    except Exception as err:  # raised by the value's own methods, or for invalid Unicode
        path, cause = _find(value, err)
        at = f"at {path}, " if path else ""
        own = None if isinstance(cause, (TypeError, ValueError)) else cause
        raise UsageError(f"{what} cannot be recorded as JSON: {at}{cause}") from own


def _find(value: Any, err: Exception) -> tuple[str, Exception]:
    """Return the path of the innermost part that cannot be encoded, such as ``["a"][0]``."""
    if str(err).startswith("Circular"):
        return "", err
    if isinstance(value, float):
        return "", ValueError(f"{value} is not a JSON number; use None, for example")
    try:
        if not isinstance(value, (dict, list, tuple)):
            value = _plain(value)
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        for name, part in () if isinstance(value, str) else parts:
            try:
                _encoder.encode(part).encode()
            except Exception as inner:
                path, cause = _find(part, inner)
                return f"[{json.dumps(name)}]{path}", cause
    except Exception:  # nothing can be looked at here
        pass
    return "", err


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("two keys of a dict become the same JSON key")
    return made


def _depth(text: str) -> int:
    """Return the depth of JSON, or 0 if it has too few brackets to be too deep."""
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
        raise TypeError(f"the class {value.__name__} has no JSON form")
    if hasattr(value, "model_dump"):  # a Pydantic model
        return value.model_dump(mode="json", by_alias=True)
    if dataclasses.is_dataclass(value):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    raise TypeError(
        f"{type(value).__name__} has no JSON form; convert it to a str, number, list, dict or "
        "dataclass"
    )


_encoder = json.JSONEncoder(
    separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_plain
)


def digest(value: str | None) -> str:
    """Return the SHA-256 of JSON, as the server computes it. Without JSON, it is empty."""
    return "" if value is None else hashlib.sha256(value.encode()).hexdigest()


def compact(value: Any) -> str:
    """Return the JSON of a value that was checked before."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def in_order(value: Any) -> Any:
    """Return a JSON value with the members of its objects in order: some languages have no other.

    What is hashed is the same in each of them, so a worker in another language can continue a task.
    """
    return json.loads(json.dumps(value, sort_keys=True))


def fingerprint(text: str) -> str:
    """Return what to send as the input of a step or a wait, so that another one is detected."""
    if _depth(text) <= MAX_DEPTH:
        text = compact(in_order(json.loads(text)))
        if len(text) <= MAX_INPUT:
            return text
    return compact({"sha256": digest(text)})


def with_input(members: dict[str, Any], sent: str | None) -> str:
    """Return the JSON of members and of an input that is JSON already."""
    text = compact(members)
    return text if sent is None else f'{text[:-1]},"input":{sent}}}'


def inputs(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Return the input to send for the arguments of a step, or None if it has none."""
    if not args and not kwargs:
        return None
    text = f'{{"args":[{",".join(_argument(a) for a in args)}]'
    if kwargs:
        named = (f"{json.dumps(name)}:{_argument(a)}" for name, a in kwargs.items())
        text += f',"kwargs":{{{",".join(named)}}}'
    return fingerprint(text + "}")


def _argument(value: Any) -> str:
    try:
        text = _comparer.encode(value)
        text.encode()
        return text
    except Exception:  # raised by the value's own methods, or for invalid Unicode
        return compact({"type": type(value).__qualname__})


def _comparable(value: Any) -> Any:
    """Return a value in place of one that has no JSON form: at least the name of its type."""
    if isinstance(value, (bytes, bytearray)):
        return {"sha256": hashlib.sha256(value).hexdigest()}
    try:
        return _plain(value)
    except Exception:
        name = getattr(value, "__qualname__", None)  # of a class or a function
        return {"type": name if isinstance(name, str) else type(value).__qualname__}


_comparer = json.JSONEncoder(
    separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_comparable
)


def clean(text: str, most: int) -> str:
    """Return the first ``most`` characters of a text, with those replaced that cannot be sent."""
    return text[:most].encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def returned(fn: Callable[..., Any]) -> Any:
    """Return the annotated return type of a function, or None."""
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
        hint = "; for a dataclass, install pydantic" if dataclasses.is_dataclass(kind) else ""
        raise UsageError(f"returns must be a Pydantic model, not {kind!r:.80}{hint}") from err


def restore(value: Any, kind: Any) -> Any:
    """Return the value as an instance of ``kind`` if that is a model or a dataclass."""
    if kind is None or value is None:
        return value
    if hasattr(kind, "model_validate"):
        return kind.model_validate(value)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type) and isinstance(value, dict):
        adapter = _adapter(kind)  # it also restores nested values
        return kind(**value) if adapter is None else adapter.validate_python(value)
    return value


@functools.lru_cache(maxsize=1000)
def _adapter(kind: Any) -> Any:
    try:
        from pydantic import TypeAdapter  # noqa: PLC0415 (only if it is installed)

        return TypeAdapter(kind)
    except Exception:
        return None

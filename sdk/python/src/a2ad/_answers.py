"""A check of the answers of a test: what the server refuses, a test must not answer."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from . import _values
from ._wire import Message, said


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_TYPES: dict[str, Any] = {
    "null": lambda v: v is None,
    "boolean": lambda v: isinstance(v, bool),
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
    "string": lambda v: isinstance(v, str),
    "number": _number,
    "integer": lambda v: _number(v) and v == int(v),
}
_BOUNDS: dict[str, Any] = {
    "minimum": lambda v, n: not _number(v) or v >= n,
    "maximum": lambda v, n: not _number(v) or v <= n,
    "exclusiveMinimum": lambda v, n: not _number(v) or v > n,
    "exclusiveMaximum": lambda v, n: not _number(v) or v < n,
    "minLength": lambda v, n: not isinstance(v, str) or len(v) >= n,
    "maxLength": lambda v, n: not isinstance(v, str) or len(v) <= n,
    "pattern": lambda v, n: not isinstance(v, str) or re.search(n, v) is not None,
    "minItems": lambda v, n: not isinstance(v, list) or len(v) >= n,
    "maxItems": lambda v, n: not isinstance(v, list) or len(v) <= n,
    "minProperties": lambda v, n: not isinstance(v, dict) or len(v) >= n,
    "maxProperties": lambda v, n: not isinstance(v, dict) or len(v) <= n,
}


def refusal(answer: Message, expects: Mapping[str, Any]) -> str:
    """Say why the server refuses an answer to a question that expects this, or return nothing."""
    text = said(answer)
    if "schema" in expects:
        data = [p for p in answer.parts if p.encode().keys() & {"data"}]
        if not data:
            return "the question expects data, such as answers=[{…}], and no text"
        value = json.loads(_values.encode(data[0].data, "the answer"))
        return _mismatch(value, expects["schema"], "the answer", expects["schema"])
    if "choices" in expects:
        if text in expects["choices"]:
            return ""
        return "the question expects one of " + ", ".join(map(repr, expects["choices"]))
    return "" if text or "text" not in expects else "the question expects a text"


def _mismatch(value: Any, schema: Any, at: str, root: Any) -> str:
    """Return the first thing in which a value does not fit a JSON Schema, or nothing."""
    if isinstance(schema, bool):
        return "" if schema else f"{at} is not allowed"
    if "$ref" in schema:
        target = _target(schema["$ref"], root)
        if target is not None and (found := _mismatch(value, target, at, root)):
            return found
    if found := _of_value(value, schema, at):
        return found
    for one in schema.get("allOf", ()):
        if found := _mismatch(value, one, at, root):
            return found
    for several in ("anyOf", "oneOf"):
        found_all = [_mismatch(value, one, at, root) for one in schema.get(several, ())]
        if found_all and all(found_all):
            return " or ".join(dict.fromkeys(found_all))
    if isinstance(value, dict):
        return _of_object(value, schema, at, root)
    return _of_array(value, schema, at, root) if isinstance(value, list) else ""


def _of_value(value: Any, schema: Mapping[str, Any], at: str) -> str:
    if "type" in schema:
        types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        if not any(_TYPES[t](value) for t in types):
            return f"{at} must be of the type {' or '.join(types)}, not {_short(value)}"
    allowed = (
        schema["enum"] if "enum" in schema else [schema["const"]] if "const" in schema else None
    )
    if allowed is not None and not any(_same(value, one) for one in allowed):
        return f"{at} must be {' or '.join(map(_short, allowed))}, not {_short(value)}"
    for bound, fits in _BOUNDS.items():
        if bound in schema and not fits(value, schema[bound]):
            return f"{at} does not fit {bound} {schema[bound]}: {_short(value)}"
    return ""


def _of_object(value: dict[str, Any], schema: Mapping[str, Any], at: str, root: Any) -> str:
    for name in schema.get("required", ()):
        if name not in value:
            return f"{at} needs {name!r}"
    properties, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for name, v in value.items():
        fitting = [one for pattern, one in patterns.items() if re.search(pattern, name)]
        if name in properties:
            fitting.append(properties[name])
        if not fitting:
            fitting = [schema.get("additionalProperties", True)]
        for one in fitting:
            if found := _mismatch(v, one, f"{at}.{name}", root):
                return found
    return ""


def _of_array(value: list[Any], schema: Mapping[str, Any], at: str, root: Any) -> str:
    first = schema.get("prefixItems", ())
    for i, v in enumerate(value):
        one = first[i] if i < len(first) else schema.get("items", True)
        if found := _mismatch(v, one, f"{at}[{i}]", root):
            return found
    return ""


def _target(ref: str, root: Any) -> Any:
    """Return the schema that a reference such as ``#/$defs/Order`` names, or None."""
    if not ref.startswith("#/"):
        return None
    target = root
    for step in ref[2:].split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        target = target.get(name) if isinstance(target, dict) else None
    return target


def _same(a: Any, b: Any) -> bool:
    return a == b and isinstance(a, bool) == isinstance(b, bool)


def _short(value: Any) -> str:
    return f"{value!r:.60}"

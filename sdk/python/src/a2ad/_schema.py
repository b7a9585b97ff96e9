"""A check of JSON Schemas for common mistakes. The server checks the rest."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ._errors import UsageError

_TYPES = {"null", "boolean", "object", "array", "number", "string", "integer"}
_SCHEMAS = {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
_LISTS = {"allOf", "anyOf", "oneOf", "prefixItems"}
_ONE = {
    *("additionalProperties", "propertyNames", "items", "contains", "not", "if", "then", "else"),
    *("unevaluatedItems", "unevaluatedProperties"),
}
_COUNTS = {
    *("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
    *("minContains", "maxContains"),
}
_NUMBERS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
_TEXTS = {"title", "description", "pattern", "format", "$id", "$anchor", "$comment"}
_FLAGS = {"uniqueItems", "readOnly", "writeOnly", "deprecated"}
_VERSION = re.compile(
    r"https?://json-schema\.org/(draft/20(20-12|19-09)/|draft-0[467]/)?schema#?",
)
"""The versions of JSON Schema that the server knows."""
_NOT_IN_RE2 = re.compile(r"(?<!\\)(?:\\\\)*(?:\(\?(?:[=!]|<[=!])|\\[1-9Z]|\(\?P=)")
"""What the server's regular expressions do not support, unless a backslash is before it."""
_ONLY_IN_RE2 = re.compile(r"\\[pPzQC]|\[\[:")


def check(schema: Any) -> None:
    """Raise UsageError for what is not a JSON Schema, or refers to another document."""
    if not isinstance(schema, dict):
        raise UsageError(f"schema must be a JSON Schema in a dict, not {type(schema).__name__}")
    version = schema.get("$schema", "https://json-schema.org/schema")
    _must(
        isinstance(version, str) and _VERSION.fullmatch(version),
        *("schema.$schema", "a version of https://json-schema.org"),
    )
    _schema(schema, "schema", schema)


def _schema(value: Any, at: str, root: dict[str, Any]) -> None:
    if isinstance(value, bool):
        return
    if not isinstance(value, dict):
        raise UsageError(f"{at} must be a schema, not {value!r:.60}")
    for key, v in value.items():
        _keyword(key, v, f"{at}.{key}", root)


def _keyword(key: str, v: Any, at: str, root: dict[str, Any]) -> None:
    number = _is_number(v)
    if key in _SCHEMAS:
        _must(isinstance(v, dict), at, "an object of schemas")
        for name, one in v.items():
            _schema(one, f"{at}.{name}", root)
    elif key in _LISTS:
        _must(isinstance(v, list) and v, at, "a list of schemas")
        for i, one in enumerate(v):
            _schema(one, f"{at}[{i}]", root)
    elif key in _ONE:
        _schema(v, at, root)
    elif key == "type":
        types = v if isinstance(v, list) else [v]
        known = types and all(isinstance(t, str) and t in _TYPES for t in types) and _differ(types)
        _must(known, at, "one of " + ", ".join(sorted(_TYPES)))
    elif key == "required":
        names = isinstance(v, list) and all(isinstance(n, str) for n in v)
        _must(names and _differ(v), at, "a list of names that differ")
    elif key == "enum":
        _must(isinstance(v, list), at, "a list")
    elif key in _COUNTS:
        _must(number and v >= 0 and v == int(v), at, "a whole number")
    elif key in _NUMBERS:
        _must(number and (key != "multipleOf" or v > 0), at, "a number")
    elif key in _TEXTS:
        _must(isinstance(v, str), at, "a string")
        if key == "pattern":
            _pattern(v, at)
    elif key in _FLAGS:
        _must(isinstance(v, bool), at, "true or false")
    elif key == "$ref":
        _must(isinstance(v, str), at, "a string")
        _reference(v, at, root)


def _differ(texts: list[str]) -> bool:
    return len(set(texts)) == len(texts)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _must(fits: Any, at: str, what: str) -> None:
    if not fits:
        raise UsageError(f"{at} must be {what}")


def _pattern(pattern: str, at: str) -> None:
    if _NOT_IN_RE2.search(pattern):
        raise UsageError(
            f"{at} has \\Z, a look-around or a back-reference, which the server refuses"
        )
    if _ONLY_IN_RE2.search(pattern):
        return
    try:
        re.compile(pattern)
    except re.error as err:
        raise UsageError(f"{at} is not a regular expression: {err}") from None


def _reference(ref: str, at: str, root: dict[str, Any]) -> None:
    if "$id" in root or any("$anchor" in s for s in _all(root)):
        return  # the server resolves these
    if not ref.startswith("#"):
        raise UsageError(f"{at} refers to another document: copy it under $defs")
    target: Any = root
    for step in ref.removeprefix("#").removeprefix("/").split("/"):
        if step == "" and ref in ("#", "#/"):
            return
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(target, dict) and name in target:
            target = target[name]
        elif isinstance(target, list) and name.isdigit() and int(name) < len(target):
            target = target[int(name)]
        else:
            raise UsageError(f"{at} refers to {ref}, which is not in the schema")


def _all(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for v in value.values():
            yield from _all(v)
    elif isinstance(value, list):
        for v in value:
            yield from _all(v)

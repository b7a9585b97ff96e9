"""Values become JSON. What does not is named with its place and a way out."""

from __future__ import annotations

import enum
import uuid
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel

from a2ad import Message, Task, UsageError, testing


class Color(enum.Enum):
    RED = "red"


@dataclass
class Box:
    content: Any


class Model(BaseModel, arbitrary_types_allowed=True):
    at: datetime


CONVERT = "has no JSON form; convert it to a str, number, list, dict or dataclass"
UNFIT: list[tuple[Any, str]] = [
    (uuid.UUID(int=1), f"as JSON: UUID {CONVERT}"),
    ({"a": [1, {"b c": Decimal(1)}]}, f'as JSON: at ["a"][1]["b c"], Decimal {CONVERT}'),
    ([Box({"a": {7: b"x"}})], f'as JSON: at [0]["content"]["a"][7], bytes {CONVERT}'),
    ({"a": (1, float("inf"))}, 'at ["a"][1], inf is not a JSON number; use None, for example'),
    ({"a": [{(1, 2): 3}]}, 'at ["a"][0], keys must be str, int, float, bool or None, not tuple'),
    ({"a": "\ud800"}, "at [\"a\"], 'utf-8' codec can't encode character"),
    ({"a": [{1, "b"}]}, "at [\"a\"][0], '<' not supported"),
]


@pytest.mark.parametrize(("value", "text"), UNFIT)
def test_a_value_that_is_not_json_is_named_with_its_place(value: Any, text: str) -> None:
    async def saves(task: Task, message: Message) -> None:
        await task.checkpoint(value)

    with pytest.raises(UsageError) as caught:
        testing.run(saves, "x")
    assert text in str(caught.value)
    assert caught.value.__cause__ is None


def test_what_other_values_become() -> None:
    value = {
        1: (1, 2),
        "set": {2, 1},
        "times": [datetime(2026, 1, 2, 3), date(2026, 1, 2), Color.RED],
        "objects": [Box(Model(at=datetime(2026, 1, 2)))],
    }

    async def works(task: Task, message: Message) -> list[Any]:
        return [await task.step("a", lambda: value), await task.step("b", int, "7")]

    assert testing.crash_everywhere(works, "x").data[0] == {
        "1": [1, 2],
        "set": [1, 2],
        "times": ["2026-01-02T03:00:00", "2026-01-02", "red"],
        "objects": [{"content": {"at": "2026-01-02T00:00:00"}}],
    }

"""The test kit: what it compares, what it refuses, and what it says."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

import a2ad
from a2ad import Message, Task, testing


def test_the_order_between_branches_of_gather_does_not_matter() -> None:
    runs: list[int] = []

    async def both(task: Task, message: Message) -> None:
        runs.append(1)
        first_is_done = asyncio.Event()

        async def branch(first: bool) -> None:
            async def work() -> None:
                if not first:
                    await first_is_done.wait()
                first_is_done.set()

            await task.step("a", work)
            await task.step("b", lambda: 1)

        first = len(runs) % 2 == 0
        await task.gather(branch(first), branch(not first))

    result = testing.crash_everywhere(both, "x")
    assert len(result.steps) == 4


async def counts(task: Task, message: Message) -> str:
    COUNTED.append(1)
    await task.step("a", lambda: 1)
    await task.write("some text")
    await task.step(f"b{len(COUNTED)}", lambda: 1)
    return f"run {len(COUNTED)}"


COUNTED: list[int] = []


def test_a_difference_is_shown_with_its_request() -> None:
    COUNTED.clear()
    with pytest.raises(testing.Difference) as caught:
        testing.crash_everywhere(counts, "x")
    assert str(caught.value).splitlines() == [
        "a crash before the server stored request 1 changed the outcome.",
        "The request: recording step 'a#1'",
        "  text",
        "    without the crash: 'run 1'",
        "    with the crash:    'run 3'",
        "  steps",
        "    without the crash: ['b1#1']",
        "    with the crash:    ['b3#1']",
        "Likely cause: code outside steps ran again and did something else than before.",
        "Read the time, random numbers, files and other services inside a step.",
    ]


def test_a_difference_of_what_the_test_compares() -> None:
    COUNTED.clear()
    with pytest.raises(testing.Difference, match="without the crash: 1\n  with the crash:    3"):
        testing.crash_everywhere(counts, "x", compare=lambda r: int(r.text[4:]))


async def waits(task: Task, message: Message) -> Any:
    await task.ask("one?")
    await task.ask("two?")
    await task.signal("paid")
    await task.gather(task.call("reviewer", "x"))


STUCK: list[tuple[dict[str, Any], int, str]] = [
    ({}, 1, "the agent asks 'one?' (question 1): pass its answer in answers=[…]"),
    ({"answers": "a"}, 2, "the agent asks 'two?' (question 2): pass its answer in answers=[…]"),
    ({"answers": "ab"}, 3, "the agent waits for the signal 'paid': pass signals={'paid': …}"),
    (
        {"answers": "ab", "signals": {"paid": 1}},
        4,
        "the agent calls 'reviewer': pass calls={'reviewer': …} with its answer",
    ),
]


@pytest.mark.parametrize(("how", "line", "text"), STUCK)
@pytest.mark.parametrize("play", [testing.run, testing.crash_everywhere])
def test_a_task_that_is_stuck_says_what_to_add(
    play: Callable[..., Any], how: dict[str, Any], line: int, text: str
) -> None:
    with pytest.raises(testing.Stuck) as caught:
        play(waits, "x", **how)
    assert str(caught.value) == f"{__file__}:{waits.__code__.co_firstlineno + line}: {text}"


def test_errors_show_the_test_and_not_the_library() -> None:
    async def wrong(task: Task, message: Message) -> None:
        await task.sleep("tomorrow")

    for play in (testing.run, testing.crash_everywhere):
        with pytest.raises(a2ad.UsageError) as caught:
            play(wrong, "x")
        shown = [f for f in caught.traceback if not f.ishidden(caught)]
        assert [str(f.path) for f in shown] == [__file__]
        assert len(traceback.extract_tb(caught.tb)) <= 4


class Stop(BaseModel):
    city: str
    nights: int = Field(ge=1)
    kind: Literal["train", "bus"] = "train"


class Trip(BaseModel, extra="forbid"):
    stops: list[Stop] = Field(min_length=1, max_length=2)
    note: str | None = None


LYON = {"city": "Lyon", "nights": 2}
REF = {"$defs": {"a/b": {"const": 1}}, "items": {"$ref": "#/$defs/a~1b"}}
REFUSED: list[tuple[dict[str, Any], Any, str]] = [
    ({"choices": ["yes", "no"]}, "maybe", "the question expects one of 'yes', 'no'"),
    ({"choices": ["yes", "no"]}, {"a": 1}, "the question expects one of 'yes', 'no'"),
    ({"schema": {"type": "integer"}}, "7", "the question expects data, such as answers=[{…}]"),
    ({"schema": {"type": "integer"}}, [7], "the answer must be of the type integer, not [7]"),
    ({"schema": REF}, [1, True], "the answer[1] must be 1, not True"),
    ({"schema": {"patternProperties": {"^n": {"type": "null"}}}}, {"n1": 0}, "the answer.n1 must"),
    (
        {"schema": {"prefixItems": [{}, {"pattern": "^a"}]}},
        ["b", "b"],
        "the answer[1] does not fit",
    ),
    (
        {"schema": {"allOf": [{"type": "object"}, {"maxProperties": 0}]}},
        {"a": 1},
        "maxProperties 0",
    ),
    ({"returns": Trip}, "Rome", "the question expects data"),
    ({"returns": Trip}, {}, "the answer needs 'stops'"),
    ({"returns": Trip}, {"stops": []}, "the answer.stops does not fit minItems 1: []"),
    ({"returns": Trip}, {"stops": [LYON], "day": 1}, "the answer.day is not allowed"),
    (
        {"returns": Trip},
        {"stops": [{"city": 5, "nights": 1}]},
        "the answer.stops[0].city must be of",
    ),
    ({"returns": Trip}, {"stops": [{**LYON, "nights": 0}]}, "nights does not fit minimum 1: 0"),
    (
        {"returns": Trip},
        {"stops": [{**LYON, "kind": "car"}]},
        "must be 'train' or 'bus', not 'car'",
    ),
    ({"returns": Trip}, {"stops": [LYON], "note": 5}, "must be of the type string, not 5 or"),
]


@pytest.mark.parametrize(("expects", "answer", "text"), REFUSED)
def test_an_answer_that_the_server_refuses(expects: Any, answer: Any, text: str) -> None:
    async def asks(task: Task, message: Message) -> None:
        await task.ask("Where?", **expects)

    with pytest.raises(testing.WrongAnswer) as caught:
        testing.run(asks, "x", answers=[answer])
    assert text in str(caught.value)
    line = asks.__code__.co_firstlineno + 1
    said = f"{__file__}:{line}: the server refuses the answer {answer!r} to 'Where?': "
    assert str(caught.value).startswith(said)


ACCEPTED: list[tuple[dict[str, Any], Any]] = [
    ({}, "anything"),
    ({}, {"a": 1}),
    ({"choices": ["yes", "no"]}, " yes "),
    ({"schema": {"type": ["integer", "null"]}}, Message("", "user", (a2ad.Part(data=2.0),))),
    ({"schema": {"oneOf": [{"format": "date"}, {"format": "time"}], "minimum": 7}}, {"a": 1}),
    ({"schema": REF}, [1, 1]),
    ({"returns": Trip}, {"stops": [LYON, LYON], "note": None}),
]


@pytest.mark.parametrize(("expects", "answer"), ACCEPTED)
def test_an_answer_that_the_server_accepts(expects: Any, answer: Any) -> None:
    async def asks(task: Task, message: Message) -> None:
        await task.ask("Where?", **expects)

    assert testing.run(asks, "x", answers=[answer]).state == "completed"


@pytest.mark.parametrize(
    ("texts", "choice"), [((" New", "York\n"), "New York"), (("New\nYork",), "New\nYork")]
)
def test_a_choice_is_the_text_that_the_server_compares(texts: tuple[str, ...], choice: str) -> None:
    async def asks(task: Task, message: Message) -> str:
        return await task.ask("Where?", choices=["New York", "New\nYork"])

    answer = Message("", "user", tuple(a2ad.Part(text=t) for t in texts))
    assert testing.run(asks, "x", answers=[answer]).text == choice

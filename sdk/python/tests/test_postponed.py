"""What a mistake in the program does to its task: it waits, and no work is lost."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import a2ad
from a2ad import Message, NondeterminismError, Task
from a2ad._agent import Agent, execute
from a2ad._session import Session
from a2ad._threads import Threads
from a2ad._wire import Run


class Kept:
    """A server that keeps what it gets."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    async def report(self, run: Run, events: Sequence[str], batch: str) -> bool:
        self.events += [json.loads(e) for e in events]
        return False


def attempt(function: Callable[..., Any], steps: Sequence[dict[str, Any]] = ()) -> Any:
    """Run an attempt at a task that has recorded steps. Return how it ended, and its events."""
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]}
    run = Run.decode({"taskId": "t", "epoch": 1, "messages": [message], "steps": steps})

    async def once() -> Any:
        server, threads = Kept(), Threads()
        ending = await execute(Agent("a", function), Session(run, server, threads))
        threads.close()
        return ending, server.events

    return asyncio.run(once())


def test_a_mistake_lets_the_task_wait_and_sends_nothing_of_the_call() -> None:
    async def wrong(task: Task, message: Message) -> None:
        await task.step("a", lambda: 1)
        await task.write("lost")
        await task.sleep("tomorrow")

    ending, events = attempt(wrong)
    assert ending.outcome == "postponed"
    first, begin, text, step, wait = events
    assert first["step"]["key"] == "a#1"
    assert begin["step"]["artifact"] == "answer"  # it has no end, so the text is restored later
    assert text["artifactUpdate"]["artifact"]["parts"] == [{"text": "lost"}]
    assert step["step"]["key"] == "postponed"
    assert "duration must be a duration" in step["step"]["error"]["message"]
    assert f"{__file__}:" in step["step"]["error"]["message"]
    assert wait == {"wait": {"key": "postponed/pause#1", "for": "5.000s"}}

    first = {"key": "a#1", "kind": "step", "name": "a", "endedAt": "x"}
    known = {"key": "postponed", "kind": "step", "name": "postponed", "attempts": 9, "nextAt": "x"}
    _, (_, _, step, wait) = attempt(wrong, [first, known])
    assert step["step"]["attempts"] == 10
    assert wait == {"wait": {"key": "postponed/pause#10", "for": "300.000s"}}


def test_another_kind_of_step_is_named() -> None:
    seen: list[str] = []

    async def changed(task: Task, message: Message) -> None:
        try:
            await task.step("sleep", lambda: 1)
        except NondeterminismError as err:
            seen.append(f"{err.key}: {err.expected}; {err.got}")

    ending, _ = attempt(changed, [{"key": "sleep#1", "kind": "wait", "endedAt": "x"}])
    assert (ending.outcome, seen) == ("retry", ["sleep#1: a wait; a step"])
    assert "step 'sleep#1' is recorded as a wait, but the code now does a step" in ending.reason


@pytest.mark.parametrize(
    ("call", "outcome"),
    [(lambda t: t.sleep("tomorrow"), "postponed"), (lambda t: t.step("b", str), "retry")],
)
@pytest.mark.parametrize("after", ["return", "fail", "raise", "call"])
def test_a_mistake_that_is_caught_is_not_forgotten(
    call: Callable[[Any], Any], outcome: str, after: str
) -> None:
    async def goes_on(task: Task, message: Message) -> str:
        with contextlib.suppress(Exception):
            await call(task)
        if after == "fail":
            raise a2ad.Fail("gave up")
        if after == "raise":
            raise RuntimeError("gave up")
        if after == "call":
            await task.status("went on")
        return "done"

    ending, events = attempt(goes_on, [{"key": "b#1", "kind": "wait", "endedAt": "x"}])
    assert ending.outcome == outcome
    assert not [e for e in events if "statusUpdate" in e]


def test_a_mistake_in_a_branch_lets_the_others_record_their_work() -> None:
    async def one(task: Task, message: Message) -> None:
        async def slow() -> str:
            for _ in range(10):
                await asyncio.sleep(0)
            return "paid"

        await task.gather(task.step("pay", slow), task.sleep("tomorrow"))

    ending, events = attempt(one)
    assert ending.outcome == "postponed"
    assert [e["step"]["key"] for e in events if "step" in e] == ["gather#1.1/pay#1", "postponed"]


def test_the_failure_that_a_wrong_call_handles_is_recorded() -> None:
    async def handles(task: Task, message: Message) -> None:
        try:
            await task.step("pay", int, "x")
        except a2ad.StepError:
            await task.sleep("tomorrow")

    ending, events = attempt(handles)
    assert ending.outcome == "postponed"
    assert [e["step"]["key"] for e in events if "step" in e] == ["pay#1", "postponed"]


def test_usage_counts_if_a_mistake_follows() -> None:
    async def uses(task: Task, message: Message) -> None:
        async def model() -> None:
            await task.usage(model="m", requests=1)
            raise ConnectionError("reset")

        await task.gather(task.step("model", model), task.sleep("tomorrow"))

    ending, events = attempt(uses)
    assert ending.outcome == "postponed"
    assert [e for e in events if "usage" in e] == [{"usage": {"requests": 1, "model": "m"}}]


def test_a_function_that_returns_before_its_call_ends_has_made_a_mistake() -> None:
    background: list[asyncio.Task[Any]] = []

    async def leaves(task: Task, message: Message) -> str:
        async def pay() -> str:
            for _ in range(9):
                await asyncio.sleep(0)
            return "r-17"

        async def pays() -> None:
            await task.step("pay", pay)

        background.append(asyncio.create_task(pays()))
        await asyncio.sleep(0)
        return "done"

    ending, events = attempt(leaves)
    assert ending.outcome == "postponed"
    assert "the function has ended, but this call is still in progress" in str(ending.error)
    assert (events[0]["step"]["key"], events[0]["step"]["result"]) == ("pay#1", "r-17")

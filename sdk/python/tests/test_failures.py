"""Steps that fail, and what is recorded of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel, Field

import a2ad
from a2ad import Message, Task, testing


def test_a_step_that_streams_only_in_its_second_try() -> None:
    async def answer(task: Task, message: Message) -> None:
        tries: list[int] = []

        async def model() -> None:
            tries.append(1)
            if len(tries) == 1:
                raise ConnectionError("reset")
            await task.write("whole ")
            await asyncio.sleep(0)
            await task.write("sentence.")

        await task.write("Well: ")
        await task.step("model", model, retries=9, backoff=0)

    assert testing.crash_everywhere(answer, "x").artifact() == "Well: whole sentence."


class Total(BaseModel):
    total: int = Field(alias="totalAmount")


def test_a_model_with_an_alias_comes_back() -> None:
    async def adds(task: Task, message: Message) -> int:
        def add() -> Total:
            return Total(totalAmount=3)

        before = await task.step("add", add)
        await task.sleep(1)
        return before.total

    assert testing.crash_everywhere(adds, "x").data == 3


class Picky(BaseModel):
    value: int = Field(serialization_alias="other")


def test_a_result_that_cannot_come_back_is_not_computed_again() -> None:
    calls: list[int] = []

    def make() -> Picky:
        calls.append(1)
        return Picky(value=1)

    async def makes(task: Task, message: Message) -> None:
        await task.step("make", make)

    r = testing.run(makes, "x")
    assert (r.state, len(calls), r.steps["make#1"].attempts) == ("failed", 1, 1)
    assert "the result of step 'make' cannot be read back as Picky" in r.text


def test_work_whose_result_cannot_be_recorded_is_not_repeated() -> None:
    paid: list[int] = []

    def pay() -> object:
        paid.append(1)
        return object()

    async def pays(task: Task, message: Message) -> str:
        try:
            await task.step("pay", pay, retries=3)
        except a2ad.StepError as err:
            await task.sleep("1h")
            return f"{err.type}: {err.message}"
        return "paid"

    r = testing.run(pays, "x")
    assert r.text.startswith("UsageError: the result of step 'pay' cannot be recorded as JSON")
    assert len(paid) == 1


def test_a_mistake_in_a_step_that_its_function_catches_fails_the_step() -> None:
    async def pay(task: Task) -> str:
        with contextlib.suppress(a2ad.UsageError):
            await task.signal("paid")
        return "paid"

    async def pays(task: Task, message: Message) -> str:
        with contextlib.suppress(a2ad.StepError):
            await task.step("pay", lambda: pay(task))
        await task.signal("paid")
        return "done"

    r = testing.run(pays, "x", signals={"paid": 1})
    assert (r.text, list(r.steps)) == ("done", ["pay#1", "signal:paid#1"])
    assert r.steps["pay#1"].error["type"] == "UsageError"


@pytest.mark.parametrize("ending", [a2ad.Fail, a2ad.Reject, a2ad.Retry])
def test_what_a_step_raises_to_end_the_task_is_recorded_if_it_is_caught(ending: Any) -> None:
    calls: list[int] = []

    def no() -> None:
        calls.append(1)
        raise ending("no")

    async def catches(task: Task, message: Message) -> str:
        try:
            await task.step("x", no, retries=3)
        except ending as err:
            await task.sleep("1h")
            await task.sleep("1h")
            return str(err)
        return "none"

    r = testing.run(catches, "x")
    assert (r.text, len(calls)) == ("no", 1)


def test_fail_reject_and_retry_in_a_step_end_the_attempt() -> None:
    calls: list[int] = []

    async def ends(task: Task, message: Message) -> None:
        def no() -> None:
            calls.append(1)
            raise getattr(a2ad, message.text)("no")

        await task.step("x", no, retries=3)

    r = testing.run(ends, "Fail")
    assert (r.state, r.text, len(calls)) == ("failed", "no", 1)
    r = testing.run(ends, "Reject")
    assert (r.state, r.text, len(calls)) == ("rejected", "no", 2)
    r = testing.run(ends, "Retry", max_attempts=3)
    assert (r.state, r.attempts, len(calls)) == ("failed", 3, 5)


def test_text_after_a_failure_that_is_handled_is_sent_once() -> None:
    def fails() -> None:
        raise ValueError("no stock")

    async def orders(task: Task, message: Message) -> None:
        await task.write("a")
        with contextlib.suppress(a2ad.StepError):
            await task.step("reserve", fails)
        await task.write("b")
        await task.sleep("1h")

    r = testing.crash_everywhere(orders, "x")
    assert r.artifact() == "ab"
    assert list(r.steps) == ["write:answer#1", "reserve#1", "write:answer#2", "sleep#1"]


def test_an_event_and_its_record_are_sent_together() -> None:
    async def uses(task: Task, message: Message) -> None:
        async def model(text: str) -> str:
            await task.usage(model="m", requests=1)
            return text

        await task.step("model", model, "x" * 600_000)
        await task.artifact("a").data("x" * ((1 << 20) - 20), append=True)
        await task.artifact("a").data("y", append=True)

    r = testing.crash_everywhere(uses, "x")
    assert r.usage == {"m": {"requests": 1}}
    assert len(r.artifacts["a"]) == 2


def test_many_reports_of_usage_fit_into_one_request() -> None:
    async def uses(task: Task, message: Message) -> None:
        async def model() -> None:
            for n in range(2000):
                await task.usage(model=f"m{n % 2}", requests=1)
            await task.usage(model="big", requests=10**9)
            await task.usage(model="big", requests=10**9)

        await task.step("model", model)

    r = testing.crash_everywhere(uses, "x")
    assert r.usage == {
        "m0": {"requests": 1000},
        "m1": {"requests": 1000},
        "big": {"requests": 2 * 10**9},
    }


@pytest.mark.parametrize("error", [ConnectionError("reset"), a2ad.Retry("busy")])
def test_usage_of_a_failure_that_is_not_handled_counts_once(error: Exception) -> None:
    async def uses(task: Task, message: Message) -> None:
        async def model() -> None:
            await task.usage(model="m", input_tokens=100)
            if task.attempt < 3:
                raise error

        await task.step("model", model)
        await task.sleep(1)

    r = testing.run(uses, "x")
    assert (r.state, r.usage) == ("completed", {"m": {"inputTokens": 300}})


def test_usage_of_a_step_that_the_agent_cancels_counts() -> None:
    async def uses(task: Task, message: Message) -> None:
        async def model() -> None:
            await task.usage(model="m", requests=1)
            reported.set()
            await asyncio.Event().wait()

        reported = asyncio.Event()
        step = asyncio.create_task(task.step("model", model))
        await reported.wait()
        step.cancel()
        await asyncio.wait([step])

    assert testing.run(uses, "x").usage == {"m": {"requests": 1}}


class OutOfStock(a2ad.Fail):
    pass


class Busy(a2ad.Retry):
    pass


class NotMine(a2ad.Reject):
    pass


@pytest.mark.parametrize(
    ("ending", "kind"), [(OutOfStock, a2ad.Fail), (Busy, a2ad.Retry), (NotMine, a2ad.Reject)]
)
def test_a_subclass_takes_the_same_path_in_each_attempt(
    ending: Callable[[str], Exception], kind: type[Exception]
) -> None:
    async def handles(task: Task, message: Message) -> str:
        def fails() -> None:
            raise ending("none left")

        with pytest.raises(kind):
            await task.step("take", fails)
        await task.sleep("1h")
        return "handled"

    assert testing.run(handles, "x", max_attempts=1).text == "handled"

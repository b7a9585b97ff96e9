"""Calls without await: found wherever the agent uses them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from a2ad import Message, Task, UsageError, testing


@pytest.mark.filterwarnings("error")
def test_a_forgotten_await_is_found() -> None:
    async def forgets(task: Task, message: Message) -> str:
        await task.write("one ")
        task.write("two ")  # type: ignore[unused-coroutine]
        await task.write("three")
        return "done"

    with pytest.raises(UsageError, match=r"write await before task\.write\(…\)") as caught:
        testing.run(forgets, "x")
    assert caught.value.where == f"{__file__}:{forgets.__code__.co_firstlineno + 2}"


# Each is what an agent does with the result of a step or question that it did not await.
USES: list[Callable[[Any], Any]] = [
    lambda r: f"result {r}",
    lambda r: f"result {r:>10}",
    lambda r: "result " + str(r),
    lambda r: "a" if r else "b",
    lambda r: "a" if r == "yes" else "b",
    lambda r: "a" if r != "yes" else "b",
    lambda r: r["x"],
    lambda r: r.text,
    list,
    lambda r: "x" in r,
    lambda r: r + 1,
    len,
    json.dumps,
    lambda r: {"result": r},
    lambda r: r,
    lambda r: 1 / 0,
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("use", USES)
def test_a_call_without_await_is_not_a_value(use: Callable[[Any], Any]) -> None:
    async def forgets(task: Task, message: Message) -> Any:
        return use(task.step("a", lambda: 1))

    with pytest.raises(UsageError, match=r"write await before task\.step\(…\)") as caught:
        testing.run(forgets, "x")
    assert caught.value.where == f"{__file__}:{forgets.__code__.co_firstlineno + 1}"


PASSED: list[tuple[Callable[[Any], Any], str]] = [
    (lambda t: t.write(t.step("a", int)), "before task.step(…)"),
    (lambda t: t.step("b", str, t.step("a", int)), "before task.step(…)"),
    (lambda t: t.step("b", t.call("a", "x")), "before task.call(…)"),
    (lambda t: t.gather([t.step("a", int)]), "not list (argument 1); write gather(*…)"),
    (lambda t: asyncio.sleep(0, t.artifact("a").data(1)), "before task.artifact(…).data(…)"),
    (lambda t: asyncio.sleep(0, t.gather(t.step("a", int))), "before task.gather(…)"),
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("body", "text"), PASSED)
def test_a_call_without_await_is_not_an_argument(body: Callable[[Any], Any], text: str) -> None:
    async def forgets(task: Task, message: Message) -> None:
        await body(task)

    with pytest.raises(UsageError) as caught:
        testing.run(forgets, "x")
    assert text in str(caught.value)
    assert caught.value.where == f"{__file__}:{body.__code__.co_firstlineno}"


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("use", [bool, len, lambda call: None])
def test_a_call_without_await_in_a_step_fails_the_step(use: Callable[[Any], Any]) -> None:
    async def forgets(task: Task, message: Message) -> None:
        await task.step("a", lambda: use(task.write("lost")))

    r = testing.run(forgets, "x")
    assert (r.state, r.attempts) == ("failed", 1)
    assert "write await before task.write(…)" in r.text


def test_a_call_that_is_canceled_before_it_starts_is_no_mistake() -> None:
    async def cancels(task: Task, message: Message) -> str:
        step = asyncio.create_task(task.step("a", lambda: 1))
        step.cancel()
        await asyncio.wait([step])
        never = task.step("b", lambda: 1)
        never.close()
        return "fine"

    assert testing.run(cancels, "x").text == "fine"


def test_calls_work_in_tasks_of_asyncio() -> None:
    async def works(task: Task, message: Message) -> list[int]:
        made = asyncio.create_task(task.step("a", lambda: 1))
        first = await made
        within = await asyncio.wait_for(task.step("b", lambda: 2), 30)
        gathered = await asyncio.gather(task.step("c", lambda: 3))
        assert "step" in repr(task.step) and not hasattr(made.get_coro(), "cr_code")
        return [first, within, *gathered]

    assert testing.run(works, "x").data == [1, 2, 3]

    async def fails(task: Task, message: Message) -> None:
        made = asyncio.create_task(task.step("a", lambda: 1))
        raise ValueError(f"not about {made.get_name()[:4]}")

    assert testing.run(fails, "x").text == "ValueError: not about Task"

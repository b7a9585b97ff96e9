"""Branches of gather."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from effects import Effects

import a2ad
from a2ad import Message, StepError, SyncTask, Task, testing


def test_branches_do_not_lose_text_after_a_failure_that_is_handled() -> None:
    async def agent(task: Task, message: Message) -> None:
        async def fails() -> None:
            await task.write("<!")
            raise ValueError("x")

        async def branch() -> None:
            await task.step("g", lambda: task.write("[g]"))

        with pytest.raises(StepError):
            await task.step("s", fails)
        await task.gather(branch())
        await task.step("t", lambda: 1)

    for handler in False, True:
        assert testing.crash_everywhere(agent, "x", handler=handler).artifact() == "<![g]"


def test_gather_waits_for_all_calls() -> None:
    effects = Effects()

    async def compares(task: Task, message: Message) -> str:
        async def shop(name: str) -> str:
            price = await task.call("prices", name)
            again = await task.call("prices", f"{name} {price.text}")
            return await task.step("note", effects.do, again.text)

        return ", ".join(await task.gather(shop("a"), shop("b"), task.step("own", lambda: "c")))

    r = testing.run(compares, "x", calls={"prices": lambda text: f"<{text}>"})
    assert r.text == "<a <a>>!, <b <b>>!, c"
    assert effects.done == ["<a <a>>", "<b <b>>"]
    testing.crash_everywhere(
        compares,
        "x",
        calls={"prices": lambda text: f"<{text}>"},
        compare=lambda r: (r.state, r.text, sorted(r.steps)),
    )


def test_gather_raises_the_first_failure() -> None:
    def fails(what: str) -> None:
        raise ValueError(what)

    async def both(task: Task, message: Message) -> str:
        try:
            await task.gather(
                task.step("ok", lambda: 1), task.step("x", fails, "x"), task.step("y", fails, "y")
            )
        except a2ad.StepError as err:
            return err.message
        return "none"

    assert testing.run(both, "x").text == "x"


def test_gather_in_functions_that_are_not_async() -> None:
    effects = Effects()

    def compares(task: SyncTask, message: Message) -> str:
        def shop(name: str) -> str:
            price = task.call("prices", name)
            again = task.call("prices", f"{name} {price.text}")
            return task.step("note", effects.do, again.text)

        found = task.gather(
            lambda: shop("a"), lambda: shop("b"), lambda: task.step("own", lambda: "c")
        )
        return ", ".join(found)

    def price(text: str) -> str:
        return f"<{text}>"

    r = testing.run(compares, "x", calls={"prices": price})
    assert r.text == "<a <a>>!, <b <b>>!, c"
    assert sorted(effects.done) == ["<a <a>>", "<b <b>>"]
    testing.crash_everywhere(
        compares,
        "x",
        calls={"prices": price},
        compare=lambda r: (r.state, r.text, sorted(r.steps)),
    )


def test_nested_gather_in_functions_that_are_not_async() -> None:
    def asks(task: SyncTask, message: Message) -> list[Any]:
        def both() -> list[Any]:
            return task.gather(lambda: task.call("a", "1").text, lambda: task.step("s", lambda: 2))

        return task.gather(both, lambda: task.call("a", "3").text)

    r = testing.run(asks, "x", calls={"a": lambda text: text + "!"})
    assert r.data == [["1!", 2], "3!"]


def test_branches_in_threads_end_when_the_task_waits() -> None:
    ends: list[threading.Event] = []

    def asks(task: SyncTask, message: Message) -> list[Any]:
        ended = all(end.wait(20) for end in ends)

        def one(n: int) -> str:
            ends.append(threading.Event())
            try:
                return task.call("a", str(n)).text
            finally:
                ends[-1].set()

        return [ended, *task.gather(lambda: one(1))]

    assert testing.run(asks, "x", calls={"a": "fine"}).data == [True, "fine"]


def test_slow_functions_in_threads_do_not_delay_each_other() -> None:
    together = threading.Barrier(20, timeout=20)

    async def waits(task: Task, message: Message) -> str:
        steps = [task.step("meet", together.wait) for _ in range(20)]
        return str(sorted(await task.gather(*steps)))

    assert testing.run(waits, "x").text == str(list(range(20)))

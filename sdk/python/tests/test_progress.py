"""Calls that are in progress when a function ends or is canceled: no work is lost or done twice."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import Any

import pytest
from fake import FakeServer, claimed, run_async, serving

from a2ad import Fail, Message, Task, UsageError, Worker, testing


class Payments:
    """Counts payments, each of which takes until the function has ended."""

    def __init__(self) -> None:
        self.made = 0

    async def pay(self) -> str:
        self.made += 1
        for _ in range(20):
            await asyncio.sleep(0)
        return "r-17"


def at_once(call: Awaitable[Any]) -> asyncio.Future[Any]:
    """Begin a call in a task of asyncio. What it raises is not logged."""
    work = asyncio.ensure_future(call)
    work.add_done_callback(lambda w: w.cancelled() or w.exception())
    return work


def test_a_function_that_raises_waits_for_the_record_of_its_step(
    caplog: pytest.LogCaptureFixture,
) -> None:
    payments = Payments()

    async def pays(task: Task, message: Message) -> str:
        work = at_once(task.step("pay", payments.pay))
        if task.attempt == 1:
            await asyncio.sleep(0)
            raise RuntimeError("too slow")
        return str(await work)

    r = testing.run(pays, "x")
    assert (r.text, r.attempts, payments.made) == ("r-17", 2, 1)
    line = pays.__code__.co_firstlineno + 1
    left = "the function has ended, but this call is still in progress: await it"
    assert caplog.messages[0].startswith(f"{__file__}:{line}: {left}")


@pytest.mark.parametrize("error", [Fail("too slow"), asyncio.CancelledError(), RuntimeError("x")])
def test_a_task_that_ends_keeps_the_record_of_its_step(error: BaseException) -> None:
    async def pays(task: Task, message: Message) -> None:
        at_once(task.step("pay", Payments().pay))
        await asyncio.sleep(0)
        raise error

    r = testing.run(pays, "x", max_attempts=1)
    assert r.state == "failed"
    assert r.steps["pay#1"].result == "r-17"


def test_branches_that_are_left_begin_no_other_step() -> None:
    mailed: list[str] = []

    async def pays(task: Task, message: Message) -> None:
        async def branch() -> None:
            await task.step("pay", Payments().pay)
            await task.step("mail", mailed.append, "paid")

        at_once(task.gather(branch()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        raise RuntimeError("too slow")

    r = testing.run(pays, "x", max_attempts=1)
    assert (list(r.steps), mailed) == (["gather#1.1/pay#1"], [])


def test_a_branch_that_ends_before_its_call_has_made_a_mistake() -> None:
    payments = Payments()

    async def pays(task: Task, message: Message) -> None:
        async def branch() -> None:
            at_once(task.step("pay", payments.pay))
            await asyncio.sleep(0)

        await task.gather(branch())

    with pytest.raises(UsageError, match="the branch has ended, but this call is still") as caught:
        testing.run(pays, "x")
    assert caught.value.where == f"{__file__}:{pays.__code__.co_firstlineno + 2}"
    assert payments.made == 1


@pytest.mark.parametrize("raises", ["before", "after"])
def test_a_run_that_ends_does_not_wait_for_a_step(
    raises: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with FakeServer([claimed()]) as server:
            worker = Worker(server.url, grace=0)
            began = asyncio.Event()

            @worker.agent("a")
            async def pays(task: Task, message: Message) -> None:
                async def hangs() -> None:
                    began.set()
                    await asyncio.Event().wait()

                at_once(task.step("pay", hangs))
                await began.wait()
                if raises == "before":
                    raise RuntimeError("too slow")
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError as err:
                    raise RuntimeError("released") from err

            async with serving(worker):
                await began.wait()
                for _ in range(20):  # until the function has ended, if it does
                    await asyncio.sleep(0)
            assert not caplog.messages[1:]
            assert server.of("/finish") == [{"outcome": "release"}]

    run_async(test)


def test_a_step_that_is_canceled_while_its_record_waits_is_recorded() -> None:
    async def test() -> None:
        async with FakeServer([claimed()]) as server:
            server.gate.clear()
            worker = Worker(server.url)

            @worker.agent("a")
            async def pays(task: Task, message: Message) -> None:
                await task.write("Paying")
                await server.seen(lambda: server.of("/events"))  # which is not answered yet
                paid = asyncio.Event()

                async def pay() -> str:
                    paid.set()
                    return "r-17"

                work = asyncio.ensure_future(task.step("pay", pay))
                await paid.wait()
                work.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await work
                asyncio.get_running_loop().call_soon(server.gate.set)
                raise RuntimeError("too slow")

            async with serving(worker):
                await server.seen(lambda: server.of("/finish"))
            assert [e["step"]["key"] for e in server.events() if "step" in e][-1] == "pay#1"

    run_async(test)


@pytest.mark.parametrize("backoff", [5, 60])
def test_a_task_that_ends_does_not_wait_for_another_try(backoff: float) -> None:
    tries: list[int] = []

    async def pays(task: Task, message: Message) -> None:
        async def pay() -> None:
            tries.append(task.attempt)
            await asyncio.sleep(0)
            raise ConnectionError("reset")

        at_once(task.step("pay", pay, retries=3, backoff=backoff))
        if task.attempt == 1:
            await asyncio.sleep(0)
            raise RuntimeError("again")
        raise Fail("no money")  # before the second try

    r = testing.run(pays, "x")
    assert (r.state, r.text, r.attempts, tries) == ("failed", "no money", 2, [1])


@pytest.mark.parametrize("raises", [True, False])
def test_a_function_that_has_ended_begins_no_other_work(raises: bool) -> None:
    mailed: list[str] = []

    async def pays(task: Task, message: Message) -> None:
        async def own() -> None:
            await task.step("pay", lambda: "r-17")
            ended.set()
            for _ in range(3):
                await asyncio.sleep(0)
            await task.step("mail", mailed.append, "paid")

        ended = asyncio.Event()
        at_once(own())
        await ended.wait()
        if raises:
            raise Fail("no money")

    assert list(testing.run(pays, "x").steps) == ["pay#1"]
    assert not mailed


def test_the_error_of_a_branch_counts_more_than_a_call_that_it_has_left() -> None:
    async def pays(task: Task, message: Message) -> None:
        async def branch() -> None:
            at_once(task.step("pay", Payments().pay))
            await asyncio.sleep(0)
            raise Fail("no money")

        await task.gather(branch())

    r = testing.run(pays, "x")
    assert (r.state, r.text) == ("failed", "no money")
    assert r.steps["gather#1.1/pay#1"].result == "r-17"

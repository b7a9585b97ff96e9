"""Calls at once: refused, unless they are the branches of a gather."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import a2ad
from a2ad import Message, SyncTask, Task, UsageError, testing


def refused(agent: Callable[..., Any], text: str = "use task.gather") -> UsageError:
    """Return the mistake for which an agent is postponed."""
    with pytest.raises(UsageError) as caught:
        testing.run(agent, "x")
    assert text in str(caught.value)
    return caught.value


def line(function: Callable[..., Any], n: int) -> str:
    return f"{__file__}:{function.__code__.co_firstlineno + n}"


def test_calls_at_once_are_refused() -> None:
    async def both(task: Task, message: Message) -> None:
        async def tool(n: int) -> None:
            await task.step("fetch", asyncio.sleep, 0)

        await asyncio.gather(tool(1), tool(2))

    err = refused(both)
    assert err.where == line(both, 2)
    assert f"the call at {line(both, 2)} is still in progress" in str(err)


def test_calls_at_once_in_a_branch_are_refused() -> None:
    async def both(task: Task, message: Message) -> None:
        async def branch() -> None:
            await asyncio.gather(task.step("a", asyncio.sleep, 0), task.step("b", asyncio.sleep, 0))

        await task.gather(branch())

    refused(both)


def test_a_call_while_gather_is_in_progress_is_refused() -> None:
    async def both(task: Task, message: Message) -> None:
        work = asyncio.ensure_future(task.gather(task.step("a", asyncio.sleep, 0)))
        await asyncio.sleep(0)
        await task.status("meanwhile")
        await work

    assert refused(both).where == line(both, 3)


def test_calls_at_once_in_threads_are_refused() -> None:
    def both(task: SyncTask, message: Message) -> None:
        began, refused = threading.Event(), threading.Event()

        def fetch() -> None:
            began.set()
            assert refused.wait(20)

        def second() -> None:
            assert began.wait(20)
            try:
                task.step("b", int)
            finally:
                refused.set()

        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(task.step, "a", fetch), pool.submit(second)]:
                done.result()

    assert refused(both).where == line(both, 10)


def test_what_a_refused_call_is_at_once_with_is_recorded() -> None:
    done: list[str] = []

    async def both(task: Task, message: Message) -> None:
        async def pay(what: str) -> None:
            await asyncio.sleep(0)
            done.append(what)

        await asyncio.gather(task.step("pay", pay, "a"), task.step("mail", pay, "b"))

    refused(both)
    assert done == ["a"]


def test_one_call_after_another_in_tasks_and_threads() -> None:
    async def one_by_one(task: Task, message: Message) -> str:
        first = await asyncio.create_task(task.step("a", lambda: "a"))
        return first + await asyncio.wait_for(task.step("b", lambda: "b"), 20)

    assert testing.crash_everywhere(one_by_one, "x").text == "ab"

    def in_threads(task: SyncTask, message: Message) -> str:
        with ThreadPoolExecutor(1) as pool:
            return "".join(pool.map(lambda name: task.step(name, lambda: name), ["a", "b"]))

    assert testing.crash_everywhere(in_threads, "x").text == "ab"


@pytest.mark.parametrize(
    ("output", "what"),
    [
        (lambda t: t.write("a"), "write"),
        (lambda t: t.artifact("a").write("a"), "write"),
        (lambda t: t.artifact("a").data(1, append=True), "artifact"),
        (lambda t: t.checkpoint(1), "checkpoint"),
    ],
)
def test_output_that_depends_on_the_order_of_branches_is_refused(
    output: Callable[[Any], Any], what: str
) -> None:
    async def tells(task: Task, message: Message) -> None:
        await task.gather(output(task))

    text = f"{what} inside gather: it can contain steps, calls, statuses and usage"
    assert refused(tells, text).where == line(output, 0)

    def tells_too(task: SyncTask, message: Message) -> None:
        task.gather(lambda: output(task))

    assert refused(tells_too, text).where == line(output, 0)


def test_other_output_of_branches() -> None:
    async def tells(task: Task, message: Message) -> None:
        async def branch(n: int) -> None:
            await task.status("looking")
            await task.usage(model="m", requests=1)
            await task.step("write", task.artifact(f"part {n}").write, f"text {n}")

        await task.write("before ")
        await task.gather(branch(1), branch(2))
        await task.write("after")

    r = testing.crash_everywhere(
        tells, "x", compare=lambda r: (r.state, r.artifact(), sorted(r.steps), r.usage)
    )
    assert r.artifact() == "before after"
    assert (r.artifact("part 1"), r.artifact("part 2")) == ("text 1", "text 2")


def test_branches_may_not_write_the_same_artifact() -> None:
    async def both(task: Task, message: Message) -> str:
        try:
            await task.gather(task.step("a", task.write, "a"), task.step("b", task.write, "b"))
        except a2ad.StepError as err:
            await task.sleep("1h")
            return f"{err.step}: {err.message}"
        return "none"

    r = testing.run(both, "x")
    assert r.text.startswith("b: another branch of gather writes the artifact 'answer'")
    assert r.artifact() == "a"
    testing.crash_everywhere(both, "x")


def test_one_branch_after_another_may_write_the_same_artifact() -> None:
    async def all_of_them(task: Task, message: Message) -> None:
        async def branch() -> None:
            await task.gather(task.step("a", task.write, "a"))
            await task.step("b", task.write, "b")

        await task.gather(branch())
        await task.gather(task.step("c", task.write, "c"))
        await task.step("d", task.write, "d")
        await task.write("e")

    assert testing.crash_everywhere(all_of_them, "x").artifact() == "abcde"


def test_a_thread_of_a_step_without_its_context_is_refused() -> None:
    def writes(task: SyncTask, message: Message) -> None:
        def model() -> None:
            thread = threading.Thread(target=lambda: suppressed(task.write, "lost"))
            thread.start()
            thread.join()

        task.step("model", model)

    assert "contextvars.copy_context" in str(refused(writes))

    def reports(task: SyncTask, message: Message) -> None:
        def model() -> None:
            with ThreadPoolExecutor(1) as pool:
                pool.submit(lambda: task.usage(requests=1)).result()

        task.step("model", model)

    refused(reports)


def suppressed(call: Callable[..., Any], *args: Any) -> None:
    """Call something in a thread. pytest warns of exceptions in threads."""
    with contextlib.suppress(UsageError):
        call(*args)


def test_a_try_that_timed_out_may_not_write() -> None:
    ended: list[BaseException] = []

    def writes(task: SyncTask, message: Message) -> None:
        tries: list[int] = []
        second, stopped = threading.Event(), threading.Event()

        def model() -> None:
            tries.append(1)
            if len(tries) == 1:
                task.write("early")
                assert second.wait(20)
                calls: list[Callable[[], None]] = [
                    lambda: task.write("late"),
                    lambda: task.usage(requests=1),
                ]
                for call in calls:
                    try:
                        call()
                    except BaseException as err:
                        ended.append(err)
                stopped.set()
                return
            task.write("in ")
            second.set()
            assert stopped.wait(20)
            task.write("time")

        task.step("model", model, retries=1, backoff=0, timeout=0.5)

    r = testing.run(writes, "x")
    assert (r.artifact(), r.usage) == ("in time", {})
    assert [str(e) for e in ended] == ["this try of the step 'model' has ended"] * 2
    assert all(isinstance(e, a2ad.Stopped) for e in ended)


def test_what_a_step_left_running_may_not_write() -> None:
    async def writes(task: Task, message: Message) -> None:
        tasks: list[asyncio.Task[None]] = []
        returned = asyncio.Event()

        async def background() -> None:
            await returned.wait()
            await task.write("late")

        async def model() -> None:
            tasks.append(asyncio.create_task(background()))

        await task.step("model", model)
        returned.set()
        await asyncio.wait(tasks)
        await task.status("next")

    err = refused(writes, "the step 'model' has ended: await what it starts before it returns")
    assert err.where == line(writes, 6)


def test_a_step_may_write_in_its_own_tasks() -> None:
    async def writes(task: Task, message: Message) -> None:
        async def model() -> None:
            await asyncio.gather(task.write("a"), task.write("b"), asyncio.to_thread(int))

        await task.step("model", model)

    assert testing.crash_everywhere(writes, "x").artifact() == "ab"

"""Calls that Python itself refuses are mistakes too: they use up no attempts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from a2ad import Message, SyncTask, Task, UsageError, Worker, testing


def work(x: str, many: int = 1) -> str:
    return x * many


def keyword(x: str, *, by: int) -> str:
    return x * by


Body = Callable[[Any], Any]
# Each line is a call, and the text of its error.
WRONG: list[tuple[Body, str]] = [
    (lambda t: t.step("w", work, "a", retry=3), "work() takes no 'retry'; did you mean the step's"),
    (lambda t: t.step("w", work, "a", time_out=3), "'time_out'; did you mean the step's timeout=?"),
    (lambda t: t.step("w", work, "a", manny=3), "work() takes no 'manny'; did you mean many?"),
    (lambda t: t.step("w", work, "a", zzz=3), "work() takes no 'zzz'"),
    (lambda t: t.step("w", work), "work() needs 'x': pass it to the step after the function"),
    (lambda t: t.step("w", keyword, "a"), "keyword() needs 'by': pass it to the step"),
    (lambda t: t.step("w", work, 1, 2, 3), "work(x: 'str', many: 'int' = 1) -> 'str': too many"),
    (lambda t: t.step(work, "a"), "the name of a step comes first"),
    (lambda t: t.step("w"), ".step() missing 1 required positional argument: 'fn'"),
    (lambda t: t.ask("x?", choise=["a"]), ".ask() takes no 'choise'; did you mean choices?"),
    (lambda t: t.ask("x?", ["a"]), ".ask() takes 2 positional arguments but 3 were given"),
    (lambda t: t.artifact("a").file(b"", mediatype=""), "'mediatype'; did you mean media_type?"),
    (lambda t: t.chekpoint(1), "Task has no 'chekpoint'; did you mean checkpoint?"),
    (lambda t: t.artifact("a").dta(1), "ArtifactWriter has no 'dta'; did you mean data?"),
]


@pytest.mark.parametrize(("body", "text"), WRONG)
@pytest.mark.parametrize("threads", [False, True])
def test_a_wrong_call_names_its_line(body: Body, text: str, threads: bool) -> None:
    async def wrong(task: Task, message: Message) -> None:
        await body(task)

    def wrong_in_a_thread(task: SyncTask, message: Message) -> None:
        body(task)

    with pytest.raises(UsageError) as caught:
        testing.run(wrong_in_a_thread if threads else wrong, "x")
    assert text in str(caught.value)
    assert caught.value.where == f"{__file__}:{body.__code__.co_firstlineno}"


IN_STEPS: list[tuple[Body, str]] = [
    (lambda t: t.write(txt="a"), ".write() takes no 'txt'; did you mean text"),
    (lambda t: t.writ("a"), "Task has no 'writ'; did you mean write?"),
    (lambda t: t.gather(), "gather inside the step 'w'"),
]


@pytest.mark.parametrize(("body", "text"), IN_STEPS)
@pytest.mark.parametrize("threads", [False, True])
def test_a_wrong_call_in_a_step_fails_the_step(
    body: Body, text: str, threads: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def wrong(task: Task, message: Message) -> None:
        await task.step("w", lambda: body(task), retries=2)

    def wrong_in_a_thread(task: SyncTask, message: Message) -> None:
        task.step("w", lambda: body(task), retries=2)

    r = testing.run(wrong_in_a_thread if threads else wrong, "x")
    assert (r.state, r.attempts) == ("failed", 1)
    assert text in r.text
    assert f"mistake in the program: {__file__}:{body.__code__.co_firstlineno}" in caplog.text


def test_what_is_not_a_wrong_call() -> None:
    def with_a_first(f: Callable[..., str]) -> Callable[..., str]:
        @functools.wraps(f)
        def inner(*args: Any) -> str:
            return f("b", *args)

        return inner

    async def fine(task: Task, message: Message) -> list[Any]:
        assert not hasattr(task, "nothing") and getattr(task, "nothing", 7) == 7
        return [
            await task.step("built-in", int, "7"),
            await task.step("class", dict, a=1),
            await task.step("partial", functools.partial(keyword, by=2), "a"),
            await task.step("wrapped", with_a_first(work), 2),
        ]

    assert testing.run(fine, "x").data == [7, {"a": 1}, "aa", "bb"]

    async def own(task: Task, message: Message) -> None:
        work()  # type: ignore[call-arg]

    assert testing.run(own, "x").state == "failed"


async def one_parameter(task: Task) -> None: ...


wrong_agent: Any = one_parameter


def test_the_parameters_of_an_agent_are_checked() -> None:
    said = r"must take two arguments, \(task, message\), not \(task: 'Task'\) -> 'None'"
    register: Callable[[Any], Any]
    for register in (
        Worker().agent("a"),
        Worker().handler("a"),
        lambda f: testing.run(f, "x"),
    ):
        with pytest.raises(UsageError, match=said) as caught:
            register(wrong_agent)
        assert caught.value.where == f"{__file__}:{one_parameter.__code__.co_firstlineno}"

"""Code of an agent that would end the process or block it: only its own attempt fails."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from a2ad import Message, StepError, SyncTask, Task, testing


class Outside(BaseException):
    """An exception of another library that is not an Exception."""


def ends() -> None:
    sys.exit(2)


async def ends_async() -> None:
    sys.exit(2)


async def agent(task: Task, message: Message) -> None:
    sys.exit(2)


def sync_agent(task: SyncTask, message: Message) -> None:
    sys.exit(2)


async def step(task: Task, message: Message) -> None:
    await task.step("end", ends)


async def async_step(task: Task, message: Message) -> None:
    await task.step("end", ends_async)


async def step_with_timeout(task: Task, message: Message) -> None:
    await task.step("end", ends_async, timeout=60, retries=1)


async def branch(task: Task, message: Message) -> None:
    await task.gather(ends_async(), task.step("fine", lambda: 1))


def sync_branch(task: SyncTask, message: Message) -> None:
    task.gather(ends, lambda: task.step("fine", lambda: 1))


@pytest.mark.parametrize(
    "function", [agent, sync_agent, step, async_step, step_with_timeout, branch, sync_branch]
)
def test_sys_exit_is_an_error_of_the_attempt(function: Callable[..., Any]) -> None:
    r = testing.run(function, "x", max_attempts=2)
    assert r.state == "failed"
    assert "the agent's code called sys.exit(2)" in r.text
    assert r.attempts == (1 if function is step_with_timeout else 2)


def test_an_agent_may_handle_sys_exit() -> None:
    async def handles(task: Task, message: Message) -> str:
        try:
            await task.step("end", ends)
        except StepError as err:
            return err.message
        return "no error"

    assert testing.run(handles, "x").text == "the agent's code called sys.exit(2)"


@pytest.mark.parametrize("error", [Outside, KeyboardInterrupt, StopIteration])
def test_what_is_no_exception_is_an_error_of_the_attempt(error: type[BaseException]) -> None:
    def fails(task: SyncTask, message: Message) -> None:
        raise error

    r = testing.run(fails, "x", max_attempts=2)
    assert (r.state, r.attempts) == ("failed", 2)
    assert error.__name__ in r.text


@pytest.mark.parametrize(
    "call", [lambda task: task.write("x"), lambda task: task.artifact("a").write("x")]
)
def test_a_sync_call_in_the_event_loop_is_a_mistake(call: Callable[[SyncTask], None]) -> None:
    def works(task: SyncTask, message: Message) -> Any:
        async def model() -> None:
            call(task)

        return task.step("model", model)

    r = testing.run(works, "x")
    assert (r.state, r.attempts) == ("failed", 1)
    assert "in the event loop of the worker" in r.text

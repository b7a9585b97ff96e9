"""A framework wraps Stopped: the run still ends correctly."""

from __future__ import annotations

from a2ad import Message, Task, testing


def test_a_wait_that_a_framework_has_wrapped() -> None:
    async def asks(task: Task, message: Message) -> str:
        try:
            return await task.ask("Which?")
        except BaseException as err:
            raise RuntimeError("a group of tasks failed") from err

    result = testing.run(asks, "x", answers=["this one"], max_attempts=1)
    assert (result.state, result.text) == ("completed", "this one")

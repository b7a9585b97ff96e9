"""Usage: counted once for each try, and summed by model."""

from __future__ import annotations

import a2ad
from a2ad import Message, SyncTask, Task, testing


def test_usage_is_summed_by_model_and_counted_once() -> None:
    async def uses(task: Task, message: Message) -> str:
        async def model() -> str:
            await task.usage(model="m", input_tokens=10, output_tokens=2, requests=1)
            await task.usage(model="m", input_tokens=5, cached_input_tokens=4, reasoning_tokens=1)
            return "said"

        said = await task.step("model", model)
        await task.usage(model="other", requests=1)
        await task.usage(input_tokens=7)
        await task.sleep(1)
        return said

    r = testing.crash_everywhere(uses, "x")
    assert r.usage == {
        "m": {
            "inputTokens": 15,
            "outputTokens": 2,
            "cachedInputTokens": 4,
            "reasoningTokens": 1,
            "requests": 1,
        },
        "other": {"requests": 1},
        "": {"inputTokens": 7},
    }


def test_usage_of_each_try_counts() -> None:
    tries: list[int] = []

    async def uses(task: Task, message: Message) -> None:
        async def model() -> None:
            tries.append(1)
            await task.usage(model="m", requests=1)
            if len(tries) < 3:
                raise ConnectionError("reset")

        await task.step("model", model, retries=2)

    assert testing.run(uses, "x").usage == {"m": {"requests": 3}}


def test_usage_of_a_failure_that_is_handled_counts() -> None:
    async def uses(task: Task, message: Message) -> None:
        async def model() -> None:
            await task.usage(model="m", requests=1)
            raise ConnectionError("reset")

        try:
            await task.step("model", model)
        except a2ad.StepError:
            await task.status("the model is away")

    assert testing.run(uses, "x").usage == {"m": {"requests": 1}}


def test_usage_of_functions_that_are_not_async() -> None:
    def uses(task: SyncTask, message: Message) -> None:
        task.step("model", lambda: task.usage(model="m", requests=1))

    assert testing.run(uses, "x").usage == {"m": {"requests": 1}}

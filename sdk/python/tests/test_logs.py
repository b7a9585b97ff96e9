"""What the log says about errors of an agent."""

from __future__ import annotations

import asyncio
import json
import logging
import traceback
from typing import Any

import pytest
from fake import FakeServer, claimed, run_async

from a2ad import Message, Retry, StepError, SyncTask, Task, UsageError, Worker, testing


def parse(text: str) -> Any:
    return json.loads(text)


LINE = f"({__file__}:{parse.__code__.co_firstlineno + 1})"


async def in_a_step(task: Task, message: Message) -> None:
    await task.step("parse", parse, "{")


def in_a_thread(task: SyncTask, message: Message) -> None:
    task.step("parse", parse, "{")


async def handled(task: Task, message: Message) -> None:
    try:
        await task.step("parse", parse, "{", retries=1)
    except StepError:
        return


async def outside_steps(task: Task, message: Message) -> None:
    parse("{")


@pytest.mark.parametrize(
    ("agent", "texts"),
    [
        (in_a_step, ["step parse failed: JSONDecodeError: "]),
        (in_a_thread, ["step parse failed: JSONDecodeError: "]),
        (handled, [f"step parse failed (try {n} of 2): JSONDecodeError: " for n in (1, 2)]),
        (outside_steps, ["attempt failed: JSONDecodeError: "]),
    ],
)
def test_an_error_is_logged_with_its_place(
    agent: Any, texts: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    testing.run(agent, "x", max_attempts=1)
    assert len(caplog.records) == len(texts)
    for record, text in zip(caplog.records, texts, strict=True):
        assert record.getMessage().startswith(text) and record.getMessage().endswith(LINE)
        assert record.exc_info is not None
        first = traceback.extract_tb(record.exc_info[2])[0]  # not one of the library's frames
        assert first.filename == __file__


def test_a_timeout_has_no_place(caplog: pytest.LogCaptureFixture) -> None:
    async def slow(task: Task, message: Message) -> None:
        await task.step("wait", asyncio.sleep, 60, timeout=0)

    testing.run(slow, "x", max_attempts=1)
    assert [r.getMessage() for r in caplog.records] == ["step wait failed: TimeoutError"]


@pytest.mark.parametrize("level", [logging.INFO, logging.DEBUG])
def test_a_mistake_is_one_line(level: int, caplog: pytest.LogCaptureFixture) -> None:
    async def wrong(task: Task, message: Message) -> None:
        await task.call("reviewr", "x")

    said = 'call.agent "reviewr": this server has no such agent'

    async def plays() -> None:
        def answer(path: str, body: Any) -> Any:
            error = {"reason": "INVALID_AGENT_RESPONSE", "message": f"events[0]: {said}"}
            refused = any("call" in e for e in body.get("events", ()))
            return (400, {"error": error}) if refused else (200, {})

        async with FakeServer([claimed()]) as server:
            server.answer = answer
            worker = Worker(server.url)
            worker.agent("a")(wrong)
            serving = asyncio.ensure_future(worker.serve())
            await server.seen(lambda: server.of("/events") and "postponed" in str(server.events()))
            worker.stop()
            await serving

    with caplog.at_level(level):
        run_async(plays)
    line = wrong.__code__.co_firstlineno + 1
    mistake, ended = [r for r in caplog.records if getattr(r, "task_id", "") == "t"]
    assert mistake.getMessage() == f"mistake in the program: {__file__}:{line}: {said}"
    assert bool(mistake.exc_info) == (level == logging.DEBUG)
    assert ended.getMessage() == "run ended: postponed"


def test_a_mistake_in_another_function_has_a_place(caplog: pytest.LogCaptureFixture) -> None:
    def check(text: str) -> None:
        raise UsageError(f"not {text}")

    async def checks(task: Task, message: Message) -> None:
        check("x")

    with pytest.raises(UsageError, match=f"{__file__}:{check.__code__.co_firstlineno + 1}: not x"):
        testing.run(checks, "x")


def test_a_claim_for_an_agent_without_a_file_says_what_to_add(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def plays() -> None:
        async with FakeServer() as server:
            error = {"reason": "NOT_FOUND", "message": "there is no agent a for remote workers"}
            server.answer = lambda path, body: (404, {"error": error})
            worker = Worker(server.url)
            worker.agent("a")(outside_steps)
            serving = asyncio.ensure_future(worker.serve())
            await server.seen(lambda: len(server.of("/claim")) == 2)
            worker.stop()
            await serving

    run_async(plays)
    said = 'add an agent file to the server: "name: a", "executor: {pull: {}}"'
    assert said in caplog.text


def test_recorded_steps_that_are_not_used_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def leaves_out(task: Task, message: Message) -> str:
        if task.attempt == 1:
            await task.step("left out", int)
            await task.gather(task.call("other", "x"))
            await task.step("retried", fails, retries=1, backoff=60)
            raise Retry("again")
        await task.step("added", int)
        return "done"

    tries: list[int] = []

    def fails() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("the first time")

    assert testing.run(leaves_out, "x", calls={"other": "y"}).text == "done"
    said = [r.getMessage() for r in caplog.records if "without" in r.getMessage()]
    assert said == [
        "the function ended without these recorded steps: left out#1, "
        "gather#1.1/call:other#1, retried#1; take the same path each time"
    ]

    async def same(task: Task, message: Message) -> None:
        await task.write("a")
        await task.gather(task.call("other", "x"))
        await task.step("a", int)
        await task.step("b", fails, retries=1, backoff=60)
        await task.ask("?")
        task._session.known["m1/of another message#1"] = task._session.known["a#1"]

    caplog.clear()
    tries.clear()
    testing.run(same, "x", answers=["a"], calls={"other": "y"})
    assert "without" not in caplog.text

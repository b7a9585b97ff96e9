"""Pauses between two tries of a step in ``gather``: a long one holds no worker."""

from __future__ import annotations

import asyncio
import math
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from test_record import attempt, said

from a2ad import Message, Retry, StepError, SyncTask, Task, Timeout, _step, testing
from a2ad._agent import Agent


class Service:
    """A service that is busy at first."""

    def __init__(self, busy: int) -> None:
        self.busy = busy
        self.asked = 0

    def ask(self) -> str:
        self.asked += 1
        if self.asked <= self.busy:
            raise OSError("busy")
        return f"try {self.asked}"


def waits(r: testing.Result) -> list[str]:
    return [f"{s.key} by {s.by}" for s in r.steps.values() if s.kind == "wait"]


def test_a_long_pause_in_gather_is_a_wait() -> None:
    service, other = Service(busy=2), Service(busy=1)

    async def agent(task: Task, message: Message) -> list[Any]:
        return await task.gather(
            task.step("x", service.ask, retries=5, backoff="15s"),
            task.step("y", other.ask, retries=5, backoff="1h"),
        )

    r = testing.run(agent, "x", max_attempts=1)
    assert r.data == ["try 3", "try 2"]
    assert waits(r) == [
        *("gather#1.1/x#1/pause#1 by time", "gather#1.1/x#1/pause#2 by time"),
        "gather#1.2/y#1/pause#1 by time",
    ]
    assert r.elapsed == timedelta(hours=1)


def test_a_pause_continues_after_a_call_has_ended() -> None:
    service = Service(busy=1)

    async def agent(task: Task, message: Message) -> list[Any]:
        async def both(inner: Any) -> Any:
            return await inner

        paused = task.step("x", service.ask, retries=1, backoff="1h")
        called = task.call("other", "go")
        nested, result = await task.gather(both(task.gather(paused)), called)
        return [*nested, result.text]

    r = testing.run(agent, "x", calls={"other": "fine"}, max_attempts=1)
    assert r.data == ["try 2", "fine"]
    assert waits(r)[0].endswith("/x#1/pause#1 by tasks")
    assert waits(r)[1].endswith("/x#1/pause#1.2 by time")


def test_a_pause_in_a_thread() -> None:
    service = Service(busy=1)

    def agent(task: SyncTask, message: Message) -> list[Any]:
        return task.gather(lambda: task.step("x", service.ask, retries=1, backoff="1h"))

    r = testing.run(agent, "x", max_attempts=1)
    assert (r.data, r.attempts) == (["try 2"], 2)


def test_crashes_around_a_pause() -> None:
    async def agent(task: Task, message: Message) -> list[Any]:
        async def busy() -> int:
            if not any(k.endswith("/pause#1") for k in task._session.known):
                raise OSError("busy")
            return 1

        return await task.gather(task.step("x", busy, retries=5, backoff="1h"))

    testing.crash_everywhere(agent, "x", compare=lambda r: (r.data, waits(r)))


def test_a_pause_ends_in_the_process_while_another_branch_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_step, "LONG_PAUSE", 0.0)
    service, done = Service(busy=1), asyncio.Event()

    async def agent(task: Task, message: Message) -> list[Any]:
        async def ask() -> str:
            reply = service.ask()
            done.set()
            return reply

        return await task.gather(
            task.step("x", ask, retries=1, backoff=0.01), task.step("slow", done.wait)
        )

    r = testing.run(agent, "x", max_attempts=1)
    assert (r.data, r.attempts, waits(r)) == (["try 2", True], 1, [])


@pytest.mark.parametrize("gather", [True, False])
def test_a_clock_that_was_set_back_does_not_prolong_a_pause(gather: bool) -> None:
    async def agent(task: Task, message: Message) -> None:
        step = task.step("x", lambda: 1, retries=1)
        await (task.gather(step) if gather else step)

    later = (datetime.now(timezone.utc) + timedelta(days=9)).isoformat()
    key = "gather#1.1/x#1" if gather else "x#1"
    failed = {"key": key, "kind": "step", "name": "x", "attempts": 1, "nextAt": later}
    _, events = attempt(Agent("a", agent), {"messages": [said("1", "x")], "steps": [failed]})
    assert events[-1]["wait"]["key"] == f"{key}/pause#1"
    assert 0 < float(events[-1]["wait"]["for"].removesuffix("s")) <= 3600


def test_a_time_that_is_over_when_the_function_runs_again() -> None:
    runs = 0

    async def sleeps(task: Task, message: Message) -> str:
        nonlocal runs
        runs += 1
        # such as the time until a moment that a step has recorded
        await task.sleep((2 - runs) * 7200 - 1)
        return "awake"

    r = testing.run(sleeps, "x")
    assert (r.text, runs) == ("awake", 2)


@pytest.mark.parametrize("over", [-1, -1.5, timedelta(days=-1)])
def test_negative_durations_count_as_now(over: float | timedelta) -> None:
    async def waits(task: Task, message: Message) -> str:
        await task.sleep(over)
        for call in (
            lambda: task.signal("go", timeout=over),
            lambda: task.ask("?", timeout=over),
            lambda: task.auth_required("?", timeout=over),
        ):
            with pytest.raises(Timeout):
                await call()
        with pytest.raises(StepError, match="a: TimeoutError"):
            await task.step("a", asyncio.Event().wait, timeout=over)
        return "done"

    assert testing.run(waits, "x").text == "done"


def test_a_negative_delay_of_another_attempt_counts_as_now() -> None:
    assert Retry("busy", after=-1).after == 0
    assert Retry("busy", after=math.nan).after is None

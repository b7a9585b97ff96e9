"""Agents in memory: recorded work is not done again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from effects import Effects
from pydantic import BaseModel

import a2ad
from a2ad import Message, SyncTask, Task, testing


async def write_up(plan: str) -> AsyncIterator[str]:
    for word in ("We ", "go ", "by ", plan, "."):
        yield word


def trip_of(effects: Effects) -> Any:
    async def trip(task: Task, message: Message) -> str | None:
        plan = await task.step("plan", effects.do, message.text)
        async for token in write_up(plan):
            await task.write(token)
        if await task.ask("Book it?", choices=["yes", "no"]) == "yes":
            ref = await task.step("pay", effects.do, "pay", retries=5)
            await task.sleep("24h")
            review = await task.call("reviewer", f"Check {ref}")
            return review.text
        return None

    return trip


def test_an_agent_from_beginning_to_end() -> None:
    effects = Effects()
    r = testing.run(
        trip_of(effects), "train", answers=["yes"], calls={"reviewer": lambda text: f"{text}: fine"}
    )
    assert (r.state, r.text) == ("completed", "Check pay!: fine")
    assert r.artifact() == "We go by train!."
    assert effects.done == ["train", "pay"]
    assert r.elapsed == timedelta(hours=24)
    assert r.questions == ["Book it?"]
    assert list(r.steps) == [
        "plan#1",
        "write:answer#1",
        "ask#1",
        "pay#1",
        "sleep#1",
        "call:reviewer#1",
        "call:reviewer#1/wait",
    ]


def test_crashes_change_nothing() -> None:
    effects = Effects()
    r = testing.crash_everywhere(
        trip_of(effects), "train", answers=["yes"], calls={"reviewer": "fine"}
    )
    assert r.state == "completed"
    # Six requests. A crash before the first repeats the plan, one before the fourth the payment.
    assert effects.done.count("train") == effects.done.count("pay") == 1 + 2 * 6 + 1


def test_crashes_change_nothing_in_the_example_of_the_readmes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    library = Path(__file__).parents[1]
    texts = [(top / "README.md").read_text() for top in (library, library.parents[1])]
    example, shown_first = [t.split("```python\n", 1)[1].split("```", 1)[0] for t in texts]
    assert shown_first == example
    effects = Effects()
    names = {"make_plan": effects.do, "write_up": write_up, "pay": effects.do}
    monkeypatch.setattr(a2ad.Worker, "run", lambda worker: None)
    exec(example, names)
    trip: Any = names["trip"]
    r = testing.crash_everywhere(
        trip, "train", answers=["yes"], calls={"reviewer": lambda text: f"{text}: fine"}
    )
    assert (r.state, r.text) == ("completed", "Check train!!: fine")
    assert r.artifact() == "We go by train!."


def test_crash_everywhere_finds_what_is_not_recorded() -> None:
    runs: list[int] = []

    async def counts(task: Task, message: Message) -> str:
        runs.append(1)
        await task.step("a", lambda: 1)
        return f"run {len(runs)}"

    with pytest.raises(testing.Difference, match="a crash before the server stored request 1"):
        testing.crash_everywhere(counts, "x")


def test_crashes_in_the_middle_of_a_stream() -> None:
    async def letters(task: Task, message: Message) -> None:
        log = task.artifact("log")
        for word in ("one ", "two ", "three "):
            await log.write(word)
            await asyncio.sleep(0)
        await task.step("between", lambda: None)
        for word in ("four ", "five"):
            await task.write(word)
            await log.write(word)
            await asyncio.sleep(0)

    r = testing.crash_everywhere(letters, "x")
    assert r.artifact("log") == "one two three four five"
    assert r.artifact() == "four five"


def test_a_step_that_streams() -> None:
    calls: list[str] = []

    async def answer(task: Task, message: Message) -> str:
        async def model() -> str:
            calls.append("model")
            for word in ("whole ", "sentence."):
                await task.write(word)
                await asyncio.sleep(0)
            return "whole sentence."

        text = await task.step("model", model)
        await task.sleep(1)
        return text

    r = testing.crash_everywhere(answer, "x")
    assert r.artifact() == r.text == "whole sentence."
    assert list(r.steps) == ["model#1", "sleep#1"]
    calls.clear()
    testing.run(answer, "x")
    assert calls == ["model"]


class Plan(BaseModel):
    city: str
    days: int = 1


@dataclass
class Receipt:
    ref: str


def test_typed_results_and_answers() -> None:
    def pay(plan: Plan) -> Receipt:
        return Receipt(plan.city[:3])

    async def book(task: Task, message: Message) -> dict[str, Any]:
        plan = await task.ask("Where?", returns=Plan)
        receipt = await task.step("pay", pay, plan)
        await task.sleep(timedelta(days=1))
        assert isinstance(plan, Plan) and isinstance(receipt, Receipt)
        return {"ref": receipt.ref, "days": plan.days}

    r = testing.crash_everywhere(book, "x", answers=[{"city": "Lyon", "days": 2}])
    assert r.data == {"ref": "Lyo", "days": 2}


def test_two_questions_have_two_answers() -> None:
    async def asks(task: Task, message: Message) -> str:
        first = await task.ask("First?")
        second = await task.ask("Second?")
        return f"{message.text} {first} {second}"

    assert testing.crash_everywhere(asks, "a", answers=["b", "c"]).text == "a b c"


def test_a_question_may_time_out() -> None:
    async def asks(task: Task, message: Message) -> str:
        try:
            return await task.ask("Now?", timeout="2h")
        except a2ad.Timeout:
            return "too late"

    r = testing.run(asks, "x")
    assert (r.text, r.elapsed) == ("too late", timedelta(hours=2))


def test_signals() -> None:
    async def waits(task: Task, message: Message) -> Any:
        return await task.signal("approved", timeout="1h")

    assert testing.run(waits, "x", signals={"approved": {"by": "Ann"}}).data == {"by": "Ann"}
    with pytest.raises(testing.Stuck, match="the signal 'go'"):

        async def forever(task: Task, message: Message) -> Any:
            return await task.signal("go")

        testing.run(forever, "x")


def test_a_failure_that_is_handled_is_recorded() -> None:
    tries: list[int] = []

    def fails() -> None:
        tries.append(1)
        raise ValueError("no stock")

    async def orders(task: Task, message: Message) -> str:
        try:
            await task.step("reserve", fails)
        except a2ad.StepError as err:
            other = await task.step("other", lambda: "another shop")
            await task.sleep("1h")
            return f"{err.type} ({err.message}), so {other}"
        return "reserved"

    r = testing.run(orders, "x")
    assert r.text == "ValueError (no stock), so another shop"
    assert len(tries) == 1
    assert list(r.steps) == ["reserve#1", "other#1", "sleep#1"]
    testing.crash_everywhere(orders, "x")


def test_a_failure_that_is_not_handled_is_tried_again() -> None:
    tries: list[int] = []

    def flaky() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError("reset")
        return "ok"

    async def works(task: Task, message: Message) -> str:
        return await task.step("get", flaky)

    r = testing.run(works, "x")
    assert (r.text, r.attempts, len(tries)) == ("ok", 3, 3)


def test_retries_of_a_step() -> None:
    tries: list[int] = []

    async def flaky() -> str:
        tries.append(1)
        if len(tries) <= 4:
            raise ConnectionError("reset")
        return "ok"

    async def works(task: Task, message: Message) -> str:
        return await task.step("get", flaky, retries=4, backoff="4s")

    r = testing.run(works, "x")
    # 4 s and 8 s in the process, 16 s and 32 s as waits
    assert (r.text, len(tries), r.steps["get#1"].attempts) == ("ok", 5, 5)
    assert r.attempts == 3
    assert timedelta(seconds=59) < r.elapsed < timedelta(seconds=61)
    tries.clear()

    async def gives_up(task: Task, message: Message) -> str:
        return await task.step("get", flaky, retries=2, backoff=0.1)

    r = testing.run(gives_up, "x")
    assert (r.state, r.text, len(tries)) == ("failed", "get: ConnectionError: reset", 3)
    assert r.attempts == 1


def test_a_changed_program_is_named() -> None:
    runs: list[int] = []

    async def changed(task: Task, message: Message) -> None:
        runs.append(1)
        await task.step("a", lambda n: n, 1 if len(runs) == 1 else 2)
        await task.sleep(1)

    r = testing.run(changed, "x", max_attempts=2)
    assert r.state == "failed"
    assert "step 'a#1' is recorded as a step with the input" in r.text


def test_reject_fail_and_retry() -> None:
    async def ends(task: Task, message: Message) -> str:
        if message.text == "retry" and task.attempt == 1:
            raise a2ad.Retry("busy", after=60)
        if message.text == "retry":
            return "done"
        raise a2ad.Fail("broken") if message.text == "fail" else a2ad.Reject("not mine")

    r = testing.run(ends, "fail")
    assert (r.state, r.text) == ("failed", "broken")
    r = testing.run(ends, "reject")
    assert (r.state, r.text) == ("rejected", "not mine")
    r = testing.run(ends, "retry")
    assert (r.state, r.attempts, r.elapsed) == ("completed", 2, timedelta(minutes=1))


def test_functions_that_are_not_async() -> None:
    effects = Effects()

    def orders(task: SyncTask, message: Message) -> str:
        paid = task.step("pay", effects.do, "pay")
        task.write("paid ")

        def model() -> str:
            task.write("and ")
            task.write("told")
            return "told"

        task.step("tell", model)
        answer = task.ask("Ship?", choices=["yes", "no"])
        task.artifact("label").data({"to": "Ann"})
        task.sleep("1h")
        return f"{paid} {answer}"

    r = testing.run(orders, "x", answers=["yes"])
    assert (r.text, r.artifact()) == ("pay! yes", "paid and told")
    assert r.artifacts["label"][0].data == {"to": "Ann"}
    assert effects.done == ["pay"]
    testing.crash_everywhere(
        orders, "x", answers=["yes"], compare=lambda r: (r.state, list(r.steps))
    )


def public(value: object) -> list[str]:
    return [name for name in dir(value) if not name.startswith("_")]


def test_both_kinds_of_tasks_have_the_same_methods() -> None:
    seen: list[list[str]] = []

    async def looks(task: Task, message: Message) -> None:
        seen.append(public(task) + public(task.artifact("a")))

    def looks_too(task: SyncTask, message: Message) -> None:
        seen.append(public(task) + public(task.artifact("a")))

    testing.run(looks, "x")
    testing.run(looks_too, "x")
    assert seen[0] == seen[1]


def test_output_is_sent_once() -> None:
    async def tells(task: Task, message: Message) -> None:
        await task.status("working on it")
        await task.artifact("table").data([1, 2])
        await task.artifact("picture").file(b"png", filename="p.png", media_type="image/png")
        await task.artifact("table").data([3])
        await task.sleep(1)
        await task.status("nearly done")

    r = testing.crash_everywhere(tells, "x")
    assert [p.data for p in r.artifacts["table"]] == [[3]]
    assert r.artifacts["picture"][0].raw == b"png"
    kinds = [next(iter(e)) for e in r.events]
    assert kinds == [
        "statusUpdate",
        "artifactUpdate",
        "artifactUpdate",
        "artifactUpdate",
        "statusUpdate",
        "statusUpdate",
    ]


def test_handlers_continue_from_a_checkpoint() -> None:
    async def counts(task: Task, message: Message) -> str:
        for n in range(task.saved or 0, 5):
            await task.write(f"{n} ")
            await task.checkpoint(n + 1)
            if n == 2 and task.attempt == 1:
                raise RuntimeError("crash")
        return "done"

    r = testing.run(counts, "x", handler=True)
    assert (r.text, r.artifact()) == ("done", "0 1 2 3 4 ")


def test_crashes_of_a_handler() -> None:
    async def counts(task: Task, message: Message) -> str:
        total = task.saved or 0
        for n in range(total, 3):
            await task.checkpoint(n + 1)
        return f"counted to {task.saved}"

    assert testing.crash_everywhere(counts, "x", handler=True).text == "counted to 3"


def test_an_agent_that_cancels_itself_fails_the_attempt() -> None:
    async def cancels(task: Task, message: Message) -> str:
        if task.attempt == 1:
            raise asyncio.CancelledError
        return "done"

    assert testing.run(cancels, "x").attempts == 2

"""A program that differs from the record: nothing recorded is returned for something else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from a2ad import Message, Part, Task, _values, testing
from a2ad._agent import Agent, Ending, execute
from a2ad._errors import Refused
from a2ad._memory import StoredTask
from a2ad._session import Session
from a2ad._threads import Threads
from a2ad._wire import Run

Call = Callable[[Task], Any]


class Client:
    """An object that has no JSON form."""

    def __init__(self, of: str) -> None:
        self.of = of


async def of(client: Any) -> str:
    return str(client.of)


def changed(first: Call, then: Call) -> str:
    """Run a task whose program is changed while it sleeps. Return its last text."""
    slept: list[int] = []

    async def agent(task: Task, message: Message) -> str:
        result = await (then if slept else first)(task)
        slept.append(1)
        await task.sleep(1)
        return f"{result}"

    answers = {"Book the trip?": "yes"}
    calls = {"b": lambda text: text}
    r = testing.run(agent, "x", answers=answers.__getitem__, calls=calls, max_attempts=1)
    return r.text


def call_then(question: str) -> Call:
    async def call(task: Task) -> Any:
        result = await task.call("b", question)
        return result.text

    return call


@pytest.mark.parametrize(
    ("first", "then", "key"),
    [
        (lambda t: t.ask("Book the trip?"), lambda t: t.ask("Delete all data?"), "ask#1"),
        (
            lambda t: t.ask("Book the trip?"),
            lambda t: t.ask("Book the trip?", choices=["yes", "no"]),
            "ask#1",
        ),
        (lambda t: t.ask("Book the trip?"), lambda t: t.auth_required("Book the trip?"), "ask#1"),
        (call_then("check B"), call_then("check A"), "call:b#1"),
    ],
)
def test_an_answer_is_not_returned_for_another_question(first: Call, then: Call, key: str) -> None:
    kind = "call" if key.startswith("call") else "wait"
    got = changed(first, then)
    assert f"step '{key}' is recorded as a {kind} with the input hash " in got
    assert f"but the code now does a {kind} with the input hash " in got
    assert changed(first, first) in ("yes", "check B")


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (lambda t: t.status("one"), lambda t: t.status("two")),
        (lambda t: t.artifact("a").data([1]), lambda t: t.artifact("a").data([2])),
        (lambda t: t.artifact("a").data([1]), lambda t: t.artifact("a").data([1], append=True)),
        (lambda t: t.artifact("a").replace("x" * 99_999), lambda t: t.artifact("a").replace("y")),
        (lambda t: t.step("s", of, Client("A")), lambda t: t.step("s", of, Task)),
        (
            lambda t: t.step("s", str, [Client("A"), 1]),
            lambda t: t.step("s", str, [Client("A"), 2]),
        ),
        (lambda t: t.step("s", len, b"one"), lambda t: t.step("s", len, b"two")),
        (lambda t: t.step("s", len, "x" * 2_000_000), lambda t: t.step("s", len, "y" * 2_000_000)),
        (lambda t: t.step("s", len, "\ud800"), lambda t: t.step("s", len, "x")),
        (lambda t: t.step("s", str, {(1, 2): 3}), lambda t: t.step("s", str, [3])),
        (lambda t: t.step("s", str, Client("A")), lambda t: t.step("s", str, object=Client("A"))),
    ],
)
def test_what_is_recorded_is_not_taken_for_something_else(first: Call, then: Call) -> None:
    got = changed(first, then)
    assert "a step with the input hash" in got
    assert "input hash" not in changed(first, first)


def test_a_time_that_is_computed_anew_is_no_change() -> None:
    runs: list[int] = []

    async def agent(task: Task, message: Message) -> str:
        runs.append(1)
        await task.sleep(len(runs))
        await task.signal("paid", timeout=len(runs))
        return await task.ask("Book the trip?", timeout=len(runs))

    assert testing.run(agent, "x", answers=["yes"], signals={"paid": 1}).text == "yes"


def attempt(agent: Agent, run: dict[str, Any]) -> tuple[Ending, list[Any]]:
    """Return how an attempt ended, and the events that it sent."""
    events: list[Any] = []

    class Server:
        async def report(self, run: Run, sent: Sequence[str], batch: str) -> bool:
            events.extend(json.loads(e) for e in sent)
            return False

    async def once() -> Ending:
        threads = Threads()
        decoded = Run.decode({"taskId": "t", "epoch": 1, **run})
        session = Session(decoded, Server(), threads, replay=agent.replay)
        try:
            return await execute(agent, session)
        finally:
            threads.close()

    return asyncio.run(once()), events


def said(id: str, text: str) -> dict[str, Any]:
    return {"messageId": id, "role": "ROLE_USER", "parts": [Part(text=text).encode()]}


def answered(key: str, id: str) -> dict[str, Any]:
    return {
        "key": key,
        "kind": "wait",
        "endedAt": "x",
        "result": {"by": "message", "messageId": id},
    }


async def two_questions(task: Task, message: Message) -> list[str]:
    return [await task.ask("First?"), await task.ask("Second?")]


def test_messages_with_one_id_answer_one_question_each() -> None:
    messages = [said("m", "start"), said("m", "one"), said("m", "two")]
    steps = [answered("ask#1", "m"), answered("ask#2", "m")]
    _, events = attempt(Agent("a", two_questions), {"messages": messages, "steps": steps})
    assert events[-1]["statusUpdate"]["status"]["message"]["parts"] == [{"data": ["one", "two"]}]


def test_another_message_is_not_taken_for_the_answer() -> None:
    messages = [said("1", "start"), said("2", "one"), said("3", "unrelated")]
    steps = [answered("ask#1", "2"), answered("ask#2", "lost")]
    ending, events = attempt(Agent("a", two_questions), {"messages": messages, "steps": steps})
    assert (ending.outcome, events) == ("retry", [])
    assert "no message 'lost'" in ending.reason


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (
            {"wait": {"key": "k", "input": {"signal": "a"}, "signal": "a"}},
            {"wait": {"key": "k", "input": {"signal": "b"}, "signal": "b"}},
        ),
        (
            {"call": {"key": "k", "agent": "b", "message": {"parts": [{"text": "one"}]}}},
            {"call": {"key": "k", "agent": "b", "message": {"parts": [{"text": "two"}]}}},
        ),
    ],
)
def test_the_server_in_memory_refuses_another_input(first: Any, then: Any) -> None:
    task = StoredTask()
    for event in (first, first):
        task.apply([event])
        task.wait = None
    with pytest.raises(Refused, match="nondeterministic step 'k'"):
        task.apply([then])


def test_the_order_of_members_does_not_count() -> None:
    first = _values.inputs(({"to": "Lyon", "by": [{"train": 1, "bus": 2}]},), {"n": 1, "m": 2})
    second = _values.inputs(({"by": [{"bus": 2, "train": 1}], "to": "Lyon"},), {"m": 2, "n": 1})
    assert (
        first
        == second
        == '{"args":[{"by":[{"bus":2,"train":1}],"to":"Lyon"}],' + ('"kwargs":{"m":2,"n":1}}')
    )

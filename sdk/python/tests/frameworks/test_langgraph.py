"""LangGraph: what is recorded is not done again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypedDict

import effects
from conftest import Client, Server
from fake_langgraph import agent
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt
from scenario import assert_page_shows, crash_everywhere, server, survive_kills

from a2ad import Message, Task, testing
from a2ad.langgraph import run

__all__ = ["server"]  # a fixture


def test_crashes_repeat_only_what_is_not_recorded() -> None:
    result = crash_everywhere(agent.support)
    assert result.questions == ["Pay 30 EUR of A7 back?"]
    assert (result.usage["fake"]["outputTokens"], result.usage["fake"]["requests"]) == (15, 3)


def test_kills_repeat_only_what_is_not_recorded(
    server: Server, client: Client, tmp_path: Path
) -> None:
    survive_kills(server, client, tmp_path, "fake_langgraph", agent.support)


class Notes(TypedDict):
    notes: Annotated[list[str], lambda a, b: sorted(a + b)]


def test_nodes_ask_twice_and_at_once() -> None:
    def asks_twice(state: Notes) -> Any:  # in a thread
        first = interrupt("First?")
        second = interrupt({"question": "Second?", "choices": ["left", "right"]})
        return {"notes": [f"first {first}", f"second {second}"]}

    async def asks_once(state: Notes) -> Any:
        return {"notes": [f"other {interrupt('Other?')}"]}

    def works(state: Notes) -> Any:
        effects.did("work")
        return {"notes": ["work"]}

    inner = StateGraph(Notes).add_node("asks_twice", asks_twice).add_edge(START, "asks_twice")
    graph: Any = StateGraph(Notes)
    for name, node in (("inner", inner.compile()), ("asks_once", asks_once), ("works", works)):
        graph.add_node(name, node).add_edge(START, name)
    compiled = graph.compile()

    async def agent(task: Task, message: Message) -> Any:
        state = await run(task, compiled, {"notes": []})
        return ", ".join(state["notes"])

    def answer(question: str) -> str:
        return {"First?": "one", "Second?": "left", "Other?": "three"}[question]

    def outcome(r: testing.Result) -> Any:
        return (r.state, r.text)

    effects.done.clear()
    result = testing.crash_everywhere(agent, "x", answers=answer, compare=outcome)
    assert (result.state, result.text) == (
        "completed",
        "first one, other three, second left, work",
    )
    assert sorted(result.questions) == ["First?", "Other?", "Second?"]


def notes_of(compiled: Any) -> Any:
    """Return an agent that runs a graph and returns its notes."""

    async def agent(task: Task, message: Message) -> str:
        return ", ".join((await run(task, compiled, {"notes": []}))["notes"])

    return agent


def test_a_node_that_returns_nothing_asks_once() -> None:
    returned: list[str] = []

    async def returns_nothing(state: Notes) -> None:
        returned.append(f"nothing after {interrupt('Once?')}")

    async def asks_twice(state: Notes) -> Any:
        return {"notes": [interrupt("First?"), interrupt("Second?")]}

    graph: Any = StateGraph(Notes)
    for node in (returns_nothing, asks_twice):
        graph.add_node(node).add_edge(START, node.__name__)
    agent = notes_of(graph.compile())

    def answer(question: str) -> str:
        return f"to {question}"

    result = testing.run(agent, "x", answers=answer)
    assert result.text == "to First?, to Second?"
    assert sorted(result.questions) == ["First?", "Once?", "Second?"]
    assert returned == ["nothing after to Once?"]

    def outcome(r: testing.Result) -> Any:
        return (r.text, sorted(r.questions))

    testing.crash_everywhere(agent, "x", answers=answer, compare=outcome)


def test_a_node_that_fails_between_its_questions_gets_each_answer_once() -> None:
    failures = [ConnectionError("reset")]

    async def asks(state: Notes) -> Any:
        first = interrupt("First?")
        if failures:
            raise failures.pop()
        return {"notes": [first, interrupt("Second?")]}

    graph: Any = StateGraph(Notes).add_node(asks).add_edge(START, "asks")
    result = testing.run(notes_of(graph.compile()), "x", answers=lambda question: f"to {question}")
    assert (result.text, result.questions) == ("to First?, to Second?", ["First?", "Second?"])


def test_a_node_that_fails_runs_again() -> None:
    tries: list[str] = []

    def ok(state: Notes) -> Any:
        tries.append("ok")
        return {"notes": ["ok"]}

    def fails_once(state: Notes) -> Any:
        tries.append("fails")
        if tries.count("fails") == 1:
            raise ConnectionError("reset")
        return {"notes": ["done"]}

    graph: Any = StateGraph(Notes).add_node("ok", ok).add_node("fails", fails_once)
    compiled = graph.add_edge(START, "ok").add_edge("ok", "fails").compile()
    result = testing.run(notes_of(compiled), "x")
    assert (result.text, result.attempts, tries) == ("done, ok", 2, ["ok", "fails", "fails"])


def test_the_page_shows_the_example() -> None:
    assert_page_shows("langgraph", "LangGraph")

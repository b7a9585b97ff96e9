"""Pydantic AI: what is recorded is not done again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from conftest import Client, Server
from fake_pydantic_ai import agent
from pydantic_ai import Agent, CallDeferred, ModelRetry
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturn
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.toolsets import FunctionToolset
from scenario import assert_page_shows, crash_everywhere, server, survive_kills

from a2ad import Message, Task, testing
from a2ad.pydantic_ai import Durable

__all__ = ["server"]  # a fixture


def test_crashes_repeat_only_what_is_not_recorded() -> None:
    result = crash_everywhere(agent.support)
    assert result.questions == ['Run refund(order="A7", amount=30)?']
    assert (result.usage["fake"]["inputTokens"], result.usage["fake"]["requests"]) == (150, 3)


def test_kills_repeat_only_what_is_not_recorded(
    server: Server, client: Client, tmp_path: Path
) -> None:
    survive_kills(server, client, tmp_path, "fake_pydantic_ai", agent.support)


def test_a_refusal_is_told_to_the_model() -> None:
    result = testing.run(agent.support, "Pay A7 back", answers=["no"])
    assert (result.state, result.artifact()) == ("completed", "Looking up orders. Paid back.")
    assert not any(key.startswith("refund") for key in result.steps)


def test_what_tools_tell_the_framework_is_recorded() -> None:
    """A tool asks for other arguments, one asks the client, and one returns more than a value."""
    used: list[str] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        answers = sum(isinstance(m, ModelResponse) for m in messages)
        parts: list[Any] = [
            [ToolCallPart("pick", {"n": 1}), ToolCallPart("person", {"question": "Which?"})],
            [ToolCallPart("pick", {"n": 2})],
            [
                TextPart(
                    repr([p.content for m in messages for p in m.parts if hasattr(p, "content")])
                )
            ],
        ]
        used.append(f"model {answers}")
        return ModelResponse(parts[answers])

    chooser = Agent(FunctionModel(answer))

    @chooser.tool_plain
    def pick(n: int) -> ToolReturn[str]:
        used.append(f"pick {n}")
        if n == 1:
            raise ModelRetry("not that one")
        return ToolReturn("picked", content="a picture of it", metadata={"n": n})

    @chooser.tool_plain
    def person(question: str) -> str:
        used.append("person")
        raise CallDeferred

    async def chooses(task: Task, message: Message) -> Any:
        run = await chooser.run(message.text, capabilities=[Durable(task, artifact=None)])
        await task.sleep("1h")
        return run.output

    result = testing.run(chooses, "x", answers=["the red one"])
    assert result.questions == ["Which?"]
    assert sorted(used) == ["model 0", "model 1", "model 2", "person", "pick 1", "pick 2"]
    for told in ("not that one", "the red one", "picked", "a picture of it"):
        assert told in result.text
    testing.crash_everywhere(
        chooses, "x", answers=["the red one"], compare=lambda r: (r.state, len(r.steps))
    )


def test_an_agent_in_a_tool_is_part_of_its_step() -> None:
    used: list[str] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        (tool,) = (t.name for t in info.function_tools)
        answers = sum(isinstance(m, ModelResponse) for m in messages)
        used.append(f"model with {tool}, answer {answers}")
        return ModelResponse([TextPart("done") if answers else ToolCallPart(tool, {})])

    def look() -> str:
        used.append("look")
        return "seen"

    inner = Agent(FunctionModel(answer), toolsets=[FunctionToolset([look])])
    outer = Agent(FunctionModel(answer))

    async def delegates(task: Task, message: Message) -> Any:
        durable = Durable(task, artifact=None)

        async def delegate() -> str:
            return (await inner.run("go", capabilities=[durable])).output

        run = await outer.run("go", capabilities=[durable], toolsets=[FunctionToolset([delegate])])
        await task.sleep("1h")
        return run.output

    result = testing.run(delegates, "x")
    assert (result.state, result.text) == ("completed", "done")
    assert used == [
        "model with delegate, answer 0",
        "model with look, answer 0",
        "look",
        "model with look, answer 1",
        "model with delegate, answer 1",
    ]


def test_the_page_shows_the_example() -> None:
    assert_page_shows("pydantic-ai", "Pydantic AI")

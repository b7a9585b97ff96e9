"""Google's ADK: what is recorded is not done again."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from conftest import Client, Server
from fake_google_adk import agent
from google.adk.agents import LlmAgent, ParallelAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types
from scenario import assert_page_shows, crash_everywhere, server, survive_kills

from a2ad import Message, Task, testing
from a2ad.google_adk import run

__all__ = ["server"]  # a fixture


def test_crashes_repeat_only_what_is_not_recorded() -> None:
    result = crash_everywhere(agent.support)
    assert result.questions == ['Run refund(order="A7", amount=30)?']
    assert (result.usage["fake"]["outputTokens"], result.usage["fake"]["requests"]) == (15, 3)


def test_kills_repeat_only_what_is_not_recorded(
    server: Server, client: Client, tmp_path: Path
) -> None:
    survive_kills(server, client, tmp_path, "fake_google_adk", agent.support)


def test_a_refusal_is_told_to_the_model() -> None:
    result = testing.run(agent.support, "Pay A7 back", answers=["no"])
    assert (result.state, result.artifact()) == ("completed", "Looking up orders. Paid back.")
    assert not any(key.startswith("refund") for key in result.steps)


class Script(BaseLlm):
    """A model that calls each of its tools once, and then tells what they returned."""

    tools: list[str]

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        parts = [p for c in llm_request.contents for p in c.parts or []]
        results = [p.function_response for p in parts if p.function_response]
        if len(results) < len(self.tools):
            call = types.FunctionCall(name=self.tools[len(results)], args={})
            part = types.Part(function_call=call)
        else:
            part = types.Part(text=f"{self.model}: {[r.response for r in results]}\n")
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


def test_agents_at_once_and_what_tools_do_to_the_session() -> None:
    used: list[str] = []

    def remember(tool_context: ToolContext) -> str:
        used.append("remember")
        tool_context.state["color"] = "red"
        return "remembered"

    def person() -> None:
        used.append("person")

    class Memory(BaseToolset):
        async def get_tools(self, readonly_context: Any = None) -> list[Any]:
            return [FunctionTool(recall)]

    def recall(tool_context: ToolContext) -> str:
        used.append("recall")
        return f"it is {tool_context.state['color']}"

    one = LlmAgent(
        name="one",
        model=Script(model="one", tools=["remember", "recall"]),
        tools=[remember, Memory()],
    )
    two = LlmAgent(
        name="two",
        model=Script(model="two", tools=["person"]),
        tools=[LongRunningFunctionTool(person)],
    )
    both = ParallelAgent(name="both", sub_agents=[one, two])

    async def works(task: Task, message: Message) -> Any:
        session = await run(task, both, message.text)
        await task.sleep("1h")
        return session.state["color"]

    result = testing.run(works, "go", answers=["blue"])
    assert (result.state, result.text) == ("completed", "red")
    assert result.questions == ["person()"]
    assert sorted(used) == ["person", "recall", "remember"]
    assert "it is red" in result.artifact()
    assert "blue" in result.artifact()


def test_the_page_shows_the_example() -> None:
    assert_page_shows("google-adk", "Google ADK")

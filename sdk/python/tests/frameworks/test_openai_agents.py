"""OpenAI Agents SDK: what is recorded is not done again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import agents
from agents import Agent, RunConfig, function_tool
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from conftest import Client, Server
from fake_openai_agents import agent
from scenario import assert_page_shows, crash_everywhere, server, survive_kills

from a2ad import Message, Task, testing
from a2ad.openai_agents import run

__all__ = ["server"]  # a fixture


def test_crashes_repeat_only_what_is_not_recorded() -> None:
    result = crash_everywhere(agent.support)
    assert result.questions == ['Run refund(order="A7", amount=30)?']
    assert result.usage == {
        "fake": {
            "inputTokens": 30,
            "outputTokens": 15,
            "cachedInputTokens": 12,
            "reasoningTokens": 6,
            "requests": 3,
        }
    }


def test_kills_repeat_only_what_is_not_recorded(
    server: Server, client: Client, tmp_path: Path
) -> None:
    survive_kills(server, client, tmp_path, "fake_openai_agents", agent.support)


def test_a_refusal_is_told_to_the_model() -> None:
    result = testing.run(agent.support, "Pay A7 back", answers=["no"])
    assert (result.state, result.artifact()) == ("completed", "Looking up orders. Paid back.")
    assert "refund:call-refund#1" not in result.steps


class Memory:
    """A session that lasts as long as the process."""

    session_id = "one"
    session_settings = None

    def __init__(self) -> None:
        self.items: list[Any] = []

    async def get_items(self, limit: int | None = None) -> list[Any]:
        return list(self.items)

    async def add_items(self, items: list[Any]) -> None:
        self.items += items

    async def pop_item(self) -> Any:
        return self.items.pop()

    async def clear_session(self) -> None:
        self.items.clear()


def test_handoffs_and_sessions_are_recorded() -> None:
    """Two agents hand over to each other. Each has its model by name, and the second a tool."""
    used: list[str] = []

    @function_tool
    def work() -> str:
        used.append("work")
        return "worked"

    first = Agent(name="first", model="one")
    second = Agent(name="second", model="two", tools=[work], handoffs=[first])
    first.handoffs.append(second)
    script: dict[str, list[Any]] = {
        "one": [function_call("transfer_to_second", {}, call_id="c1")],
        "two": [function_call("work", {}, call_id="c2")],
        "two again": [assistant_message("done")],
    }

    class Provider(agents.ModelProvider):
        def get_model(self, model_name: str | None) -> agents.Model:
            name = f"{model_name} again" if model_name == "two" and "two" in used else model_name
            used.append(str(name))
            return ScriptedModel([ModelStep(output=script[str(name)])])

    memory = Memory()

    async def works(task: Task, message: Message) -> Any:
        config = RunConfig(model_provider=Provider())
        result = await run(task, first, "go", run_config=config, session=memory)
        await task.sleep("1h")
        return result.final_output

    result = testing.run(works, "x")
    assert (result.state, result.text) == ("completed", "done")
    assert used.count("work") == 1
    assert [k for k in result.steps if not k.startswith("session")] == [
        "model#1",
        "model#2",
        "work:c2#1",
        "model#3",
        "sleep#1",
    ]
    texts = [i for i in memory.items if i.get("role") == "user"]
    assert len(texts) == 1, "the question was added again when the function ran again"


def test_the_page_shows_the_example() -> None:
    assert_page_shows("openai-agents", "OpenAI Agents SDK")

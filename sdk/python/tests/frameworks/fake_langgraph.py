"""The example for LangGraph with a fake model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from effects import do
from langchain_core.language_models import BaseChatModel, GenericFakeChatModel
from langchain_core.messages import AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGenerationChunk
from scenario import FINAL, LOOKUP, example, orders_of

agent = example("langgraph")


class Answers(GenericFakeChatModel):
    """The fake of LangChain, which answers what the conversation wants."""

    async def _astream(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **more: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        async for chunk in _chunks(messages):
            generation = ChatGenerationChunk(message=chunk)
            if run_manager:
                await run_manager.on_llm_new_token(str(chunk.content), chunk=generation)
            yield generation


async def _chunks(messages: list[BaseMessage]) -> AsyncIterator[AIMessageChunk]:
    orders = orders_of(next(str(m.content) for m in messages if isinstance(m, HumanMessage)))
    results = [m.name for m in messages if isinstance(m, ToolMessage)]
    n = 1 + bool(results) + ("refund" in results)
    await do(f"model {n}")
    if n == 1:
        yield AIMessageChunk(LOOKUP[0])
        await do("model 1 in the middle")
        yield AIMessageChunk(LOOKUP[1])
        for i, order in enumerate(orders):
            yield _call(f"call-{i}", "find_order", f'{{"order": "{order}"}}', i)
    elif n == 2:
        yield _call("call-refund", "refund", f'{{"order": "{orders[0]}", "amount": 30}}', 0)
    else:
        yield AIMessageChunk(FINAL[0])
        await do("model 3 in the middle")
        yield AIMessageChunk(FINAL[1])
    yield AIMessageChunk(
        "",
        usage_metadata={"input_tokens": 10, "output_tokens": 5, "total_tokens": 15},
        response_metadata={"model_name": "fake"},
    )


def _call(id: str, name: str, args: str, index: int) -> AIMessageChunk:
    call = {"id": id, "name": name, "args": args, "index": index, "type": "tool_call_chunk"}
    return AIMessageChunk("", tool_call_chunks=[call])


def model() -> BaseChatModel:
    return Answers(messages=iter(()))


agent.model = model

"""The example for Pydantic AI with a fake model."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

from effects import do
from pydantic_ai.messages import ModelMessage, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from scenario import FINAL, LOOKUP, example, orders_of

agent = example("pydantic-ai")


async def answer(
    messages: list[ModelMessage], info: AgentInfo
) -> AsyncIterator[str | DeltaToolCalls]:
    parts = [p for m in messages for p in m.parts]
    orders = orders_of(next(str(p.content) for p in parts if isinstance(p, UserPromptPart)))
    results = [p.tool_name for p in parts if isinstance(p, ToolReturnPart)]
    n = 1 + bool(results) + ("refund" in results)
    await do(f"model {n}")
    if n == 1:
        yield LOOKUP[0]
        await do("model 1 in the middle")
        yield LOOKUP[1]
        for i, order in enumerate(orders):
            args = json.dumps({"order": order})
            yield {i + 1: DeltaToolCall("find_order", args, tool_call_id=f"call-{i}")}
    elif n == 2:
        args = json.dumps({"order": orders[0], "amount": 30})
        yield {0: DeltaToolCall("refund", args, tool_call_id="call-refund")}
    else:
        yield FINAL[0]
        await do("model 3 in the middle")
        yield FINAL[1]


agent.agent.model = FunctionModel(stream_function=answer, model_name="fake")

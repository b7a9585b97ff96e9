"""The example for the OpenAI Agents SDK with a fake model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import agents
from agents import Model, ModelResponse
from agents.testing import ModelCall, ModelStep, ScriptedModel, assistant_message, function_call
from effects import do
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseTextDeltaEvent,
    ResponseUsage,
)
from openai.types.responses.response_usage import InputTokensDetails, OutputTokensDetails
from scenario import FINAL, LOOKUP, example, orders_of

agents.set_tracing_disabled(True)
agent = example("openai-agents")


def _delta(text: str) -> ResponseTextDeltaEvent:
    return ResponseTextDeltaEvent(
        type="response.output_text.delta",
        delta=text,
        item_id="text",
        content_index=0,
        output_index=0,
        sequence_number=0,
        logprobs=[],
    )


def _completed(output: list[Any]) -> ResponseCompletedEvent:
    response = Response(
        id="response",
        created_at=0,
        model="fake",
        object="response",
        output=output,
        parallel_tool_calls=True,
        tool_choice="auto",
        tools=[],
        usage=ResponseUsage(
            input_tokens=10,
            output_tokens=5,
            total_tokens=15,
            input_tokens_details=InputTokensDetails(cached_tokens=4, cache_write_tokens=0),
            output_tokens_details=OutputTokensDetails(reasoning_tokens=2),
        ),
    )
    return ResponseCompletedEvent(type="response.completed", response=response, sequence_number=0)


async def answer(call: ModelCall) -> AsyncIterator[Any]:
    items: list[Any] = [{"content": call.input}] if isinstance(call.input, str) else call.input
    orders = orders_of(next(i["content"] for i in items if "content" in i))
    results = [i["call_id"] for i in items if i.get("type") == "function_call_output"]
    n = 1 + bool(results) + ("call-refund" in results)
    await do(f"model {n}")
    if n == 1:
        yield _delta(LOOKUP[0])
        await do("model 1 in the middle")
        yield _delta(LOOKUP[1])
        calls = [
            function_call("find_order", {"order": order}, call_id=f"call-{i}")
            for i, order in enumerate(orders)
        ]
        yield _completed([assistant_message("".join(LOOKUP)), *calls])
    elif n == 2:
        args = {"order": orders[0], "amount": 30}
        yield _completed([function_call("refund", args, call_id="call-refund")])
    else:
        yield _delta(FINAL[0])
        await do("model 3 in the middle")
        yield _delta(FINAL[1])
        yield _completed([assistant_message("".join(FINAL))])


class Answers(Model):
    """The fake of the SDK, which answers what the conversation wants."""

    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        step = ModelStep(stream_events=answer)
        return ScriptedModel([step]).stream_response(*args, **kwargs)

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        raise NotImplementedError


agent.agent.model = Answers()

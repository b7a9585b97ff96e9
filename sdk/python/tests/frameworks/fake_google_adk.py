"""The example for Google's ADK with a fake model."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from effects import do
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.genai import types
from scenario import FINAL, LOOKUP, example, orders_of

agent = example("google-adk")


def _response(*parts: types.Part, partial: bool) -> LlmResponse:
    usage = types.GenerateContentResponseUsageMetadata(
        prompt_token_count=10, candidates_token_count=5
    )
    return LlmResponse(
        content=types.Content(role="model", parts=list(parts)),
        partial=partial,
        usage_metadata=usage,
        model_version="fake",
    )


def _call(name: str, **args: Any) -> types.Part:
    return types.Part(function_call=types.FunctionCall(name=name, args=args))


class Answers(BaseLlm):
    """A model of the ADK, which answers what the conversation wants. The ADK has no fake one."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        parts = [p for c in llm_request.contents for p in c.parts or []]
        orders = orders_of(next(p.text for p in parts if p.text))
        results = [
            p.function_response.name
            for p in parts
            if p.function_response and "requires confirmation" not in str(p.function_response)
        ]
        n = 1 + bool(results) + ("refund" in results)
        await do(f"model {n}")
        if n == 1:
            yield _response(types.Part(text=LOOKUP[0]), partial=True)
            await do("model 1 in the middle")
            yield _response(types.Part(text=LOOKUP[1]), partial=True)
            calls = [_call("find_order", order=order) for order in orders]
            yield _response(types.Part(text="".join(LOOKUP)), *calls, partial=False)
        elif n == 2:
            yield _response(_call("refund", order=orders[0], amount=30), partial=False)
        else:
            yield _response(types.Part(text=FINAL[0]), partial=True)
            await do("model 3 in the middle")
            yield _response(types.Part(text=FINAL[1]), partial=True)
            yield _response(types.Part(text="".join(FINAL)), partial=False)


agent.agent.model = Answers(model="fake")

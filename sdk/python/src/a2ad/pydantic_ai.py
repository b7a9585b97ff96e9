"""Durable agents of Pydantic AI.

::

    from a2ad.pydantic_ai import Durable

    @worker.agent("support")
    async def support(task, message):
        await agent.run(message.text, capabilities=[Durable(task)])
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, ToolFailed
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ToolCallPart,
    ToolReturn,
    ToolReturnContent,
)
from pydantic_ai.models import (
    CompletedStreamedResponse,
    Model,
    ModelRequestParameters,
    StreamedResponse,
)
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import (
    DeferredToolApprovalResult,
    DeferredToolRequests,
    DeferredToolResults,
    RunContext,
    ToolDenied,
)
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset

from ._frameworks import ANSWER, MODEL, approve, describe_call, in_step, tool_step
from ._task import Task

__all__ = ["Durable"]

_content: TypeAdapter[Any] = TypeAdapter(ToolReturnContent)
_tool_return: TypeAdapter[ToolReturn[Any]] = TypeAdapter(ToolReturn[Any])


class Durable(AbstractCapability[Any]):
    """Makes one run of an agent part of a task. Pass it as a capability of the run.

    Each model request and each tool call is a step. When the agent runs again, after a crash or a
    wait, it gets what is recorded; no model and no tool is called twice for it.

    The text of the model is written to ``artifact`` while it comes. With None, it is not, and the
    model is called without streaming.

    A tool call that needs an approval asks the client, who answers yes or no. A call that is
    deferred asks the client too; the answer is its result. The question is ``question`` in the
    metadata of ApprovalRequired or CallDeferred, or describes the call.
    """

    def __init__(self, task: Task, *, artifact: str | None = ANSWER) -> None:
        self.task = task
        self.artifact = artifact

    def get_wrapper_model(self, model: Model) -> Model:
        return _RecordedModel(model, self.task, self.artifact)

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        return _RecordedToolset(toolset, self.task)

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults:
        def question(call: ToolCallPart, otherwise: str) -> str:
            asked = requests.metadata.get(call.tool_call_id, {}).get("question")
            return str(asked or otherwise)

        approvals: dict[str, bool | DeferredToolApprovalResult] = {}
        for call in requests.approvals:
            described = f"Run {describe_call(call.tool_name, call.args)}?"
            if await approve(self.task, question(call, described)):
                approvals[call.tool_call_id] = True
            else:
                approvals[call.tool_call_id] = ToolDenied("The person said no.")
        answers: dict[str, Any] = {}
        for call in requests.calls:
            described = str(call.args_as_dict().get("question", ""))
            described = described or describe_call(call.tool_name, call.args)
            answers[call.tool_call_id] = await self.task.ask(question(call, described))
        return requests.build_results(approvals=approvals, calls=answers)


class _RecordedModel(WrapperModel):
    """A model whose requests are steps."""

    def __init__(self, wrapped: Model, task: Task, artifact: str | None) -> None:
        super().__init__(wrapped)
        self.task = task
        self.artifact = artifact

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        return await self._step(messages, model_settings, model_request_parameters, None)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        response = await self._step(messages, model_settings, model_request_parameters, run_context)
        yield CompletedStreamedResponse(
            response, model_request_parameters=model_request_parameters, replay_events=True
        )

    async def _step(
        self,
        messages: list[ModelMessage],
        settings: ModelSettings | None,
        parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None,
    ) -> ModelResponse:
        if in_step(self.task):
            return await self.wrapped.request(messages, settings, parameters)

        async def call() -> list[Any]:
            if self.artifact is None:
                response = await self.wrapped.request(messages, settings, parameters)
            else:
                async with self.wrapped.request_stream(
                    messages, settings, parameters, run_context
                ) as stream:
                    await self._write(stream, parameters)
                response = stream.get()
            await self._report(response)
            recorded: list[Any] = ModelMessagesTypeAdapter.dump_python([response], mode="json")
            return recorded

        recorded = await self.task.step(MODEL, call)
        (response,) = ModelMessagesTypeAdapter.validate_python(recorded)
        assert isinstance(response, ModelResponse)
        return response

    async def _write(self, stream: StreamedResponse, parameters: ModelRequestParameters) -> None:
        answer = self.task.artifact(self.artifact or ANSWER)
        async for event in stream:
            text = _text(event)
            # With a schema, the text of the model is JSON for the program, not for the client.
            if text and parameters.output_object is None:
                await answer.write(text)

    async def _report(self, response: ModelResponse) -> None:
        usage = response.usage
        await self.task.usage(
            model=response.model_name or self.model_name,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cached_input_tokens=usage.cache_read_tokens,
            reasoning_tokens=usage.output_reasoning_tokens,
            requests=1,
        )


def _text(event: ModelResponseStreamEvent) -> str:
    if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
        return event.part.content
    if isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
        return event.delta.content_delta
    return ""


@dataclass
class _RecordedToolset(WrapperToolset[Any]):
    """A toolset whose calls are steps."""

    task: Task

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        if in_step(self.task):
            return await self.wrapped.call_tool(name, tool_args, ctx, tool)

        async def call() -> dict[str, Any]:
            return await _outcome(self.wrapped.call_tool(name, tool_args, ctx, tool))

        step = tool_step(name, ctx.tool_call_id or "")
        return _raise_or_return(await self.task.step(step, call))


async def _outcome(call: Any) -> dict[str, Any]:
    """Return what a tool did, as JSON. What it tells Pydantic AI by an exception is a result."""
    try:
        result = await call
    except ApprovalRequired as err:
        return {"approval": err.metadata}
    except CallDeferred as err:
        return {"deferred": err.metadata, "kind": err.kind}
    except ModelRetry as err:
        return {"retry": err.message}
    except ValidationError as err:
        return {"retry": str(err)}
    except ToolFailed as err:
        return {"failed": err.message}
    if isinstance(result, ToolReturn):
        return {"return": _tool_return.dump_python(result, mode="json")}
    return {"content": _content.dump_python(result, mode="json")}


def _raise_or_return(outcome: dict[str, Any]) -> Any:
    if "approval" in outcome:
        raise ApprovalRequired(metadata=outcome["approval"])
    if "deferred" in outcome:
        raise CallDeferred(metadata=outcome["deferred"], kind=outcome["kind"])
    if "retry" in outcome:
        raise ModelRetry(outcome["retry"])
    if "failed" in outcome:
        raise ToolFailed(outcome["failed"])
    if "return" in outcome:
        return _tool_return.validate_python(outcome["return"])
    return _content.validate_python(outcome["content"])

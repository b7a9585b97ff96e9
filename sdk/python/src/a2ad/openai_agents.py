"""Durable agents of the OpenAI Agents SDK.

::

    from a2ad.openai_agents import run

    @worker.agent("support")
    async def support(task, message):
        await run(task, agent, message.text)
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

from agents import (
    Agent,
    AgentOutputSchemaBase,
    FunctionTool,
    Handoff,
    Model,
    ModelBehaviorError,
    ModelProvider,
    ModelResponse,
    ModelSettings,
    ModelTracing,
    RunConfig,
    Runner,
    RunResult,
    Session,
    Tool,
    ToolOutputFileContent,
    ToolOutputImage,
    ToolOutputText,
    TResponseInputItem,
    Usage,
)
from agents.items import TResponseStreamEvent
from agents.retry import ModelRetryAdvice, ModelRetryAdviceRequest
from agents.tool_context import ToolContext
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseOutputItemDoneEvent,
    ResponseTextDeltaEvent,
)
from pydantic import TypeAdapter

from ._errors import UsageError
from ._frameworks import ANSWER, MODEL, approve, describe_call, tool_step
from ._task import Task

__all__ = ["run"]

_response: TypeAdapter[ModelResponse] = TypeAdapter(ModelResponse)
_STRUCTURED = (ToolOutputText, ToolOutputImage, ToolOutputFileContent)


async def run(
    task: Task,
    agent: Agent[Any],
    input: str | list[TResponseInputItem],
    *,
    artifact: str | None = ANSWER,
    run_config: RunConfig | None = None,
    session: Session | None = None,
    **options: Any,
) -> RunResult:
    """Run an agent as part of a task. ``options`` are those of ``Runner.run``.

    Each model call, each call of a function tool, and each use of the session is a step. When the
    function of the task runs again, after a crash or a wait, it gets what is recorded; no model and
    no tool is called twice for it. That holds for the agents of handoffs too.

    The text of the models is written to ``artifact`` while it comes. With None, it is not, and the
    models are called without streaming. A tool call that needs an approval asks the client, who
    answers yes or no.
    """
    durable = _Durable(task, artifact)
    config = run_config or RunConfig()
    config = dataclasses.replace(
        config,
        model_provider=_Provider(config.model_provider, durable),
        model=durable.model(config.model) if isinstance(config.model, Model) else config.model,
    )
    options.update(run_config=config, session=session and _RecordedSession(session, task))
    agent = durable.agent(agent)
    result = await Runner.run(agent, input, **options)
    while result.interruptions:
        state = result.to_state()
        for call in result.interruptions:
            described = describe_call(call.tool_name or "a tool", call.arguments)
            if await approve(task, f"Run {described}?"):
                state.approve(call)
            else:
                state.reject(call)
        options.pop("context", None)  # the state has it
        result = await Runner.run(agent, state, **options)
    return result


class _Durable:
    """Copies of agents, whose models and tools record what they do."""

    def __init__(self, task: Task, artifact: str | None) -> None:
        self.task = task
        self.artifact = artifact
        self._agents: dict[int, tuple[Agent[Any], Agent[Any]]] = {}

    def model(self, model: Model) -> Model:
        return _RecordedModel(model, self.task, self.artifact)

    def agent(self, agent: Agent[Any]) -> Agent[Any]:
        """Return the copy of an agent. Agents may hand over to each other in circles."""
        if id(agent) in self._agents:
            return self._agents[id(agent)][1]
        copied = agent.clone(tools=[self._tool(t) for t in agent.tools], handoffs=[])
        if isinstance(agent.model, Model):
            copied.model = self.model(agent.model)
        self._agents[id(agent)] = (agent, copied)
        copied.handoffs.extend(
            self._handoff(h) if isinstance(h, Handoff) else self.agent(h) for h in agent.handoffs
        )
        return copied

    def _handoff(self, handoff: Handoff[Any, Any]) -> Handoff[Any, Any]:
        async def invoke(*args: Any) -> Any:
            return self.agent(await handoff.on_invoke_handoff(*args))

        return dataclasses.replace(handoff, on_invoke_handoff=invoke)

    def _tool(self, tool: Tool) -> Tool:
        if not isinstance(tool, FunctionTool):
            return tool
        original = tool.on_invoke_tool

        async def invoke(context: ToolContext[Any], arguments: str) -> Any:
            async def call() -> Any:
                return _plain(await original(context, arguments))

            return await self.task.step(tool_step(tool.name, context.tool_call_id), call)

        copied = copy.copy(tool)
        original = copied.on_invoke_tool  # bound to the copy, if it must be bound
        copied.on_invoke_tool = invoke
        return copied


def _plain(output: Any) -> Any:
    """Return what a tool has returned as JSON: what the SDK would send to the model."""
    if isinstance(output, _STRUCTURED):
        return output.model_dump(mode="json", exclude_none=True)
    if isinstance(output, list):
        return [_plain(o) for o in output]
    if isinstance(output, dict) and output.get("type") in ("text", "image", "file"):
        return output
    return str(output)


class _Provider(ModelProvider):
    """Gives recorded models to the agents that have the name of one."""

    def __init__(self, wrapped: ModelProvider, durable: _Durable) -> None:
        self._wrapped = wrapped
        self._durable = durable

    def get_model(self, model_name: str | None) -> Model:
        return self._durable.model(self._wrapped.get_model(model_name))

    async def aclose(self) -> None:
        await self._wrapped.aclose()


class _RecordedModel(Model):
    """A model whose responses are steps."""

    def __init__(self, wrapped: Model, task: Task, artifact: str | None) -> None:
        self._wrapped = wrapped
        self._task = task
        self._artifact = artifact

    async def get_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],
        model_settings: ModelSettings,
        tools: list[Tool],
        output_schema: AgentOutputSchemaBase | None,
        handoffs: list[Handoff[Any, Any]],
        tracing: ModelTracing,
        **more: Any,
    ) -> ModelResponse:
        args = (system_instructions, input, model_settings, tools, output_schema, handoffs, tracing)
        # With a schema, the text of the model is JSON for the program, not for the client.
        is_text = output_schema is None or output_schema.is_plain_text()

        async def call() -> Any:
            if self._artifact is None:
                response, name = await self._wrapped.get_response(*args, **more), ""
            else:
                streamed = await self._stream(is_text, *args, **more)
                response, name = _model_response(streamed), streamed.model
            await self._report(response.usage, name)
            return _response.dump_python(response, mode="json")

        return _response.validate_python(await self._task.step(MODEL, call))

    async def _stream(self, is_text: bool, *args: Any, **kwargs: Any) -> Response:
        """Write the text while it comes, and return the whole response."""
        answer = self._task.artifact(self._artifact or ANSWER)
        items = []
        async for event in self._wrapped.stream_response(*args, **kwargs):
            if isinstance(event, ResponseTextDeltaEvent) and is_text:
                await answer.write(event.delta)
            elif isinstance(event, ResponseOutputItemDoneEvent):
                items.append(event.item)
            elif isinstance(event, ResponseCompletedEvent):
                if not event.response.output:
                    event.response.output = items
                return event.response
            elif event.type in ("response.failed", "response.incomplete", "error"):
                raise ModelBehaviorError(f"the model ended with {event.type}: {event!r:.1000}")
        raise ModelBehaviorError("the stream of the model ended without a response")

    async def _report(self, usage: Usage, model: str) -> None:
        await self._task.usage(
            model=model or str(getattr(self._wrapped, "model", "")),
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cached_input_tokens=usage.input_tokens_details.cached_tokens,
            reasoning_tokens=usage.output_tokens_details.reasoning_tokens,
            requests=usage.requests,
        )

    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[TResponseStreamEvent]:
        raise UsageError("a recorded model writes its text to the task; run the agent unstreamed")

    def get_retry_advice(self, request: ModelRetryAdviceRequest) -> ModelRetryAdvice | None:
        return self._wrapped.get_retry_advice(request)

    async def close(self) -> None:
        await self._wrapped.close()


def _model_response(response: Response) -> ModelResponse:
    usage = Usage(requests=1)
    if response.usage is not None:
        usage = Usage(
            requests=1,
            input_tokens=response.usage.input_tokens,
            output_tokens=response.usage.output_tokens,
            total_tokens=response.usage.total_tokens,
            input_tokens_details=response.usage.input_tokens_details,
            output_tokens_details=response.usage.output_tokens_details,
        )
    return ModelResponse(output=response.output, usage=usage, response_id=response.id)


class _RecordedSession:
    """A session whose uses are steps: an item is not added again when the function runs again."""

    def __init__(self, wrapped: Session, task: Task) -> None:
        self._wrapped = wrapped
        self._task = task
        self.session_id = wrapped.session_id
        self.session_settings = wrapped.session_settings

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        items: list[TResponseInputItem] = await self._task.step(
            "session.get_items", self._wrapped.get_items, limit
        )
        return items

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        async def add() -> None:
            await self._wrapped.add_items(items)

        await self._task.step("session.add_items", add)

    async def pop_item(self) -> TResponseInputItem | None:
        item: TResponseInputItem | None = await self._task.step(
            "session.pop_item", self._wrapped.pop_item
        )
        return item

    async def clear_session(self) -> None:
        await self._task.step("session.clear", self._wrapped.clear_session)

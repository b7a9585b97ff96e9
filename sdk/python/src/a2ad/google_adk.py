"""Durable agents of Google's Agent Development Kit.

::

    from a2ad.google_adk import run

    @worker.agent("support")
    async def support(task, message):
        await run(task, agent, message.text)
"""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from google.adk.agents import BaseAgent, LlmAgent
from google.adk.events import Event, EventActions
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import InMemoryRunner
from google.adk.sessions import Session
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types
from pydantic import PrivateAttr

from ._errors import UsageError
from ._frameworks import ANSWER, MODEL, approve, describe_call, tool_step
from ._task import Task

__all__ = ["run"]

_APP = "a2ad"
_CONFIRMATION = "adk_request_confirmation"
_CREDENTIAL = "adk_request_credential"
_INPUT = "adk_request_input"


async def run(
    task: Task,
    agent: BaseAgent,
    message: str | types.Content,
    *,
    artifact: str | None = ANSWER,
    state: dict[str, Any] | None = None,
) -> Session:
    """Run an agent as part of a task, in a session of its own. Return the session at its end.

    Each model call and each tool call is a step, also those of sub-agents. When the function of the
    task runs again, after a crash or a wait, it gets what is recorded; no model and no tool is
    called twice for it.

    The text of the models is written to ``artifact`` while it comes. With None, it is not, and the
    models are called without streaming. A tool that requires a confirmation asks the client, who
    answers yes or no. A long-running tool asks the client too; the answer is its result.
    """
    runner = InMemoryRunner(_durable(agent, task, artifact), app_name=_APP)
    session = await runner.session_service.create_session(
        app_name=_APP, user_id=task.owner or "user", state=state, session_id=task.id
    )
    says: types.Content | None
    if isinstance(message, str):
        says = types.Content(role="user", parts=[types.Part(text=message)])
    else:
        says = message
    try:
        while says is not None:
            waiting: dict[str, types.FunctionCall] = {}
            events = runner.run_async(
                user_id=session.user_id, session_id=session.id, new_message=says
            )
            async with aclosing(events):
                async for event in events:
                    _note_waiting(waiting, event)
            says = await _answer(task, waiting)
    finally:
        await runner.close()
    ended = await runner.session_service.get_session(
        app_name=_APP, user_id=session.user_id, session_id=session.id
    )
    assert ended is not None
    return ended


def _durable(agent: BaseAgent, task: Task, artifact: str | None) -> BaseAgent:
    """Return a copy of a tree of agents, whose models and tools record what they do."""
    root = agent.clone()
    todo = [root]
    while todo:
        one = todo.pop()
        todo += one.sub_agents
        if isinstance(one, LlmAgent):
            one.model = _RecordedLlm(
                model=one.canonical_model.model,
                wrapped=one.canonical_model,
                task=task,
                artifact=artifact,
                name=one.name,
            )
            one.tools = [_recorded(tool, task) for tool in one.tools]
    return root


def _note_waiting(waiting: dict[str, types.FunctionCall], event: Event) -> None:
    """Note the calls for whose results the agent waits."""
    long_running = event.long_running_tool_ids or set()
    for call in event.get_function_calls():
        if call.id in long_running:
            waiting[call.id] = call


async def _answer(task: Task, waiting: dict[str, types.FunctionCall]) -> types.Content | None:
    """Ask the client for the results of the calls."""
    parts = []
    for call in waiting.values():
        response = types.FunctionResponse(
            id=call.id, name=call.name, response=await _ask(task, call)
        )
        parts.append(types.Part(function_response=response))
    return types.Content(role="user", parts=parts) if parts else None


async def _ask(task: Task, call: types.FunctionCall) -> dict[str, Any]:
    args = call.args or {}
    if call.name == _CONFIRMATION:
        original = args.get("originalFunctionCall", {})
        described = describe_call(original.get("name", "a tool"), original.get("args", {}))
        return {"confirmed": await approve(task, f"Run {described}?")}
    if call.name == _CREDENTIAL:
        raise UsageError("tools that sign in are not supported: sign in before, with auth_required")
    question = str(args.get("message" if call.name == _INPUT else "question") or "")
    return {"result": await task.ask(question or describe_call(call.name or "a tool", args))}


class _RecordedLlm(BaseLlm):
    """A model whose responses are steps."""

    wrapped: BaseLlm
    task: Any
    artifact: str | None
    name: str
    _calls: int = PrivateAttr(default=0)

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        self._calls += 1

        async def call() -> list[Any]:
            responses = await self._call(llm_request)
            return [r.model_dump(mode="json", exclude_none=True) for r in responses]

        # Agents may run at once: each counts its own steps.
        for recorded in await self.task.step(f"{MODEL}:{self.name}", call):
            yield LlmResponse.model_validate(recorded)

    async def _call(self, request: LlmRequest) -> list[LlmResponse]:
        """Write the text while it comes, and return the responses that are complete."""
        complete: list[LlmResponse] = []
        written = False
        responses = self.wrapped.generate_content_async(request, stream=self.artifact is not None)
        async with aclosing(responses):
            async for response in responses:
                if response.partial or not written:
                    written = await self._write(request, response) or written
                if not response.partial:
                    complete.append(response)
        self._name_tool_calls(complete)
        for response in complete:
            await self._report(request, response)
        return complete

    async def _write(self, request: LlmRequest, response: LlmResponse) -> bool:
        # With a schema, the text of the model is JSON for the program, not for the client.
        if self.artifact is None or (request.config and request.config.response_schema):
            return False
        parts = (response.content and response.content.parts) or []
        text = "".join(p.text for p in parts if p.text and not p.thought)
        if text:
            await self.task.artifact(self.artifact).write(text)
        return bool(text)

    def _name_tool_calls(self, responses: list[LlmResponse]) -> None:
        """Give ids to tool calls. The ADK would give others each time that the agent runs again.

        It takes ids with this prefix away before it sends them to a model, as it does with its own.
        """
        parts = [p for r in responses for p in (r.content and r.content.parts) or []]
        for i, part in enumerate(parts):
            if part.function_call and not part.function_call.id:
                part.function_call.id = f"adk-{self.name}-{self._calls}-{i}"

    async def _report(self, request: LlmRequest, response: LlmResponse) -> None:
        usage = response.usage_metadata
        if usage is None:
            return
        await self.task.usage(
            model=response.model_version or request.model or self.model,
            input_tokens=usage.prompt_token_count or 0,
            output_tokens=usage.candidates_token_count or 0,
            cached_input_tokens=usage.cached_content_token_count or 0,
            reasoning_tokens=usage.thoughts_token_count or 0,
            requests=1,
        )


def _recorded(tool: Any, task: Task) -> Any:
    """Return a copy of a tool, or of a set of tools, whose calls are steps."""
    if isinstance(tool, BaseToolset):
        toolset = tool

        async def get_tools(*args: Any, **kwargs: Any) -> list[BaseTool]:
            return [_recorded(t, task) for t in await toolset.get_tools(*args, **kwargs)]

        copied: Any = copy.copy(tool)
        copied.get_tools = get_tools
        return copied
    original = tool if isinstance(tool, BaseTool) else FunctionTool(tool)

    async def run_async(*, args: dict[str, Any], tool_context: ToolContext) -> Any:
        async def call() -> dict[str, Any]:
            result = await original.run_async(args=args, tool_context=tool_context)
            actions = tool_context.actions.model_dump(mode="json", exclude_defaults=True)
            return {"result": result, "actions": actions}

        name = tool_step(original.name, tool_context.function_call_id or "")
        recorded = await task.step(name, call)
        _act(tool_context, EventActions.model_validate(recorded["actions"]))
        return recorded["result"]

    copied = copy.copy(original)
    copied.run_async = run_async
    return copied


def _act(context: ToolContext, recorded: EventActions) -> None:
    """Do to the context what the tool has done to it."""
    context.state.update(recorded.state_delta)
    for name in recorded.model_fields_set - {"state_delta"}:
        setattr(context.actions, name, getattr(recorded, name))

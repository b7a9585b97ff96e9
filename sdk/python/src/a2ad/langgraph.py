"""Durable graphs of LangGraph.

::

    from a2ad.langgraph import run

    @worker.agent("support")
    async def support(task, message):
        await run(task, graph, {"messages": [("user", message.text)]})
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage
from langchain_core.outputs import LLMResult
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT
from langgraph.constants import TAG_NOSTREAM
from langgraph.pregel import Pregel
from langgraph.types import Command

from ._frameworks import ANSWER, refuse_calls
from ._task import Task

__all__ = ["ask", "run"]

Ask = Callable[[Task, Any], Awaitable[Any]]

# What LangGraph saves for a failed node whose error handler goes on. It does not export the name.
_ERROR_HANDLED = "__error_source_node__"


async def ask(task: Task, value: Any) -> Any:
    """Ask the client what the graph wants to know, and return the answer.

    ``value`` is what a node gave to ``interrupt``: the text of a question, or a dict with
    ``question`` and, if the answer is not a text, ``choices`` or ``schema``.
    """
    if isinstance(value, dict) and isinstance(value.get("question"), str):
        how = {k: value[k] for k in ("choices", "schema") if value.get(k) is not None}
        return await task.ask(value["question"], **how)
    return await task.ask(str(value))


async def run(
    task: Task,
    graph: Pregel[Any, Any, Any, Any],
    input: Any,
    *,
    config: RunnableConfig | None = None,
    context: Any = None,
    artifact: str | None = ANSWER,
    ask: Ask = ask,
) -> Any:
    """Run a compiled graph as part of a task, and return its final state.

    What each node has returned is recorded in a step. When the agent runs again, after a crash or a
    wait, the graph continues after these nodes. It has its own checkpointer for that, in the place
    of the one that it was compiled with.

    The text of chat models is written to ``artifact`` while it comes; with None, it is not. A node
    that calls ``interrupt`` asks the client, by ``ask``, and goes on with the answer.
    """
    saver = _Saver()
    graph = graph.copy({"checkpointer": saver})
    listener = _Listener(saver.queue)
    merged: RunnableConfig = {**(config or {})}
    merged["configurable"] = {**merged.get("configurable", {}), "thread_id": task.id}
    callbacks = merged.get("callbacks") or []
    if not isinstance(callbacks, list):
        raise TypeError("config['callbacks'] must be a list")
    merged["callbacks"] = [*callbacks, listener]
    while True:
        leg = _Leg(task, graph, saver, input, merged, context, artifact)
        try:
            while not await leg.advance():
                pass
        finally:
            await leg.stop()
        state = await graph.aget_state(merged)
        if not state.interrupts:
            return state.values
        input = Command(resume={i.id: await ask(task, i.value) for i in state.interrupts})


class _Leg:
    """The work of a graph from its beginning, or from an answer, to a question or its end."""

    def __init__(
        self,
        task: Task,
        graph: Pregel[Any, Any, Any, Any],
        saver: _Saver,
        input: Any,
        config: RunnableConfig,
        context: Any,
        artifact: str | None,
    ) -> None:
        self._task, self._graph, self._saver = task, graph, saver
        self._input, self._config, self._context = input, config, context
        self._artifact = artifact
        self._running: asyncio.Task[None] | None = None
        self._unsaved: list[_Save] = []
        self._questions: list[_Save] = []

    async def advance(self) -> bool:
        """Do or skip the work up to the next record. Return whether the leg is at its end."""
        done: list[_Save] = []

        async def work() -> dict[str, Any]:
            if self._running is None:
                self._start()
            ended = await self._next(done)
            return {"saved": [s.record for s in done], "ended": ended}

        recorded = await self._task.step("graph", work)
        if not done:
            for record in recorded["saved"]:
                self._saver.restore(record)
        for save in done:
            save.let_go()
        return bool(recorded["ended"])

    async def _next(self, done: list[_Save]) -> bool:
        """Write what models say until there is something to record. Return whether it is the end.

        A node that is cut off runs again, and says everything again. So a record, with the text
        before it, must not be cut between the beginning and the end of a node that speaks.
        """
        speaking: set[str] = set()
        while True:
            event = await self._saver.queue.get()
            if isinstance(event, _Text):
                if self._artifact is not None:
                    speaking.add(event.node)
                    await self._task.artifact(self._artifact).write(event.text)
            elif isinstance(event, _Usage):
                await self._task.usage(**event.tokens)
            elif isinstance(event, _Save):
                self._take(event, speaking)
                if self._unsaved and not speaking:
                    done.extend(self._unsaved)
                    self._unsaved.clear()
                    return False
            else:
                assert self._running is not None
                await self._running  # raises what the graph has raised
                done.extend([*self._unsaved, *self._questions])
                return True

    def _take(self, save: _Save, speaking: set[str]) -> None:
        if save.question:
            # If it were recorded before the end of the leg, a crash between the two would give the
            # answer to the last question to this one.
            self._questions.append(save)
        else:
            self._unsaved.append(save)
        if save.task is None and save.namespace == "":
            speaking.clear()  # a superstep of the whole graph has ended
        elif save.task is not None:
            speaking -= {node for node in speaking if save.task in node}
        if speaking:
            # The graph need not wait for a record that waits for the graph.
            for waiting in self._unsaved:
                waiting.let_go()

    def _start(self) -> None:
        begun = self._saver.get_tuple(self._config) is not None
        answered = isinstance(self._input, Command)
        input = None if begun and not answered else self._input
        with refuse_calls(self._task, "graph"):
            self._running = asyncio.ensure_future(self._run(input))
        self._running.add_done_callback(lambda _: self._saver.queue.put_nowait(None))

    async def _run(self, input: Any) -> None:
        # "messages" makes models stream. The text itself comes by the callbacks, before the node
        # that wanted it is done.
        stream = self._graph.astream(
            input,
            self._config,
            context=self._context,
            stream_mode=["messages"],
            durability="sync",
        )
        async for _ in stream:
            pass

    async def stop(self) -> None:
        """Stop the graph."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)


class _Text:
    def __init__(self, node: str, text: str) -> None:
        self.node, self.text = node, text


class _Usage:
    def __init__(self, tokens: dict[str, Any]) -> None:
        self.tokens = tokens


class _Save:
    """What the graph saves: a checkpoint, or what one node has returned."""

    def __init__(self, record: list[Any], namespace: str, task: str | None, question: bool) -> None:
        self.record, self.namespace, self.task, self.question = record, namespace, task, question
        self._go_on = asyncio.Event()

    def let_go(self) -> None:
        self._go_on.set()

    async def wait(self) -> None:
        """Wait until the graph may go on: usually, until this is recorded."""
        await self._go_on.wait()


class _Saver(InMemorySaver):
    """The checkpointer: it keeps everything in memory, and hands it over to be recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = _Queue()

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        place = _place(config)
        # The other values are those of the checkpoints before.
        values = {k: v for k, v in checkpoint["channel_values"].items() if k in new_versions}
        saved: Checkpoint = {**checkpoint, "channel_values": values}
        metadata = get_checkpoint_metadata(config, metadata)
        save = _Save(
            ["checkpoint", *self._encode((place, saved, metadata, new_versions))],
            place["checkpoint_ns"],
            None,
            False,
        )
        self.queue.put_nowait(save)
        await save.wait()
        return self.put(config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        self.put_writes(config, writes, task_id, task_path)
        channels = {channel for channel, _ in writes}
        # A node that has failed runs again in the next attempt. If its answers were recorded,
        # LangGraph would then add the last one again, as the answer to the next question.
        if ERROR in channels and _ERROR_HANDLED not in channels:
            return
        place = _place(config)
        save = _Save(
            ["writes", *self._encode((place, list(writes), task_id, task_path))],
            place["checkpoint_ns"],
            task_id,
            INTERRUPT in channels,
        )
        self.queue.put_nowait(save)

    def restore(self, record: list[Any]) -> None:
        """Save again what is recorded."""
        kind, form, content = record
        place, *values = self.serde.loads_typed((form, base64.b64decode(content)))
        config: RunnableConfig = {"configurable": place}
        if kind == "checkpoint":
            self.put(config, *values)
        else:
            self.put_writes(config, *values)

    def _encode(self, value: Any) -> tuple[str, str]:
        form, content = self.serde.dumps_typed(value)
        return form, base64.b64encode(content).decode()


def _place(config: RunnableConfig) -> dict[str, Any]:
    configurable = config["configurable"]
    place = {"thread_id": configurable["thread_id"]}
    place["checkpoint_ns"] = configurable.get("checkpoint_ns", "")
    if configurable.get("checkpoint_id"):
        place["checkpoint_id"] = configurable["checkpoint_id"]
    return place


class _Queue:
    """What the graph does, in order. Nodes that are not async call it from their threads."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[_Text | _Usage | _Save | None] = asyncio.Queue()

    def put_nowait(self, event: _Text | _Usage | _Save | None) -> None:
        self._loop.call_soon_threadsafe(self._queue.put_nowait, event)

    async def get(self) -> _Text | _Usage | _Save | None:
        return await self._queue.get()


class _Listener(BaseCallbackHandler):
    """Hears what the chat models of a graph say and use."""

    run_inline = True

    def __init__(self, queue: _Queue) -> None:
        self._queue = queue
        self._nodes: dict[Any, str] = {}

    def on_chat_model_start(self, serialized: Any, messages: Any, **more: Any) -> None:
        metadata = more.get("metadata") or {}
        if TAG_NOSTREAM not in (more.get("tags") or ()):
            self._nodes[more["run_id"]] = str(metadata.get("langgraph_checkpoint_ns", ""))

    def on_llm_new_token(self, token: Any, *, chunk: Any = None, **more: Any) -> None:
        node = self._nodes.get(more["run_id"])
        text = chunk.message.text if chunk is not None else token
        if node is not None and text:
            self._queue.put_nowait(_Text(node, str(text)))

    def on_llm_end(self, response: LLMResult, **more: Any) -> None:
        self._nodes.pop(more["run_id"], None)
        for generations in response.generations:
            message = getattr(generations[0], "message", None)
            if isinstance(message, AIMessage):
                self._queue.put_nowait(_Usage(_tokens(message)))


def _tokens(message: AIMessage) -> dict[str, Any]:
    usage = message.usage_metadata
    model = message.response_metadata.get("model_name", "")
    if usage is None:
        return {"model": model, "requests": 1}
    return {
        "model": model,
        "requests": 1,
        "input_tokens": usage["input_tokens"],
        "output_tokens": usage["output_tokens"],
        "cached_input_tokens": usage.get("input_token_details", {}).get("cache_read", 0),
        "reasoning_tokens": usage.get("output_token_details", {}).get("reasoning", 0),
    }

"""The task of a function that is not async."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any, TypeVar, overload

from ._artifact import ArtifactWriter
from ._call import Call
from ._check import Duration
from ._errors import Stopped, misuse
from ._mistakes import explained
from ._task import Task
from ._wait import CallResult
from ._wire import Artifact, Message, Part

T = TypeVar("T")


class _Branch:
    """A branch of ``gather`` in its own thread. Use it only in the event loop."""

    def __init__(self) -> None:
        self.ended = False
        self.calls: set[asyncio.Task[Any] | None] = set()
        """The pending calls of the thread."""

    def end(self) -> None:
        self.ended = True
        for call in self.calls:
            if call is not None:
                call.cancel()


_branch: contextvars.ContextVar[_Branch | None] = contextvars.ContextVar("a2ad_sync", default=None)


async def _in_branch(branch: _Branch, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a call. Raise Stopped if the branch ends first."""
    stopped = Stopped("waiting", "the task waits for the calls of all branches")
    if branch.ended:
        work.close()
        raise stopped
    call = asyncio.current_task()
    branch.calls.add(call)
    try:
        return await work
    except asyncio.CancelledError:
        raise stopped from None
    finally:
        branch.calls.discard(call)


@explained
class SyncTask:
    """The task of a function that runs in a thread.

    The attributes and methods are those of Task, but each method blocks until it is done, and
    ``gather`` takes functions. Call them from the thread of the function, or of a branch of
    ``gather``.
    """

    def __init__(self, task: Task, loop: asyncio.AbstractEventLoop) -> None:
        self._task = task
        self._loop = loop
        self.id = task.id
        self.context_id = task.context_id
        self.context_key = task.context_key
        self.agent = task.agent
        self.tenant = task.tenant
        self.owner = task.owner
        self.attempt = task.attempt
        self.deadline = task.deadline
        self.messages = task.messages
        self.message_number = task.message_number
        self.request_metadata = task.request_metadata
        self.extensions = task.extensions
        self.history = task.history
        self.artifacts: tuple[Artifact, ...] = task.artifacts
        self.traceparent = task.traceparent

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if asyncio._get_running_loop() is self._loop:
            work.close()
            err = misuse(
                "a call of a SyncTask in the event loop of the worker, which it would block for "
                "ever: let the function that makes the call not be async"
            )
            self._task._caller.mistaken(err)
            raise err
        branch = _branch.get()
        if isinstance(work, Call):
            work.handed_over()
        if branch is not None:
            work = _in_branch(branch, work)
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()
        except concurrent.futures.CancelledError:  # an Exception, which the agent may catch
            self._task._session.check()
            raise

    @property
    def message(self) -> Message:
        return self._task.message

    @property
    def saved(self) -> Any:
        """The last value that ``checkpoint`` saved, as read from JSON, or None."""
        return self._task.saved

    @property
    def cancelled(self) -> bool:
        return self._task.cancelled

    def idempotency_key(self, name: str) -> str:
        return self._task.idempotency_key(name)

    def step(
        self,
        name: str,
        fn: Callable[..., T],
        *args: Any,
        retries: int = 0,
        backoff: Duration = 1.0,
        timeout: Duration | None = None,
        returns: type[T] | None = None,
        **kwargs: Any,
    ) -> T:
        return self._run(
            self._task.step(
                name,
                fn,
                *args,
                retries=retries,
                backoff=backoff,
                timeout=timeout,
                returns=returns,
                **kwargs,
            )
        )

    def write(self, text: str) -> None:
        self._run(self._task.write(text))

    def artifact(self, name: str, *, id: str = "") -> SyncArtifactWriter:
        return SyncArtifactWriter(self, self._task.artifact(name, id=id))

    def status(self, text: str) -> None:
        self._run(self._task.status(text))

    def checkpoint(self, value: Any) -> None:
        self._run(self._task.checkpoint(value))

    def usage(
        self,
        *,
        model: str = "",
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        cached_input_tokens: int | None = None,
        reasoning_tokens: int | None = None,
        requests: int | None = None,
    ) -> None:
        self._run(
            self._task.usage(
                model=model,
                input_tokens=input_tokens,
                output_tokens=output_tokens,
                cached_input_tokens=cached_input_tokens,
                reasoning_tokens=reasoning_tokens,
                requests=requests,
            )
        )

    def sleep(self, duration: Duration) -> None:
        self._run(self._task.sleep(duration))

    def sleep_until(self, at: datetime) -> None:
        self._run(self._task.sleep_until(at))

    def signal(self, name: str, *, timeout: Duration | None = None) -> Any:
        return self._run(self._task.signal(name, timeout=timeout))

    @overload
    def ask(
        self, question: str, *, choices: Sequence[str] | None = ..., timeout: Duration | None = ...
    ) -> str: ...

    @overload
    def ask(
        self, question: str, *, schema: dict[str, Any], timeout: Duration | None = ...
    ) -> Any: ...

    @overload
    def ask(self, question: str, *, returns: type[T], timeout: Duration | None = ...) -> T: ...

    def ask(
        self,
        question: str,
        *,
        choices: Sequence[str] | None = None,
        schema: dict[str, Any] | None = None,
        returns: Any = None,
        timeout: Duration | None = None,
    ) -> Any:
        how: Any = {"choices": choices, "schema": schema, "returns": returns, "timeout": timeout}
        return self._run(self._task.ask(question, **how))

    def auth_required(self, text: str, *, timeout: Duration | None = None) -> Message:
        return self._run(self._task.auth_required(text, timeout=timeout))

    def call(
        self, agent: str, message: str | Message | Sequence[Part], *, abandon: bool = False
    ) -> CallResult:
        return self._run(self._task.call(agent, message, abandon=abandon))

    def gather(self, *work: Callable[[], Any]) -> list[Any]:
        """Do several things at once: ``task.gather(lambda: task.step(…), lambda: task.call(…))``.

        Each function runs in its own thread, and may use steps and calls. Return the results in the
        order of the arguments. If some fail, the others still run to their end. Then the first
        failure, in that order, is raised.
        """
        for i, one in enumerate(work):
            if not callable(one):
                err = misuse(
                    "gather takes functions such as lambda: task.step(…), "
                    f"not {type(one).__name__} (argument {i + 1})"
                )
                self._task._caller.mistaken(err)
                raise err
        return self._run(self._task.gather(*(self._in_thread(one) for one in work)))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        branch = _Branch()
        _branch.set(branch)
        try:
            return await self._task._session.threads.run(work)
        finally:
            branch.end()  # the thread may be waiting for a call that ends after this run


@explained
class SyncArtifactWriter:
    """ArtifactWriter for a SyncTask: each method blocks until it is done."""

    def __init__(self, task: SyncTask, writer: ArtifactWriter) -> None:
        self._task = task
        self._writer = writer
        self.id = writer.id
        self.name = writer.name

    def write(self, text: str) -> None:
        self._task._run(self._writer.write(text))

    def data(self, value: Any, *, append: bool = False) -> None:
        self._task._run(self._writer.data(value, append=append))

    def file(
        self, content: bytes, *, filename: str = "", media_type: str = "", append: bool = False
    ) -> None:
        self._task._run(
            self._writer.file(content, filename=filename, media_type=media_type, append=append)
        )

    def link(
        self, url: str, *, filename: str = "", media_type: str = "", append: bool = False
    ) -> None:
        self._task._run(
            self._writer.link(url, filename=filename, media_type=media_type, append=append)
        )

    def replace(self, text: str) -> None:
        self._task._run(self._writer.replace(text))


def _copy_docs(to: type[Any], of: type[Any]) -> None:
    """Let ``help`` explain the methods that differ only in that they block."""
    for name, member in vars(to).items():
        if not name.startswith("_") and not member.__doc__:
            member.__doc__ = getattr(of, name).__doc__


_copy_docs(SyncTask, Task)
_copy_docs(SyncArtifactWriter, ArtifactWriter)

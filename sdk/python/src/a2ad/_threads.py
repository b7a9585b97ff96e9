"""Threads for functions that are not async."""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_Job = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[[], Any]]


class Threads:
    """Runs functions in threads, as many as are needed at once. It belongs to one event loop.

    A pool of fixed size would let slow agents delay the steps of others. The threads are daemons,
    because a function that does not return must not keep the process from its end.
    """

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._threads = 0
        self._idle = 0

    async def run(self, function: Callable[[], T]) -> T:
        """Return what the function returns. If the caller gives up, the function still ends."""
        loop = asyncio.get_running_loop()
        result: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()
        self._jobs.put((loop, result, lambda: context.run(function)))
        if self._idle > 0:
            self._idle -= 1
        else:
            self._threads += 1
            threading.Thread(target=self._work, name="a2ad", daemon=True).start()
        return await result

    def close(self) -> None:
        """End the threads that are idle, and the others when their function returns."""
        for _ in range(self._threads):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            loop, result, function = job
            value, error = None, None
            try:
                value = function()
            except BaseException as err:  # also Stopped, which ends the agent's function
                error = err
            try:
                loop.call_soon_threadsafe(self._done, result, value, error)
            except RuntimeError:
                return  # the event loop has ended
            del job, result, function, value, error  # they may be large, and the next job far away

    def _done(self, result: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
        self._idle += 1
        if result.done():
            return  # its caller has given up
        if isinstance(error, StopIteration):  # which a Future does not take
            result.set_exception(RuntimeError("the function raised StopIteration"))
        elif error is not None:
            result.set_exception(error)
        else:
            result.set_result(value)

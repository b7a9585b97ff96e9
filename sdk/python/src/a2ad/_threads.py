"""Threads for functions that are not async."""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from ._errors import no_exit

T = TypeVar("T")

_Job = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[[], Any]]


class Threads:
    """Runs functions in as many threads as are needed. Use it in one event loop.

    In a pool of fixed size, slow agents would delay the steps of others. The threads are daemons,
    because a function that does not return must not keep the process from exiting.
    """

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._threads = 0
        self._idle = 0

    async def run(self, function: Callable[[], T]) -> T:
        """Return what the function returns. If the caller is canceled, the function still ends."""
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
        """End idle threads now, and each other thread when its function returns."""
        for _ in range(self._threads):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            loop, result, function = job
            value, error = None, None
            try:
                with no_exit():
                    value = function()
            except BaseException as err:  # also Stopped, which ends the agent's function
                error = err
            try:
                loop.call_soon_threadsafe(self._done, result, value, error)
            except RuntimeError:
                return  # the event loop is closed
            del job, result, function, value, error  # they may be large, and the thread may idle

    def _done(self, result: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
        self._idle += 1
        if result.done():
            return  # the caller was canceled
        if isinstance(error, (StopIteration, KeyboardInterrupt)):
            # A Future refuses the one, and the other would end the event loop.
            result.set_exception(RuntimeError(f"the function raised {type(error).__name__}"))
        elif error is not None:
            result.set_exception(error)
        else:
            result.set_result(value)

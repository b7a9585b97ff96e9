"""A warning if the agent's code blocks the event loop."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from fake import FakeServer, claimed, run_async

from a2ad import Message, Task, Worker, _failures, _watch


class Warned(logging.Handler):
    """Sets an event at each warning."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.event = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.event.set()


def test_code_that_blocks_the_event_loop(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_watch, "BLOCKED", 0.05)
    caplog.set_level(logging.INFO, "a2ad")
    warned, lines = Warned(), []
    logging.getLogger("a2ad").addHandler(warned)

    async def test() -> None:
        async with FakeServer([claimed()]) as server:
            worker = Worker(server.url)

            @worker.agent("a")
            async def blocks(task: Task, message: Message) -> None:
                lines.append(blocks.__code__.co_firstlineno + 3)
                assert warned.event.wait(20)

            serve = asyncio.ensure_future(worker.serve())
            await server.seen(lambda: server.of("/events"))
            worker.stop()
            await serve

    try:
        run_async(test)
    finally:
        logging.getLogger("a2ad").removeHandler(warned)
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert any(f"s at {__file__}:{lines[0]}: no lease" in w for w in warnings)


def test_an_idle_event_loop_is_not_blocked() -> None:
    async def test() -> None:
        thread, idle = threading.get_ident(), asyncio.Event()
        loop = asyncio.get_running_loop()

        def look() -> None:
            while _watch.blocking(sys._current_frames()[thread]):
                pass
            loop.call_soon_threadsafe(idle.set)

        threading.Thread(target=look, daemon=True).start()
        await idle.wait()

    run_async(test)


def test_a_library_that_blocks_is_named_if_the_program_does_not() -> None:
    def frame(file: str, back: Any = None) -> Any:
        code = SimpleNamespace(co_filename=file)
        return SimpleNamespace(f_code=code, f_lineno=1, f_back=back)

    loop = frame(_watch._LOOP[0], frame("/app/main.py"))
    http = frame("/v/lib/site-packages/http/client.py", loop)
    assert _watch.blocking(frame(f"{_failures.STANDARD}socket.py", http)) == (
        "/v/lib/site-packages/http/client.py:1"
    )
    assert _watch.blocking(frame(f"{_failures.STANDARD}selectors.py", loop)) == ""

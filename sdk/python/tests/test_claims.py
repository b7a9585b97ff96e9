"""Claims that the server does not let wait, and those that do not reach it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fake import FakeServer, run_async, serving

from a2ad import Message, Task, Worker, _worker
from a2ad._http import Pool


async def idle(task: Task, message: Message) -> None:
    pass


def test_claims_that_are_not_let_wait_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        pauses: list[int] = []

        def pause(failures: int) -> float:
            pauses.append(failures)
            return 0.0

        monkeypatch.setattr(_worker, "_pause", pause)
        async with FakeServer() as server:
            server.answer = lambda path, body: (200, {"runs": []})
            worker = Worker(server.url)
            worker.agent("a")(idle)
            async with serving(worker):
                await server.seen(lambda: len(server.of("/claim")) > 3)
                assert pauses[:3] == [1, 2, 3]
                assert worker.status()["ready"]

    run_async(test)


@pytest.mark.parametrize("connects", [True, False])
def test_a_worker_that_cannot_connect_is_not_ready(
    monkeypatch: pytest.MonkeyPatch, connects: bool
) -> None:
    async def test() -> None:
        connecting = asyncio.Event()

        async def connect(pool: Pool) -> Any:
            connecting.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(_worker, "WAITS_AFTER", 0.0)
        if not connects:
            monkeypatch.setattr(Pool, "_connect", connect)
        async with FakeServer() as server:
            worker = Worker(server.url)
            worker.agent("a")(idle)
            async with serving(worker):
                await (server.seen(lambda: server.of("/claim")) if connects else connecting.wait())
                for _ in range(5):  # a timer of zero seconds has expired
                    await asyncio.sleep(0)
                assert worker.status()["ready"] is connects

    run_async(test)

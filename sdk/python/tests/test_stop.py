"""How runs end early: their lease, a cancel, or a worker that stops."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from typing import Any

import pytest
from fake import FakeServer, claimed, completed, run_async, serving

from a2ad import Message, Stopped, SyncTask, Task, UsageError, Worker


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ((409, {"error": {"reason": "LEASE_LOST", "message": "lost"}}), "lost"),
        ((200, {"cancelRequested": True}), "canceled"),
    ],
)
def test_a_heartbeat_stops_an_agent(
    answer: Any, outcome: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "a2ad")

    async def test() -> None:
        async with FakeServer([claimed(leaseSeconds=3)]) as server:
            worker, left = Worker(server.url), asyncio.Event()
            server.answer = lambda path, body: answer if path.endswith("/heartbeat") else (200, {})

            @worker.agent("a")
            async def waits(task: Task, message: Message) -> None:
                try:
                    await asyncio.Event().wait()
                finally:
                    assert task.cancelled == (outcome == "canceled")
                    left.set()

            async with serving(worker):
                await left.wait()
            assert not server.of("/finish")

    run_async(test)
    ended = [r for r in caplog.records if r.message.startswith("run ended")]
    assert [getattr(r, "outcome", "") for r in ended] == [outcome]


def test_a_run_ends_with_its_lease(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "a2ad")

    async def test() -> None:
        async with FakeServer([claimed(leaseSeconds=0.3)]) as server:
            worker, left = Worker(server.url), asyncio.Event()
            server.hangs = ("/heartbeat",)

            @worker.agent("a")
            async def waits(task: Task, message: Message) -> None:
                try:
                    await asyncio.Event().wait()
                finally:
                    left.set()

            async with serving(worker):
                await left.wait()
            assert server.of("/heartbeat")
            assert not server.of("/finish")

    run_async(test)
    ended = [r for r in caplog.records if r.message.startswith("run ended")]
    assert [getattr(r, "outcome", "") for r in ended] == ["lost"]


def test_a_stopped_worker_releases_runs() -> None:
    async def test() -> None:
        async with FakeServer([claimed(), claimed("t2", "sync")]) as server:
            worker, left = Worker(server.url, grace=0), asyncio.Event()

            @worker.agent("a")
            async def waits(task: Task, message: Message) -> None:
                try:
                    await asyncio.Event().wait()
                finally:
                    left.set()

            @worker.agent("sync")
            def blocks(task: SyncTask, message: Message) -> None:
                task.status("begun")
                task._run(asyncio.Event().wait())

            async with serving(worker):
                await server.seen(server.events)
                await server.seen(lambda: worker.status()["runs"] == 2)
            assert left.is_set()
            assert server.of("/finish") == [{"outcome": "release"}] * 2

    run_async(test)


def test_a_run_is_released_although_its_function_ignores_that() -> None:
    async def test() -> None:
        async with FakeServer([claimed()]) as server:
            worker, end = Worker(server.url, grace=0), asyncio.Event()

            @worker.agent("a")
            async def persists(task: Task, message: Message) -> None:
                while not end.is_set():
                    with contextlib.suppress(BaseException):
                        await end.wait()

            async with serving(worker):
                await server.seen(lambda: worker.status()["runs"] == 1)
            assert server.of("/finish") == [{"outcome": "release"}]
            (left,) = worker._ignoring
            end.set()
            await left

    run_async(test)


def test_a_run_is_released_if_the_request_for_a_retry_is_not_answered() -> None:
    async def test() -> None:
        async with FakeServer([claimed()]) as server:
            worker = Worker(server.url, grace=0)
            retry = {"outcome": "retry", "error": "Exception: broken"}
            server.answer = lambda path, body: (
                None if path.endswith("/finish") and body == retry else (200, {})
            )

            @worker.agent("a")
            async def fails(task: Task, message: Message) -> None:
                raise Exception("broken")

            async with serving(worker):
                await server.seen(lambda: bool(server.of("/finish")))
            assert server.of("/finish") == [retry, {"outcome": "release"}]

    run_async(test)


def test_the_lease_is_renewed_until_the_run_is_released() -> None:
    async def test() -> None:
        async with FakeServer([claimed(leaseSeconds=3)]) as server:
            worker = Worker(server.url, grace=0)

            def renewed_since() -> bool:
                paths = [path.rpartition("/")[2] for path, _ in server.requests]
                return "heartbeat" in paths[paths.index("finish") :]

            server.answer = lambda path, body: (
                None if path.endswith("/finish") and not renewed_since() else (200, {})
            )

            @worker.agent("a")
            async def waits(task: Task, message: Message) -> None:
                await asyncio.Event().wait()

            async with serving(worker):
                await server.seen(lambda: worker.status()["runs"] == 1)
            assert renewed_since()

    run_async(test)


def test_a_function_in_a_thread_does_nothing_after_the_release() -> None:
    go, ended, did = threading.Event(), threading.Event(), []

    async def test() -> None:
        async with FakeServer([claimed()]) as server:
            worker = Worker(server.url, grace=0)

            @worker.agent("a")
            def works(task: SyncTask, message: Message) -> None:
                try:
                    task.step("wait", go.wait, 20)
                    did.append("went on")
                except Stopped as err:
                    did.append(err.why)
                finally:
                    ended.set()

            async with serving(worker):
                await server.seen(lambda: worker.status()["runs"] == 1)
                await asyncio.sleep(0)
            go.set()
            await asyncio.to_thread(ended.wait, 20)
            assert did == ["released"]
            assert server.of("/finish") == [{"outcome": "release"}]
            assert not server.of("/events")

    run_async(test)


def test_a_worker_may_serve_again() -> None:
    did: list[str] = []

    async def test() -> None:
        async with FakeServer() as server:
            worker = Worker(server.url)

            @worker.agent("a")
            def works(task: SyncTask, message: Message) -> None:
                did.append(task.id)

            for task in ("t1", "t2"):
                server.runs = [claimed(task)]
                server.requests.clear()
                async with serving(worker):
                    await server.seen(completed(server))

    run_async(test)
    assert did == ["t1", "t2"]


def test_a_worker_that_is_stopped_before_it_serves_claims_nothing() -> None:
    async def test() -> None:
        async with FakeServer() as server:
            worker = Worker(server.url, health="127.0.0.1:0")
            worker.agent("a")(lambda task, message: None)
            worker.stop()
            await worker.serve()
            assert not server.connections
            async with serving(worker):
                await server.seen(lambda: server.of("/claim"))
                with pytest.raises(UsageError, match="the worker has started already"):
                    await worker.serve()

    run_async(test)

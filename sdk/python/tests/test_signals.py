"""SIGTERM and SIGINT, and processes that an agent starts."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
from typing import Any

import pytest
from fake import FakeServer, claimed, run_async

from a2ad import Message, SyncTask, UsageError, Worker


def _signaled(child: Any) -> None:
    """Tell the parent that the process has begun, and wait for a signal."""
    child.send("begun")
    signal.pause()


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_for_a_forked_process_does_not_stop_the_worker(sent: signal.Signals) -> None:
    exits: list[Any] = []

    async def test() -> None:
        async with FakeServer([claimed()]) as server:
            worker = Worker(server.url)

            @worker.agent("a")
            def forks(task: SyncTask, message: Message) -> None:
                fork = multiprocessing.get_context("fork")
                here, there = fork.Pipe()
                process = fork.Process(target=_signaled, args=(there,))
                process.start()
                here.recv()
                assert process.pid is not None
                os.kill(process.pid, sent)
                process.join(20)
                exits.append(process.exitcode)
                process.kill()

            serve = asyncio.ensure_future(worker.serve(signals=True))
            await server.seen(lambda: server.of("/events"))
            await server.seen(lambda: len(server.of("/claim")) >= 2)  # it still works
            assert not worker.status()["stopping"]
            os.kill(os.getpid(), signal.SIGTERM)
            await serve
            assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL

    run_async(test)
    assert exits == [-signal.SIGTERM if sent == signal.SIGTERM else 1]


def test_run_needs_a_system_with_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker()
    worker.agent("a")(lambda task, message: None)
    monkeypatch.setattr("sys.platform", "win32")
    with pytest.raises(UsageError, match="run needs Linux or macOS"):
        worker.run()


def test_run_needs_the_main_thread() -> None:
    worker, errors = Worker(), []
    worker.agent("a")(lambda task, message: None)

    def run() -> None:
        try:
            worker.run()
        except UsageError as err:
            errors.append(str(err))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert "run needs the main thread" in errors[0]

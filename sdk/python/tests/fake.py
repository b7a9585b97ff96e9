"""A worker API in this process, which answers what a test says."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from a2ad import Worker

Answer = tuple[int, Any] | bytes | None
"""A status and a value; or bytes as they are; or None, to close the connection."""


def claimed(task: str = "t", agent: str = "a", **more: Any) -> dict[str, Any]:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    return {
        "taskId": task,
        "contextId": "c",
        "epoch": 1,
        "agent": agent,
        "messages": [message],
        "leaseSeconds": 30,
        **more,
    }


class FakeServer:
    """Keeps the requests. Claims get the given runs, once; other requests get what they expect.

    ``answer`` may return another answer than ``(200, {})``, or None to close the connection.
    """

    def __init__(self, runs: list[dict[str, Any]] | None = None) -> None:
        self.url = ""
        self.requests: list[tuple[str, Any]] = []
        self.user_agents: set[str] = set()
        self.connections = 0
        self.answer: Callable[[str, Any], Answer] = lambda path, body: (200, {})
        self.hangs: tuple[str, ...] = ()
        """Ends of the paths of requests that are never answered."""
        self.gate = asyncio.Event()
        """Reports are answered while it is set."""
        self.gate.set()
        self.runs = runs or []
        self._seen = asyncio.Event()

    async def __aenter__(self) -> FakeServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = "http://127.0.0.1:{1}".format(*self._server.sockets[0].getsockname())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def seen(self, condition: Callable[[], Any]) -> None:
        """Wait until the requests fulfill a condition."""
        while not condition():
            self._seen.clear()
            await asyncio.wait_for(self._seen.wait(), 20)

    def of(self, what: str) -> list[Any]:
        """Return the bodies of the requests whose path ends so."""
        return [body for path, body in self.requests if path.endswith(what)]

    def events(self) -> list[dict[str, Any]]:
        return [e for body in self.of("/events") for e in body["events"]]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                path = head.split(" ")[1]
                length = next(
                    int(line.split(":")[1]) for line in head.split("\r\n") if "ontent-L" in line
                )
                body = json.loads(await reader.readexactly(length) or b"null")
                self.requests.append((path, body))
                self.user_agents.update(
                    line.split(": ")[1]
                    for line in head.split("\r\n")
                    if line.startswith("User-Agent")
                )
                self._seen.set()
                answer = await self._answer(path, body)
                if answer is None:
                    return
                writer.write(answer if isinstance(answer, bytes) else encoded(*answer))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, path: str, body: Any) -> Answer:
        if path.endswith(self.hangs):
            await asyncio.Event().wait()
        if path.endswith("/claim"):
            answer = self.answer(path, body)
            if answer != (200, {}):
                return answer
            mine = [r for r in self.runs if r["agent"] in body["agents"]][: body["max"]]
            if not mine:
                await asyncio.Event().wait()
            self.runs = [r for r in self.runs if r not in mine]
            return 200, {"runs": mine}
        if path.endswith("/events"):
            await self.gate.wait()
        answer = self.answer(path, body)
        return (200, {"cancelRequested": False}) if answer == (200, {}) else answer


def encoded(status: int, value: Any) -> bytes:
    body = json.dumps(value).encode()
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def run_async(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 30))


@contextlib.asynccontextmanager
async def serving(worker: Worker) -> AsyncIterator[None]:
    serve = asyncio.ensure_future(worker.serve())
    try:
        yield
    finally:
        worker.stop()
        await serve


def state(server: FakeServer) -> str:
    states = [e["statusUpdate"]["status"]["state"] for e in server.events() if "statusUpdate" in e]
    return str(states[-1]) if states else ""


def completed(server: FakeServer) -> Callable[[], bool]:
    return lambda: state(server) == "TASK_STATE_COMPLETED"

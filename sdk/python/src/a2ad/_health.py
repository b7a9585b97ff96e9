"""A health endpoint for monitoring."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

from ._errors import misuse

log = logging.getLogger("a2ad")

READ_TIMEOUT = 5.0


def address(value: Any) -> tuple[str, int]:
    """Read HOST:PORT, or :PORT for all addresses of the machine."""
    host, colon, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise misuse(f'health must be an address such as ":8081", not {value!r}')
    return host.strip("[]"), int(port)


class Health:
    """Answers /livez (the process), /readyz (whether it can claim tasks) and /status (JSON)."""

    def __init__(self, status: Callable[[], dict[str, Any]]) -> None:
        self._status = status
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> None:
        self._server = await asyncio.start_server(self._serve, host or None, port, limit=8 << 10)
        at = ", ".join("{}:{}".format(*s.getsockname()[:2]) for s in self._server.sockets)
        log.info("health endpoint on %s", at)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), READ_TIMEOUT)
            status, kind, body = self._answer(head.split(b"\r\n", 1)[0])
            writer.write(
                f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
                "Connection: close\r\n\r\n".encode()
                + body
            )
            await asyncio.wait_for(writer.drain(), READ_TIMEOUT)
        except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError):
            pass  # the client is gone
        except asyncio.LimitOverrunError:
            pass  # not a probe
        finally:
            writer.close()

    def _answer(self, line: bytes) -> tuple[str, str, bytes]:
        method, _, rest = line.partition(b" ")
        path = rest.split(b" ")[0].partition(b"?")[0]
        text = "text/plain; charset=utf-8"
        if method not in (b"GET", b"HEAD"):
            return "405 Method Not Allowed", text, b"use GET\n"
        if path == b"/livez":
            return "200 OK", text, b"ok\n"
        if path == b"/readyz":
            status = self._status()
            if status["ready"]:
                return "200 OK", text, b"ok\n"
            lines = ["not ready"]
            lines += [f"{k}: {v['error']}" for k, v in status["agents"].items() if v["error"]]
            return "503 Service Unavailable", text, ("\n".join(lines) + "\n").encode()
        if path == b"/status":
            return "200 OK", "application/json", json.dumps(self._status()).encode()
        return "404 Not Found", text, b"try /livez, /readyz or /status\n"

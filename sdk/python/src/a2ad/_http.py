"""HTTP/1.1 for the few requests of a worker.

A worker that streams sends thousands of small requests a second. A general client needs several
times the CPU for each of them, so this one does only what the worker API needs.
"""

from __future__ import annotations

import asyncio
import base64
import re
import ssl
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import cast

MAX_HEAD = 64 << 10
MAX_BODY = 256 << 20
CONNECT_TIMEOUT = 10.0

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,15})[ \t]*\r\n", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[ \t]*chunked[ \t]*\r\n", re.IGNORECASE)
_CLOSE = re.compile(rb"\r\nconnection:[ \t]*close[ \t]*\r\n", re.IGNORECASE)


class HTTPError(Exception):
    """A request got no answer. Whether the server has received it is unknown."""


@dataclass(frozen=True)
class Answer:
    status: int
    head: bytes
    body: bytes

    def header(self, name: str) -> str:
        """Return a header's value, or nothing."""
        found = re.search(rb"\r\n%s:[ \t]*([^\r\n]*)" % name.encode(), self.head, re.IGNORECASE)
        return found.group(1).decode("latin-1").strip() if found else ""


class Pool:
    """Connections to one server. It opens as many as there are requests at once."""

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        parts = urllib.parse.urlsplit(url)
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if self._tls else 80)
        self._proxy = _proxy(parts.scheme, parts.netloc)
        path = parts.path.rstrip("/")
        if self._proxy is not None and self._tls is None:
            path = f"http://{parts.netloc}{path}"
            headers = headers | _proxy_authorization(self._proxy)
        host = parts.netloc.rpartition("@")[2]
        lines = "".join(f"{k}: {v}\r\n" for k, v in {"Host": host, **headers}.items())
        self._path, self._headers = path, f" HTTP/1.1\r\n{lines}Content-Length: "
        self._idle: list[_Connection] = []
        self._all: set[_Connection] = set()

    async def request(self, method: str, path: str, body: bytes, timeout: float) -> Answer:
        """Send a request and return the answer, or raise HTTPError."""
        connection = await self._connection()
        head = f"{method} {self._path}{path}{self._headers}{len(body)}\r\n\r\n".encode("latin-1")
        return await connection.request(head + body, timeout)

    async def close(self) -> None:
        for connection in list(self._all):
            connection.transport.abort()
        self._idle.clear()

    async def _connection(self) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.transport.is_closing():
                return connection
        try:
            connection = await asyncio.wait_for(self._connect(), CONNECT_TIMEOUT)
        except asyncio.TimeoutError:
            raise HTTPError(f"connect to {self._host}:{self._port}: timeout") from None
        except OSError as err:
            raise HTTPError(f"connect to {self._host}:{self._port}: {err}") from err
        self._all.add(connection)
        return connection

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        proxy = self._proxy
        if proxy is None:
            _, connection = await loop.create_connection(
                lambda: _Connection(self), self._host, self._port, ssl=self._tls
            )
            return connection
        _, connection = await loop.create_connection(
            lambda: _Connection(self), proxy.hostname or "", proxy.port or 8080
        )
        if self._tls is not None:
            await self._tunnel(connection, proxy)
        return connection

    async def _tunnel(self, connection: _Connection, proxy: urllib.parse.SplitResult) -> None:
        """Let the proxy connect to the server, and begin TLS with that."""
        target = f"{self._host}:{self._port}"
        headers = {"Host": target, **_proxy_authorization(proxy)}
        lines = "".join(f"{k}: {v}\r\n" for k, v in headers.items())
        request = f"CONNECT {target} HTTP/1.1\r\n{lines}\r\n".encode("latin-1")
        connection.tunnel = True
        answer = await connection.request(request, CONNECT_TIMEOUT)
        if answer.status != 200:
            connection.transport.abort()
            raise HTTPError(f"the proxy {proxy.hostname} answered {answer.status}")
        connection.tunnel = False
        transport = await asyncio.get_running_loop().start_tls(
            connection.transport,
            connection,
            cast(ssl.SSLContext, self._tls),
            server_hostname=self._host,
        )
        connection.transport = cast(asyncio.Transport, transport)

    def _done(self, connection: _Connection, *, reusable: bool) -> None:
        if not reusable:
            connection.transport.abort()
        elif not connection.tunnel:
            self._idle.append(connection)

    def _lost(self, connection: _Connection) -> None:
        self._all.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)


class _Connection(asyncio.Protocol):
    """One connection, with at most one request at a time."""

    def __init__(self, pool: Pool) -> None:
        self.transport = cast(asyncio.Transport, None)
        self.tunnel = False
        """The request is a CONNECT, whose answer has no body."""
        self._pool = pool
        self._answer: asyncio.Future[Answer] | None = None
        self._buffer = bytearray()

    async def request(self, data: bytes, timeout: float) -> Answer:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()
        self._answer = answer
        timer = loop.call_later(timeout, self._fail, "timeout")
        self.transport.write(data)
        try:
            return await answer
        except asyncio.CancelledError:
            self.transport.abort()  # the server must not give runs to a claim that nobody waits for
            raise
        finally:
            timer.cancel()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._pool._lost(self)
        self._fail(str(exc) if exc else "the server closed the connection")

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        try:
            while self._answer is not None and self._parse():
                pass
        except ValueError as err:
            self._fail(str(err))
            self.transport.abort()

    def _fail(self, why: str) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_exception(HTTPError(why))
            self.transport.abort()

    def _parse(self) -> bool:
        """Take an answer from the buffer. Return whether another one may follow an interim one."""
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > MAX_HEAD:
                raise ValueError("the answer has too many headers")
            return False
        head = bytes(self._buffer[: end + 2])
        if not head.startswith(b"HTTP/1.") or not head[9:12].isdigit():
            raise ValueError(f"this is not HTTP/1.1: {head[:40]!r}")
        status = int(head[9:12])
        body = self._body(head, end + 4, empty=status < 200 or self.tunnel)
        if body is None:
            return False
        if status < 200:  # such as 103: the answer follows
            return True
        answer, self._answer = self._answer, None
        reusable = head.startswith(b"HTTP/1.1") and not self._buffer and not _CLOSE.search(head)
        self._pool._done(self, reusable=reusable)
        if answer is not None and not answer.done():
            answer.set_result(Answer(status, head, body))
        return False

    def _body(self, head: bytes, start: int, *, empty: bool) -> bytes | None:
        """Take the body from the buffer, with the head before it, if it is complete."""
        if empty:
            end, body = start, b""
        elif found := _LENGTH.search(head):
            end = start + int(found.group(1))
            if end > MAX_BODY:
                raise ValueError("the answer is too large")
            if len(self._buffer) < end:
                return None
            body = bytes(self._buffer[start:end])
        elif _CHUNKED.search(head):
            chunks = _chunks(self._buffer, start)
            if chunks is None:
                return None
            body, end = chunks
        else:
            raise ValueError("the answer does not say how long it is")
        del self._buffer[:end]
        return body


def _chunks(buffer: bytearray, at: int) -> tuple[bytes, int] | None:
    """Return the body that begins at a place, in chunks, and its end. None: not all is here."""
    body = bytearray()
    while True:
        end = buffer.find(b"\r\n", at)
        if end < 0:
            return None
        size = int(bytes(buffer[at:end]).partition(b";")[0], 16)
        at = end + 2
        if size == 0:
            break
        if size < 0 or len(body) + size > MAX_BODY:
            raise ValueError("the answer is too large")
        if len(buffer) < at + size + 2:
            return None
        body += buffer[at : at + size]
        at += size + 2
    while (end := buffer.find(b"\r\n", at)) != at:  # trailers
        if end < 0:
            return None
        at = end + 2
    return bytes(body), at + 2


def _proxy(scheme: str, netloc: str) -> urllib.parse.SplitResult | None:
    """Return the proxy for a server, from HTTP_PROXY, HTTPS_PROXY and NO_PROXY."""
    url = urllib.request.getproxies().get(scheme)
    if not url or urllib.request.proxy_bypass(netloc):
        return None
    return urllib.parse.urlsplit(url if "://" in url else f"http://{url}")


def _proxy_authorization(proxy: urllib.parse.SplitResult) -> dict[str, str]:
    if not proxy.username:
        return {}
    user = urllib.parse.unquote(proxy.username)
    password = urllib.parse.unquote(proxy.password or "")
    secret = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"Proxy-Authorization": f"Basic {secret}"}

"""HTTP/1.1 for the few requests of a worker.

A worker that streams sends thousands of small requests per second. A general-purpose client uses
several times the CPU for each, so this one does only what the worker API needs.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from ._proxy import Proxy, proxy_for

MAX_HEAD = 64 << 10
MAX_BODY = 256 << 20
"""The largest response is to a claim: it has one task of any size, by default up to 64 MiB, whose
files need a third more in base64."""
CONNECT_TIMEOUT = 10.0

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,15})[ \t]*\r\n", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[ \t]*chunked[ \t]*\r\n", re.IGNORECASE)
_CLOSE = re.compile(rb"\r\nconnection:[ \t]*close[ \t]*\r\n", re.IGNORECASE)


class HTTPError(Exception):
    """A request got no usable response. Whether the server received it is unknown."""


@dataclass(frozen=True)
class Answer:
    status: int
    head: bytes
    body: bytes

    def header(self, name: str) -> str:
        """Return the value of a header, or an empty text."""
        found = re.search(rb"\r\n%s:[ \t]*([^\r\n]*)" % name.encode(), self.head, re.IGNORECASE)
        return found.group(1).decode("latin-1").strip() if found else ""


class Pool:
    """Connections to one server: as many as there are concurrent requests."""

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        parts = urllib.parse.urlsplit(url)
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if self._tls else 80)
        host = parts.netloc.rpartition("@")[2]
        self._proxy = proxy_for(parts.scheme, host)
        path = parts.path.rstrip("/")
        if self._proxy is not None and self._tls is None:
            path = f"http://{host}{path}"
            headers = headers | self._proxy.headers
        lines = "".join(f"{k}: {v}\r\n" for k, v in {"Host": host, **headers}.items())
        self._path, self._headers = path, f" HTTP/1.1\r\n{lines}Content-Length: "
        self._idle: list[_Connection] = []
        self._all: set[_Connection] = set()

    async def request(
        self,
        method: str,
        path: str,
        body: bytes,
        timeout: float,
        sent: Callable[[], object] | None = None,
    ) -> Answer:
        """Send a request once. Return the response, or raise HTTPError.

        ``sent`` is called once there is a connection and the request is sent.
        """
        clock = asyncio.get_running_loop().time
        end = clock() + timeout
        connection = await self._connection(min(timeout, CONNECT_TIMEOUT))
        head = f"{method} {self._path}{path}{self._headers}{len(body)}\r\n\r\n".encode("latin-1")
        if sent is not None:
            sent()
        return await connection.request(head + body, end - clock())

    async def close(self) -> None:
        for connection in list(self._all):
            connection.transport.abort()

    async def _connection(self, timeout: float) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.closing():
                return connection
        try:
            return await asyncio.wait_for(self._connect(), timeout)
        except asyncio.TimeoutError:
            raise HTTPError(f"connect to {self._host}:{self._port}: timeout") from None
        except (OSError, UnicodeError) as err:  # UnicodeError: the name cannot be one of a host
            raise HTTPError(f"connect to {self._host}:{self._port}: {err}") from err

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        proxy = self._proxy
        if proxy is None:
            _, connection = await loop.create_connection(
                lambda: _Connection(self), self._host, self._port, ssl=self._tls
            )
            return connection
        _, connection = await loop.create_connection(
            lambda: _Connection(self), proxy.host, proxy.port
        )
        if self._tls is not None:
            await self._tunnel(connection, proxy)
        return connection

    async def _tunnel(self, connection: _Connection, proxy: Proxy) -> None:
        """Let the proxy connect to the server, and start TLS with the server."""
        target = f"{self._host}:{self._port}"
        headers = {"Host": target, **proxy.headers}
        lines = "".join(f"{k}: {v}\r\n" for k, v in headers.items())
        request = f"CONNECT {target} HTTP/1.1\r\n{lines}\r\n".encode("latin-1")
        connection.tunnel = True
        answer = await connection.request(request, CONNECT_TIMEOUT)
        if answer.status != 200:
            connection.transport.abort()
            raise HTTPError(f"the proxy {proxy.host} answered {answer.status}")
        connection.tunnel = False
        try:
            transport = await asyncio.get_running_loop().start_tls(
                connection.transport,
                connection,
                cast(ssl.SSLContext, self._tls),
                server_hostname=self._host,
            )
            if transport is None:  # the connection was closed meanwhile
                raise ConnectionResetError("the proxy closed the connection")
        except BaseException:
            connection.connection_lost(None)  # asyncio does not call it after a failed handshake
            raise
        connection.transport = transport

    def made(self, connection: _Connection) -> None:
        self._all.add(connection)

    def done(self, connection: _Connection, *, reusable: bool) -> None:
        if not reusable:
            connection.transport.abort()
        elif not connection.tunnel:
            self._idle.append(connection)

    def renew(self) -> None:
        """Close the idle connections. If one connection is dead, the network may be to blame."""
        for connection in list(self._idle):
            connection.transport.abort()

    def lost(self, connection: _Connection) -> None:
        self._all.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)


class _Connection(asyncio.Protocol):
    """One connection, with at most one request at a time."""

    def __init__(self, pool: Pool) -> None:
        self.transport = cast(asyncio.Transport, None)
        self.tunnel = False
        """The request is a CONNECT, whose response has no body."""
        self._pool = pool
        self._lost = False
        self._answer: asyncio.Future[Answer] | None = None
        self._buffer = bytearray()
        """What was received and not read."""
        self._head: bytes | None = None
        self._body = bytearray()
        self._length: int | None = 0
        """Bytes of the body. None: it comes in chunks."""
        self._trailers = False
        """The last chunk was read."""

    def closing(self) -> bool:
        return self._lost or self.transport.is_closing()

    async def request(self, data: bytes, timeout: float) -> Answer:
        if self.closing():  # nothing would end the request before its timeout
            raise HTTPError("the server closed the connection")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()
        self._answer = answer
        timer = loop.call_later(timeout, self._time_out)
        self.transport.write(data)
        try:
            return await answer
        except asyncio.CancelledError:
            self.transport.abort()  # the server must not give runs to an abandoned claim
            raise
        finally:
            timer.cancel()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._pool.made(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._pool.lost(self)
        self._fail(str(exc) if exc else "the server closed the connection")

    def data_received(self, data: bytes) -> None:
        if self._answer is None:  # such as a 408 that a proxy sends before it closes
            self.transport.abort()
            return
        self._buffer += data
        try:
            while self._answer is not None and self._parse():
                pass
        except ValueError as err:
            self._fail(str(err))

    def _time_out(self) -> None:
        self._pool.renew()
        self._fail("timeout")

    def _fail(self, why: str) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_exception(HTTPError(why))
        self.transport.abort()

    def _parse(self) -> bool:
        """Remove a response from the buffer. Return whether it was interim: another one follows."""
        if self._head is None:
            self._read_head()
        head = self._head
        if head is None or not self._read_body():
            return False
        self._head, body = None, bytes(self._body)
        self._body.clear()
        status = int(head[9:12])
        if status < 200:  # such as 103: the final response follows
            return True
        answer, self._answer = self._answer, None
        reusable = head.startswith(b"HTTP/1.1") and not self._buffer and not _CLOSE.search(head)
        self._pool.done(self, reusable=reusable)
        if answer is not None and not answer.done():
            answer.set_result(Answer(status, head, body))
        return False

    def _read_head(self) -> None:
        """Remove the head of a response from the buffer, if it is complete."""
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > MAX_HEAD:
                raise ValueError("the response has too many headers")
            return
        head = bytes(self._buffer[: end + 2])
        if not head.startswith(b"HTTP/1.") or not head[9:12].isdigit():
            raise ValueError(f"the response is not HTTP/1.1: {head[:40]!r}")
        if int(head[9:12]) < 200 or self.tunnel:
            self._length = 0
        elif found := _LENGTH.search(head):
            self._length = int(found.group(1))
            if self._length > MAX_BODY:
                raise ValueError("the response is too large")
        elif _CHUNKED.search(head):
            self._length = None
        else:
            raise ValueError("the response has no length")
        del self._buffer[: end + 4]
        self._head = head

    def _read_body(self) -> bool:
        """Move what there is of the body out of the buffer. Return whether it is complete."""
        if self._length is None:
            return self._read_chunks()
        if len(self._buffer) < self._length:
            return False
        self._body += self._buffer[: self._length]
        del self._buffer[: self._length]
        return True

    def _read_chunks(self) -> bool:
        buffer, at = self._buffer, 0
        try:
            while True:
                end = buffer.find(b"\r\n", at)
                if end < 0:
                    if len(buffer) - at > MAX_HEAD:
                        raise ValueError("the response has too many headers")
                    return False
                if self._trailers:
                    self._trailers = end > at  # an empty line ends them
                    at = end + 2
                    if not self._trailers:
                        return True
                    continue
                size = int(bytes(buffer[at:end]).partition(b";")[0], 16)
                if size < 0 or len(self._body) + size > MAX_BODY:
                    raise ValueError("the response is too large")
                if len(buffer) < end + 2 + size + 2 and size > 0:
                    return False
                self._body += buffer[end + 2 : end + 2 + size]
                self._trailers = size == 0
                at = end + 2 + (size + 2 if size else 0)
        finally:
            del buffer[:at]  # no later packet reads these chunks again

"""The HTTP client, with all kinds of servers and proxies."""

from __future__ import annotations

import asyncio
import base64
import logging
import socket
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
from fake import Answer, FakeServer, encoded, run_async

from a2ad import UsageError, Worker
from a2ad._http import HTTPError, Pool
from a2ad._proxy import Proxy, proxy_for

LARGE = b"x" * 300_000
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "status", "body"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length:2\r\nX: y\r\n\r\nok", 200, b"ok"),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", 404, b""),
        (CHUNKED + b"2\r\nok\r\n3;a=b\r\n!!!\r\n0\r\n\r\n", 200, b"ok!!!"),
        (CHUNKED + b"1\r\n\n\r\n0\r\nA: b\r\nC: d\r\n\r\n", 200, b"\n"),
        (CHUNKED + b"493e0\r\n" + LARGE + b"\r\n0\r\n\r\n", 200, LARGE),
        (b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\n" + encoded(200, 1), 200, b"1"),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n1", 200, b"1"),
    ],
)
def test_answers(answer: bytes, status: int, body: bytes) -> None:
    async def test() -> None:
        async with FakeServer() as server:
            pool = Pool(server.url, {})
            for _ in range(2):  # also on the same connection, or on another one
                server.answer = lambda path, body: answer
                got = await pool.request("POST", "/x", b"1", 5)
                assert (got.status, got.body) == (status, body)
            await pool.close()

    run_async(test)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (None, "closed the connection"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "the response is not HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\n\r\n", "the response has no length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n", "too large"),
        (CHUNKED + b"zz\r\n", "invalid literal"),
        (CHUNKED + b"-5\r\n", "too large"),
        (b"HTTP/1.1 200 OK\r\nA: " + b"x" * 70_000, "too many headers"),
    ],
)
def test_answers_that_cannot_be_read(answer: Answer, text: str) -> None:
    async def test() -> None:
        async with FakeServer() as server:
            pool = Pool(server.url, {})
            server.answer = lambda path, body: answer
            with pytest.raises(HTTPError, match=text):
                await pool.request("POST", "/x", b"1", 5)
            server.answer = lambda path, body: (200, "again")
            assert (await pool.request("POST", "/x", b"1", 5)).body == b'"again"'
            assert server.connections == 2
            await pool.close()

    run_async(test)


def test_an_answer_that_comes_in_pieces() -> None:
    async def test() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            for byte in CHUNKED + b"2\r\nok\r\n0\r\n\r\n":
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        pool = Pool("http://127.0.0.1:{1}".format(*server.sockets[0].getsockname()), {})
        assert (await pool.request("POST", "/x", b"", 5)).body == b"ok"
        await pool.close()
        server.close()

    run_async(test)


def test_connections_are_used_again_and_closed_when_told() -> None:
    async def test() -> None:
        async with FakeServer() as server:
            pool = Pool(server.url + "/base/", {"X": "y"})
            for _ in range(3):
                await pool.request("POST", "/x", b"1", 5)
            assert server.connections == 1
            assert server.requests[0][0] == "/base/x"
            server.answer = lambda path, body: (
                b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
            )
            await pool.request("POST", "/x", b"1", 5)
            await pool.request("POST", "/x", b"1", 5)
            assert server.connections == 2
            await pool.close()

    run_async(test)


def test_a_canceled_request_closes_its_connection() -> None:
    async def test() -> None:
        async with FakeServer() as server:
            pool = Pool(server.url, {})
            server.gate.clear()
            first = asyncio.ensure_future(pool.request("POST", "/events", b"1", 5))
            await server.seen(lambda: server.requests)
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            await asyncio.sleep(0)
            assert not pool._all
            server.gate.set()
            server.answer = lambda path, body: (200, path)
            assert (await pool.request("POST", "/second", b"1", 5)).body == b'"/second"'
            await pool.close()

    run_async(test)


def test_timeouts() -> None:
    async def test() -> None:
        async with FakeServer() as server:
            pool = Pool(server.url, {})
            server.gate.clear()
            with pytest.raises(HTTPError, match="timeout"):
                await pool.request("POST", "/events", b"1", 0.01)
            await pool.close()

    run_async(test)


def test_an_unreachable_server() -> None:
    async def test() -> None:
        async with FakeServer() as server:
            url = server.url
        pool = Pool(url, {})
        with pytest.raises(HTTPError, match="connect to 127"):
            await pool.request("POST", "/x", b"1", 5)

    run_async(test)


def test_a_proxy_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with FakeServer() as proxy:
            address = proxy.url.removeprefix("http://")
            monkeypatch.setenv("http_proxy", f"http://ann:secret@{address}")
            pool = Pool("http://me:other@a2ad.example:8080/base", {})
            await pool.request("POST", "/x", b"1", 5)
            assert proxy.requests == [("http://a2ad.example:8080/base/x", 1)]
            await pool.close()
            monkeypatch.setenv("no_proxy", "127.0.0.1")
            async with FakeServer() as server:
                pool = Pool(server.url, {})
                await pool.request("POST", "/x", b"1", 5)
                assert server.requests == [("/x", 1)]
                await pool.close()

    run_async(test)


@pytest.mark.parametrize(
    ("named", "host", "port", "login"),
    [
        ("proxy", "proxy", 8080, None),
        ("proxy:3128", "proxy", 3128, None),
        ("HTTP://proxy:80/", "proxy", 80, None),
        ("http://[::1]:3128", "::1", 3128, None),
        ("http://a%40b:c%3Ad@proxy", "proxy", 8080, b"a@b:c:d"),
        ("http://u:100%@proxy", "proxy", 8080, b"u:100%"),
    ],
)
def test_addresses_of_proxies(
    named: str, host: str, port: int, login: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", named)
    basic = login and f"Basic {base64.b64encode(login).decode()}"
    headers = {"Proxy-Authorization": basic} if basic else {}
    assert proxy_for("https", "a2ad.example") == Proxy(host, port, headers)


@pytest.mark.parametrize(
    ("named", "shown"),
    [
        ("https://proxy:443", "https://proxy:443"),
        ("socks5://me:secret@proxy:1080", "socks5://…@proxy:1080"),
        ("me:secret@proxy:port", "…@proxy:port"),
        ("http://[::1", "http://[::1"),
        ("proxy:99999", "proxy:99999"),
        ("http://", "http://"),
    ],
)
def test_a_proxy_that_cannot_be_used_is_refused_before_anything_else(
    named: str, shown: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("http_proxy", named)
    worker = Worker("http://a2ad.example", health="127.0.0.1:0")
    worker.agent("a")(lambda task, message: None)
    text = f"HTTP_PROXY must be an address such as http://proxy:8080, not '{shown}'"
    with pytest.raises(UsageError) as caught:
        asyncio.run(asyncio.wait_for(worker.serve(), 20))
    assert str(caught.value).endswith(text)
    assert not caplog.messages


def test_tls_to_the_server_and_through_a_proxy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    command += ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(encoded(200, "over TLS"))
        await writer.drain()
        writer.close()

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1].decode().split(":")
        there, to = await asyncio.open_connection(target[0], int(target[1]))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(copy(reader, to), copy(there, writer))

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
        writer.close()

    async def test() -> None:
        server = await asyncio.start_server(serve, "localhost", 0, ssl=tls, family=socket.AF_INET)
        between = await asyncio.start_server(proxy, "127.0.0.1", 0)
        url = "https://localhost:{1}".format(*server.sockets[0].getsockname())
        for through in ("", "127.0.0.1:{1}".format(*between.sockets[0].getsockname())):
            monkeypatch.setenv("https_proxy", through)
            pool = Pool(url, {})
            assert (await pool.request("POST", "/x", b"1", 10)).body == b'"over TLS"'
            await pool.close()
        monkeypatch.setenv("SSL_CERT_FILE", "/nothing")
        monkeypatch.setenv("https_proxy", "")
        with pytest.raises(HTTPError, match="certificate verify failed"):
            await Pool(url, {}).request("POST", "/x", b"1", 10)

    run_async(test)


def test_a_proxy_that_refuses_a_tunnel(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def test() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked.append((await reader.readuntil(b"\r\n\r\n")).decode())
            writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
            writer.close()

        proxy: Any = await asyncio.start_server(serve, "127.0.0.1", 0)
        monkeypatch.setenv("https_proxy", "127.0.0.1:{1}".format(*proxy.sockets[0].getsockname()))
        with pytest.raises(HTTPError, match=r"the proxy 127\.0\.0\.1 answered 403"):
            await Pool("https://a2ad.example", {}).request("POST", "/x", b"1", 5)
        proxy.close()

    run_async(test)
    assert asked[0].startswith("CONNECT a2ad.example:443 HTTP/1.1\r\nHost: a2ad.example:443\r\n")


def test_a_new_connection_that_is_closed_at_once() -> None:
    async def test() -> None:
        async with FakeServer() as server:
            pool = Pool(server.url, {})
            connect = pool._connect

            async def closed() -> Any:
                connection = await connect()
                connection.transport.abort()
                await asyncio.sleep(0)  # asyncio reports that the connection is lost
                return connection

            pool._connect = closed  # type: ignore[method-assign]
            with pytest.raises(HTTPError, match="closed the connection"):
                await asyncio.wait_for(pool.request("POST", "/x", b"1", 60), 10)
            assert not pool._all

    run_async(test)


def test_a_handshake_through_a_proxy_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await writer.drain()
            await reader.read(1)
            writer.write(b"this is not TLS")
            writer.close()

        proxy: Any = await asyncio.start_server(serve, "127.0.0.1", 0)
        monkeypatch.setenv("https_proxy", "127.0.0.1:{1}".format(*proxy.sockets[0].getsockname()))
        pool = Pool("https://a2ad.example", {})
        with pytest.raises(HTTPError, match=r"connect to a2ad\.example:443"):
            await pool.request("POST", "/x", b"1", 10)
        assert not pool._all
        proxy.close()

    run_async(test)


class _Counted(bytearray):
    """Counts the bytes that are read from it."""

    read = 0

    def __getitem__(self, at: Any) -> Any:
        part = super().__getitem__(at)
        _Counted.read += len(part) if isinstance(at, slice) else 1
        return part


def test_each_chunk_is_read_once() -> None:
    chunk = b"1000\r\n" + b"x" * 4096 + b"\r\n"
    stream = CHUNKED + chunk * 256 + b"0\r\n\r\n"

    async def test() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(stream)
            await writer.drain()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        pool = Pool("http://127.0.0.1:{1}".format(*server.sockets[0].getsockname()), {})
        connection = await pool._connect()
        connection._buffer = _Counted()
        received = connection.data_received

        def in_pieces(data: bytes) -> None:
            for at in range(0, len(data), 1024):
                received(data[at : at + 1024])

        connection.data_received = in_pieces  # type: ignore[method-assign]
        pool._idle.append(connection)
        assert (await pool.request("POST", "/x", b"", 20)).body == b"x" * (4096 * 256)
        assert _Counted.read < 2 * len(stream)
        await pool.close()
        server.close()

    run_async(test)


def test_what_a_server_sends_without_a_request_is_no_answer() -> None:
    async def test() -> None:
        async with FakeServer() as server:
            pool = Pool(server.url, {})
            await pool.request("POST", "/x", b"1", 5)
            (connection,) = pool._idle
            connection.data_received(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
            assert (await pool.request("POST", "/x", b"1", 5)).status == 200
            assert server.connections == 2
            await pool.close()

    run_async(test)

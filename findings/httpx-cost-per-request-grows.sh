#!/usr/bin/env bash
# httpx 0.28.1 (httpcore 1.0.9), Python 3.11: a request costs more CPU the more requests run at the same time.
#
# An asyncio program sends 6,000 small POST requests to a server on the same machine, over kept connections, with the
# limit of connections raised. A good guess is that the CPU for each request does not depend on how many run at once.
# It does: httpcore looks through all connections and waiting requests of the pool when a request starts and when it
# ends. aiohttp 3.13.2 does the same work at a cost that stays level.
#
# Seen on two cores, CPU of the client for one request:
#            10 at once   300 at once   ratio
#   httpx       1.03 ms       4.70 ms     4.6
#   aiohttp     0.13 ms       0.12 ms     0.9
#
# The script fails if the ratio of httpx is below 2.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/env"
"$dir/env/bin/pip" install --quiet --disable-pip-version-check httpx==0.28.1 httpcore==1.0.9 aiohttp==3.13.2
cat >"$dir/cost.py" <<'END'
import asyncio
import multiprocessing
import resource
import sys

REQUESTS = 6000
BODY = b'{"text": "a token of a stream"}'
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


async def handle(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.lower().split(b"\r\n")
            size = next(int(x[15:]) for x in lines if x.startswith(b"content-length:"))
            await reader.readexactly(size)
            writer.write(ANSWER)
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


def serve(port):
    async def main():
        server = await asyncio.start_server(handle, "127.0.0.1", 0, backlog=1024)
        port.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())


async def with_httpx(url, at_once):
    import httpx

    limits = httpx.Limits(max_connections=at_once, max_keepalive_connections=at_once)
    async with httpx.AsyncClient(limits=limits, timeout=None) as client:

        async def send():
            assert (await client.post(url, content=BODY)).status_code == 200

        await measure(send, "httpx", at_once)


async def with_aiohttp(url, at_once):
    import aiohttp

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=at_once)) as client:

        async def send():
            async with client.post(url, data=BODY) as answer:
                await answer.read()
                assert answer.status == 200

        await measure(send, "aiohttp", at_once)


def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


costs = {}


async def measure(send, name, at_once):
    async def loop(n):
        for _ in range(n):
            await send()

    await asyncio.gather(*(loop(1) for _ in range(at_once)))  # connect
    before = cpu()
    await asyncio.gather(*(loop(REQUESTS // at_once) for _ in range(at_once)))
    costs[name, at_once] = (cpu() - before) / REQUESTS


if __name__ == "__main__":
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(there,), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{here.recv()}/"
    for client in with_httpx, with_aiohttp:
        for at_once in 10, 300:
            asyncio.run(client(url, at_once))
    server.terminate()
    print(f"{'':8}{'10 at once':>13}{'300 at once':>14}{'ratio':>8}")
    for name in "httpx", "aiohttp":
        few, many = costs[name, 10], costs[name, 300]
        print(f"{name:8}{few * 1e3:10.2f} ms{many * 1e3:11.2f} ms{many / few:8.1f}")
    if costs["httpx", 300] < 2 * costs["httpx", 10]:
        sys.exit("changed: with 300 requests at once, one no longer costs httpx twice as much as with 10")
END
"$dir/env/bin/python" "$dir/cost.py"

"""A worker: it claims tasks, runs agents, and renews leases."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import re
import socket
import sys
import time
import urllib.parse
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any, TypeVar

from . import _check, _health, _log, _signals, _watch
from ._agent import Agent, AsyncFunction, Ending, SyncFunction, check_function
from ._attempt import attempt
from ._client import Client, ServerError
from ._errors import Stopped, UsageError, caller, misuse
from ._failures import fields
from ._http import HTTPError
from ._mistakes import refuse_import
from ._threads import Threads
from ._wire import Run

log = logging.getLogger("a2ad")

F = TypeVar("F", bound="AsyncFunction | SyncFunction")

MAX_PAUSE = 10.0
WAITS_AFTER = 1.0
"""Seconds after which a claim without an answer waits for a task."""
MAX_CONCURRENCY = 10_000


class _Slots:
    """The slots of an agent, and how its last claim went."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.running = 0
        self.claimed_at: datetime | None = None
        """When the server last answered a claim."""
        self.reachable = False
        """Whether the server answered the last claim, or lets it wait."""
        self.error = ""
        """Why the last claim failed, and what to check."""
        self._freed = asyncio.Event()

    async def some(self) -> int:
        """Wait for a free slot, and return how many are free."""
        while self.running >= self.agent.concurrency:
            self._freed.clear()
            await self._freed.wait()
        return self.agent.concurrency - self.running

    def ready(self) -> None:
        """Note that the server accepts the claims of the agent."""
        self.reachable, self.error = True, ""

    def take(self) -> None:
        self.running += 1

    def free(self) -> None:
        self.running -= 1
        self._freed.set()


def _pause(failures: int) -> float:
    """Return how long to wait after a number of failed claims in a row. It differs by worker."""
    longest: float = min(0.2 * 2 ** min(failures, 10), MAX_PAUSE)
    return random.uniform(0.5, 1) * longest


class Worker:
    """Claims and executes the tasks of agents whose file has the executor ``pull``.

    ``url`` defaults to A2AD_URL, or to http://127.0.0.1:8080, and ``api_key`` to A2AD_API_KEY. The
    server shows ``name`` in the list of attempts. When the worker stops, its runs may continue for
    ``grace`` seconds; those that do not end in time return to the queue. ``health`` is an address
    such as ``":8081"`` for /livez, /readyz and /status. A wrong argument raises UsageError.

    Start a worker once at a time. It is not safe for use from several threads.
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        name: str | None = None,
        grace: float = 20.0,
        health: str | None = None,
    ) -> None:
        self.url = url or os.environ.get("A2AD_URL") or "http://127.0.0.1:8080"
        self._api_key = api_key or os.environ.get("A2AD_API_KEY")
        self.name = name or re.sub(r"[^!-~]", "-", f"{socket.gethostname()[:100]}-{os.getpid()}")
        self.grace = grace
        self._health = _health.address(health) if health is not None else None
        self._agents: dict[str, Agent] = {}
        self._slots: list[_Slots] = []
        self._runs: set[asyncio.Future[None]] = set()
        self._ignoring: set[asyncio.Future[Any]] = set()
        """Functions that do not end although their runs have ended."""
        self._threads = Threads()
        self._stop = asyncio.Event()
        self._serving = False
        self._check_arguments()

    def _check_arguments(self) -> None:
        try:
            parts = urllib.parse.urlsplit(self.url)
            fits = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
            secret = "@" in parts.netloc
        except (ValueError, TypeError, AttributeError):
            fits, secret = False, "@" in str(self.url)
        if secret:  # a2ad has no use for it, and it would be in logs
            raise misuse("url must not contain a user name or password: use api_key")
        if not fits:
            raise misuse(f"url must be a URL such as http://127.0.0.1:8080, not {self.url!r:.200}")
        if self._api_key is not None and not re.fullmatch(r"[!-~]+", str(self._api_key)):
            raise misuse("api_key must be printable ASCII without spaces")
        if not re.fullmatch(r"[!-~]{1,128}", str(self.name)):
            raise misuse(f"name must be 1 to 128 printable ASCII characters: {self.name!r:.200}")
        try:
            self.grace = _check.seconds(self.grace, "grace")
        except UsageError as err:
            raise misuse(str(err)) from None

    def agent(self, name: str, *, concurrency: int = 8) -> Callable[[F], F]:
        """Register a function for whole tasks of an agent.

        The function gets the task (a Task, or a SyncTask if it is not async) and the first message
        of the turn. It runs again from its start after a crash and after each wait, without
        repeating what is recorded. The last message of the task is what it returns: None, a str,
        bytes, a Message, Parts, or another value that becomes a data part.

        At most ``concurrency`` tasks of the agent run in this process at once. UsageError is raised
        for an invalid name or function, and if the name is registered already.
        """
        return self._register(name, concurrency, replay=True)

    def handler(self, name: str, *, concurrency: int = 8) -> Callable[[F], F]:
        """Register a function for single messages of an agent that keeps its own state.

        It is like ``agent``, but the function gets the newest message and begins at the last
        ``checkpoint``, which is in ``task.saved``. It does so after a crash and after each wait.
        What it wrote to an artifact since that checkpoint, or since a step that wrote to the same
        artifact, is then removed. Statuses and usage are not, so they are sent again.

        ``task.ask`` and ``task.auth_required`` do not return the answer: the function gets it as
        its next message. If none comes in time, they raise Timeout when it runs again with the same
        message. Steps, calls and waits are recorded for the message and the checkpoint.
        """
        return self._register(name, concurrency, replay=False)

    def _register(self, name: str, concurrency: int, *, replay: bool) -> Callable[[F], F]:
        where = caller()
        try:
            _check.agent(name)
            _check.count(concurrency, "concurrency", least=1, most=MAX_CONCURRENCY)
            if name in self._agents:
                raise UsageError(f"the agent {name!r} is already registered")
        except UsageError as err:
            err.where = where
            raise

        def register(function: F) -> F:
            check_function(name, function)
            self._agents[name] = Agent(name, function, concurrency, replay)
            return function

        return register

    def run(self) -> None:
        """Work until the process gets SIGTERM or SIGINT. A second signal ends it at once.

        It blocks, needs the main thread, and does not work on Windows. It logs to stderr, unless
        the program has configured logging. A function that ignores that its run has ended does not
        keep the process from exiting. Call it below ``if __name__ == "__main__":``, so that tests
        can import the file: while one does, it raises UsageError.
        """
        refuse_import()
        if not self._agents:
            raise misuse("the worker has no agent: decorate a function with @worker.agent")
        _signals.check()
        _log.configure()
        asyncio.run(self._run())

    async def _run(self) -> None:
        await self.serve(signals=True)
        if any(not work.done() for work in self._ignoring):
            # asyncio.run would wait for these functions, maybe for ever.
            logging.shutdown()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)

    def stop(self) -> None:
        """Tell ``serve`` to stop claiming, and to return once the runs have ended.

        Before ``serve``, it lets that return at once. Call it in the worker's event loop.
        """
        self._stop.set()

    async def serve(self, *, signals: bool = False) -> None:
        """Work in this event loop until ``stop`` is called or this coroutine is canceled.

        It retries while the server is unreachable or refuses its claims. With ``signals``, SIGTERM
        and SIGINT stop it too. It does not configure logging.
        """
        if not self._agents:
            raise misuse("the worker has no agent: decorate a function with @worker.agent")
        if self._serving:
            raise misuse("the worker has started already")
        if signals:
            _signals.check()
        self._serving = True
        try:
            if not self._stop.is_set():
                await self._serve(signals)
        finally:
            self._serving, self._stop = False, asyncio.Event()

    async def _serve(self, signals: bool) -> None:
        client = Client(self.url, self._api_key)
        self._slots = [_Slots(a) for a in self._agents.values()]
        self._threads = Threads()
        health = _health.Health(self.status)
        if self._health is not None:
            await health.start(*self._health)
        if signals:
            _signals.handle(self._stop.set)
        watch = _watch.Watch()
        log.info(
            "worker %s claims tasks of %s from %s", self.name, ", ".join(self._agents), self.url
        )
        claims = [asyncio.ensure_future(self._claim(client, s)) for s in self._slots]
        stopping: asyncio.Future[Any] = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait((stopping, *claims), return_when=asyncio.FIRST_COMPLETED)
            for claim in claims:
                if claim.done():
                    claim.result()  # raise its error
        finally:
            self._stop.set()
            for waiting in (stopping, *claims):
                waiting.cancel()
            await asyncio.gather(stopping, *claims, return_exceptions=True)
            await self._drain()
            await client.close()
            health.close()
            watch.close()
            self._threads.close()
            if signals:
                _signals.restore()

    def status(self) -> dict[str, Any]:
        """Return the state of the worker as its health endpoint shows it, as JSON values."""
        claims = [s.claimed_at for s in self._slots if s.claimed_at is not None]
        stopping = not self._serving or self._stop.is_set()
        return {
            "worker": self.name,
            "ready": not stopping and all(s.reachable for s in self._slots),
            "stopping": stopping,
            "runs": len(self._runs),
            "lastClaim": max(claims).isoformat() if claims else None,
            "agents": {
                s.agent.name: {
                    "concurrency": s.agent.concurrency,
                    "running": s.running,
                    "reachable": s.reachable,
                    "error": s.error or None,
                    "lastClaim": s.claimed_at.isoformat() if s.claimed_at else None,
                }
                for s in self._slots
            },
        }

    async def _drain(self) -> None:
        """Wait for the runs to end. Release those that do not."""
        if self._runs:
            n = len(self._runs)
            log.info(
                "worker %s is stopping; %d runs may continue for %.0f s", self.name, n, self.grace
            )
            await asyncio.wait(self._runs, timeout=self.grace)
        for run in self._runs:
            run.cancel()  # which releases it, within a bounded time
        await asyncio.gather(*self._runs, return_exceptions=True)

    async def _claim(self, client: Client, slots: _Slots) -> None:
        """Claim runs of one agent for its free slots."""
        failures = 0
        agent = slots.agent
        while True:
            free = await slots.some()
            began = time.monotonic()
            try:
                runs = await self._ask(client, slots, free)
            except (HTTPError, ServerError) as err:
                slots.reachable = False
                slots.error = str(err)
                failures += 1
                pause = _pause(failures)
                if isinstance(err, ServerError):
                    pause = max(pause, err.after or 0.0)
                    slots.error += err.advice(agent.name)
                log.warning(
                    *("claim failed: %s; retrying in %.1f s", slots.error, pause),
                    extra={"agent": agent.name},
                )
                await asyncio.sleep(pause)
                continue
            slots.ready()
            slots.claimed_at = datetime.now(timezone.utc)
            if not runs and time.monotonic() - began < WAITS_AFTER:
                failures += 1  # the server does not let claims wait, because it stops
                await asyncio.sleep(_pause(failures))
                continue
            failures = 0
            for r in runs:
                slots.take()
                task = asyncio.ensure_future(self._execute(client, slots, r))
                self._runs.add(task)
                task.add_done_callback(self._runs.discard)

    async def _ask(self, client: Client, slots: _Slots, free: int) -> list[Run]:
        """Claim runs once. The agent is ready if the server got the claim and lets it wait."""
        loop = asyncio.get_running_loop()
        waits: list[asyncio.TimerHandle] = []
        try:
            return await client.claim(
                *(self.name, [slots.agent.name], free),
                sent=lambda: waits.append(loop.call_later(WAITS_AFTER, slots.ready)),
            )
        finally:
            for timer in waits:
                timer.cancel()

    async def _execute(self, client: Client, slots: _Slots, run: Run) -> None:
        started = time.monotonic()
        ending = Ending("lost")
        try:
            ending = await attempt(client, slots.agent, run, self._threads, self._ignoring)
        except Stopped as err:
            ending = Ending(err.why, str(err))
        except Exception:
            log.exception("run failed", extra=fields(run))
        finally:
            slots.free()
            seconds = round(time.monotonic() - started, 3)
            log.info(
                *("run ended: %s%s", ending.outcome, ending.reason and f" ({ending.reason})"),
                extra={**fields(run), "outcome": ending.outcome, "seconds": seconds},
            )

"""A worker: it claims tasks, runs agents, and keeps their leases."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import os
import random
import re
import signal
import socket
import time
import urllib.parse
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any, TypeVar

from . import _check, _health, _log
from ._agent import Agent, AsyncFunction, Ending, SyncFunction, execute, fields
from ._client import Client, ServerError
from ._errors import Refused, Stopped, UsageError, caller, misuse
from ._http import HTTPError
from ._session import Session
from ._threads import Threads
from ._wire import Run

log = logging.getLogger("a2ad")

F = TypeVar("F", bound="AsyncFunction | SyncFunction")

MAX_PAUSE = 10.0
MAX_CONCURRENCY = 10_000
FINISH_TIMEOUT = 10.0


class _Slots:
    """The slots of an agent, and what is known of its claims."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.running = 0
        self.claimed_at: datetime | None = None
        """When the server last answered a claim."""
        self.reachable = False
        """Whether it answered the last one."""
        self._freed = asyncio.Event()

    async def some(self) -> int:
        """Return how many slots are free, once there is one."""
        while self.running >= self.agent.concurrency:
            self._freed.clear()
            await self._freed.wait()
        return self.agent.concurrency - self.running

    def take(self) -> None:
        self.running += 1

    def free(self) -> None:
        self.running -= 1
        self._freed.set()


class Worker:
    """Does the tasks of agents whose file has the executor ``pull``.

    ``url`` and ``api_key`` default to the environment: A2AD_URL (http://127.0.0.1:8080) and
    A2AD_API_KEY. ``name`` is what the server's record of attempts shows. When the process is told
    to stop, runs get ``grace`` seconds to end; the others go back to the queue. ``health`` is an
    address such as ``":8081"``; /livez, /readyz and /status answer there.
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
        self._runs: dict[asyncio.Task[None], Session | None] = {}
        self._threads = Threads()
        self._stop: asyncio.Event | None = None
        self._check_arguments()

    def _check_arguments(self) -> None:
        try:
            parts = urllib.parse.urlsplit(self.url)
            fits = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except (ValueError, TypeError, AttributeError):
            fits = False
        if not fits:
            raise misuse(f"url must be one such as http://127.0.0.1:8080, not {self.url!r:.200}")
        if self._api_key is not None and not re.fullmatch(r"[!-~]+", str(self._api_key)):
            raise misuse("api_key must be printable ASCII without spaces")
        if not re.fullmatch(r"[!-~]{1,128}", str(self.name)):
            raise misuse(f"name must be 1 to 128 printable ASCII characters: {self.name!r:.200}")
        try:
            self.grace = _check.seconds(self.grace, "grace")
        except UsageError as err:
            raise misuse(str(err)) from None

    def agent(self, name: str, *, concurrency: int = 8) -> Callable[[F], F]:
        """Register a function for whole tasks of an agent. ``concurrency`` of them run at once.

        The function gets the task and its first message. It runs again from its start after a crash
        and after each wait; what is recorded is not done again. What it returns is the last
        message: None, a text, Parts, or a value that becomes a data part.
        """
        return self._register(name, concurrency, replay=True)

    def handler(self, name: str, *, concurrency: int = 8) -> Callable[[F], F]:
        """Register a function for single messages of an agent.

        The function gets the task and the newest message. After a crash it runs again, with the
        last ``checkpoint`` in ``task.saved``. What it has written is not set back.
        """
        return self._register(name, concurrency, replay=False)

    def _register(self, name: str, concurrency: int, *, replay: bool) -> Callable[[F], F]:
        where = caller()
        try:
            _check.agent(name)
            _check.count(concurrency, "concurrency", least=1, most=MAX_CONCURRENCY)
            if name in self._agents:
                raise UsageError(f"the agent {name!r} is registered twice")
        except UsageError as err:
            err.where = where
            raise

        def register(function: F) -> F:
            _check_function(name, function)
            self._agents[name] = Agent(name, function, concurrency, replay)
            return function

        return register

    def run(self) -> None:
        """Work until the process gets SIGTERM or SIGINT. A second signal ends it at once.

        Log records go to stderr, unless the program has configured logging.
        """
        if not self._agents:
            raise misuse("the worker has no agent: decorate a function with @worker.agent")
        _log.configure()
        asyncio.run(self.serve(signals=True))

    def stop(self) -> None:
        """Make ``serve`` return. Call it in the worker's event loop."""
        if self._stop is not None:
            self._stop.set()

    async def serve(self, *, signals: bool = False) -> None:
        """Work until ``stop`` is called or the coroutine is canceled."""
        if not self._agents:
            raise misuse("the worker has no agent: decorate a function with @worker.agent")
        self._stop = asyncio.Event()
        self._slots = [_Slots(a) for a in self._agents.values()]
        if signals:
            self._stop_on_signals(self._stop)
        health = _health.Health(self.status)
        if self._health is not None:
            await health.start(*self._health)
        client = Client(self.url, self._api_key)
        log.info("worker %s works for %s on %s", self.name, ", ".join(self._agents), self.url)
        claims = [asyncio.ensure_future(self._claim(client, s)) for s in self._slots]
        stopping: asyncio.Future[Any] = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait((stopping, *claims), return_when=asyncio.FIRST_COMPLETED)
            for claim in claims:
                if claim.done():
                    claim.result()  # its error
        finally:
            self._stop.set()
            for waiting in (stopping, *claims):
                waiting.cancel()
            await asyncio.gather(stopping, *claims, return_exceptions=True)
            await self._drain()
            await client.close()
            health.close()
            self._threads.close()

    def status(self) -> dict[str, Any]:
        """Return what the worker does, as its health endpoint shows it."""
        claims = [s.claimed_at for s in self._slots if s.claimed_at is not None]
        stopping = self._stop is None or self._stop.is_set()
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
                    "lastClaim": s.claimed_at.isoformat() if s.claimed_at else None,
                }
                for s in self._slots
            },
        }

    def _stop_on_signals(self, stop: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()

        def told() -> None:
            stop.set()
            for s in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(s)

        for s in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(s, told)

    async def _drain(self) -> None:
        """Wait for the runs to end. Release those that do not."""
        if self._runs:
            n = len(self._runs)
            log.info("worker %s stops; %d runs get %.0f s to end", self.name, n, self.grace)
            await asyncio.wait(self._runs, timeout=self.grace)
        for run, session in self._runs.items():
            if session is not None:
                session.released = True
            run.cancel()
        await asyncio.gather(*self._runs, return_exceptions=True)

    async def _claim(self, client: Client, slots: _Slots) -> None:
        """Claim runs of one agent for its free slots."""
        failures = 0
        agent = slots.agent
        while True:
            free = await slots.some()
            try:
                asked = asyncio.get_running_loop().call_later(1, setattr, slots, "reachable", True)
                try:
                    runs = await client.claim(self.name, [agent.name], free)
                finally:
                    asked.cancel()
            except (HTTPError, ServerError) as err:
                slots.reachable = False
                failures += 1
                pause = random.uniform(0.5, 1) * min(0.2 * 2 ** min(failures, 10), MAX_PAUSE)
                if isinstance(err, ServerError) and err.after is not None:
                    pause = max(pause, err.after)
                log.warning(
                    *("claim: %s; again in %.1f s", err, pause), extra={"agent": agent.name}
                )
                await asyncio.sleep(pause)
                continue
            failures = 0
            slots.reachable, slots.claimed_at = True, datetime.now(timezone.utc)
            for r in runs:
                slots.take()
                task = asyncio.ensure_future(self._execute(client, slots, r))
                self._runs[task] = None
                task.add_done_callback(self._runs.pop)

    async def _execute(self, client: Client, slots: _Slots, run: Run) -> None:
        started = time.monotonic()
        ending = Ending("lost")
        try:
            ending = await self._attempt(client, slots.agent, run)
        except Stopped as err:
            ending = Ending(err.why, str(err))
        except asyncio.CancelledError:
            ending = Ending("released")
            await self._finish(client, run, "release")
        except Exception:
            log.exception("run failed", extra=fields(run))
        finally:
            slots.free()
            seconds = round(time.monotonic() - started, 3)
            log.info(
                *("run ended: %s%s", ending.outcome, ending.reason and f" ({ending.reason})"),
                extra={**fields(run), "outcome": ending.outcome, "seconds": seconds},
            )

    async def _attempt(self, client: Client, agent: Agent, run: Run) -> Ending:
        await client.steps(run)
        session = Session(run, client, self._threads, replay=agent.replay)
        running = asyncio.current_task()
        if running in self._runs:
            self._runs[running] = session
        work = asyncio.ensure_future(execute(agent, session))
        beat = asyncio.ensure_future(self._heartbeat(client, run, session, work))
        try:
            ending = await work
        finally:
            for t in (work, beat):
                t.cancel()
            await asyncio.gather(work, beat, return_exceptions=True)
            await session.close()
        if ending.outcome == "retry":
            await self._finish(client, run, ending.outcome, ending.reason, ending.after)
        return ending

    async def _heartbeat(
        self, client: Client, run: Run, session: Session, work: asyncio.Future[Any]
    ) -> None:
        """Renew the lease while the agent works. Stop the agent when the task is not its own."""
        while True:
            await asyncio.sleep(run.lease_seconds / 3)
            try:
                if await client.heartbeat(run):
                    session.canceled = True
                    session.stop(Stopped("canceled", "the task was canceled"))
            except Stopped as err:
                session.stop(err)
            except Refused as err:
                log.warning("heartbeat: %s", err, extra=fields(run))
                continue
            if session.stopped is not None:
                work.cancel()
                return

    async def _finish(
        self, client: Client, run: Run, outcome: str, reason: str = "", after: float | None = None
    ) -> None:
        with contextlib.suppress(Stopped):
            try:
                await asyncio.wait_for(client.finish(run, outcome, reason, after), FINISH_TIMEOUT)
            except (Refused, asyncio.TimeoutError) as err:
                log.warning("finish: %s", str(err) or type(err).__name__, extra=fields(run))


def _check_function(name: str, function: Any) -> None:
    if not callable(function):
        raise misuse(f"the agent {name!r} must be a function, not {type(function).__name__}")
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        raise misuse(
            f"the function of the agent {name!r} must take two arguments: (task, message)"
        ) from None
    except ValueError:
        pass  # a built-in function does not say

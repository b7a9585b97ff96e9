"""One run: the agent's function at work, its heartbeats, and its end on the server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

from ._agent import Agent, Ending, execute
from ._client import Client
from ._errors import Refused, Stopped
from ._failures import fields
from ._session import Session
from ._threads import Threads
from ._wire import Run

log = logging.getLogger("a2ad")

RELEASE_TIMEOUT = 10.0
"""Seconds for the request that releases a run. After that, the lease must expire."""
END_TIMEOUT = 2.0
"""Seconds that the function of a released run gets for its ``finally`` blocks."""


async def attempt(
    client: Client,
    agent: Agent,
    run: Run,
    threads: Threads,
    ignoring: set[asyncio.Future[Any]],
) -> Ending:
    """Call the agent's function, and tell the server how it ended if no event did.

    If the calling task is canceled, the run is released without waiting for the function. A
    function that then does not end is added to ``ignoring``.
    """
    try:
        await client.steps(run)
    except asyncio.CancelledError:
        await _release(client, run)
        return Ending("released")
    session = Session(run, client, threads, replay=agent.replay)
    work = asyncio.ensure_future(execute(agent, session))
    beat = asyncio.ensure_future(_heartbeat(client, run, session, work))
    try:
        await asyncio.wait((work,))
        ending = work.result()
        if ending.outcome == "retry":
            beat.cancel()  # so that repeated requests end with the lease
            await _finish(client, run, ending.outcome, ending.reason, ending.after)
        return ending
    except asyncio.CancelledError:
        if work.done() and not work.cancelled() and work.result().outcome != "retry":
            return work.result()
        ended = session.stopped
        if work.done() or not isinstance(ended, Stopped):  # the server does not know how it ended
            ended = None
        session.stop(Stopped("released", "the worker stops"))
        work.cancel()
        await session.close()
        if ended is None:
            await _release(client, run)
        beat.cancel()
        await asyncio.wait((work,), timeout=END_TIMEOUT)
        if not work.done():
            log.warning("the agent's function ignores that its run has ended", extra=fields(run))
            ignoring.add(work)
        return Ending("released") if ended is None else Ending(ended.why, str(ended))
    finally:
        beat.cancel()
        await asyncio.gather(beat, return_exceptions=True)
        await session.close()


async def _heartbeat(client: Client, run: Run, session: Session, work: asyncio.Future[Any]) -> None:
    """Renew the lease while the agent works. Stop the agent if the lease or the task ends."""
    stopped: Stopped | None = None
    while stopped is None:
        await asyncio.sleep(run.lease_seconds / 3)
        try:
            if await client.heartbeat(run):
                session.canceled = True
                stopped = Stopped("canceled", "the task was canceled")
        except Stopped as err:
            stopped = err
    session.stop(stopped)
    work.cancel()


async def _release(client: Client, run: Run) -> None:
    try:
        await asyncio.wait_for(_finish(client, run, "release"), RELEASE_TIMEOUT)
    except asyncio.TimeoutError:
        log.warning("release failed: no answer", extra=fields(run))


async def _finish(
    client: Client, run: Run, outcome: str, reason: str = "", after: float | None = None
) -> None:
    with contextlib.suppress(Stopped):
        try:
            await client.finish(run, outcome, reason, after)
        except Refused as err:
            log.warning("finish failed: %s", err, extra=fields(run))

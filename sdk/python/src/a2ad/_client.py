"""The worker API of the server, over HTTP."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import random
import time
from collections.abc import Sequence
from importlib import metadata
from typing import Any

from . import _values
from ._errors import Error, Refused, Stopped
from ._http import HTTPError, Pool
from ._wire import Recorded, Run

log = logging.getLogger("a2ad")

REQUEST_TIMEOUT = 30.0
CLAIM_WAIT = 30
MAX_CLAIM = 100
"""Runs that one request may claim."""


class ServerError(Error):
    """The server answered with an error. ``reason`` is its code, such as FORBIDDEN."""

    def __init__(self, status: int, reason: str, text: str, after: float | None = None) -> None:
        super().__init__(f"{status} {reason}: {text}")
        self.status = status
        self.reason = reason
        self.after = after


def user_agent() -> str:
    """Name this library and its version, which operators see. From source it has no version."""
    try:
        return f"a2ad-python/{metadata.version('a2ad')}"
    except metadata.PackageNotFoundError:
        return "a2ad-python"


class Client:
    """Requests of one worker. It belongs to one event loop."""

    def __init__(self, url: str, api_key: str | None) -> None:
        headers = {"Content-Type": "application/json", "User-Agent": user_agent()}
        if api_key:
            headers["Authorization"] = f"Bearer {api_key}"
        self._http = Pool(url.rstrip("/") + "/worker/v1", headers)

    async def close(self) -> None:
        await self._http.close()

    async def claim(self, worker: str, agents: Sequence[str], most: int) -> list[Run]:
        """Wait for up to ``most`` runs of the agents. The list is empty if none came in time."""
        body = json.dumps(
            {
                "worker": worker,
                "agents": list(agents),
                "max": min(most, MAX_CLAIM),
                "waitSeconds": CLAIM_WAIT,
            }
        )
        answer = await self._post("/claim", body, timeout=CLAIM_WAIT + REQUEST_TIMEOUT)
        return [Run.decode(r) for r in answer["runs"]]

    async def steps(self, run: Run) -> None:
        """Read the steps that the claim did not contain."""
        while len(run.steps) < run.step_count:
            path = f"/runs/{run.task_id}/{run.epoch}/steps?after={len(run.steps)}"
            answer = await self._retried(run, "GET", path, None)
            page = [Recorded.decode(s) for s in answer["steps"]]
            if not page:
                raise Error(f"task {run.task_id}: step {len(run.steps) + 1} is missing")
            run.steps.extend(page)

    async def report(self, run: Run, events: Sequence[str], batch: str) -> bool:
        """Store events: see Reporter."""
        body = f'{{"events":[{",".join(events)}],"batchId":"{batch}"}}'
        answer = await self._retried(run, "POST", _path(run, "events"), body)
        return bool(answer.get("cancelRequested"))

    async def heartbeat(self, run: Run) -> bool:
        """Renew the lease. Return whether the task was canceled."""
        answer = await self._retried(run, "POST", _path(run, "heartbeat"), "{}")
        return bool(answer.get("cancelRequested"))

    async def finish(
        self, run: Run, outcome: str, error: str = "", after: float | None = None
    ) -> None:
        """End a run that no event has ended."""
        body: dict[str, Any] = {"outcome": outcome}
        if error:
            body["error"] = _values.clean(error, 4000)
        if after is not None:
            body["retryAfterSeconds"] = math.ceil(after)
        await self._retried(run, "POST", _path(run, "finish"), json.dumps(body))

    async def _retried(self, run: Run, method: str, path: str, body: str | None) -> Any:
        """Send a request until it is answered, or until the lease must have expired."""
        until = time.monotonic() + run.lease_seconds
        tries = 0
        while True:
            try:
                return await self._post(path, body, method=method)
            except ServerError as err:
                if err.reason == "LEASE_LOST":
                    raise Stopped("lost", "the lease is lost: another worker has the task") from err
                if err.status != 429 and err.status < 500:
                    raise Refused(str(err)) from err
                pause = err.after
                last: Exception = err
            except HTTPError as err:
                pause, last = None, err
            tries += 1
            if pause is None:
                pause = random.uniform(0, min(0.1 * 2**tries, 5.0))
            if time.monotonic() + pause > until:
                raise Stopped("lost", f"the server cannot be reached: {last}") from last
            await asyncio.sleep(pause)

    async def _post(
        self, path: str, body: str | None, *, method: str = "POST", timeout: float = REQUEST_TIMEOUT
    ) -> Any:
        content = b"" if body is None else body.encode()
        answer = await self._http.request(method, path, content, timeout)
        if answer.status == 200:
            try:
                return json.loads(answer.body)
            except ValueError as err:
                raise HTTPError(f"the answer is not JSON: {err}") from err
        reason, text = "", answer.body[:500].decode("utf-8", "replace")
        try:
            error = json.loads(answer.body)["error"]
            reason, text = str(error["reason"]), str(error["message"])
        except (ValueError, KeyError, TypeError):
            pass  # from a proxy
        after = answer.header("Retry-After")
        raise ServerError(answer.status, reason, text, float(after) if after.isdigit() else None)


def _path(run: Run, what: str) -> str:
    return f"/runs/{run.task_id}/{run.epoch}/{what}"

"""The worker API of the server, over HTTP."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import random
import re
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Any, TypeVar

from . import _values
from ._errors import Error, Refused, Stopped
from ._http import HTTPError, Pool
from ._wire import Recorded, Run

log = logging.getLogger("a2ad")

T = TypeVar("T")

CLAIM_WAIT = 30
CLAIM_TIMEOUT = CLAIM_WAIT + 30.0
MAX_CLAIM = 100
"""Runs that one request may claim."""
MAX_PAUSE = 5.0
MAX_RETRY_AFTER = 60.0
MALFORMED = (KeyError, TypeError, ValueError, AttributeError, RecursionError)
"""What decoding raises if an answer does not have the expected form."""


class ServerError(Error):
    """The server answered with an error. ``reason`` is its code, such as FORBIDDEN.

    A proxy may have answered instead, without a reason.
    """

    def __init__(self, status: int, reason: str, text: str, after: float | None = None) -> None:
        super().__init__(f"{status} {reason}: {text}" if reason else f"{status}: {text}")
        self.status = status
        self.text = text
        self.reason = reason
        self.after = after

    def refuses(self) -> bool:
        """Return whether each repetition of the request would get this answer too."""
        return self.status in (400, 409, 413) and self.reason != ""

    def advice(self, agent: str) -> str:
        """Return what to check if a claim gets this answer, after a separator, or an empty text."""
        if self.status == 401:
            return "; check A2AD_API_KEY (api_key)"
        if self.status == 403:
            return "; check that the API key has the scope worker and may be used for the agent"
        if self.status == 404 and self.reason:
            return (
                "; check the name of the agent, or add an agent file to the server: "
                f'"name: {agent}", "executor: {{pull: {{}}}}"'
            )
        if not self.reason:
            return "; check that A2AD_URL (url) is the URL of an a2ad server"
        return ""


def user_agent() -> str:
    """Return the name of this library and, if it is installed, its version. Operators see it."""
    try:
        return f"a2ad-python/{metadata.version('a2ad')}"
    except metadata.PackageNotFoundError:
        return "a2ad-python"


class Client:
    """Sends the requests of one worker. Use it in one event loop."""

    def __init__(self, url: str, api_key: str | None) -> None:
        headers = {"Content-Type": "application/json", "User-Agent": user_agent()}
        if api_key:
            headers["Authorization"] = f"Bearer {api_key}"
        self._http = Pool(url.rstrip("/") + "/worker/v1", headers)

    async def close(self) -> None:
        await self._http.close()

    async def claim(
        self,
        worker: str,
        agents: Sequence[str],
        most: int,
        sent: Callable[[], object] | None = None,
    ) -> list[Run]:
        """Wait for up to ``most`` runs of the agents. Return an empty list if none came in time.

        ``sent`` is called when the request is sent.
        """
        body = json.dumps(
            {
                "worker": worker,
                "agents": list(agents),
                "max": min(most, MAX_CLAIM),
                "waitSeconds": CLAIM_WAIT,
            }
        )
        return await self._post("/claim", body, _runs, timeout=CLAIM_TIMEOUT, sent=sent)

    async def steps(self, run: Run) -> None:
        """Read the steps that the claim did not contain."""
        while len(run.steps) < run.step_count:
            path = f"/runs/{run.task_id}/{run.epoch}/steps?after={len(run.steps)}"
            run.steps.extend(await self._retried(run, "GET", path, None, _steps))

    async def report(self, run: Run, events: Sequence[str], batch: str) -> bool:
        """Store events: see Reporter."""
        body = f'{{"events":[{",".join(events)}],"batchId":"{batch}"}}'
        path, age = _path(run, "events"), run.lease_seconds / 4
        return await self._retried(run, "POST", path, body, _canceled, age=age, may_refuse=True)

    async def heartbeat(self, run: Run) -> bool:
        """Renew the lease. Return whether the task was canceled."""
        return await self._retried(run, "POST", _path(run, "heartbeat"), "{}", _canceled)

    async def finish(
        self, run: Run, outcome: str, error: str = "", after: float | None = None
    ) -> None:
        """End a run that no event has ended."""
        body: dict[str, Any] = {"outcome": outcome}
        if error:
            body["error"] = _values.clean(error, 4000)
        if after is not None:
            body["retryAfterSeconds"] = math.ceil(after)
        path, sent = _path(run, "finish"), json.dumps(body)
        await self._retried(run, "POST", path, sent, _object, may_refuse=True)

    async def _retried(
        self,
        run: Run,
        method: str,
        path: str,
        body: str | None,
        decode: Callable[[Any], T],
        *,
        age: float = 0.0,
        may_refuse: bool = False,
    ) -> T:
        """Repeat a request until it is answered, or until the lease must have expired.

        It is sent at least once, because the server knows best. Each try gets a third of the lease,
        so that one lost answer does not cost the run. ``age`` is how old the lease may be when the
        answer does not say that it was renewed.
        """
        third, tries = run.lease_seconds / 3, 0
        while True:
            tries += 1
            started = time.monotonic()
            left = run.renewed + run.lease_seconds - started
            timeout = min(third, left) if left > 0 else third
            pause = random.uniform(0, min(0.1 * 2**tries, MAX_PAUSE))
            try:
                answer = await self._post(path, body, decode, method=method, timeout=timeout)
                run.renewed = max(run.renewed, started - age)
                return answer
            except ServerError as err:
                if err.reason == "LEASE_LOST":
                    raise Stopped("lost", "the lease is lost") from err
                if may_refuse and err.refuses():
                    raise Refused(_refusal(err)) from err
                pause = max(pause, err.after or 0.0)
                last: Exception = err
            except HTTPError as err:
                last = err
            left = run.renewed + run.lease_seconds - time.monotonic()
            await asyncio.sleep(max(0.0, min(pause, third, left)))
            if time.monotonic() >= run.renewed + run.lease_seconds:
                text = f"requests failed until the lease expired: {last}"
                raise Stopped("lost", text) from last

    async def _post(
        self,
        path: str,
        body: str | None,
        decode: Callable[[Any], T],
        *,
        timeout: float,
        method: str = "POST",
        sent: Callable[[], object] | None = None,
    ) -> T:
        content = b"" if body is None else body.encode()
        answer = await self._http.request(method, path, content, timeout, sent)
        if answer.status == 200:
            try:
                return decode(json.loads(answer.body))
            except MALFORMED as err:
                what = f"{type(err).__name__}: {err}"
                raise HTTPError(f"the response is not that of an a2ad server ({what})") from err
        reason, text = "", answer.body[:500].decode("utf-8", "replace")
        try:
            error = json.loads(answer.body)["error"]
            if isinstance(error["reason"], str):
                reason, text = error["reason"], str(error["message"])
        except MALFORMED:
            pass  # from a proxy
        after = answer.header("Retry-After")
        pause = min(float(after), MAX_RETRY_AFTER) if re.fullmatch("[0-9]{1,9}", after) else None
        raise ServerError(answer.status, reason, text, pause)


def _runs(answer: Any) -> list[Run]:
    """Return the claimed runs. One that cannot be read costs the others nothing."""
    runs: list[Run] = []
    wrong: Exception | None = None
    for r in answer["runs"]:
        try:
            runs.append(Run.decode(r))
        except MALFORMED as err:
            log.error("a claimed task cannot be read: %s: %s", type(err).__name__, err)
            wrong = err
    if wrong is not None and not runs:
        raise wrong
    return runs


def _steps(answer: Any) -> list[Recorded]:
    steps = [Recorded.decode(s) for s in answer["steps"]]
    if not steps:
        raise ValueError("the next step is missing")
    return steps


def _canceled(answer: Any) -> bool:
    if not isinstance(answer["cancelRequested"], bool):
        raise TypeError("cancelRequested is not true or false")
    return answer["cancelRequested"]


def _object(answer: Any) -> None:
    if not isinstance(answer, dict):
        raise TypeError("it is not an object")


def _refusal(err: ServerError) -> str:
    """Return what the author of an agent needs of an error: not the place in the request."""
    if err.reason != "INVALID_AGENT_RESPONSE":
        return str(err)
    return re.sub(r"^events\[\d+\]: ", "", err.text)


def _path(run: Run, what: str) -> str:
    return f"/runs/{run.task_id}/{run.epoch}/{what}"

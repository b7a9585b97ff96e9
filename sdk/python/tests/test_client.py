"""The requests of a run: when they are repeated, and when its lease has expired."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from fake import claimed, encoded

from a2ad import _client
from a2ad._client import Client, ServerError
from a2ad._errors import Refused, Stopped
from a2ad._http import Answer, HTTPError
from a2ad._wire import Run

LOST = None
"""An answer that never comes."""
OK: Any = (200, {"cancelRequested": False})


class Network:
    """Answers requests as a test says, and is the clock of the client."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: Any) -> None:
        self.now = 1000.0
        self.timeouts: list[float] = []
        self.answers = list(answers)
        self.run = Run.decode(claimed(leaseSeconds=30))
        self.run.renewed = self.now
        self.client = Client("http://127.0.0.1:1", None)
        self.client._http = self  # type: ignore[assignment]
        monkeypatch.setattr(_client, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(_client, "asyncio", SimpleNamespace(sleep=self.sleep))

    async def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.now += seconds

    async def request(
        self, method: str, path: str, body: bytes, timeout: float, sent: object = None
    ) -> Answer:
        self.timeouts.append(timeout)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is LOST:
            self.now += timeout
            raise HTTPError("timeout")
        status, value = answer
        return Answer(status, encoded(status, 0), json.dumps(value).encode())


def test_a_lost_answer_does_not_cost_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Network(monkeypatch, LOST, OK)
    assert asyncio.run(net.client.heartbeat(net.run)) is False
    assert net.timeouts == [10, 10]
    assert 1010 <= net.run.renewed == net.now < 1011


@pytest.mark.parametrize("answer", [LOST, (503, {}), (404, "<html>")])
def test_the_run_ends_with_its_lease(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    net = Network(monkeypatch, OK, OK, answer)
    asyncio.run(net.client.report(net.run, [], "1"))  # the server renews a lease after a quarter
    net.now += 1
    asyncio.run(net.client.report(net.run, [], "2"))
    with pytest.raises(Stopped) as stopped:
        asyncio.run(net.client.heartbeat(net.run))
    assert stopped.value.why == "lost"
    assert net.now == pytest.approx(1030)
    assert max(net.timeouts) == 10


def test_a_frozen_worker_asks_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Network(monkeypatch, OK)
    net.now += 100
    asyncio.run(net.client.heartbeat(net.run))
    assert net.run.renewed == net.now


def test_a_long_pause_of_a_proxy_is_shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Network(monkeypatch, (429, {}), (429, {}), OK)
    net.request = paused(net, 3600)  # type: ignore[method-assign]
    asyncio.run(net.client.heartbeat(net.run))
    assert net.now == 1020


def test_a_pause_of_zero_seconds_is_lengthened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_client, "random", SimpleNamespace(uniform=lambda _, most: most / 2))
    net = Network(monkeypatch, (503, {}), (503, {}), OK)
    net.request = paused(net, 0)  # type: ignore[method-assign]
    asyncio.run(net.client.heartbeat(net.run))
    assert net.now == pytest.approx(1000.3)


def paused(net: Network, seconds: int) -> Any:
    request = net.request

    async def with_header(*args: Any) -> Answer:
        answer = await request(*args)
        head = f"HTTP/1.1 X\r\nRetry-After: {seconds}\r\n".encode()
        return Answer(answer.status, head, answer.body)

    return with_header


def error(status: int, reason: Any) -> Any:
    return (status, {"error": {"reason": reason, "message": "a message"}})


@pytest.mark.parametrize(
    "answer",
    [
        (400, "<html>"),
        (404, "<html>"),
        (408, "<html>"),
        (413, "<html>"),
        (301, "<html>"),
        (409, {"error": "conflict"}),
        (409, {"error": {"reason": 7, "message": ""}}),
        (409, ["error"]),
        error(401, "UNAUTHENTICATED"),
        error(403, "FORBIDDEN"),
        error(404, "NOT_FOUND"),
        error(429, "RATE_LIMITED"),
        error(500, "INTERNAL"),
    ],
)
def test_no_other_answer_is_a_refusal(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    net = Network(monkeypatch, answer, answer, OK)
    asyncio.run(net.client.report(net.run, ['{"checkpoint":1}'], "1"))
    assert len(net.timeouts) == 3


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (400, "INVALID_AGENT_RESPONSE"),
        (400, "INVALID_REQUEST"),
        (409, "OTHER"),
        (413, "REQUEST_TOO_LARGE"),
    ],
)
def test_refusals(monkeypatch: pytest.MonkeyPatch, status: int, reason: str) -> None:
    net = Network(monkeypatch, error(status, reason))
    with pytest.raises(Refused, match="a message"):
        asyncio.run(net.client.report(net.run, ['{"checkpoint":1}'], "1"))


def test_a_heartbeat_cannot_be_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Network(monkeypatch, error(400, "INVALID_REQUEST"), OK)
    asyncio.run(net.client.heartbeat(net.run))


@pytest.mark.parametrize(
    "value", [{}, [], None, "maintenance", {"status": "ok"}, {"cancelRequested": "no"}]
)
def test_answers_of_another_form_are_not_success(
    monkeypatch: pytest.MonkeyPatch, value: Any
) -> None:
    net = Network(monkeypatch, (200, value), OK, (200, value), OK)
    asyncio.run(net.client.report(net.run, [], "1"))
    asyncio.run(net.client.heartbeat(net.run))
    assert len(net.timeouts) == 4


def test_steps_of_another_form(monkeypatch: pytest.MonkeyPatch) -> None:
    step = {"key": "a#1", "kind": "step"}
    wrong = [{}, {"steps": []}, {"steps": 7}, {"steps": [{}]}, {"steps": [7]}, {"steps": ["x"]}]
    net = Network(monkeypatch, *((200, w) for w in wrong), (200, {"steps": [step]}))
    net.run.step_count = 1
    asyncio.run(net.client.steps(net.run))
    assert [s.key for s in net.run.steps] == ["a#1"]


@pytest.mark.parametrize(
    "value",
    [{}, [], None, {"runs": None}, {"runs": [{}]}, {"runs": ["x"]}, {"runs": [{"task": 1}]}],
)
def test_claims_of_another_form(monkeypatch: pytest.MonkeyPatch, value: Any) -> None:
    net = Network(monkeypatch, (200, value))
    with pytest.raises(HTTPError, match="not that of an a2ad server"):
        asyncio.run(net.client.claim("w", ["a"], 1))


def test_a_task_that_cannot_be_read_costs_the_others_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    part = {"messageId": "m", "parts": [{"raw": "Y"}]}
    net = Network(monkeypatch, (200, {"runs": [claimed("t1", messages=[part]), claimed("t2")]}))
    assert [r.task_id for r in asyncio.run(net.client.claim("w", ["a"], 2))] == ["t2"]


def test_an_error_page_is_a_server_error(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Network(monkeypatch, (404, "<html>"))
    with pytest.raises(ServerError, match=r"^404: .*<html>"):
        asyncio.run(net.client.claim("w", ["a"], 1))

"""In each attempt of the conformance suite, the worker reports what the fixture says.

With a fault, the first report is lost, or something else than the server answers it. The worker
sends it again, and nothing else changes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import driver
import pytest
from fake import Answer, FakeServer, run_async, serving

from a2ad import Message, Task, Worker

FIXTURES = Path(__file__).resolve().parents[2] / "conformance" / "testdata"
TIME = re.compile(r'"20\d\d-\d\d-\d\dT[0-9:.]+(Z|[+-]\d\d:\d\d)"')
FAULTS: list[Answer] = [
    None,
    (503, {"error": {"reason": "TRY_AGAIN", "message": "a fault"}}),
    (404, "<html>default backend</html>"),
    (200, {"status": "maintenance"}),  # not for finish, which any object answers
]


def attempts() -> Iterator[Any]:
    for file in sorted(FIXTURES.glob("*.json")):
        fixture = json.loads(file.read_text())
        for n, attempt in enumerate(fixture["attempts"], 1):
            handler = fixture.get("handler", False)
            yield pytest.param(handler, attempt, id=f"{fixture['case']}-{n}")


class World:
    """Answers the effects of an attempt as they were answered when it was recorded."""

    def __init__(self, effects: list[Any]) -> None:
        self._left = list(effects)

    async def effect(self, name: str, _key: str) -> Any:
        found = next(e for e in self._left if e["name"] == name)
        self._left.remove(found)
        answer = found["answer"]
        if isinstance(answer, dict) and answer.get("error"):
            raise driver.EffectFailed(answer["error"])
        return answer


@pytest.mark.parametrize("faulty", [False, True], ids=["", "fault"])
@pytest.mark.parametrize(("handler", "attempt"), list(attempts()))
def test_fixture(handler: bool, attempt: Any, faulty: bool) -> None:
    async def test() -> None:
        async def play(task: Task, message: Message) -> Any:
            world = World(attempt["effects"])
            return await driver.Program(task, message, world).result(attempt["do"])

        run = attempt["run"]
        faults = FAULTS[len(json.dumps(run)) % len(FAULTS) :][:1] if faulty else []
        accepted: list[tuple[str, Any]] = []

        def answer(path: str, body: Any) -> Answer:
            ends = path.endswith("/finish")
            if faults and (path.endswith("/events") or (ends and faults != FAULTS[3:])):
                return faults.pop()
            accepted.append((path, body))
            return 200, {}

        async with FakeServer([run]) as server:
            server.answer = answer
            worker = Worker(server.url, name="fixture")
            register = worker.handler if handler else worker.agent
            register(run["agent"])(play)
            async with serving(worker):
                await server.seen(lambda: ended(accepted, attempt))
        batches: dict[str, Any] = {}
        for body in server.of("/events"):
            assert batches.setdefault(body["batchId"], body) == body
        assert done(accepted, attempt) == expected(attempt)

    run_async(test)


def ended(accepted: list[tuple[str, Any]], attempt: Any) -> bool:
    if "finish" in attempt:
        return any(path.endswith("/finish") for path, _ in accepted)
    events = [e for path, body in accepted if path.endswith("/events") for e in body["events"]]
    if not events:
        return False
    status = events[-1].get("statusUpdate", {"status": {"state": "TASK_STATE_WORKING"}})
    return "wait" in events[-1] or status["status"]["state"] != "TASK_STATE_WORKING"


def done(accepted: list[tuple[str, Any]], attempt: Any) -> Any:
    """Return the reports that the server accepted, in the form of fixtures."""
    events: list[Any] = []
    for event in (e for path, body in accepted if path.endswith("/events") for e in body["events"]):
        add(events, fixed(event))
    finishes = [fixed(body) for path, body in accepted if path.endswith("/finish")]
    return in_order(events, attempt), finishes


def expected(attempt: Any) -> Any:
    finish = [attempt["finish"]] if "finish" in attempt else []
    return in_order(attempt["events"], attempt), finish


def in_order(events: list[Any], attempt: Any) -> list[str]:
    """Return the events as JSON. The branches of gather report in any order."""
    texts = [json.dumps(e, sort_keys=True) for e in events]
    return sorted(texts) if '"gather"' in json.dumps(attempt["do"]) else texts


def fixed(event: Any) -> Any:
    """Leave out what differs each time, or by language."""
    event = json.loads(TIME.sub('"2099-01-01T00:00:00Z"', json.dumps(event)))
    for e in (event, event.get("step") or {}):
        if e.get("error") is not None:
            e["error"] = True
    status = event.get("statusUpdate", {}).get("status", {})
    if status.get("state") == "TASK_STATE_FAILED" and "message" in status:
        status["message"] = True
    if "/pause#" in event.get("wait", {}).get("key", ""):
        event["wait"]["for"] = True
    return event


def add(events: list[Any], event: Any) -> None:
    """Append an event. Text that is appended to the same artifact becomes one event."""
    text, last = appended(event), appended(events[-1]) if events else None
    if text and last and text["artifactId"] == last["artifactId"]:
        last["parts"][0]["text"] += text["parts"][0]["text"]
    else:
        events.append(event)


def appended(event: Any) -> Any:
    update = event.get("artifactUpdate", {})
    parts = update.get("artifact", {}).get("parts", [])
    if update.get("append") and len(parts) == 1 and parts[0].keys() == {"text"}:
        return update["artifact"]
    return None

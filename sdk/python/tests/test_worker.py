"""A worker and a fake server: streams, retries, leases, health, logs and traces."""

from __future__ import annotations

import asyncio
import json
import logging
import urllib.error
import urllib.request
from typing import Any

import pytest
from fake import FakeServer, claimed, completed, run_async, serving
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from a2ad import Message, Task, UsageError, Worker, _log
from a2ad._clock import BEGAN, next_tick


def texts(server: FakeServer) -> list[str]:
    """Return the pieces in which text was sent."""
    updates = [e["artifactUpdate"]["artifact"] for e in server.events() if "artifactUpdate" in e]
    return [a["parts"][0]["text"] for a in updates]


def test_requests_name_the_library_and_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", {"a2ad": "1.2.3"}.__getitem__)

    async def test() -> None:
        async with FakeServer([claimed()]) as server:
            worker = Worker(server.url)

            @worker.agent("a")
            async def nothing(task: Task, message: Message) -> None:
                pass

            async with serving(worker):
                await server.seen(completed(server))
            assert server.user_agents == {"a2ad-python/1.2.3"}

    run_async(test)


def test_the_first_token_is_sent_at_once_and_others_together() -> None:
    async def test() -> None:
        async with FakeServer([claimed()]) as server:
            worker = Worker(server.url)

            @worker.agent("a")
            async def streams(task: Task, message: Message) -> None:
                server.gate.clear()
                await task.write("first ")
                await server.seen(lambda: texts(server))
                for _ in range(10):
                    await task.write("more ")
                assert texts(server) == ["first "]  # the server has not answered yet
                server.gate.set()

            async with serving(worker):
                await server.seen(completed(server))
            assert texts(server) == ["first ", "more " * 10]

    run_async(test)


def test_text_is_sent_at_most_every_50_ms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("a2ad._clock.FLUSH_EVERY", 30.0)

    async def test() -> None:
        async with FakeServer([claimed()]) as server:
            worker, more = Worker(server.url), asyncio.Event()

            @worker.agent("a")
            async def streams(task: Task, message: Message) -> None:
                server.gate.clear()
                await task.write("first ")
                await server.seen(lambda: texts(server))
                await task.write("second ")
                server.gate.set()
                sender = task._session._sender
                assert sender is not None
                await sender  # the first request is answered
                assert texts(server) == ["first "]
                await more.wait()
                await task.write("x" * (32 << 10))  # that is enough for a request
                await server.seen(lambda: len(texts(server)) == 2)
                await task.write("last")

            async with serving(worker):
                await server.seen(lambda: len(texts(server)) == 1)
                more.set()
                await server.seen(completed(server))
            assert [len(t) for t in texts(server)] == [6, 7 + (32 << 10), 4]

    run_async(test)


def test_all_runs_send_at_the_same_ticks() -> None:
    after = [i / 1000 for i in range(1000)]
    ticks = [next_tick(BEGAN + seconds) - BEGAN for seconds in after]
    for seconds, tick in zip(after, ticks, strict=True):
        assert 0.0249 < tick - seconds < 0.0751
        assert tick == pytest.approx(round(tick / 0.05) * 0.05)
    sent_at_a_tick = BEGAN + 0.05
    assert next_tick(sent_at_a_tick) == pytest.approx(BEGAN + 0.1)


def test_writing_waits_while_the_server_is_slower() -> None:
    written: list[int] = []

    async def test() -> None:
        async with FakeServer([claimed()]) as server:
            worker = Worker(server.url)

            @worker.agent("a")
            async def streams(task: Task, message: Message) -> None:
                server.gate.clear()
                for i in range(100):
                    await task.write("x" * 10_000)
                    written.append(i)

            async with serving(worker):
                await server.seen(lambda: texts(server))
                for _ in range(1000):
                    await asyncio.sleep(0)
                assert len(written) == 26  # 256 KiB wait to be sent
                server.gate.set()
                await server.seen(completed(server))
            assert sum(map(len, texts(server))) == 1_000_000

    run_async(test)


def test_requests_are_repeated_until_they_are_answered() -> None:
    answers: list[Any] = [None, (503, {}), (404, "<html>"), b"HTTP/1.1 429 X\r\nRetry-After: 0\r\n"]

    async def test() -> None:
        async with FakeServer([claimed()]) as server:
            worker = Worker(server.url)
            server.answer = lambda path, body: (
                answers.pop(0) if answers and path.endswith("/events") else (200, {})
            )
            answers[3] += b"Content-Length: 0\r\n\r\n"

            @worker.agent("a")
            async def works(task: Task, message: Message) -> int:
                return await task.step("one", lambda: 1)

            async with serving(worker):
                await server.seen(completed(server))
            batches = [body["batchId"] for body in server.of("/events")]
            assert batches == ["1"] * 5 + ["2"]

    run_async(test)


def test_what_the_server_refuses_lets_the_task_wait() -> None:
    refusal = (400, {"error": {"reason": "INVALID_AGENT_RESPONSE", "message": "no agent b"}})

    async def test() -> None:
        async with FakeServer([claimed()]) as server:
            worker = Worker(server.url)
            server.answer = lambda path, body: (
                refusal if path.endswith("/events") and "call" in body["events"][0] else (200, {})
            )

            @worker.agent("a")
            async def calls(task: Task, message: Message) -> None:
                await task.call("b", "x")

            async with serving(worker):
                await server.seen(lambda: len(server.of("/events")) == 2)
            step, wait = server.of("/events")[1]["events"]
            line = f"{__file__}:{calls.__code__.co_firstlineno + 2}"
            assert step["step"]["error"]["message"].startswith(line)
            assert "no agent b" in step["step"]["error"]["message"]
            assert wait["wait"]["key"] == "postponed/pause#1"
            assert not server.of("/finish")

    run_async(test)


def test_claims_are_for_free_slots_and_at_most_100() -> None:
    async def test() -> None:
        runs = [claimed(f"t{i}") for i in range(120)]
        async with FakeServer(runs) as server:
            worker, go = Worker(server.url, name="w"), asyncio.Event()

            @worker.agent("a", concurrency=150)
            async def waits(task: Task, message: Message) -> None:
                await go.wait()

            async with serving(worker):
                await server.seen(lambda: len(server.of("/claim")) == 3)
                assert [c["max"] for c in server.of("/claim")] == [100, 50, 30]
                assert server.of("/claim")[0]["worker"] == "w"
                assert worker.status()["agents"]["a"]["running"] == 120
                go.set()

    run_async(test)


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as err:
        return err.code, err.read().decode()


def test_health(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with FakeServer([claimed()]) as server:
            worker, go = Worker(server.url, health="127.0.0.1:0"), asyncio.Event()
            ports: list[int] = []
            start = asyncio.start_server

            async def noted(*args: Any, **how: Any) -> Any:
                listening = await start(*args, **how)
                ports.append(listening.sockets[0].getsockname()[1])
                return listening

            monkeypatch.setattr(asyncio, "start_server", noted)
            down = (503, {"error": {"reason": "UNAVAILABLE", "message": "no"}})
            is_down = asyncio.Event()
            is_down.set()
            server.answer = lambda path, body: down if is_down.is_set() else (200, {})

            @worker.agent("a", concurrency=2)
            async def waits(task: Task, message: Message) -> None:
                await go.wait()

            async def answer(path: str) -> tuple[int, str]:
                return await asyncio.to_thread(get, f"http://127.0.0.1:{ports[0]}{path}")

            async with serving(worker):
                await server.seen(lambda: len(server.of("/claim")) == 2)
                assert await answer("/livez") == (200, "ok\n")
                assert await answer("/readyz") == (503, "not ready\na: 503 UNAVAILABLE: no\n")
                is_down.clear()
                await server.seen(lambda: worker.status()["runs"] == 1)
                assert await answer("/readyz") == (200, "ok\n")
                assert (await answer("/nothing"))[0] == 404
                status = json.loads((await answer("/status"))[1])
                assert (status["ready"], status["runs"]) == (True, 1)
                assert status["agents"]["a"]["running"] == 1
                assert status["agents"]["a"]["concurrency"] == 2
                assert status["lastClaim"] is not None
                go.set()
            assert not worker.status()["ready"]

    run_async(test)


@pytest.mark.parametrize(
    ("answer", "advice"),
    [
        ((401, {"error": {"reason": "UNAUTHENTICATED", "message": "no"}}), "check A2AD_API_KEY"),
        ((403, {"error": {"reason": "FORBIDDEN", "message": "no"}}), "has the scope worker"),
        ((404, {"error": {"reason": "NOT_FOUND", "message": "no"}}), '"executor: {pull: {}}"'),
        ((404, "<html>"), "check that A2AD_URL"),
        ((200, "<html>"), "the response is not that of an a2ad server"),
        ((200, {"status": "maintenance"}), "the response is not that of an a2ad server"),
    ],
)
def test_a_refused_claim_says_what_to_check(
    answer: Any, advice: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with FakeServer() as server:
            worker, errors = Worker(server.url), []

            def answers(path: str, body: Any) -> Any:
                errors.append(worker.status()["agents"]["a"]["error"])
                return answer if len(errors) == 1 else (200, {})

            server.answer = answers

            @worker.agent("a")
            async def nothing(task: Task, message: Message) -> None:
                pass

            async with serving(worker):
                await server.seen(lambda: len(errors) == 2)
            assert errors[0] is None
            assert advice in errors[1]

    run_async(test)
    assert advice in caplog.text


@pytest.fixture(scope="module")
def spans() -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


def test_traces_continue_that_of_the_client(spans: InMemorySpanExporter) -> None:
    async def test() -> None:
        parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        async with FakeServer([claimed(traceparent=parent)]) as server:
            worker = Worker(server.url)

            @worker.agent("a")
            async def works(task: Task, message: Message) -> None:
                async def model() -> str:
                    with trace.get_tracer("user").start_as_current_span("chat"):
                        pass
                    await task.usage(model="m", input_tokens=5, output_tokens=2)
                    await task.usage(model="m", input_tokens=1, reasoning_tokens=1)
                    return "said"

                await task.step("ask", model)
                await task.usage(model="n", cached_input_tokens=3)

            async with serving(worker):
                await server.seen(completed(server))

    run_async(test)
    got = {s.name: s for s in spans.get_finished_spans()}
    attempt, step, chat = got["invoke_agent a"], got["step ask"], got["chat"]
    assert attempt.parent is not None and step.parent is not None and chat.parent is not None
    assert attempt.parent.span_id == 0xB7AD6B7169203331
    assert attempt.context.trace_id == 0x0AF7651916CD43DD8448EB211C80319C
    assert step.parent.span_id == attempt.context.span_id
    assert chat.parent.span_id == step.context.span_id
    assert dict(step.attributes or {}) == {
        "a2ad.step": "ask#1",
        "gen_ai.request.model": "m",
        "gen_ai.usage.input_tokens": 6,
        "gen_ai.usage.output_tokens": 2,
        "gen_ai.usage.reasoning.output_tokens": 1,
    }
    assert dict(attempt.attributes or {}) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "a",
        "gen_ai.conversation.id": "c",
        "a2a.task.id": "t",
        "a2ad.attempt": 1,
        "a2ad.epoch": 1,
        "a2ad.outcome": "finished",
        "gen_ai.request.model": "n",
        "gen_ai.usage.cache_read.input_tokens": 3,
    }


def test_log_records_as_text_and_json() -> None:
    record = logging.makeLogRecord(
        {"msg": "run ended: %s", "args": ("lost",), "levelname": "INFO", "created": 0.5}
        | {"task_id": "t", "epoch": 3}
    )
    line = "1970-01-01T00:00:00.500Z INFO run ended: lost task_id=t epoch=3"
    assert _log.Text().format(record) == line
    assert json.loads(_log.JSON().format(record)) == {
        "time": "1970-01-01T00:00:00.500Z",
        "level": "INFO",
        "msg": "run ended: lost",
        "task_id": "t",
        "epoch": 3,
    }


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("A2AD_LOG_LEVEL", "loud", "A2AD_LOG_LEVEL must be debug, info, warn or error, not 'loud'"),
        ("A2AD_LOG_FORMAT", "xml", "A2AD_LOG_FORMAT must be text or json, not 'xml'"),
    ],
)
def test_wrong_settings_are_quoted(
    name: str, value: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    monkeypatch.setattr(logging.Logger, "hasHandlers", lambda logger: False)
    with pytest.raises(UsageError, match=text):
        _log.configure()

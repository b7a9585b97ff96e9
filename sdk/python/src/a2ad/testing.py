"""Run an agent without a server: in memory, with fake time, and with crashes anywhere.

::

    from a2ad import testing

    def test_trip():
        result = testing.run(trip, "a weekend in Lyon", answers=["yes"])
        assert result.state == "completed"

    def test_trip_survives_crashes():
        testing.crash_everywhere(trip, "a weekend in Lyon", answers=["yes"])
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from ._agent import Agent, execute
from ._errors import Error, Stopped
from ._memory import StoredTask, fold
from ._session import Clock, Session
from ._threads import Threads
from ._wire import Message, Part, Recorded, Run, parse_time

Answer = str | Message | dict[str, Any] | list[Any]
Called = Callable[[str], Any] | str | dict[str, Any]

START = datetime(2026, 1, 1, tzinfo=timezone.utc)


class Stuck(Error):
    """The task waits for something that the test does not provide."""


class Difference(Error):
    """A crash changed what the agent did."""


@dataclass
class Result:
    """What became of a task."""

    state: str
    """``completed``, ``failed`` or ``rejected``."""
    text: str
    """The text of the last status."""
    data: Any
    """The data of the last status, or None."""
    artifacts: dict[str, list[Part]]
    steps: dict[str, Recorded]
    """By key, in the order in which they were recorded."""
    questions: list[str]
    attempts: int
    elapsed: timedelta
    """Fake time that the task took."""
    usage: dict[str, dict[str, int]]
    """What models have used: sums by model, with the names of the server, such as inputTokens."""
    events: list[dict[str, Any]]
    """The log, as a client sees it."""

    def artifact(self, id: str = "answer") -> str:
        """Return the text of an artifact."""
        return "".join(p.text or "" for p in self.artifacts.get(id, ()))


@dataclass
class _Crashes:
    """Where to crash: at the n-th request, before or after the server has stored it."""

    at: int = 0
    stored: bool = False
    requests: int = 0


class _FakeClock(Clock):
    def __init__(self) -> None:
        self.time = START

    def now(self) -> datetime:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)

    def send_later(self, seconds: float, send: Callable[[], None]) -> asyncio.Handle:
        return asyncio.get_running_loop().call_soon(send)


class _Server:
    """One task, its client and its agents, in memory."""

    def __init__(
        self,
        agent: Agent,
        message: Message,
        answers: Sequence[Answer] | Callable[[str], Answer],
        signals: Mapping[str, Any],
        calls: Mapping[str, Called],
        attempts: int,
        crashes: _Crashes,
        threads: Threads,
    ) -> None:
        self.threads = threads
        self.agent, self.crashes, self.max_attempts = agent, crashes, attempts
        self.signals, self.called = dict(signals), calls
        self.answer = answers if callable(answers) else _in_order(answers)
        self.task = StoredTask()
        self.clock = _FakeClock()
        self.questions: list[str] = []
        self.attempt, self.epoch, self.reason = 1, 0, ""
        self._say(message)

    def _say(self, m: Message) -> str:
        id = f"message-{len(self.task.messages) + 1}"
        self.task.messages.append(
            {"messageId": id, "role": "ROLE_USER", "parts": [p.encode() for p in m.parts]}
        )
        return id

    async def report(self, run: Run, events: Sequence[str], batch: str) -> bool:
        self.crashes.requests += 1
        crash = self.crashes.requests == self.crashes.at
        if crash and not self.crashes.stored:
            raise Stopped("crashed")
        if run.epoch != self.epoch:
            raise Stopped("lost")
        self.task.apply([json.loads(e) for e in events])
        if crash:
            raise Stopped("crashed")
        return False

    async def run(self) -> Result:
        while self.task.ended is None:
            self.epoch += 1
            if self.epoch > 10_000:
                raise Stuck("the agent ran 10,000 times without an end")
            session = Session(
                self._run(), self, self.threads, replay=self.agent.replay, clock=self.clock
            )
            ending = await execute(self.agent, session)
            await session.close()
            if ending.error is not None:
                raise ending.error
            if ending.outcome == "crashed" and self.task.ended is None and self.task.wait is None:
                self._again("crashed")
            elif ending.outcome == "retry":
                self.clock.time += timedelta(seconds=ending.after or 1)
                self._again(ending.reason)
            if self.task.wait is not None:
                self._continue()
        return self._result()

    def _run(self) -> Run:
        return Run.decode(
            {
                "taskId": "task-1",
                "contextId": "context-1",
                "contextKey": "key-1",
                "tenant": "default",
                "owner": "test",
                "agent": self.agent.name,
                "epoch": self.epoch,
                "attempt": self.attempt,
                "messages": self.task.messages,
                "checkpoint": self.task.checkpoint,
                "steps": list(self.task.steps.values()),
                "stepCount": len(self.task.steps),
                "task": {
                    "artifacts": [
                        {"artifactId": k, "parts": v} for k, v in fold(self.task.log).items()
                    ],
                },
            }
        )

    def _again(self, reason: str) -> None:
        self.attempt, self.reason = self.attempt + 1, reason
        if self.attempt > self.max_attempts:
            self.task.ended = {
                "state": "TASK_STATE_FAILED",
                "message": {"parts": [{"text": reason}]},
            }

    def _continue(self) -> None:
        """End the wait of the task in the way that the test says."""
        assert self.task.wait is not None
        wait, self.task.wait = self.task.wait, None
        self.attempt = 1
        self.task.steps[wait["key"]].update(result=self._over(wait), endedAt="now")

    def _over(self, wait: dict[str, Any]) -> dict[str, Any]:
        if "tasks" in wait:
            self._do_calls(wait)
            return {"by": "tasks"}
        if wait.get("signal") in self.signals:
            name = wait["signal"]
            return {"by": "signal", "name": name, "value": self.signals.pop(name)}
        if wait.get("message"):
            question = ""
            if "status" in wait:
                question = wait["status"]["message"]["parts"][0]["text"]
            self.questions.append(question)
            try:
                answer = self.answer(question)
            except StopIteration:
                answer = None
            if answer is not None:
                return {"by": "message", "messageId": self._say(_message(answer))}
        if "for" in wait:
            self.clock.time += timedelta(seconds=float(wait["for"].removesuffix("s")))
        elif "until" in wait:
            self.clock.time = max(self.clock.time, parse_time(wait["until"]))
        else:
            what = f"the signal {wait['signal']!r}" if "signal" in wait else "an answer"
            raise Stuck(f"the task waits for {what}, and the test has none")
        return {"by": "time"}

    def _do_calls(self, wait: dict[str, Any]) -> None:
        """End the called tasks that the wait is for: all, or the first one."""
        keys = [k for k in wait["tasks"] if "endedAt" not in self.task.steps[k]]
        for key in keys[:1] if wait.get("mode") == "any" else keys:
            call = self.task.calls[key]
            if call["agent"] not in self.called:
                raise Stuck(f"the task calls {call['agent']!r}, and the test has no such agent")
            does = self.called[call["agent"]]
            text = "\n".join(p["text"] for p in call["message"]["parts"] if "text" in p)
            said = does(text) if callable(does) else does
            part = {"text": said} if isinstance(said, str) else {"data": said}
            self.task.steps[key].update(
                endedAt="now",
                result={
                    "taskId": f"{key}-task",
                    "state": "TASK_STATE_COMPLETED",
                    "message": {"role": "ROLE_AGENT", "parts": [part]},
                },
            )

    def _result(self) -> Result:
        ended = self.task.ended or {}
        said = Message.decode(ended.get("message") or {})
        return Result(
            state=str(ended.get("state", "")).removeprefix("TASK_STATE_").lower(),
            text=said.text,
            data=said.data,
            artifacts={k: [Part.decode(p) for p in v] for k, v in fold(self.task.log).items()},
            steps={k: Recorded.decode(v) for k, v in self.task.steps.items()},
            questions=self.questions,
            attempts=self.epoch,
            elapsed=self.clock.time - START,
            usage=self.task.usage,
            events=self.task.log,
        )


def _in_order(answers: Sequence[Answer]) -> Callable[[str], Answer]:
    rest = iter(answers)
    return lambda question: next(rest)


def _message(value: Answer) -> Message:
    if isinstance(value, Message):
        return value
    part = Part(text=value) if isinstance(value, str) else Part(data=value)
    return Message(id="", role="user", parts=(part,))


def run(
    agent: Callable[..., Any],
    message: Answer,
    *,
    answers: Sequence[Answer] | Callable[[str], Answer] = (),
    signals: Mapping[str, Any] | None = None,
    calls: Mapping[str, Called] | None = None,
    max_attempts: int = 5,
    handler: bool = False,
) -> Result:
    """Give an agent's function a task, and return what became of it.

    ``answers`` are the client's answers to questions, in order, or a function of the question. An
    answer that is no text is data. ``signals`` are the values of signals, by name. ``calls`` says
    what other agents answer: a text, data, or a function of the text they get. ``sleep`` and
    timeouts take no time; the fake clock moves on. The agent is tried ``max_attempts`` times. With
    ``handler`` the function is one for ``Worker.handler``.

    It raises UsageError, with the line, if the agent calls the library in a way that cannot work.
    """
    return asyncio.run(
        _run(agent, message, answers, signals, calls, max_attempts, handler, _Crashes())
    )


async def _run(
    function: Callable[..., Any],
    message: Answer,
    answers: Any,
    signals: Mapping[str, Any] | None,
    calls: Mapping[str, Called] | None,
    attempts: int,
    handler: bool,
    crashes: _Crashes,
) -> Result:
    agent, threads = Agent("test", function, 1, not handler), Threads()
    try:
        return await _Server(
            *(agent, _message(message), answers, signals or {}, calls or {}, attempts, crashes),
            threads,
        ).run()
    finally:
        threads.close()


def crash_everywhere(
    agent: Callable[..., Any],
    message: Answer,
    *,
    answers: Sequence[Answer] | Callable[[str], Answer] = (),
    signals: Mapping[str, Any] | None = None,
    calls: Mapping[str, Called] | None = None,
    handler: bool = False,
    compare: Callable[[Result], Any] | None = None,
) -> Result:
    """Show that the agent survives a crash at each point at which something is recorded.

    It runs the agent once without a crash. Then it runs it again and again; each time the worker
    dies at another request to the server, once before the server has stored it and once after. It
    raises Difference if the state, the last text, the artifacts, the usage or the keys of the steps
    are not those of the first run. ``compare`` returns what to compare in their place.

    It returns the result of the first run.
    """
    look = compare or _outcome

    def once(crashes: _Crashes) -> Result:
        return asyncio.run(_run(agent, message, answers, signals, calls, 5, handler, crashes))

    first = _Crashes()
    expected = once(first)
    for at, stored in itertools.product(range(1, first.requests + 1), (False, True)):
        got = once(_Crashes(at, stored))
        if look(got) != look(expected):
            when = "after" if stored else "before"
            raise Difference(
                f"a crash {when} request {at} of {first.requests} was stored changed the outcome:\n"
                f"  without: {look(expected)}\n  with:    {look(got)}"
            )
    return expected


def _outcome(r: Result) -> Any:
    artifacts = {
        k: "".join(p.text or "" for p in v) or [p.encode() for p in v]
        for k, v in r.artifacts.items()
    }
    return (r.state, r.text, r.data, artifacts, list(r.steps), r.usage)

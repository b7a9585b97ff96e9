"""Run an agent without a server: in memory, with fake time, and with crashes at any request.

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

from ._agent import Agent, check_function, execute
from ._answers import refusal
from ._clock import Clock
from ._errors import Error, Refused, Stopped
from ._memory import StoredTask, fold
from ._outbox import MAX_EVENTS
from ._outcome import difference, outcome, request
from ._session import Session
from ._threads import Threads
from ._wire import Message, Part, Recorded, Run, parse_time

Answer = str | Message | dict[str, Any] | list[Any]
Called = Callable[[str], Any] | str | dict[str, Any]

MAX_REQUEST = 4 << 20
START = datetime(2026, 1, 1, tzinfo=timezone.utc)


class Stuck(Error):
    """The task waits for something that the test does not provide, or never ends.

    ``where`` is the line of the agent that waits.
    """


class WrongAnswer(Error):
    """The server would refuse an answer of the test. The text says what the question expects.

    Answers are checked against ``choices``, and against a JSON Schema except for ``not``,
    ``format``, ``if``, ``contains``, ``uniqueItems``, ``multipleOf``, ``propertyNames``,
    ``dependent…`` and ``unevaluated…``. Of ``oneOf``, one or more may fit.
    """


class Difference(Error):
    """A crash changed the outcome. The text says which, and what differs."""


@dataclass
class Result:
    """The outcome of a task."""

    state: str
    """``completed``, ``failed`` or ``rejected``."""
    text: str
    """The text of the last message, or empty."""
    data: Any
    """The data of the last message, or None."""
    artifacts: dict[str, list[Part]]
    steps: dict[str, Recorded]
    """By key, in the order in which they were recorded. Calls and waits are steps, too."""
    questions: list[str]
    attempts: int
    """How often the agent ran, including after waits."""
    elapsed: timedelta
    """Fake time that the task took."""
    usage: dict[str, dict[str, int]]
    """Sums by model, with the server's names, such as inputTokens."""
    events: list[dict[str, Any]]
    """The events that a client sees, in order."""

    def artifact(self, id: str = "answer") -> str:
        """Return the text of an artifact, or an empty text if there is none."""
        return "".join(p.text or "" for p in self.artifacts.get(id, ()))


@dataclass
class _Crashes:
    """Where to crash: at the n-th request, before or after the server has stored it."""

    at: int = 0
    stored: bool = False
    requests: int = 0
    what: str = ""
    """What the request records at which the crash is."""


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
    """A server with one task, its client and the called agents, in memory."""

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
        if crash:
            self.crashes.what = request([json.loads(e) for e in events])
        if crash and not self.crashes.stored:
            raise Stopped("crashed")
        if run.epoch != self.epoch:
            raise Stopped("lost")
        if len(events) > MAX_EVENTS or sum(len(e.encode()) for e in events) > MAX_REQUEST:
            raise Refused("the request is too large")
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
                self._continue(getattr(session.stopped, "where", ""))
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

    def _continue(self, where: str) -> None:
        """End the wait of the task as the test says. ``where`` is the line that waits."""
        assert self.task.wait is not None
        wait, self.task.wait = self.task.wait, None
        self.attempt = 1
        try:
            self.task.steps[wait["key"]].update(result=self._over(wait), endedAt="now")
        except (Stuck, WrongAnswer) as err:
            err.where = where
            raise

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
                said = _message(answer)
                if why := refusal(said, wait.get("expects", {})):
                    raise WrongAnswer(
                        f"the server refuses the answer {answer!r:.200} to {question!r}: {why}"
                    )
                return {"by": "message", "messageId": self._say(said)}
        if "for" in wait:
            self.clock.time += timedelta(seconds=float(wait["for"].removesuffix("s")))
        elif "until" in wait:
            self.clock.time = max(self.clock.time, parse_time(wait["until"]))
        else:
            raise Stuck(self._missing(wait))
        return {"by": "time"}

    def _missing(self, wait: dict[str, Any]) -> str:
        if "signal" in wait:
            name = wait["signal"]
            return f"the agent waits for the signal {name!r}: pass signals={{{name!r}: …}}"
        question, n = self.questions[-1], len(self.questions)
        return f"the agent asks {question!r} (question {n}): pass its answer in answers=[…]"

    def _do_calls(self, wait: dict[str, Any]) -> None:
        """End the called tasks that the wait is for: all, or the first one."""
        keys = [k for k in wait["tasks"] if "endedAt" not in self.task.steps[k]]
        for key in keys[:1] if wait.get("mode") == "any" else keys:
            call = self.task.calls[key]
            if call["agent"] not in self.called:
                name = call["agent"]
                raise Stuck(f"the agent calls {name!r}: pass calls={{{name!r}: …}} with its answer")
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
    """Give an agent's function a task, and return the outcome.

    ``answers`` are the client's answers to questions, in order, or a function of the question. An
    answer is a str, a Message, or data. ``signals`` are the values of signals, by name. ``calls``
    are the answers of other agents, by name: a str, data, or a function of the text that they get.
    The waits of the library take no time: the fake clock advances. Others do, such as
    ``asyncio.sleep`` or a request in a step. The agent gets at most ``max_attempts``
    attempts. With ``handler``, the function is one for ``Worker.handler``.

    It raises UsageError for a mistake in the agent, Stuck if the task cannot continue, and
    WrongAnswer for an answer that the server would refuse. It runs an event loop, so do not call it
    inside one.
    """
    __tracebackhide__ = True
    return _once(agent, message, answers, signals, calls, max_attempts, handler, _Crashes())


def _once(*args: Any) -> Result:
    __tracebackhide__ = True  # pytest then shows the line of the test, not of this library
    try:
        return asyncio.run(_run(*args))
    except Error as err:
        raise err.with_traceback(None)  # noqa: B904 (it is the same error)


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
    check_function("test", function)
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
    """Check that a crash at any request to the server does not change the outcome.

    It runs the agent once without a crash, and returns that result. It also runs the agent twice
    for each request: with a crash before the server has stored it, and after. It raises Difference
    if the state, the last message, the artifacts, the usage or the keys of the steps differ. The
    order of the steps counts within each branch of ``gather``, not between branches. ``compare``
    returns what to compare instead. The other arguments and errors are those of ``run``.
    """
    __tracebackhide__ = True
    look = compare or outcome

    def once(crashes: _Crashes) -> Result:
        __tracebackhide__ = True
        return _once(agent, message, answers, signals, calls, 5, handler, crashes)

    first = _Crashes()
    expected = once(first)
    for at, stored in itertools.product(range(1, first.requests + 1), (False, True)):
        crashes = _Crashes(at, stored)
        got = once(crashes)
        if look(got) != look(expected):
            when = "after" if stored else "before"
            raise Difference(
                f"a crash {when} the server stored request {at} changed the outcome.\n"
                f"The request: {crashes.what}\n{difference(look(expected), look(got))}\n{_CAUSE}"
            )
    return expected


_CAUSE = """Likely cause: code outside steps ran again and did something else than before.
Read the time, random numbers, files and other services inside a step."""

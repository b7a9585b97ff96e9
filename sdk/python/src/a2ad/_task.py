"""What an agent does with its task."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any, TypeVar, overload

from . import _artifact, _check, _schema, _scope, _step, _values, _wait, _wire
from ._artifact import ArtifactWriter, Caller
from ._check import Duration
from ._errors import UsageError, caller
from ._session import Session
from ._wait import CallResult
from ._wire import Message, Part

T = TypeVar("T")

Work = Coroutine[Any, Any, T]
"""What a method returns: await it, or give it to ``gather``."""


class Task:
    """A task, in one attempt of an agent at it.

    Its methods record what they do. When the agent runs again, after a crash or a wait, they return
    what is recorded and do nothing twice. Call them in the same order each time. They belong to the
    event loop of the agent.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._caller = Caller(session)
        run = session.run
        self.id = run.task_id
        self.context_id = run.context_id
        self.context_key = run.context_key
        """Unique for tenant, owner and context. Use it, not ``context_id``, as a key."""
        self.agent = run.agent
        self.tenant = run.tenant
        self.owner = run.owner
        self.attempt = run.attempt
        self.deadline = run.deadline
        """When the turn must have ended, in UTC, or None."""
        self.messages = run.messages
        """The messages of this turn, oldest first."""
        self.history = run.history
        self.artifacts = run.artifacts
        """The artifacts of the task when this attempt began."""
        self.saved: Any = run.checkpoint
        """The last value of ``checkpoint``, or None."""
        self.traceparent = run.traceparent
        """The trace of the client, for services that the agent calls."""

    @property
    def message(self) -> Message:
        """The first message of this turn."""
        return self.messages[0]

    @property
    def cancelled(self) -> bool:
        """Whether the task was canceled. Every call of a method then ends the agent's function."""
        return self._session.canceled

    def idempotency_key(self, name: str) -> str:
        """Return a key that is the same in every attempt, for the API that a step calls."""
        with _placed():
            _check.name(name, "the name")
        return f"{self.id}:{name}"

    # Work

    @overload
    def step(
        self,
        name: str,
        fn: Callable[..., Awaitable[T]],
        *args: Any,
        retries: int = ...,
        backoff: Duration = ...,
        timeout: Duration | None = ...,
        returns: type[T] | None = ...,
        **kwargs: Any,
    ) -> Work[T]: ...

    @overload
    def step(
        self,
        name: str,
        fn: Callable[..., T],
        *args: Any,
        retries: int = ...,
        backoff: Duration = ...,
        timeout: Duration | None = ...,
        returns: type[T] | None = ...,
        **kwargs: Any,
    ) -> Work[T]: ...

    def step(
        self,
        name: str,
        fn: Callable[..., Any],
        *args: Any,
        retries: int = 0,
        backoff: Duration = 1.0,
        timeout: Duration | None = None,
        returns: Any = None,
        **kwargs: Any,
    ) -> Work[Any]:
        """Call ``fn(*args, **kwargs)`` and record what it returns.

        When the agent runs again, it gets the recorded value and ``fn`` is not called. A function
        that is not async runs in a thread. The value must have a form in JSON. If ``fn`` is
        annotated with a Pydantic model or a dataclass, or ``returns`` is one, the value comes back
        as that.

        If ``fn`` raises an exception, ``step`` raises StepError. With ``retries``, ``fn`` is called
        again that many times first, after ``backoff``, twice that, and so on. If the agent catches
        the StepError, the failure is recorded. Otherwise the attempt fails, and the next one
        does the step again, unless its retries were used up.
        """
        how = (retries, backoff, timeout, returns)
        return self._caller.start(_do_step, name, fn, args, kwargs, how)

    # Output

    def write(self, text: str) -> Work[None]:
        """Append text to the artifact ``answer``. The client sees it at once.

        What is written between two other calls is recorded as one piece. If the agent dies in the
        middle, the client's copy is set back before the text comes again.
        """
        return self._caller.start(_artifact.write, "answer", "", text)

    def artifact(self, name: str, *, id: str = "") -> ArtifactWriter:
        """Return a writer for an artifact. Its id is its name, unless ``id`` is set."""
        with _placed():
            _check.name(name, "the name of an artifact")
            if id != "":
                _check.name(id, "the id of an artifact")
        return ArtifactWriter(self._caller, id or name, name)

    def status(self, text: str) -> Work[None]:
        """Tell the client what the agent is doing."""
        return self._caller.start(_status, text)

    def checkpoint(self, value: Any) -> Work[None]:
        """Save a value, which the next attempt or turn finds in ``saved``."""
        return self._caller.start(self._checkpoint, value)

    async def _checkpoint(self, session: Session, value: Any) -> None:
        _scope.outside_steps(session, "checkpoint")
        text, saved = _values.plain(value, "the checkpoint")
        session.add_raw(f'{{"checkpoint":{text}}}')
        await session.flush()
        self.saved = saved

    def usage(
        self,
        *,
        model: str = "",
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        cached_input_tokens: int | None = None,
        reasoning_tokens: int | None = None,
        requests: int | None = None,
    ) -> Work[None]:
        """Report what a model has used. The server sums it by task and model.

        Inside a step it is sent together with the record of the step, so it counts once.
        """
        counts = {
            "inputTokens": input_tokens,
            "outputTokens": output_tokens,
            "cachedInputTokens": cached_input_tokens,
            "reasoningTokens": reasoning_tokens,
            "requests": requests,
        }
        return self._caller.start(_artifact.usage, model, counts)

    # Waiting

    def sleep(self, duration: Duration) -> Work[None]:
        """Wait. The task needs no worker meanwhile, so days cost nothing."""
        return self._caller.start(_sleep, duration)

    def sleep_until(self, at: datetime) -> Work[None]:
        """Wait until a time. A time without a zone is one of this process's zone."""
        return self._caller.start(_sleep_until, at)

    def signal(self, name: str, *, timeout: Duration | None = None) -> Work[Any]:
        """Wait for a signal, and return its value. Raise Timeout if it does not come in time."""
        return self._caller.start(_wait.signal, name, timeout)

    @overload
    def ask(
        self, question: str, *, choices: Sequence[str] | None = ..., timeout: Duration | None = ...
    ) -> Work[str]: ...

    @overload
    def ask(
        self, question: str, *, schema: dict[str, Any], timeout: Duration | None = ...
    ) -> Work[Any]: ...

    @overload
    def ask(
        self, question: str, *, returns: type[T], timeout: Duration | None = ...
    ) -> Work[T]: ...

    def ask(
        self,
        question: str,
        *,
        choices: Sequence[str] | None = None,
        schema: dict[str, Any] | None = None,
        returns: Any = None,
        timeout: Duration | None = None,
    ) -> Work[Any]:
        """Ask the client, and return its answer. Days may pass; no slot is held.

        The answer is a text, or one of the ``choices``. With ``schema``, a JSON Schema, it is a
        value that fits it; with ``returns``, a Pydantic model, an object of that. The server
        refuses answers that do not fit. Raise Timeout if no answer comes in time.
        """
        return self._caller.start(_ask, question, choices, schema, returns, timeout)

    def auth_required(self, text: str, *, timeout: Duration | None = None) -> Work[Message]:
        """Ask the client to sign in somewhere, and return its next message."""
        return self._caller.start(_wait.question, "TASK_STATE_AUTH_REQUIRED", text, None, timeout)

    def call(
        self, agent: str, message: str | Message | Sequence[Part], *, abandon: bool = False
    ) -> Work[CallResult]:
        """Give a task to another agent, and wait until it has ended.

        Raise CallError if it did not complete. If this task ends first, the other one is canceled,
        unless ``abandon`` is set.
        """
        return self._caller.start(_wait.call, agent, message, abandon)

    def gather(self, *work: Coroutine[Any, Any, Any]) -> Work[list[Any]]:
        """Do several things at once: steps and calls. Return their results in order.

        If one fails, the others are still done, and the first failure is raised.
        """
        return self._caller.start(_wait.gather, work)


class _placed:
    """Lets errors of a method that is not async name the line of its caller."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, err: BaseException | None, trace: object) -> None:
        if isinstance(err, UsageError):
            err.where = err.where or caller()


async def _do_step(
    session: Session,
    name: str,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    how: tuple[int, Duration, Duration | None, Any],
) -> Any:
    _check.function(fn, "the function of a step")
    _check.name(name, "the name of a step")
    retries, backoff, timeout, returns = how
    _scope.outside_steps(session, "step")
    options = _step.Options.read(retries, backoff, timeout)
    return await _step.run(session, name, fn, args, kwargs, options, returns)


async def _status(session: Session, text: str) -> None:
    _check.text(text, "the status")
    status = {"state": "TASK_STATE_WORKING", "message": {"parts": [{"text": text}]}}
    await _artifact.once(session, "status", "status", {"statusUpdate": {"status": status}})


async def _sleep(session: Session, duration: Duration) -> None:
    condition = {"for": _check.wait_seconds(duration, "duration")}
    await _wait.wait(session, _scope.key(session, "sleep"), condition)


async def _sleep_until(session: Session, at: datetime) -> None:
    condition = {"until": _scope.stamp(_check.moment(at, "the time"))}
    await _wait.wait(session, _scope.key(session, "sleep"), condition)


async def _ask(
    session: Session,
    question: str,
    choices: Sequence[str] | None,
    schema: dict[str, Any] | None,
    returns: Any,
    timeout: Duration | None,
) -> Any:
    if sum(x is not None for x in (choices, schema, returns)) > 1:
        raise UsageError("ask takes one of choices, schema and returns")
    if returns is not None:
        schema = _values.schema(returns)
    expects: dict[str, Any] | None = None
    if choices is not None:
        expects = {"choices": _check.choices(choices)}
    elif schema is not None:
        _schema.check(schema)
        expects = {"schema": schema}
    state = "TASK_STATE_INPUT_REQUIRED"
    answer = await _wait.question(session, state, question, expects, timeout)
    if schema is not None:
        return _values.restore(answer.data, returns)
    return answer.text.strip() if choices is not None else answer.text


def parts_of(value: Any) -> list[dict[str, Any]]:
    """Return what an agent's function returned as the parts of its last message."""
    if isinstance(value, Message):
        parts: Sequence[Part] = value.parts
    elif isinstance(value, Part):
        parts = [value]
    elif isinstance(value, str):
        parts = [Part(text=value)]
    elif isinstance(value, bytes):
        parts = [Part(raw=value)]
    elif isinstance(value, (list, tuple)) and value and all(isinstance(p, Part) for p in value):
        parts = value
    else:
        parts = [Part(data=value)]
    return _wire.encode_parts(parts)

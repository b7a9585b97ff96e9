"""The task that an agent works on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any, TypeVar, overload

from . import _artifact, _check, _schema, _scope, _step, _values, _wait, _wire
from ._artifact import ArtifactWriter
from ._call import Call, Caller, refuse_calls
from ._check import Duration
from ._errors import UsageError, caller
from ._mistakes import check_arguments, explained
from ._session import Session
from ._wait import CallResult
from ._wire import Message, Part

T = TypeVar("T")

Work = Coroutine[Any, Any, T]
"""What a method returns. Await it, or pass it to ``gather``."""


@explained
class Task:
    """A task, in one attempt of its agent.

    Methods record what they do. When the agent runs again, after a crash or a wait, they return
    what is recorded. Call them in the same order each time. Await each before the next call, in the
    agent's event loop; for concurrency use ``gather``.

    A method raises UsageError for a wrong argument, NondeterminismError if the record differs, and
    Stopped when the run ends.

    Attributes:

    ``id``, ``context_id``, ``agent``, ``tenant``, ``owner``
        name the task. ``context_key`` is unique for tenant, owner and context.
    ``messages``
        are the messages of this turn, oldest first.
    ``message_number``
        says which message of the client the function gets, from 1. Clients may reuse the id of a
        message, but each has its own number.
    ``request_metadata``
        has for each of ``messages`` the metadata of its request (``params.metadata``), or None.
    ``extensions``
        are the URIs of the extensions in the agent's file that the clients of ``messages``
        activated.
    ``history``
        are the messages of client and agent until this run, oldest first.
    ``artifacts``
        are the artifacts of the task when this attempt began.
    ``attempt``
        is 1, or more if earlier attempts at this turn have failed.
    ``deadline``
        is when the turn must end, as a datetime in UTC, or None.
    ``saved``
        is the last value that ``checkpoint`` saved, as read from JSON, or None.
    ``traceparent``
        is the trace context of the client, as a W3C ``traceparent``, or empty.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._caller = Caller(session)
        run = session.run
        self.id = run.task_id
        self.context_id = run.context_id
        self.context_key = run.context_key
        self.agent = run.agent
        self.tenant = run.tenant
        self.owner = run.owner
        self.attempt = run.attempt
        self.deadline = run.deadline
        self.messages = run.messages
        self.message_number = session.number
        self.request_metadata = run.request_metadata
        self.extensions = run.extensions
        self.history = run.history
        self.artifacts = run.artifacts
        self.saved: Any = run.checkpoint
        self.traceparent = run.traceparent

    @property
    def message(self) -> Message:
        """The first message of this turn."""
        return self.messages[0]

    @property
    def cancelled(self) -> bool:
        """Whether the task was canceled. The next method call then raises Stopped."""
        return self._session.canceled

    def idempotency_key(self, name: str) -> str:
        """Return an idempotency key for an API that a step calls.

        It is the same in every attempt. It differs by task and name, and by the message that the
        function gets. Each use needs a name of its own, such as one with the number of the pass of
        a loop: with the same name, the API takes the second use for a repetition of the first.
        """
        with _placed(self._caller):
            _check.name(name, "the name")
        return f"{self.id}:{self._session.turn}{name}"

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
        """Call ``fn(*args, **kwargs)``, record what it returns, and return that.

        When the agent runs again, ``step`` returns the recorded value without calling ``fn``. If
        the attempt ends before the value is recorded, ``fn`` is called again. The arguments must
        be the same each time; what does not convert to JSON is compared by the name of its type. A
        function that is not async runs in a thread.

        The value must convert to at most 1 MiB of JSON. It is returned as read from JSON, also in
        the attempt that calls ``fn``: tuples and sets become lists, keys become str, and a date, a
        time or an Enum becomes its text or value. It is returned as a Pydantic model or dataclass
        if ``returns`` or the annotation of ``fn`` names one. Other objects raise UsageError.

        If ``fn`` raises an exception or takes longer than ``timeout``, it is called again up to
        ``retries`` times (at most 1,000). The pause before that is ``backoff`` at first, and
        doubles each time up to an hour. Then ``step`` raises StepError. A timeout does not stop a
        function in a thread. If ``fn`` raises Retry, Fail or Reject, it is not called again, and
        ``step`` raises the same. In later attempts it raises one of these three, with the same
        reason: a class of your own and the ``after`` of Retry are not recorded.

        If the agent catches the error, or ``retries`` are used up, the failure is recorded.
        Otherwise the attempt fails, and the next one does the step again.

        A mistake that is found after ``fn`` was called fails the step for good, so that the work is
        not repeated: a result that cannot be recorded, or a wrong call of this library in ``fn``.
        """
        how = (retries, backoff, timeout, returns)
        return self._caller.start(_do_step, name, fn, args, kwargs, how)

    # Output

    def write(self, text: str) -> Work[None]:
        """Append text to the artifact ``answer``.

        The first text is sent at once, and later text every 50 ms. ``write`` waits only if the
        server is slower than the agent. What is written between two other calls is recorded
        together. If the agent dies before that, the artifact is restored and the text is sent
        again.
        """
        return self._caller.start(_artifact.write, "answer", "", text)

    def artifact(self, name: str, *, id: str = "") -> ArtifactWriter:
        """Return a writer for an artifact. The id defaults to the name."""
        with _placed(self._caller):
            _check.name(name, "the name of an artifact")
            if id != "":
                _check.name(id, "the id of an artifact")
        return ArtifactWriter(self._caller, id or name, name)

    def status(self, text: str) -> Work[None]:
        """Tell the client what the agent is doing."""
        return self._caller.start(_status, text)

    def checkpoint(self, value: Any) -> Work[None]:
        """Save a JSON value of at most 1 MiB. The next attempt or turn finds it in ``saved``."""
        return self._caller.start(self._checkpoint, value)

    async def _checkpoint(self, session: Session, value: Any) -> None:
        _scope.outside_steps(session, "checkpoint")
        _scope.outside_gather("checkpoint")
        text, saved = _values.plain(value, "the checkpoint")
        session.check()
        session.end_segments()
        session.add_raw(f'{{"checkpoint":{text}}}')
        await session.flush()
        self.saved = saved
        session.saved(saved)

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
        """Report what a model used. The server sums it by task and model.

        Recorded usage is not counted again when the agent runs again. Inside a step, it is recorded
        with the step. It also counts if the step fails.
        """
        counts = {
            "input_tokens": input_tokens,
            "output_tokens": output_tokens,
            "cached_input_tokens": cached_input_tokens,
            "reasoning_tokens": reasoning_tokens,
            "requests": requests,
        }
        return self._caller.start(_artifact.usage, model, counts)

    # Waiting

    def sleep(self, duration: Duration) -> Work[None]:
        """Wait, without holding a slot of the worker."""
        return self._caller.start(_sleep, duration)

    def sleep_until(self, at: datetime) -> Work[None]:
        """Wait until a time, from 1970 to 9998. One without a time zone is in the local zone."""
        return self._caller.start(_sleep_until, at)

    def signal(self, name: str, *, timeout: Duration | None = None) -> Work[Any]:
        """Wait for a signal, and return its JSON value. Raise Timeout if none comes in time."""
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
        """Ask the client, and return its answer. No slot is held meanwhile.

        Pass at most one of ``choices``, ``schema`` and ``returns``. By default the answer is a str.
        With ``choices``, it is one of these up to 100 texts. With ``schema``, a JSON Schema, it is
        a value that fits. With ``returns``, a Pydantic model or dataclass, it is an instance; both
        need Pydantic. The server refuses answers that do not fit. Raise Timeout if no answer comes
        in time.
        """
        return self._caller.start(_ask, question, choices, schema, returns, timeout)

    def auth_required(self, text: str, *, timeout: Duration | None = None) -> Work[Message]:
        """Ask the client to sign in somewhere, and return its next message.

        Raise Timeout if none comes in time.
        """
        return self._caller.start(_wait.question, "TASK_STATE_AUTH_REQUIRED", text, None, timeout)

    def call(
        self, agent: str, message: str | Message | Sequence[Part], *, abandon: bool = False
    ) -> Work[CallResult]:
        """Give a task to another agent, and wait until it ends. No slot is held meanwhile.

        Raise CallError if it does not complete. If this task ends first, the called task is
        canceled, unless ``abandon`` is set.
        """
        return self._caller.start(_wait.call, agent, message, abandon)

    def gather(self, *work: Coroutine[Any, Any, Any]) -> Work[list[Any]]:
        """Do several steps and calls at once: ``task.gather(task.step(…), task.call(…))``.

        Each argument is a branch: one of these, or a coroutine that makes several calls, one after
        another. A branch may also use ``status`` and ``usage``, and ``gather`` again. Two branches
        may not write the same artifact.

        Return the results in the order of the arguments. If some fail, the others still run to
        their end. Then the first failure, in that order, is raised.
        """
        for one in work:
            for call in one if isinstance(one, (list, tuple)) else (one,):
                if isinstance(call, Call):
                    call.handed_over()
        return self._caller.start(_wait.gather, work)


class _placed:
    """Adds the line of the caller to mistakes in a method that is not async, and remembers them."""

    def __init__(self, calls: Caller) -> None:
        self._calls = calls

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, err: BaseException | None, trace: object) -> None:
        if isinstance(err, UsageError):
            err.where = err.where or caller()
            self._calls.mistaken(err)


async def _do_step(
    session: Session,
    name: str,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    how: tuple[int, Duration, Duration | None, Any],
) -> Any:
    refuse_calls((fn, *args, *kwargs.values()))
    if callable(name):
        raise UsageError('the name of a step comes first: step("work", work, …)')
    _check.function(fn, "the function of a step")
    _check.name(name, "the name of a step")
    check_arguments(fn, args, kwargs)
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
    return _wire.said(answer) if choices is not None else answer.text


def parts_of(value: Any) -> list[dict[str, Any]]:
    """Return the result of an agent's function as the parts of its last message."""
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

"""Waits: questions, pauses, signals, and calls to other agents."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, cast

from . import _check, _scope, _values
from ._errors import CallError, Error, Stopped, Timeout, UsageError, no_exit
from ._session import Session, branch_prefix
from ._wire import Artifact, Message, Part, encode_parts, message


@dataclass(frozen=True)
class CallResult:
    """The result of a called agent."""

    task_id: str
    state: str
    """``completed``: for any other, the call raises CallError."""
    message: Message | None
    artifacts: tuple[Artifact, ...]
    """If the called task is larger than 16 KiB, these have ids but no parts."""

    @property
    def text(self) -> str:
        """The text of the last message or, if it has none, of the artifacts, one a line."""
        if self.message is not None and self.message.text:
            return self.message.text
        return "\n".join(a.text for a in self.artifacts if a.text)


async def wait(
    session: Session, key: str, condition: dict[str, Any], *, in_gather: bool = False
) -> dict[str, Any]:
    """Return the result of a wait that has ended. Otherwise begin it and raise Stopped."""
    _scope.outside_steps(session, "a wait")
    if not in_gather and _scope.current_branch().group is not None:
        raise UsageError("gather can contain steps and calls, but no other waits")
    asked = {member: v for member, v in condition.items() if member not in ("for", "until")}
    sent = _values.fingerprint(_values.compact(asked))  # a time may be computed anew each time
    old = session.recorded(key, "wait", "", _values.digest(sent))
    session.check()
    if old is not None and old.ended:
        session.close_segments()
        return cast("dict[str, Any]", old.result or {"by": "time"})
    session.check_open()
    session.add_raw(f'{{"wait":{_values.with_input({"key": key, **condition}, sent)}}}')
    await session.flush()
    stopped = Stopped("waiting", "the task waits")
    session.stop(stopped)
    raise stopped


async def signal(session: Session, name: str, timeout: Any) -> Any:
    _check.name(name, "the name of a signal")
    condition: dict[str, Any] = {"signal": name}
    if timeout is not None:
        condition["for"] = _check.wait_seconds(timeout, "timeout")
    result = await wait(session, _scope.key(session, f"signal:{name}"), condition)
    if result["by"] != "signal":
        raise Timeout(f"the signal {name!r} did not come in time")
    return result.get("value")


async def question(
    session: Session, state: str, text: str, expects: dict[str, Any] | None, timeout: Any
) -> Message:
    """Ask the client, and return the message with the answer."""
    _check.text(text, "the question")
    condition: dict[str, Any] = {
        "message": True,
        "status": {"state": state, "message": message([Part(text=text)])},
    }
    if expects is not None:
        condition["expects"] = expects
        _values.encode(expects, "the question")
    if timeout is not None:
        condition["for"] = _check.wait_seconds(timeout, "timeout")
    result = await wait(session, _scope.key(session, "ask"), condition)
    if result["by"] != "message":
        raise Timeout(f"no answer in time to: {text}")
    return _answer(session, result.get("messageId"))


def _answer(session: Session, id: Any) -> Message:
    """Return the message that answers a question: the next one with the id, which clients reuse."""
    messages = session.run.messages
    for i in range(session.answered + 1, len(messages)):
        if messages[i].id == id:
            session.answered = i
            return messages[i]
    raise Error(f"the run has no message {id!r}, which answered a question")


async def call(
    session: Session, agent: str, said: str | Message | Sequence[Part], abandon: bool
) -> CallResult:
    """Give a task to another agent, and wait until it has ended."""
    _check.agent(agent)
    _check.flag(abandon, "abandon")
    if isinstance(said, str):
        parts: Sequence[Any] = [Part(text=said)]
    else:
        parts = said.parts if isinstance(said, Message) else _check.sequence(said, "the message")
    content = _values.in_order({"parts": encode_parts(parts)})
    sent: dict[str, Any] = {"agent": agent, "message": content}
    if abandon:
        sent["onParentEnd"] = "abandon"
    _scope.outside_steps(session, "a call")
    key = _scope.key(session, f"call:{agent}")
    sha = _values.digest(_values.compact(content))
    old = session.recorded(key, "call", agent, sha)
    if old is None:
        session.add({"call": {"key": key, **sent}})
    if old is None or not old.ended:
        await begin(session, _scope.Wait([key]), f"{key}/wait")
        raise UsageError(f"the wait for the call {key!r} ended before the call")
    session.check()
    session.close_segments()
    return _call_result(agent, old.result)


async def gather(session: Session, work: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Do several things at once, and return their results in order."""
    prefix, group = "", _scope.Group()
    try:
        _scope.outside_steps(session, "gather")
        for i, one in enumerate(work):
            if not asyncio.iscoroutine(one):
                raise UsageError(
                    f"gather takes calls such as task.step(…), not {type(one).__name__} "
                    f"(argument {i + 1})"
                    + ("; write gather(*…)" if isinstance(one, (list, tuple)) else "")
                )
        prefix = _scope.key(session, "gather")
        session.release_held()
    except BaseException:
        for one in work:
            if asyncio.iscoroutine(one):
                one.close()
        raise

    async def run(i: int, one: Coroutine[Any, Any, Any]) -> Any:
        _scope.branch.set(_scope.Branch(f"{prefix}.{i + 1}/", group, i))
        branch_prefix.set(f"{prefix}.{i + 1}/")
        try:
            with no_exit():
                result = await one
            if session.stopped is None:
                session.check_ended("branch")
            return result
        finally:
            group.changed.set()

    tasks = [asyncio.ensure_future(run(i, one)) for i, one in enumerate(work)]
    try:
        wait = await _until_blocked(group, tasks)
        if wait is not None:
            key, n = wait.key or f"{prefix}/wait#1", 1
            while not wait.key and (old := session.known.get(key)) and old.ended:
                n += 1
                key = f"{prefix}/wait#{n}"
            await begin(session, wait, key, any_of=True)
        return [t.result() for t in tasks]
    finally:
        for t in tasks:
            t.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        _scope.end_gather(session, prefix)


async def _until_blocked(
    group: _scope.Group, tasks: Sequence[asyncio.Future[Any]]
) -> _scope.Wait | None:
    """Wait until each branch has ended or waits. Return what to wait for, or None if all ended."""
    while True:
        group.changed.clear()
        waiting = [i for i, t in enumerate(tasks) if not t.done()]
        for t in tasks:
            if t.done() and isinstance(t.exception(), Stopped):
                t.result()
        if all(i in group.blocked for i in waiting):
            group.ended = True
            waits = [group.blocked[i] for i in waiting]
            calls = sorted({key for w in waits for key in w.calls})
            until, key = min(((w.until, w.key) for w in waits if w.until), default=(None, ""))
            return _scope.Wait(calls, until, key) if waits else None
        await group.changed.wait()
        await asyncio.sleep(0)  # the branch is done only after its finally block


async def begin(session: Session, what: _scope.Wait, key: str, any_of: bool = False) -> None:
    """Let the task wait, or a branch of ``gather``."""
    branch = _scope.current_branch()
    if branch.group is not None:
        await branch.group.block(branch.number, what)
    condition: dict[str, Any] = {}
    if what.calls:
        condition["tasks"] = what.calls
        if any_of:
            condition["mode"] = "any"
    if what.until is not None:  # a duration, because the clocks of worker and server may differ
        seconds = (what.until - session.clock.now()).total_seconds()
        condition["for"] = _check.wait_seconds(max(seconds, 0.0), "the pause")
    await wait(session, key, condition, in_gather=True)


def _call_result(agent: str, v: dict[str, Any]) -> CallResult:
    last = v.get("message")
    result = CallResult(
        task_id=v.get("taskId", ""),
        state=str(v.get("state", "")).removeprefix("TASK_STATE_").lower().replace("_", "-"),
        message=Message.decode(last) if last else None,
        artifacts=tuple(Artifact.decode(a) for a in v.get("artifacts") or ()),
    )
    if result.state != "completed":
        raise CallError(agent, result.state, result.text)
    return result

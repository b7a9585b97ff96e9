"""Waits: questions, pauses, signals, and calls of other agents."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, cast

from . import _check, _scope, _values
from ._errors import CallError, Stopped, Timeout, UsageError
from ._session import Session, branch_prefix, message
from ._wire import Artifact, Message, Part, encode_parts


@dataclass(frozen=True)
class CallResult:
    """What a called agent has done."""

    task_id: str
    state: str
    """Such as ``completed``."""
    message: Message | None
    artifacts: tuple[Artifact, ...]
    """If they are larger than 16 KiB together, they have ids but no parts."""

    @property
    def text(self) -> str:
        """The text of the last message, or of the artifacts if that has none."""
        if self.message is not None and self.message.text:
            return self.message.text
        return "\n".join(a.text for a in self.artifacts if a.text)


async def wait(
    session: Session, key: str, condition: dict[str, Any], *, for_calls: bool = False
) -> dict[str, Any]:
    """Return the result of a wait that is over. Otherwise begin it, which ends the run."""
    _scope.outside_steps(session, "a wait")
    if not for_calls and _scope.current_branch().group is not None:
        raise UsageError("inside gather there can be steps and calls, but no other waits")
    old = session.recorded(key, "wait", "")
    session.check()
    if old is not None and old.ended:
        session.close_segments()
        return cast("dict[str, Any]", old.result or {"by": "time"})
    session.add({"wait": {"key": key, **condition}})
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
    """Ask the client, and return the message that answers."""
    _check.text(text, "the question")
    condition: dict[str, Any] = {
        "message": True,
        "status": {"state": state, "message": message([Part(text=text)])},
    }
    if expects is not None:
        condition["expects"] = expects
        _values.encode(condition, "the question")
    if timeout is not None:
        condition["for"] = _check.wait_seconds(timeout, "timeout")
    result = await wait(session, _scope.key(session, "ask"), condition)
    if result["by"] != "message":
        raise Timeout(f"no answer in time to: {text}")
    messages, answer = session.run.messages, result.get("messageId")
    return next((m for m in messages if m.id == answer), messages[-1])


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
    sent: dict[str, Any] = {"agent": agent, "message": {"parts": encode_parts(parts)}}
    if abandon:
        sent["onParentEnd"] = "abandon"
    _scope.outside_steps(session, "a call")
    key = _scope.key(session, f"call:{agent}")
    old = session.recorded(key, "call", agent)
    if old is None:
        session.add({"call": {"key": key, **sent}})
    if old is None or not old.ended:
        await _for_calls(session, [key], f"{key}/wait")
        raise UsageError(f"the wait for the call {key!r} is over, but the call is not")
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
                    f"(its argument {i + 1})"
                )
        prefix = _scope.key(session, "gather")
    except BaseException:
        for one in work:
            if asyncio.iscoroutine(one):
                one.close()
        raise

    async def run(i: int, one: Coroutine[Any, Any, Any]) -> Any:
        _scope.branch.set(_scope.Branch(f"{prefix}.{i + 1}/", group, i))
        branch_prefix.set(f"{prefix}.{i + 1}/")
        try:
            return await one
        finally:
            group.changed.set()

    tasks = [asyncio.ensure_future(run(i, one)) for i, one in enumerate(work)]
    try:
        calls = await _until_blocked(group, tasks)
        if calls:
            n = 1
            while (old := session.known.get(f"{prefix}/wait#{n}")) and old.ended:
                n += 1
            await _for_calls(session, calls, f"{prefix}/wait#{n}", any_of=True)
        return [t.result() for t in tasks]
    finally:
        for t in tasks:
            t.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _until_blocked(group: _scope.Group, tasks: Sequence[asyncio.Future[Any]]) -> list[str]:
    """Wait until each branch has ended or waits for calls. Return the keys of these calls."""
    while True:
        group.changed.clear()
        waiting = [i for i, t in enumerate(tasks) if not t.done()]
        for t in tasks:
            if t.done() and isinstance(t.exception(), Stopped):
                t.result()
        if all(i in group.blocked for i in waiting):
            return sorted({key for i in waiting for key in group.blocked[i]})
        await group.changed.wait()
        await asyncio.sleep(0)  # a task is done only after its last line


async def _for_calls(session: Session, calls: list[str], key: str, any_of: bool = False) -> None:
    branch = _scope.current_branch()
    if branch.group is not None:
        await branch.group.block(branch.number, calls)
    condition: dict[str, Any] = {"tasks": calls}
    if any_of:
        condition["mode"] = "any"
    await wait(session, key, condition, for_calls=True)


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

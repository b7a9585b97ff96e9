"""What the adapters of frameworks have in common."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from . import _scope
from ._task import Task

MODEL = "model"
"""The name of the steps that are model calls."""
ANSWER = "answer"
"""The artifact to which the text of models is written."""
APPROVALS = ("yes", "no")


def in_step(task: Task) -> bool:
    """Return whether a step of the task runs now. Then what is called is part of that step."""
    return _scope.current_step(task._session) is not None


@contextmanager
def refuse_calls(task: Task, name: str) -> Iterator[None]:
    """Make calls of the task fail in what is started here: its work is recorded as a whole."""
    whole = _scope.Step(task._session, "", name, "the text of its models")
    token = _scope.step.set(whole)
    try:
        yield
    finally:
        _scope.step.reset(token)


def tool_step(tool: str, call_id: str) -> str:
    """Return the name of the step that is a tool call.

    It contains the id that the model gave to the call. Tools of one answer run at once and in any
    order, so a number would give the record of one call to another.
    """
    name = f"{tool}:{call_id}"
    if len(name.encode()) > 200:
        name = f"{tool[:40]}:{hashlib.sha256(name.encode()).hexdigest()}"
    return name


def describe_call(tool: str, args: Any) -> str:
    """Return a tool call as a person reads it: ``delete(path="a")``."""
    if isinstance(args, str):
        try:
            args = json.loads(args or "{}")
        except ValueError:
            return f"{tool}({args})"
    if not isinstance(args, dict):
        return f"{tool}({json.dumps(args, ensure_ascii=False, default=str)})"
    values = (f"{k}={json.dumps(v, ensure_ascii=False, default=str)}" for k, v in args.items())
    return f"{tool}({', '.join(values)})"


async def approve(task: Task, question: str) -> bool:
    """Ask the client whether something may be done."""
    return await task.ask(question, choices=APPROVALS) == "yes"

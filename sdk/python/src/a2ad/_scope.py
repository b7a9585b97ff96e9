"""Where in the agent's code a call stands: in a step, or in a branch of ``gather``."""

from __future__ import annotations

import asyncio
import contextvars
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from . import _check
from ._errors import UsageError
from ._session import Session


@dataclass
class Step:
    """A step whose function runs now."""

    session: Session
    key: str
    name: str
    begun: str = ""
    """The artifact that it writes."""
    input: str | None = None
    usage: list[dict[str, Any]] = field(default_factory=list)
    """What its function reported, until the step is recorded."""


class Group:
    """Branches of ``gather``. When none of them can go on, the task waits for their calls."""

    def __init__(self) -> None:
        self.blocked: dict[int, list[str]] = {}
        self.changed = asyncio.Event()

    async def block(self, branch: int, calls: list[str]) -> None:
        self.blocked[branch] = calls
        self.changed.set()
        await asyncio.Event().wait()


@dataclass(frozen=True)
class Branch:
    prefix: str = ""
    group: Group | None = None
    number: int = 0


step: contextvars.ContextVar[Step | None] = contextvars.ContextVar("a2ad_step", default=None)
branch: contextvars.ContextVar[Branch | None] = contextvars.ContextVar("a2ad_branch", default=None)
_TOP = Branch()


def current_branch() -> Branch:
    return branch.get() or _TOP


def current_step(session: Session) -> Step | None:
    """Return the step of this task in whose function the code is, or None."""
    running = step.get()
    return running if running is not None and running.session is session else None


def outside_steps(session: Session, what: str) -> None:
    running = current_step(session)
    if running is not None:
        raise UsageError(f"{what} inside the step {running.name!r}: a step can only write")


def key(session: Session, name: str) -> str:
    """Return the key of the next use of a name here."""
    made = session.next_key(current_branch().prefix + name)
    if len(made.encode()) > _check.MAX_ID - 16:  # the key of a pause is longer
        raise UsageError(f"the name {name!r:.60} is too long inside so many branches of gather")
    return made


def stamp(at: datetime) -> str:
    return at.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"

"""Where a call is made: in a step, or in a branch of ``gather``."""

from __future__ import annotations

import asyncio
import contextvars
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from . import _check
from ._errors import Error, Stopped, UsageError
from ._session import Session


@dataclass
class Step:
    """A try of a step, whose function is running or was running."""

    session: Session
    key: str
    name: str
    begun: str = ""
    """The artifact that it writes."""
    input: str | None = None
    usage: list[dict[str, Any]] = field(default_factory=list)
    """What its function reported, until the step is recorded."""
    waiting: dict[int, Any] = field(default_factory=dict)
    """The calls of its function that nothing has awaited yet, by id."""
    mistake: Error | None = None
    """The first mistake of its function in a call of this library."""
    returned: bool = False
    ended: bool = False

    def again(self) -> Step:
        """Return the next try."""
        return Step(self.session, self.key, self.name, self.begun, self.input)

    def check(self) -> None:
        """Raise an error if it has ended: what its function writes now would not be recorded."""
        if self.returned:
            raise UsageError(
                f"the step {self.name!r} has ended: await what it starts before it returns"
            )
        if self.ended:  # and failed, so it is no mistake that something of it still runs
            raise Stopped("ended", f"this try of the step {self.name!r} has ended")


@dataclass(frozen=True)
class Wait:
    """What a branch of ``gather`` waits for: one of its calls, or the next try of a step."""

    calls: list[str]
    until: datetime | None = None
    key: str = ""
    """The key of a wait that ends at that time."""


class Group:
    """Branches of ``gather``. When none of them can continue, the task waits for all of them."""

    def __init__(self) -> None:
        self.blocked: dict[int, Wait] = {}
        self.changed = asyncio.Event()
        self.ended = False
        """Whether the task begins to wait, so that no branch may continue."""

    async def block(self, branch: int, wait: Wait, seconds: float | None = None) -> None:
        """Wait until the run ends. Return after ``seconds`` if other branches still work then."""
        self.blocked[branch] = wait
        self.changed.set()
        if seconds is not None:
            await asyncio.sleep(seconds)
            if not self.ended:
                del self.blocked[branch]
                return
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
    """Return the running step of this task that makes the call, or None."""
    running = step.get()
    return running if running is not None and running.session is session else None


def outside_steps(session: Session, what: str) -> None:
    running = current_step(session)
    if running is not None:
        raise UsageError(
            f"{what} inside the step {running.name!r}: a step can only write and report usage"
        )


def outside_gather(what: str) -> None:
    """Refuse output for which the order of branches matters: it may differ in the next attempt."""
    if current_branch().group is not None:
        raise UsageError(
            f"{what} inside gather: it can contain steps, calls, statuses and usage. "
            "Write text in a step, and anything else after gather"
        )


def stream(session: Session, artifact: str) -> None:
    """Note that a step of this branch writes an artifact. Refuse one that another branch writes.

    If a step begins again, the server restores its artifact, and removes all later text.
    """
    here = current_branch().prefix
    other = session.streams.get(artifact, "")
    if not (here.startswith(other) or other.startswith(here)):
        raise UsageError(
            f"another branch of gather writes the artifact {artifact!r}: give each its own"
        )
    session.streams[artifact] = here


def end_gather(session: Session, prefix: str) -> None:
    """From now on, this branch may write the artifacts that the branches of a gather wrote."""
    for artifact, writer in session.streams.items():
        if writer.startswith(f"{prefix}."):
            session.streams[artifact] = current_branch().prefix


def key(session: Session, name: str) -> str:
    """Return the key of the next use of a name here."""
    outside_steps(session, "a wait")  # before it is counted; others have checked this
    here = branch.get()
    made = session.next_key((session.scope if here is None else here.prefix) + name)
    if len(made.encode()) > _check.MAX_ID - 16:  # the key of a pause is longer
        raise UsageError(f"the name {name!r:.60} is too long at this depth of nested gathers")
    return made


def stamp(at: datetime) -> str:
    return at.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"

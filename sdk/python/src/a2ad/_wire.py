"""The JSON of the worker API: runs, messages and artifacts."""

from __future__ import annotations

import base64
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from . import _check, _values
from ._errors import UsageError

MAX_RAW = 768 << 10
"""Bytes of a file in a part. In base64, it has 1 MiB, as a part may have."""
MAX_PARTS_BYTES = 3 << 20
"""Bytes of the parts of one message or artifact. A request has at most 4 MiB."""


@dataclass(frozen=True)
class Part:
    """One part of a message or an artifact.

    It has one of ``text``, ``data`` (a JSON value; None if no other is set), ``raw`` (the bytes of
    a file) and ``url`` (of a file).
    """

    text: str | None = None
    data: Any = None
    raw: bytes | None = None
    url: str | None = None
    media_type: str = ""
    filename: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)

    @staticmethod
    def decode(v: dict[str, Any]) -> Part:
        raw = v.get("raw")
        return Part(
            text=v.get("text"),
            data=v.get("data"),
            raw=None if raw is None else base64.b64decode(raw),
            url=v.get("url"),
            media_type=v.get("mediaType", ""),
            filename=v.get("filename", ""),
            metadata=v.get("metadata") or {},
        )

    def encode(self) -> dict[str, Any]:
        """Return the part as A2A 1.0 has it in JSON."""
        v: dict[str, Any] = {}
        if self.text is not None:
            v["text"] = self.text
        elif self.raw is not None:
            v["raw"] = base64.b64encode(self.raw).decode()
        elif self.url is not None:
            v["url"] = self.url
        else:
            v["data"] = self.data
        if self.media_type:
            v["mediaType"] = self.media_type
        if self.filename:
            v["filename"] = self.filename
        if self.metadata:
            v["metadata"] = self.metadata
        return v


@dataclass(frozen=True)
class Message:
    """A message of the client or of an agent. If your agent sends one, only its parts count."""

    id: str
    role: str
    """``user`` or ``agent``."""
    parts: tuple[Part, ...]
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The text parts, one a line."""
        return "\n".join(p.text for p in self.parts if p.text is not None)

    @property
    def data(self) -> Any:
        """The value of the first data part, or None."""
        return next((p.data for p in self.parts if p.data is not None), None)

    @staticmethod
    def decode(v: dict[str, Any]) -> Message:
        return Message(
            id=v.get("messageId", ""),
            role="agent" if v.get("role") == "ROLE_AGENT" else "user",
            parts=tuple(Part.decode(p) for p in v.get("parts", ())),
            metadata=v.get("metadata") or {},
        )


def said(answer: Message) -> str:
    """Return the text of an answer, as the server compares it with the choices of a question."""
    return " ".join(p.text for p in answer.parts if p.text is not None).strip()


@dataclass(frozen=True)
class Artifact:
    """An artifact of a task."""

    id: str
    name: str
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """The text parts, joined without a separator: they are chunks of a stream."""
        return "".join(p.text for p in self.parts if p.text is not None)

    @staticmethod
    def decode(v: dict[str, Any]) -> Artifact:
        return Artifact(
            id=v.get("artifactId", ""),
            name=v.get("name", ""),
            parts=tuple(Part.decode(p) for p in v.get("parts", ())),
        )


@dataclass(frozen=True)
class Recorded:
    """A recorded step."""

    key: str
    kind: str
    name: str
    """The name of the step or, for a call, of the agent."""
    input_sha: str
    artifact: str
    result: Any
    error: Any
    attempts: int
    ended: bool
    next_at: str

    @property
    def by(self) -> str:
        """What has ended a wait, such as ``time``, or empty."""
        return str(self.result.get("by", "")) if isinstance(self.result, dict) else ""

    @staticmethod
    def decode(v: dict[str, Any]) -> Recorded:
        return Recorded(
            key=v["key"],
            kind=v["kind"],
            name=v.get("agent") or v.get("name", ""),
            input_sha=v.get("inputSha", ""),
            artifact=v.get("artifact", ""),
            result=v.get("result"),
            error=v.get("error"),
            attempts=v.get("attempts", 1),
            ended="endedAt" in v,
            next_at=v.get("nextAt", ""),
        )


@dataclass
class Run:
    """One run: what a claim returns for a task."""

    task_id: str
    context_id: str
    context_key: str
    tenant: str
    owner: str
    agent: str
    epoch: int
    attempt: int
    deadline: datetime | None
    messages: tuple[Message, ...]
    history: tuple[Message, ...]
    artifacts: tuple[Artifact, ...]
    request_metadata: tuple[Any, ...]
    extensions: tuple[str, ...]
    checkpoint: Any
    steps: list[Recorded]
    step_count: int
    traceparent: str
    lease_seconds: float
    renewed: float = field(default_factory=time.monotonic)
    """When the claim was answered, or when the request that last renewed the lease was sent."""

    def number(self, index: int) -> int:
        """Return which message of the client ``messages[index]`` is in the task, from 1.

        Clients reuse ids. The history ends with the messages of the run.
        """
        said = sum(m.role == "user" for m in self.history)
        before = max(said - len(self.messages), 0)
        return before + index % len(self.messages) + 1

    @staticmethod
    def decode(v: dict[str, Any]) -> Run:
        task = v.get("task") or {}
        deadline = v.get("deadline")
        return Run(
            task_id=v["taskId"],
            context_id=v.get("contextId", ""),
            context_key=v.get("contextKey", ""),
            tenant=v.get("tenant", ""),
            owner=v.get("owner", ""),
            agent=v.get("agent", ""),
            epoch=v["epoch"],
            attempt=v.get("attempt", 1),
            deadline=parse_time(deadline) if deadline else None,
            messages=tuple(Message.decode(m) for m in v.get("messages", ())),
            history=tuple(Message.decode(m) for m in task.get("history", ())),
            artifacts=tuple(Artifact.decode(a) for a in task.get("artifacts", ())),
            request_metadata=tuple(v.get("requestMetadata", (None,) * len(v.get("messages", ())))),
            extensions=tuple(v.get("extensions", ())),
            checkpoint=v.get("checkpoint"),
            steps=[Recorded.decode(s) for s in v.get("steps", ())],
            step_count=v.get("stepCount", 0),
            traceparent=v.get("traceparent", ""),
            lease_seconds=float(v.get("leaseSeconds", 30)),
        )


def message(parts: Sequence[Part]) -> dict[str, Any]:
    """Return an agent's message on the wire."""
    return {"parts": [p.encode() for p in parts]}


def encode_parts(parts: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the JSON of the parts of a message or an artifact, or raise UsageError."""
    if not 1 <= len(parts) <= _check.MAX_PARTS:
        raise UsageError(f"a message must have 1 to {_check.MAX_PARTS} parts, not {len(parts)}")
    size, encoded = 0, []
    for i, part in enumerate(parts):
        if not isinstance(part, Part):
            raise UsageError(f"part {i + 1} must be a Part, not {type(part).__name__}")
        _check_part(part, f"part {i + 1}")
        text, value = _values.plain(part.encode(), f"part {i + 1}", most=MAX_PARTS_BYTES)
        _check_size(value, f"part {i + 1}")
        size += len(text.encode())
        encoded.append(value)
    if size > MAX_PARTS_BYTES:
        raise UsageError(f"the parts have {size} bytes; at most {MAX_PARTS_BYTES} can be sent")
    return encoded


def _check_size(part: dict[str, Any], what: str) -> None:
    """Check the size of a part as the server counts it: its content, and the JSON of metadata."""
    kind = next(k for k in ("text", "raw", "url", "data") if k in part)
    texts = [part[kind] if kind != "data" else _values.compact(part[kind])]
    if "metadata" in part:
        texts.append(_values.compact(part["metadata"]))
    size = sum(len(t.encode()) for t in texts)
    if size > _check.MAX_TEXT:
        raise UsageError(f"{what} has {size} bytes; at most {_check.MAX_TEXT} can be sent")


def _check_part(part: Part, what: str) -> None:
    contents = [part.text, part.raw, part.url]
    if sum(c is not None for c in contents) + (part.data is not None) > 1:
        raise UsageError(f"{what} must have only one of text, data, raw and url")
    if part.raw is not None:
        if not isinstance(part.raw, (bytes, bytearray, memoryview)):
            raise UsageError(f"{what}: a file must be bytes, not {type(part.raw).__name__}")
        if len(part.raw) > MAX_RAW:
            raise UsageError(
                f"{what}: the file has {len(part.raw)} bytes; at most {MAX_RAW} can be sent. "
                "Store it elsewhere and send a link"
            )
    for text, name in ((part.text, "the text"), (part.url, "the url")):
        if text is not None:
            _check.text(text, f"{what}: {name}")
    _check.text(part.media_type, f"{what}: the media type", most=_check.MAX_ID)
    _check.text(part.filename, f"{what}: the filename", most=4096)
    if not isinstance(part.metadata, dict):
        raise UsageError(f"{what}: metadata must be a dict, not {type(part.metadata).__name__}")


def parse_time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))

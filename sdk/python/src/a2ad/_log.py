"""Log output of a worker whose program does not configure logging."""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import datetime, timezone
from typing import Any

from ._errors import UsageError

KEYS = ("task_id", "agent", "epoch", "attempt", "outcome", "seconds")
"""The attributes that log records of this library may have."""


def configure() -> None:
    """Write the library's records to stderr, unless the program has its own handlers.

    A2AD_LOG_FORMAT is ``text`` or ``json``. A2AD_LOG_LEVEL is a level such as ``debug``.
    """
    log = logging.getLogger("a2ad")
    if log.hasHandlers():
        return
    handler = logging.StreamHandler(sys.stderr)
    form = os.environ.get("A2AD_LOG_FORMAT", "text")
    if form not in ("text", "json"):
        raise UsageError(f"A2AD_LOG_FORMAT must be text or json, not {form!r}")
    handler.setFormatter(JSON() if form == "json" else Text())
    level = os.environ.get("A2AD_LOG_LEVEL", "info")
    if level.upper() not in ("DEBUG", "INFO", "WARN", "WARNING", "ERROR"):
        raise UsageError(f"A2AD_LOG_LEVEL must be debug, info, warn or error, not {level!r}")
    log.addHandler(handler)
    log.setLevel(level.upper())


def _time(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, timezone.utc)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _attributes(record: logging.LogRecord) -> dict[str, Any]:
    return {k: getattr(record, k) for k in KEYS if hasattr(record, k)}


class Text(logging.Formatter):
    """One line: time, level, message, then key=value."""

    def format(self, record: logging.LogRecord) -> str:
        attributes = "".join(f" {k}={v}" for k, v in _attributes(record).items())
        line = f"{_time(record)} {record.levelname} {record.getMessage()}{attributes}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JSON(logging.Formatter):
    """One JSON object: time, level, msg, and the attributes."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname,
            "msg": record.getMessage(),
            **_attributes(record),
        }
        if record.exc_info:
            line["err"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)

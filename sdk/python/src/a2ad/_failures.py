"""Errors of the agent's code in the log: where they were raised, without the library's frames."""

from __future__ import annotations

import logging
import os
import traceback
from typing import Any

from ._errors import PACKAGE, RUNNERS, Error
from ._wire import Run

STANDARD = os.path.dirname(os.__file__) + os.sep
log = logging.getLogger("a2ad")


def fields(run: Run) -> dict[str, Any]:
    """Return the attributes of log records about a run."""
    return {
        "task_id": run.task_id,
        "agent": run.agent,
        "epoch": run.epoch,
        "attempt": run.attempt,
    }


def in_package(file: str) -> bool:
    """Return whether a file is one of an installed package, other than this library."""
    return f"-packages{os.sep}" in file and not file.startswith(PACKAGE)


def in_program(file: str) -> bool:
    """Return whether a file is part of the program: not of Python, nor of a package."""
    return not (file.startswith((PACKAGE, STANDARD, "<frozen")) or in_package(file))


def place(err: BaseException) -> str:
    """Return FILE:LINE of the innermost frame of the agent's code, or an empty text.

    If all frames are those of installed packages, it is the innermost one that is not ours.
    """
    found = [f for f in traceback.extract_tb(err.__traceback__) if not _ours(f.filename)]
    own = [f for f in found if in_program(f.filename)]
    return "{0.filename}:{0.lineno}".format((own or found)[-1]) if found else ""


def log_failure(level: int, what: str, err: BaseException, run: Run) -> None:
    """Log an error of the agent's code. The traceback begins in that code."""
    text = str(err) if isinstance(err, Error) else f"{type(err).__name__}: {err}".rstrip(": ")
    at = place(err)
    trace = err.__traceback__
    while trace is not None and _ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    log.log(
        *(level, "%s: %s%s", what, text, at and f" ({at})"),
        exc_info=(type(err), err, trace) if trace is not None else None,
        extra=fields(run),
    )


def log_mistake(err: Error, run: Run, where: str = "") -> None:
    """Log a mistake of the agent's code in one line. Its traceback is for debugging."""
    err.where = err.where or place(err) or where
    trace = err if log.isEnabledFor(logging.DEBUG) else None
    log.error("mistake in the program: %s", err, exc_info=trace, extra=fields(run))


def _ours(file: str) -> bool:
    return file.startswith((PACKAGE, *RUNNERS))

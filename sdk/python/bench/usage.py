"""The CPU time of processes, from /proc."""

from __future__ import annotations

import os
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")


def process(pid: int) -> float:
    """Return the CPU seconds of a process, without its children."""
    return sum(_ticks(pid)[:2]) / TICK


def tree(pid: int) -> float:
    """Return the CPU seconds of a process, its children, and its children that have ended."""
    total = sum(_ticks(pid))
    for other in Path("/proc").glob("[0-9]*"):
        try:
            if _parent(int(other.name)) == pid:
                total += sum(_ticks(int(other.name)))
        except OSError:  # it has just ended
            pass
    return total / TICK


def _fields(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _parent(pid: int) -> int:
    return int(_fields(pid)[1])


def _ticks(pid: int) -> list[int]:
    return [int(f) for f in _fields(pid)[11:15]]

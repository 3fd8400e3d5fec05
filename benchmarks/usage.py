"""Read what this process, its Java and Spark's executors have used of the processors, from Linux's /proc."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")
_EXECUTOR = b"CoarseGrainedExecutorBackend"


@dataclass(frozen=True, kw_only=True)
class Usage:
    """CPU seconds of this Python process, of the driver's Java, and of executors that are processes of their own."""

    python: float
    java: float
    executors: float

    def __sub__(self, before: Usage) -> Usage:
        return Usage(
            python=self.python - before.python,
            java=self.java - before.java,
            executors=self.executors - before.executors,
        )


def read_usage() -> Usage:
    """Sum up the processes that descend from this one."""
    parents, seconds = {}, {}
    for path in Path("/proc").iterdir():
        if path.name.isdecimal() and (fields := _stat(path)):
            parents[int(path.name)] = int(fields[1])
            seconds[int(path.name)] = (int(fields[11]) + int(fields[12])) / _TICK
    java = executors = 0.0
    for pid, used in seconds.items():
        if os.getpid() not in _above(pid, parents):
            continue
        if _EXECUTOR in _command(pid):
            executors += used
        else:
            java += used
    return Usage(python=time.process_time(), java=java, executors=executors)


def _stat(path: Path) -> list[str]:
    """Return the fields behind a process's name; none when it has just ended."""
    try:
        return (path / "stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return []


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _above(pid: int, parents: dict[int, int]) -> set[int]:
    found: set[int] = set()
    while (pid := parents.get(pid, 0)) and pid not in found:
        found.add(pid)
    return found

"""The clock that workloads are timed by: the wall's, or on a machine with other work the CPU seconds of both sides."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_OF_CPU: list[bool] = []  # not empty: CPU seconds count


def count_cpu() -> None:
    """Go by CPU seconds from now on."""
    _OF_CPU.append(True)


def read() -> float:
    """Return seconds; only the difference of two means anything."""
    return cpu_seconds() if _OF_CPU else time.perf_counter()


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of all that it has started, such as Spark's Java (Linux)."""
    waiting, ticks = [os.getpid()], 0
    while waiting:
        process = Path(f"/proc/{waiting.pop()}")
        with contextlib.suppress(OSError):  # it has ended
            fields = (process / "stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))  # by itself and by its ended children
            for thread in (process / "task").iterdir():
                waiting += map(int, (thread / "children").read_text().split())
    return ticks / _TICKS

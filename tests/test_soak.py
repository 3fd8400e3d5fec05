"""A day of polls: publishers, consumers, kills, store faults and clocks that jump; nothing grows but what was published.

`make soak CYCLES=10000` lives through a day. There libfaketime gives Python and Java a clock that a file moves: each
cycle is its share of the day, and now and then the runner's clock is up to two hours off. What publishers and Delta
write has the time of the store, whose clock is right. Without that library nothing moves, as in `make thorough`.
"""

from __future__ import annotations

import gc
import importlib
import logging
import os
import re
import select
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import mirrorlib
from little import LITTLE
from soaking import CYCLES, Soak
from tables import newest_version
from test_store_failures import FaultyStore
from unsteady import CLOCK, Weather

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOAK = os.environ.get("MIRRORLIB_SOAK")
WINDOW = max(CYCLES // 20, 10)  # cycles between two looks
# Spark's threads for parts of queries, which end when they have had nothing to do for a minute.
POOLS = re.compile(r"(shuffle|broadcast)-exchange|QueryStage|ResultQueryStage")


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What there is after some cycles; *poll* is the middle one of the cycles that found nothing, in ms."""

    cycle: int
    commits: int
    idle: int
    poll: float
    python: int
    objects: int
    heap: int
    files: int
    threads: int
    journal: int
    entries: int


def look(soak: Soak, cycle: int) -> Look:
    """Collect all garbage and see what is left; a poll that finds nothing leaves nothing in the journal."""
    before = journal_of(soak)
    if not soak.unsettled:
        mirrorlib.apply(soak.spark, soak.zone.root, soak.target)
        assert before == journal_of(soak)
    gc.collect()
    java = soak.spark._jvm.java.lang  # type: ignore[union-attr]
    for _ in range(2):  # what the first one frees in Python and Spark, their cleaners let go of
        java.System.gc()
        time.sleep(0.5)
    heap = java.management.ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed()
    processes = ("self", java.ProcessHandle.current().pid())
    running = java.Thread.getAllStackTraces().keySet()
    resident = Path("/proc/self/statm").read_text().split()[1]
    found = Look(
        cycle=cycle,
        commits=sum(newest_version(soak.target / one.writer.name) for one in soak.tables),
        idle=len(soak.polls),
        poll=round(statistics.median(soak.polls or [0]) * 1_000, 1),
        python=int(resident) * os.sysconf("SC_PAGE_SIZE") >> 10,
        objects=len(gc.get_objects()),
        heap=heap >> 10,
        files=sum(len([*Path(f"/proc/{one}/fd").iterdir()]) for one in processes),
        threads=threading.active_count() + sum(not POOLS.match(one.getName()) for one in running),
        journal=sum(journal_of(soak).values()) >> 10,
        entries=len(journal_of(soak)),
    )
    soak.polls.clear()
    return found


def show(looks: list[Look]) -> None:
    """Print the last look, below the names of what it has."""
    if len(looks) == 1:
        print("\n" + " ".join(f"{name:>8}" for name in Look.__slots__))  # noqa: T201  # what `make soak` shows
    line = " ".join(f"{getattr(looks[-1], name):>8}" for name in Look.__slots__)
    print(line, flush=True)  # noqa: T201  # the same


def journal_of(soak: Soak) -> dict[str, int]:
    """Give the size of each file of the journal, but for what died writers have left."""
    paths = (soak.target / "_mirrorlib" / "journal").rglob("*.json")
    return {str(path): path.stat().st_size for path in paths if path.name != "status.json"}


def grown(looks: list[Look], name: str) -> float:
    """Say how much something has grown from the first look to the last, by the line through all."""
    cycles, values = [one.cycle for one in looks], [getattr(one, name) for one in looks]
    return statistics.linear_regression(cycles, values).slope * (cycles[-1] - cycles[0])


def assert_flat(looks: list[Look]) -> None:
    """See that a day leaves nothing behind in memory or in processes, and in the journal no more than its batches."""
    settled = looks[len(looks) // 4 :]  # before, Java loads and compiles, and caches fill
    # A table that is kept for each commit, a session for each failure or 10 KB for each poll would be more.
    most = {"python": 64 << 10, "heap": 64 << 10, "objects": 40_000, "files": 20, "threads": 20}
    growth = {name: round(grown(settled, name)) for name in most}
    assert [] == [name for name, bound in most.items() if growth[name] > bound], growth
    # A plan and an outcome a batch, and the life and the void of one now and then.
    batches = looks[-1].commits - looks[0].commits
    assert looks[-1].entries - looks[0].entries <= 3 * batches + 20
    third = len(looks) // 3
    first, last = (
        statistics.median(one.poll for one in part) for part in (looks[:third], looks[-third:])
    )
    assert last <= 2 * first, (first, last)


@pytest.fixture
def weather(monkeypatch: pytest.MonkeyPatch) -> Iterator[Weather]:
    """Put the failing store wherever the package opens one."""
    # One line for each poll that meets a broken file, which pytest would keep until the end of the day.
    said = logging.getLogger("mirrorlib")
    said.setLevel(logging.CRITICAL)
    for name in ("delta", "files", "zone"):
        importlib.import_module(f"mirrorlib.delivery.sinks.{name}.sink")
    told = Weather()
    for name, module in list(sys.modules.items()):
        if name.startswith("mirrorlib.") and hasattr(module, "open_store"):
            monkeypatch.setattr(module, "open_store", lambda url: FaultyStore(Path(url), told))
    yield told
    said.setLevel(logging.NOTSET)


@pytest.fixture
def session(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """Give the session of all tests; where clocks jump, one that takes no jump for a lost executor."""
    if not CLOCK:
        yield request.getfixturevalue("spark")
        return
    # libfaketime 0.9.10 cannot sleep as Python does. For good: Py4J's own thread outlives the test.
    time.sleep = lambda seconds: select.select([], [], [], seconds) and None
    started = mirrorlib.local_spark(
        cores=2, memory="1g", conf={**LITTLE, "spark.network.timeout": "10000000s"}
    )
    yield started
    started.stop()


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.timeout(0 if SOAK else 900)
def test_a_day_of_polls_leaves_tables_right_and_costs_flat(
    session: SparkSession, tmp_path: Path, weather: Weather
) -> None:
    """Whatever happens on the way, tables, feeds and receivers end right; a poll is as cheap as in the beginning."""
    soak, looks = Soak(session, tmp_path, weather), list[Look]()
    for number in range(1, CYCLES + 1):
        soak.cycle()
        if number % 4_000 == 50:
            soak.die_for_good()
        if number % WINDOW == 0:
            looks.append(look(soak, number))
            show(looks)
    print(soak.told)  # noqa: T201  # what `make soak` shows
    soak.settle()
    soak.check()
    if CYCLES >= 2_000:  # before that, Java is still warming up
        assert_flat(looks)

"""Simulate a day of 10,000 tables and 1 TB of changes, with the costs that `scaling.py` has measured. No Spark.

A runner goes round its tables: it looks at each, commits what has come in one batch, and pauses. What was not
measured is an attribute of `Day`, and printed.
"""

from __future__ import annotations

import heapq
import random
import statistics
from dataclasses import dataclass, field
from typing import Any

from scaling_fit import ROW_BYTES, SMALL_ROWS, SMALL_TABLE
from scaling_requests import Counts, total

_SECONDS = 86_400
_PAGE = 1_000  # names of one listing
_ONCE: Counts = {
    "zone": {"LIST": 1},
    "journal": {"LIST": 1, "GET": 1},
}  # asked once a run, and counted with its one table
_SAMPLE = 0.25  # of a day is simulated, once the first round is over
# A look at one of three tables that had nothing new, on a disk, while the machine had other work.
IDLE = {"what": "idle", "at_once": 1, "seconds": 0.0517, "python": 0.0049, "java": 0.0}


@dataclass(frozen=True, kw_only=True)
class Day:
    """What is assumed of the tables, their publishers, the store and its prices.

    Attributes:
        tables: how many.
        changed: bytes of change files a day; table number k has a share of them that is proportional to 1 / k.
        history: a table has so many times the rows that change in a day.
        newest: the share of a table's rows among which a batch looks for its keys; 1 where they lie anywhere.
        file_rows: rows of one file of a large table, of which a batch touches each that it looks through.
        every: seconds between two files of a table, all day.
        latency: seconds of one request to the store.

    """

    tables: int = 10_000
    changed: float = 1e12
    history: float = 30.0
    newest: float = 1.0
    file_rows: int = 4_000_000
    every: float = 60.0
    latency: float = 0.03


@dataclass(frozen=True, kw_only=True)
class Group:
    """Runners of one kind: how many, with how many cores each, for which tables, the largest being number 1."""

    first: int
    last: int
    runners: int
    cores: int
    at_once: int
    pause: float


@dataclass(kw_only=True)
class Spent:
    """What the runners of a group have done in a day."""

    commits: float = 0.0
    cpu: float = 0.0
    requests: float = 0.0
    writes: float = 0.0
    rounds: float = 0.0
    lags: list[float] = field(default_factory=list)


class Costs:
    """What was measured, as a runner needs it."""

    def __init__(self, known: dict[str, Any], master: str, day: Day) -> None:
        measured = known[master]
        runs = measured.get("runs") or [IDLE]
        self.day = day
        self.fits = measured["fits"]
        self.requests = known["requests"]
        self.row_bytes = statistics.median(
            one["size"] / one["rows"] for one in measured["batches"] if one["rows"] >= SMALL_ROWS
        )
        idle = [run for run in runs if run["what"] == "idle" and run["at_once"] == 1]
        self.look = idle[0]["python"] + idle[0]["java"]
        self.whole = sum(1 / number for number in range(1, day.tables + 1))

    def rows_a_day(self, number: int) -> float:
        """Return how many rows of a table change in a day."""
        return float(self.day.changed / self.row_bytes / self.whole / number)

    def small(self, number: int, rows: float) -> bool:
        """Say whether a batch is carried out as a small commit, which one core does."""
        in_table = self.rows_a_day(number) * self.day.history
        return rows <= SMALL_ROWS and in_table * ROW_BYTES <= SMALL_TABLE

    def batch(self, number: int, rows: float, what: str) -> float:
        """Foresee the CPU seconds of one batch."""
        in_table, small = self.rows_a_day(number) * self.day.history, self.small(number, rows)
        of = self.fits["small" if small else "large"][what]["of"]
        scanned = in_table * (1.0 if small else self.day.newest)
        touched = min(rows, max(1.0, scanned / self.day.file_rows))
        return float(
            of["batch"]
            + of["million_rows"] * rows / 1e6
            + of["million_scanned"] * scanned / 1e6
            + of.get("touched", 0.0) * touched
        )


def simulate(group: Group, costs: Costs) -> Spent:
    """Let one runner of a group go round its tables; give what all of the group do in a day."""
    mine = range(group.first, group.last + 1, group.runners)
    dice = random.Random(1)
    arrivals = {number: -dice.random() * costs.day.every for number in mine}
    spent = Spent()
    now = begun = _round(group, costs, arrivals, 0.0, Spent()) + group.pause
    while now - begun < _SECONDS * _SAMPLE or not spent.rounds:
        now = max(_round(group, costs, arrivals, now, spent), now) + group.pause
    factor = _SECONDS / (now - begun) * group.runners
    for name in ("commits", "cpu", "requests", "writes", "rounds"):
        setattr(spent, name, getattr(spent, name) * factor)
    return spent


def _round(
    group: Group, costs: Costs, arrivals: dict[int, float], now: float, spent: Spent
) -> float:
    """Look at every table once; *arrivals* has when each one's oldest waiting file came. Return when it ends."""
    day, slots = costs.day, [now] * group.at_once
    find = 2 * (1 + day.tables // _PAGE)  # the folders of the zone, and those of the journal
    spent.requests += find
    spent.writes += find
    spent.rounds += 1
    for number, oldest in arrivals.items():
        begins = heapq.heappop(slots)
        files = int((begins - oldest) / day.every) + 1 if begins >= oldest else 0
        rows = costs.rows_a_day(number) / _SECONDS * day.every * files
        ends = begins + _one(group, costs, number, rows, spent)
        if files:
            spent.lags.append(ends - oldest)
            arrivals[number] = oldest + files * day.every
        heapq.heappush(slots, ends)
    return max(slots)


def _one(group: Group, costs: Costs, number: int, rows: float, spent: Spent) -> float:
    """Look at one table, and commit the rows that have come; return the seconds by the clock."""
    kind = costs.requests["commit" if rows else "idle"]
    cpu, alone = costs.look, 1
    if rows:
        cpu = costs.batch(number, rows, "cpu")
        alone = 1 if costs.small(number, rows) else group.cores
    spent.commits += bool(rows)
    spent.cpu += cpu
    requests = total(kind) - total(_ONCE)
    spent.requests += requests
    spent.writes += total(kind, writes=True) - total(_ONCE, writes=True)
    return float(cpu / min(alone, group.cores / group.at_once) + requests * costs.day.latency)


def show_days(known: dict[str, Any]) -> None:
    """Print what each way to run the day comes to."""
    for master in (name for name in known if name != "requests"):
        print(f"\n{master}, {Day()}")
        print(f"{Costs(known, master, Day()).row_bytes:.0f} bytes a changed row")
        print(_HEAD)
        for name, day, groups in WAYS:
            costs = Costs(known, master, day)
            for group in groups:
                print(_line(name, group, simulate(group, costs)))


_HEAD = """
| | tables | runners x cores | pause | round | commits an hour | oldest file waits: median, 95 % | \
CPU s a day | cores busy | requests a day, millions | of which written or listed |
|---|---|---|---|---|---|---|---|---|---|---|"""


def _line(name: str, group: Group, spent: Spent) -> str:
    lags = sorted(spent.lags)
    late = f"{lags[len(lags) // 2]:,.0f} s, {lags[len(lags) * 95 // 100]:,.0f} s" if lags else ""
    return (
        f"| {name} | {group.first:,} to {group.last:,} | {group.runners} x {group.cores}, {group.at_once} at once "
        f"| {group.pause:,.0f} s | {_SECONDS * group.runners / spent.rounds - group.pause:,.0f} s "
        f"| {spent.commits / 24:,.0f} | {late} | {spent.cpu:,.0f} | {spent.cpu / _SECONDS:.1f} "
        f"| {spent.requests / 1e6:.1f} | {spent.writes / 1e6:.1f} |"
    )


def _shards(medium: int, small: int, *pauses: float) -> list[Group]:
    """Shard by size: a hundred large tables have half of the changes, the next 900 a quarter."""
    ends = zip((1, 101, 1_001), (100, 1_000, 10_000), (2, medium, small), pauses, strict=True)
    return [
        Group(
            first=first,
            last=last,
            runners=runners,
            cores=32 if first == 1 else 8,
            at_once=4 if first == 1 else 16,
            pause=pause,
        )
        for first, last, runners, pause in ends
    ]


_HOUR = 3_600.0
WAYS = [
    ("one for all", Day(), [Group(first=1, last=10_000, runners=1, cores=8, at_once=8, pause=60)]),
    ("hourly", Day(), _shards(2, 4, 6 * _HOUR, 2 * _HOUR, _HOUR)),
    ("15 minutes", Day(), _shards(4, 16, 6 * _HOUR, _HOUR, 900)),
    ("15 minutes, newest keys", Day(newest=0.02), _shards(1, 8, _HOUR, 900, 900)),
    ("5 minutes, newest keys", Day(newest=0.02), _shards(3, 20, _HOUR, 300, 300)),
]

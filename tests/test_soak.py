"""A day of polls: publishers, consumers, kills, store faults and clocks that jump; nothing grows but what was published.

`make soak CYCLES=10000` lives through a day. There libfaketime gives Python and Java a clock that a file moves: each
cycle is its share of the day, and now and then the runner's clock is up to two hours off. What publishers and Delta
write has the time of the store, whose clock is right. Without that library nothing moves, as in `make thorough`.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import itertools
import os
import random
import select
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import mirrorlib
from children import BusyTable, child
from delivery.test_files_sink import entries, leftovers, read_file, windows_of
from delivery.test_zone_sink import change_files
from little import LITTLE
from mirrorlib.errors import MirrorError
from mirrorlib.events import Event
from mirrorlib.store import LocalStore
from mirrors import Killed, change_file
from oracle import assert_same_rows, multiset, replay, replay_feed
from tables import (
    assert_feed_replays,
    assert_one_effect_per_file,
    batches_of,
    newest_version,
    read_columns,
    read_rows,
)
from test_store_failures import MODES, Faults, FaultyStore, Mode
from zones import ZoneWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOAK = os.environ.get("MIRRORLIB_SOAK")
CYCLES = int(SOAK or 60)
WINDOW = max(CYCLES // 20, 10)  # cycles between two looks
DAY = 86_400.0
CLOCK = os.environ.get("FAKETIME_TIMESTAMP_FILE")
# Of a short run more cycles find something: else it would show nothing.
OFTEN = 1.0 if CYCLES >= 2_000 else 6.0
KEYS = ["id"]
TEXT = {
    "FileFormat": "CSV",
    "FileFormatTypeProperties": {"FirstRowAsHeader": True, "NullValue": ""},
    "SchemaDefinition": {
        "Columns": [
            {"Name": "id", "DataType": "Int64"},
            {"Name": "v", "DataType": "String"},
            {"Name": "n", "DataType": "Int64"},
        ]
    },
}
RECEIVERS: dict[str, dict[str, Any]] = {
    "copy": {"to": "delta:{}", "mode": "current"},
    "lines": {"to": "files:{}?format=jsonl", "start": 0},
    "zone": {"to": "zone:{}"},
}


class Clock:
    """The store's time, which goes on, and the runner's, which may be off."""

    def __init__(self) -> None:
        self._gone = self._off = 0.0

    def tick(self, seconds: float = DAY / CYCLES) -> None:
        """Let time pass."""
        self._gone += seconds
        self._tell()

    def jump(self, seconds: float) -> None:
        """Set the runner's clock so many seconds ahead."""
        self._off = seconds
        self._tell()

    def _tell(self) -> None:
        if CLOCK:
            draft = Path(f"{CLOCK}.draft")
            draft.write_text(f"{self._gone + self._off:+.3f}")
            draft.replace(CLOCK)

    def stamp(self, path: Path) -> None:
        """Give a file the store's time; where nothing moves the clock, text has lain still before it is there."""
        moment = time.time() - (self._off if CLOCK else 60)
        os.utime(path, (moment, moment))


class Weather(Faults):
    """A store of which one call fails, as often as it is told to."""

    left = -1
    dice = random.Random(3)

    def strike(self, verb: str, place: str) -> Mode | None:
        """Count the calls; the last one goes wrong."""
        del place
        with self.lock:
            if self.left < 0 or verb not in MODES:
                return None
            self.left -= 1
            return self.dice.choice(MODES[verb]) if self.left < 0 else None


@dataclass(slots=True)
class Published(BusyTable):
    """A table of one kind, "parquet", "text" or "time", with a key once at most, as receivers want it.

    Attributes:
        clock: gives its files their times.
        dice: say what it publishes.
        kind: of its files.
        live: the keys that it has.
        broken: what stands for a file that readers refuse, until it is repaired.

    """

    clock: Clock = field(default_factory=Clock)
    dice: random.Random = field(default_factory=random.Random)
    kind: str = "parquet"
    live: set[int] = field(default_factory=set)
    broken: tuple[int, list[dict[str, object]], list[int]] | None = None

    def publish_next(self, breaks: bool = False) -> None:  # noqa: FBT002  # says how
        """Publish the next file, or something in its place that nobody can read."""
        number = self.writer.last = self.writer.last + 1
        rows, markers = self.rows(number)
        self.files.append(change_file(rows, markers))
        if not breaks or self.broken or self.kind == "time":
            self.write(number, rows, markers)
            return
        self.broken = (number, rows, markers)
        how = (
            "gap"
            if self.kind == "text"
            else self.dice.choice(("gap", "garbage", "truncated", "damaged"))
        )
        if how != "gap":
            made = (
                self.writer.garbage(number)
                if how == "garbage"
                else getattr(self.writer, how)(rows, markers, number)
            )
            self.clock.stamp(made)

    def repair(self) -> None:
        """Publish what was broken."""
        if self.broken:
            self.write(*self.broken)
            self.broken = None

    def rows(self, number: int) -> tuple[list[dict[str, object]], list[int]]:
        """Make changes that fit what is there; now and then with wider values, or a column more."""
        rows, markers = [], []
        for place in range(self.dice.randrange(1, 6)):
            key = self.dice.randrange(1, 41)
            marker = self.dice.choice((1, 2, 4) if key in self.live else (0, 1, 4))
            wide = 2**40 + place if number % 7 == 0 else place
            row: dict[str, object] = {"id": key, "v": f"{number}-{place}", "n": wide}
            if self.kind != "text" and number % 10 == 0:
                row[f"c{number // 10 % 8}"] = f"c{place}"
            rows.append(row)
            markers.append(marker)
            (self.live.discard if marker == 2 else self.live.add)(key)
        return rows, markers

    def write(self, number: int, rows: list[dict[str, object]], markers: list[int]) -> None:
        """Write one file, with the time of the store."""
        last = self.writer.last
        if self.kind == "text":
            lines = ["id,v,n,__rowMarker__"]
            lines += [
                f"{row['id']},{row['v']},{row['n']},{mark}"
                for row, mark in zip(rows, markers, strict=True)
            ]
            path = self.writer.path(number).with_suffix(".csv")
            draft = path.with_name(f"_{path.name}.temp")
            draft.write_text("\r\n".join(lines) + "\r\n")
            path = draft.replace(path)
        else:
            path = self.writer.file(rows, markers, number)
        self.clock.stamp(path)
        self.writer.last = last

    def begin(self) -> None:
        """Publish from the start."""
        self.writer.folder.mkdir(exist_ok=True)
        self.clock.stamp(self.writer.metadata(TEXT if self.kind == "text" else None, keys=KEYS))
        self.files.clear()
        self.live.clear()
        self.publish_next()

    def check(self, spark: SparkSession, target: Path) -> None:
        """Compare the table, its feed and its commits with what was published, each file once."""
        path = target / self.writer.name
        assert_same_rows(
            replay(self.files, keys=KEYS).multiset,
            multiset(read_rows(spark, path)),
            self.writer.name,
        )
        assert_feed_replays(spark, path)
        life = batches_of(path)[-1]["life"]
        if self.kind != "time":
            assert_one_effect_per_file(path, range(1, len(self.files) + 1), life=life)
        applied = [
            one for one in batches_of(path) if (one["life"], one["outcome"]) == (life, "applied")
        ]
        assert len(self.files) == sum(one["files"] for one in applied)
        assert len(applied) == len({one["batch"] for one in applied})


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


class Soak:
    """The zone, its mirror, its receivers, and what befalls them."""

    def __init__(self, spark: SparkSession, root: Path, weather: Weather) -> None:
        self.spark, self.root, self.weather = spark, root, weather
        self.dice, self.clock, self.zone = random.Random(CYCLES), Clock(), ZoneWriter(root / "zone")
        self.target, self.received = root / "target", root / "received"
        self.tables = [
            Published(
                writer=self.zone.table(f"table_{at}", with_metadata=False, by_time=kind == "time"),
                clock=self.clock,
                dice=self.dice,
                kind=kind,
            )
            for at, kind in enumerate(("parquet", "parquet", "parquet", "text", "time"))
        ]
        self.stamped = set[Path]()
        self.unsettled, self.polls, self.looks = True, list[float](), list[Look]()
        self.told: dict[str, int] = dict.fromkeys(
            ("files", "broken", "resets", "killed", "faults", "jumps", "exports", "SIGKILL"), 0
        )
        for table in self.tables:
            table.begin()

    def happens(self, chance: float, what: str = "") -> bool:
        """Throw the dice, and count what happens."""
        hit = self.dice.random() < chance
        if hit and what:
            self.told[what] += 1
        return hit

    def cycle(self) -> None:
        """Let time pass, perhaps publish, poll once, perhaps deliver."""
        self.clock.tick()
        if self.happens(0.01, "jumps"):
            self.clock.jump(self.dice.choice((0.0, self.dice.uniform(-7_200, 7_200))))
        new = self.publish()
        peril = 0.15 if new else 0.004
        began = time.perf_counter()
        report = self.befallen(
            peril, lambda **more: mirrorlib.apply(self.spark, self.zone.root, self.target, **more)
        )
        seconds = time.perf_counter() - began
        if report is not None:
            states = {one.table: one.state for one in report.tables}
            waits = {one.writer.name: one.kind == "text" for one in self.tables}
            for table in self.tables:
                name, state = table.writer.name, states[table.writer.name]
                assert (
                    (state != "current")
                    if table.broken
                    else state == "current" or (waits[name] and state == "behind")
                ), str(report)
            if not new and not self.unsettled:
                self.polls.append(seconds)
        if new or self.unsettled:
            self.stamp_commits()
        self.unsettled = report is None or any(one.state == "behind" for one in report.tables)
        if self.happens(0.004 * OFTEN, "exports"):
            self.export(self.dice.choice([*RECEIVERS]), peril=0.2)

    def stamp_commits(self) -> None:
        """Give commits the store's time, by which Delta tells when they were made."""
        for table in self.tables:
            for path in (self.target / table.writer.name / "_delta_log").glob("*.json"):
                if path not in self.stamped:
                    self.stamped.add(path)
                    self.clock.stamp(path)

    def publish(self) -> bool:
        """Perhaps repair, publish, begin anew; say whether anything was."""
        mended = [table for table in self.tables if table.broken and self.happens(0.02 * OFTEN)]
        for table in mended:
            table.repair()
        if not self.happens(0.02 * OFTEN):
            return bool(mended)
        for table in self.dice.sample(self.tables, self.dice.choice((1, 1, 2))):
            if not table.broken and self.happens(0.03, "resets"):
                mirrorlib.reset(self.spark, str(self.target), table.writer.name)
                table.writer.drop()
                table.begin()
            for _ in range(self.dice.choice((1, 1, 3))):
                self.told["files"] += 1
                table.publish_next(breaks=self.happens(0.06, "broken"))
        return True

    def befallen(self, peril: float, act: Callable[..., Any]) -> Any:
        """Do something, of which perhaps the runner dies, or one call to a store fails; None where it was cut short or may be wrong."""
        if self.happens(peril, "killed"):
            steps, last = itertools.count(), self.dice.randrange(1, 60)

            def observe(_event: Event) -> None:
                if next(steps) == last:
                    raise Killed

            with contextlib.suppress(Killed):
                act(observe=observe)
            return None
        if self.happens(peril, "faults"):
            self.weather.left = self.dice.randrange(200)
            with contextlib.suppress(MirrorError):
                act()
            self.weather.left = -1
            return None
        return act()

    def export(self, name: str, peril: float = 0.0) -> None:
        """Deliver to a receiver."""
        told = {**RECEIVERS[name], "to": RECEIVERS[name]["to"].format(self.received / name)}
        report = self.befallen(
            peril,
            lambda **more: mirrorlib.export(
                self.spark, str(self.target), consumer=name, keys=KEYS, **told, **more
            ),
        )
        assert report is None or report.ok, str(report)

    def die_for_good(self) -> None:
        """Let a runner in a process of its own, whose clock is the machine's, die with its Java by SIGKILL."""
        preloaded = os.environ.pop("LD_PRELOAD", None)
        try:
            with child(self.zone, self.target, options={"max_files": 1}) as runner:
                runner.until("ready")
                for _ in range(self.dice.randrange(60)):
                    runner.next()
                self.told["SIGKILL"] += 1
        finally:
            if preloaded is not None:
                os.environ["LD_PRELOAD"] = preloaded
        self.unsettled = True

    def settle(self) -> None:
        """Repair everything, and poll until nothing is left to do."""
        self.clock.jump(0)
        for table in self.tables:
            table.repair()
        for _ in range(3):
            self.clock.tick(60)
            report = mirrorlib.apply(self.spark, self.zone.root, self.target)
        assert report.ok, str(report)
        assert {"current"} == {one.state for one in report.tables}, str(report)

    def look(self, cycle: int) -> None:
        """Collect all garbage and see what is left; a poll that finds nothing leaves nothing in the journal."""
        before = self.journal()
        if not self.unsettled:
            mirrorlib.apply(self.spark, self.zone.root, self.target)
            assert before == self.journal()
        gc.collect()
        java = self.spark._jvm.java.lang  # type: ignore[union-attr]
        java.System.gc()
        heap = java.management.ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed()
        processes = ("self", java.ProcessHandle.current().pid())
        resident = Path("/proc/self/statm").read_text().split()[1]
        self.looks.append(
            Look(
                cycle=cycle,
                commits=sum(newest_version(self.target / one.writer.name) for one in self.tables),
                idle=len(self.polls),
                poll=round(statistics.median(self.polls or [0]) * 1_000, 1),
                python=int(resident) * os.sysconf("SC_PAGE_SIZE") >> 10,
                objects=len(gc.get_objects()),
                heap=heap >> 10,
                files=sum(len([*Path(f"/proc/{one}/fd").iterdir()]) for one in processes),
                threads=sum(len([*Path(f"/proc/{one}/task").iterdir()]) for one in processes),
                journal=sum(self.journal().values()) >> 10,
                entries=len(self.journal()),
            )
        )
        self.polls.clear()
        names = Look.__slots__
        if len(self.looks) == 1:
            print("\n" + " ".join(f"{name:>8}" for name in names))  # noqa: T201  # what `make soak` shows
        print(" ".join(f"{getattr(self.looks[-1], name):>8}" for name in names), flush=True)  # noqa: T201  # the same

    def journal(self) -> dict[str, int]:
        """Give the size of each file of the journal, but for what died writers have left."""
        paths = (self.target / "_mirrorlib" / "journal").rglob("*.json")
        return {str(path): path.stat().st_size for path in paths if path.name != "status.json"}

    def check(self) -> None:
        """See that every table is its publisher's, and every receiver its table."""
        for name in RECEIVERS:
            self.export(name)
        for table in self.tables:
            table.check(self.spark, self.target)
            name = table.writer.name
            source = self.target / name
            held = multiset(read_rows(self.spark, source))
            columns = read_columns(self.spark, source)
            copied = [
                {at: row[at] for at in columns if at in row}
                for row in read_rows(self.spark, self.received / "copy" / name)
            ]
            assert_same_rows(held, multiset(copied), f"the copy of {name}")
            folder = self.received / "lines" / name
            assert len(entries(folder)) == len(windows_of(folder))
            told = [
                row
                for files in windows_of(folder).values()
                for path in files
                for row in read_file(path)
            ]
            states = replay_feed(told)
            assert_same_rows(held, states[max(states)], f"the lines of {name}")
            sent = replay(change_files(LocalStore(self.received / "zone"), name), keys=KEYS)
            assert_same_rows(held, sent.multiset, f"the zone of {name}")
        assert [] == leftovers(self.received / "lines")
        staged = self.target / "_mirrorlib" / "staged"
        assert [] == [path for path in staged.rglob("*") if path.is_file()]


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
def weather(monkeypatch: pytest.MonkeyPatch) -> Weather:
    """Put the failing store wherever the package opens one."""
    for name in ("delta", "files", "zone"):
        importlib.import_module(f"mirrorlib.delivery.sinks.{name}.sink")
    told = Weather()
    for name, module in list(sys.modules.items()):
        if name.startswith("mirrorlib.") and hasattr(module, "open_store"):
            monkeypatch.setattr(module, "open_store", lambda url: FaultyStore(Path(url), told))
    return told


@pytest.fixture
def session(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SparkSession]:
    """Give the session of all tests; where clocks jump, one that takes no jump for a lost executor."""
    if not CLOCK:
        yield request.getfixturevalue("spark")
        return
    # libfaketime 0.9.10 cannot sleep as Python does.
    monkeypatch.setattr(time, "sleep", lambda seconds: select.select([], [], [], seconds) and None)
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
    soak = Soak(session, tmp_path, weather)
    for number in range(1, CYCLES + 1):
        soak.cycle()
        if number % 4_000 == 1_000:
            soak.die_for_good()
        if number % WINDOW == 0:
            soak.look(number)
    print(soak.told)  # noqa: T201  # what `make soak` shows
    soak.settle()
    soak.check()
    if len(soak.looks) >= 20:
        assert_flat(soak.looks)

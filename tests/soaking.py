"""Let anything happen to a zone, its mirror and its receivers, poll by poll, and say in the end whether all is right.

In: a session, an empty folder, a store that fails when it is told to. Out: `Soak`, which lives through a cycle at a time.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mirrorlib
from children import child
from delivery.test_files_sink import entries, leftovers, read_file, windows_of
from delivery.test_zone_sink import change_files
from mirrorlib.errors import MirrorError
from mirrorlib.events import Event
from mirrorlib.store import LocalStore
from mirrors import Killed
from oracle import assert_same_rows, multiset, replay, replay_feed
from tables import (
    read_columns,
    read_rows,
)
from unsteady import BROKEN, CLOCK, KEYS, Clock, Published, Weather
from zones import ZoneWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorlib.ingest.report import ApplyReport


CYCLES = int(os.environ.get("MIRRORLIB_SOAK", "60"))
DAY = 86_400.0
# Of a short run more cycles find something: else it would show nothing.
OFTEN = 1.0 if CYCLES >= 2_000 else 6.0
RECEIVERS: dict[str, dict[str, Any]] = {
    "copy": {"to": "delta:{}", "mode": "current"},
    "lines": {"to": "files:{}?format=jsonl", "start": 0},
    "zone": {"to": "zone:{}"},
}


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
        self.stamped, self.cut_short = set[Path](), set[str]()
        self.unsettled, self.polls = True, list[float]()
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
        self.clock.tick(DAY / CYCLES)
        if self.happens(0.01, "jumps"):
            self.clock.jump(self.dice.choice((0.0, self.dice.uniform(-7_200, 7_200))))
        new = self.publish()
        began = time.perf_counter()
        report = self.befallen(0.15 if new else 0.004, self.apply)
        seconds = time.perf_counter() - began
        if not new and not self.unsettled and report is not None:
            self.polls.append(seconds)
        if new or self.unsettled:
            self.stamp_commits()
        self.unsettled = report is None
        if report is not None:
            self.expect(report)
        if self.happens(0.005 * OFTEN, "exports"):
            self.export(self.dice.choice([*RECEIVERS]), peril=0.2)

    def apply(self, **more: Any) -> ApplyReport:
        """Poll once."""
        return mirrorlib.apply(self.spark, self.zone.root, self.target, **more)

    def expect(self, report: ApplyReport) -> None:
        """See that a table is current where nothing is wrong; text may have to lie still for a while."""
        states = {one.table: one.state for one in report.tables}
        for table in self.tables:
            state = states[table.writer.name]
            meant = {"failed", "blocked"} if table.stops else {"current"}
            assert state in meant | ({"behind"} if table.kind == "text" else set()), str(report)
            self.unsettled |= state == "behind"

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
        if not self.happens(0.025 * OFTEN):
            return bool(mended)
        for table in self.dice.sample(self.tables, self.dice.choice((1, 1, 2))):
            if not table.broken and self.happens(0.05, "resets"):
                mirrorlib.reset(self.spark, str(self.target), table.writer.name)
                table.writer.drop()
                table.begin()
            for _ in range(self.dice.choice((1, 1, 3))):
                self.told["files"] += 1
                breaks = self.happens(0.06, "broken")
                table.publish_next(self.dice.choice(BROKEN) if breaks else "whole")
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
            self.weather.left = self.dice.randrange(60)
            with contextlib.suppress(MirrorError):
                act()
            self.weather.left = -1
            return None
        return act()

    def export(self, name: str, peril: float = 0.0) -> bool:
        """Deliver to a receiver; False where a failed store has kept the lease of the delivery before."""
        told = {**RECEIVERS[name], "to": RECEIVERS[name]["to"].format(self.received / name)}
        report = self.befallen(
            peril,
            lambda **more: mirrorlib.export(
                self.spark,
                str(self.target),
                consumer=name,
                keys=KEYS,
                on_expired="snapshot",
                **told,
                **more,
            ),
        )
        if report is None:
            self.cut_short.add(name)
        elif report.ok:
            self.cut_short.discard(name)
        else:
            assert name in self.cut_short, str(report)
            assert {"busy", "current"} >= {one.state for one in report.tables}, str(report)
        return bool(report and report.ok)

    def export_at_last(self, name: str) -> None:
        """Deliver all, as soon as leases have run out, also those of a clock that was two hours ahead."""
        for _ in range(150):
            if self.export(name):
                return
            self.clock.tick(60)
            time.sleep(0 if CLOCK else 10)
        msg = f"{name} stays busy"
        raise AssertionError(msg)

    def die_for_good(self) -> None:
        """Let a runner in a process of its own, whose clock is the machine's, die with its Java by SIGKILL."""
        for table in self.tables:
            table.publish_next()
        preloaded = os.environ.pop("LD_PRELOAD", None)
        try:
            with child(self.zone, self.target, options={"max_files": 1}) as runner:
                runner.until("ready")
                for _ in range(self.dice.randrange(5, 60)):
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
            report = self.apply()
        assert report.ok, str(report)
        assert {"current"} == {one.state for one in report.tables}, str(report)

    def check(self) -> None:
        """See that every table is its publisher's, and every receiver its table."""
        for name in RECEIVERS:
            self.export_at_last(name)
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
            states = replay_feed(lines_of(self.received / "lines" / name))
            assert_same_rows(held, states[max(states)], f"the lines of {name}")
            sent = replay(change_files(LocalStore(self.received / "zone"), name), keys=KEYS)
            assert_same_rows(held, sent.multiset, f"the zone of {name}")
        assert [] == leftovers(self.received / "lines")
        staged = self.target / "_mirrorlib" / "staged"
        assert [] == [path for path in staged.rglob("*") if path.is_file()]


def lines_of(folder: Path) -> list[dict[str, Any]]:
    """Read the feed that a folder was given; a snapshot, as a reset that takes columns away comes with one, begins anew."""
    found: list[dict[str, Any]] = []
    for entry, files in zip(entries(folder), windows_of(folder).values(), strict=True):
        rows = [row for path in files for row in read_file(path)]
        if entry["kind"] == "snapshot":
            anew = {"_change_type": "insert", "_commit_version": entry["until"]}
            found, rows = [], [row | anew for row in rows]
        found += rows
    return found

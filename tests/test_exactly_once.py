"""Exactly once: whatever is killed, whenever, a plain apply afterwards ends at the oracle's table, one effect per file.

The runners are real processes that die by SIGKILL. A Java start costs seconds, so one runner applies
many tables at once: each table's thread stops at the point where it is to die, and when all have
stopped the process is killed.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import mirrorlib
from children import BusyTable, BusyZone, check_all, child, kill_at_random, throw_dice
from tables import batches_of, newest_version
from zones import ZoneWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TORTURE = os.environ.get("MIRRORLIB_TORTURE")
# A mark wins over the command line: whoever asks for many kills wants them all.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(0 if TORTURE else 900)]

STEPS = ("list", "read", "plan", "guard", "stage", "commit", "done")
ALWAYS = tuple((step, when) for step in STEPS for when in ("before", "after"))
# The road is taken where a batch is staged and committed; before and after that, the two are one.
BY_SPARK = tuple((step, when) for step, when in ALWAYS if step in {"guard", "stage", "commit"})
RANDOM_KILLS = int(TORTURE or 10)


@dataclass(frozen=True, slots=True)
class Point:
    """Where one table's run dies: at the count-th time that it comes to a step."""

    step: str
    when: str
    count: int = 1

    @property
    def table(self) -> str:
        """Name a table after its death."""
        return f"{self.when}_{self.step}"


class StopError(Exception):
    """Stops one table's run in this process."""


def load(writer: ZoneWriter, point: Point, dice: random.Random, files: int) -> BusyTable:
    """Begin a table with that many files."""
    table = BusyTable(writer=writer.table(point.table, keys=["id"]))
    for _ in range(files):
        table.publish_random(dice)
    return table


def die_everywhere(
    spark: SparkSession,
    zone: ZoneWriter,
    target: Path,
    tables: dict[Point, BusyTable],
    **task: object,
) -> None:
    """Let one runner die at all points at once, then apply here and compare all tables."""
    park = {point.table: [point.step, point.when, point.count] for point in tables}
    options = {"max_files": 1, "parallelism": len(park)}
    with child(zone, target, park=park, options=options, **task) as runner:
        code = runner.follow()

        assert park.keys() == runner.parked, f"no run came to some points: {runner.last_words()}"
        assert -9 == code
        report = mirrorlib.apply(spark, str(zone), str(target))  # Java may still be dying
    assert report.ok, str(report)
    check_all(spark, target, list(tables.values()))


@pytest.mark.thorough("before")  # a step: little more than after the one that goes before it
@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_any_step_every_file_has_one_effect(
    spark: SparkSession, zone: ZoneWriter, tmp_path: Path, when: str
) -> None:
    """Killed before or after each step that creates, fills, widens, rewrites, voids or fences off, the next run ends right."""
    dice, target = throw_dice(1), tmp_path / "target"
    prepare: dict[str, Callable[[SparkSession, ZoneWriter, Path, BusyTable], None]] = {
        "widen": make_wider,
        "rewrite": make_fractions,
        "void": leave_a_plan_that_cannot_be_carried_out,
        "fence": begin_a_new_life,
    }
    later = [Point(step, when) for step in prepare]
    tables = {point: load(zone, point, dice, files=1) for point in later}
    assert mirrorlib.apply(spark, str(zone), str(target)).ok
    for point, table in tables.items():
        prepare[point.step](spark, zone, target, table)
        table.publish_random(dice)
    first = [Point(step, when) for step in ("create", *STEPS)]
    tables |= {point: load(zone, point, dice, files=1) for point in first}

    die_everywhere(spark, zone, target, tables, whole=True)


@pytest.mark.thorough
@pytest.mark.parametrize("large", [False, True], ids=["folded-here", "folded-by-spark"])
def test_killed_at_any_step_of_a_later_batch_every_file_has_one_effect(
    spark: SparkSession, zone: ZoneWriter, tmp_path: Path, *, large: bool
) -> None:
    """Killed before and after each step of a run's second batch on a table that is there, the next run ends right."""
    dice = throw_dice(2)
    steps = BY_SPARK if large else ALWAYS
    points = [Point(step, when, 1 if step == "list" else 2) for step, when in steps]
    tables = {point: load(zone, point, dice, files=1) for point in points}
    assert mirrorlib.apply(spark, str(zone), str(tmp_path / "target")).ok
    for table in tables.values():
        for _ in range(2):
            table.publish_random(dice)

    die_everywhere(spark, zone, tmp_path / "target", tables, large=large)


def make_wider(_spark: SparkSession, _zone: ZoneWriter, _target: Path, table: BusyTable) -> None:
    """Publish a column that the table does not have."""
    table.publish([{"id": 1, "v": "w", "n": 1, "wide": 1.5}, {"id": 2, "v": "w", "n": 2}], [0, 1])


def make_fractions(
    _spark: SparkSession, _zone: ZoneWriter, _target: Path, table: BusyTable
) -> None:
    """Publish fractions for a column of whole numbers, which Delta does not widen in place."""
    table.publish([{"id": 1, "v": "r", "n": 0.5}, {"id": 3, "v": "r", "n": 0.25}], [0, 4])


def leave_a_plan_that_cannot_be_carried_out(
    spark: SparkSession, zone: ZoneWriter, target: Path, table: BusyTable
) -> None:
    """Plan a file, stop, and replace the file."""

    def stop(event: mirrorlib.Event) -> None:
        if (event.step, event.when) == ("plan", "after"):
            raise StopError

    number = table.writer.last + 1
    table.writer.file([{"id": 1, "v": "never to be seen"}], [0])
    name = table.writer.name
    report = mirrorlib.apply(spark, str(zone), str(target), tables=[name], observe=stop)
    assert not report.ok
    table.writer.last = number - 1
    table.publish([{"id": 1, "v": "the better file"}], [0])


def begin_a_new_life(
    spark: SparkSession, _zone: ZoneWriter, target: Path, table: BusyTable
) -> None:
    """Reset the table and publish it from the start, otherwise."""
    mirrorlib.reset(spark, str(target), table.writer.name)
    table.writer.drop()
    table.writer.make()
    table.writer.metadata(keys=["id"])
    table.files.clear()
    table.publish([{"id": key, "v": f"new {key}", "n": key} for key in range(5)], None)


@pytest.mark.thorough
@pytest.mark.torture
def test_killed_at_random_moments_every_file_has_one_effect(
    spark: SparkSession, tmp_path: Path
) -> None:
    """One runner after another is killed in the middle, on each of ten targets; after the last, a plain apply ends right."""
    moments = kill_at_random(spark, tmp_path, kills=RANDOM_KILLS, dice=throw_dice(4))

    killed = [moment for moment in moments if moment.startswith("killed")]
    assert any(" of " in moment for moment in killed), moments  # in the middle of a table


@pytest.mark.thorough
def test_two_runners_started_at_once_share_the_work_and_every_file_has_one_effect(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Two processes on one target both end well; table, feed and commits are as if there had been one."""
    zone, target = BusyZone(tmp_path / "zone", throw_dice(5), tables=2), tmp_path / "target"
    zone.publish(3)
    task = {"wait": True, "options": {"max_files": 1, "parallelism": 2}}
    with child(zone, target, **task) as one, child(zone, target, **task) as other:
        runners = (one, other)
        for runner in runners:
            runner.until("ready")
        for runner in runners:
            runner.go()
        reports = [runner.until("report") for runner in runners]

        assert [True, True] == [report["ok"] for report in reports], reports
        assert [0, 0] == [runner.follow() for runner in runners]
    versions = [newest_version(target / table.writer.name) for table in zone.tables]
    zone.check(spark, target)

    assert versions == [newest_version(target / table.writer.name) for table in zone.tables]
    assert [3] * 2 == [len(batches_of(target / table.writer.name)) for table in zone.tables]


@pytest.mark.thorough
@pytest.mark.parametrize("killed", [False, True], ids=["both-end", "one-is-killed"])
def test_two_runners_of_disjoint_patterns_leave_each_other_alone(
    spark: SparkSession, tmp_path: Path, *, killed: bool
) -> None:
    """Both are in the middle of a commit at one moment; each writes and ends its own tables alone, and status shows all."""
    zone, target = BusyZone(tmp_path / "zone", throw_dice(6), tables=4), tmp_path / "target"
    zone.publish(2)
    task = {"wait": True, "meet": ["commit", "before"]}
    options = {"max_files": 1, "parallelism": 1}
    with (
        child(zone, target, options={**options, "tables": ["t[01]"]}, **task) as one,
        child(zone, target, options={**options, "tables": ["t[23]"]}, **task) as other,
    ):
        for at in ("ready", "met"):
            for runner in (one, other):
                runner.until(at)
            one.kill(whole=True) if killed and at == "met" else one.go()
            other.go()

        assert (-9 if killed else 0, 0) == (one.follow(), other.follow()), other.last_words()
        worked_on = [{said.get("table") for said in one.told} - {None} for one in (one, other)]
    first = {"t0"} if killed else {"t0", "t1"}
    assert [first, {"t2", "t3"}] == worked_on
    ended = {"t2", "t3"} if killed else {"t0", "t1", "t2", "t3"}
    states = {one.table: one.state for one in mirrorlib.status(target).tables}
    assert {**dict.fromkeys(first, "behind"), **dict.fromkeys(ended, "current")} == states
    versions = {name: newest_version(target / name) for name in ended}

    assert dict.fromkeys(ended, 2) == {name: len(batches_of(target / name)) for name in ended}
    zone.check(spark, target)
    assert versions == {name: newest_version(target / name) for name in ended}

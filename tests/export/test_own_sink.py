"""The receiver of one's own that the example shows: it runs, and holds each window once whatever cuts it short."""

from __future__ import annotations

import json
import os
import runpy
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import mirrorlib

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from mirrorlib.apply.report import Event

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_sink.py"
FEED = "'delta.enableChangeDataFeed' = 'true', 'delta.checkpointInterval' = '1'"


class Died(BaseException):
    """The runner is gone."""


class Source:
    """A table whose changes the example receives."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark, self.target, self.folder = spark, root / "target", root / "lines"
        self.table = self.target / "a b/orders"
        self.sink = runpy.run_path(str(EXAMPLE))["JsonLines"]
        columns = f"(id INT, v STRING) USING delta TBLPROPERTIES ({FEED})"
        self.run(
            f"CREATE TABLE {{t}} {columns}",
            "INSERT INTO {t} VALUES (1, 'a'), (2, NULL)",
            "UPDATE {t} SET v = 'b' WHERE id = 1",
        )

    def run(self, *statements: str) -> None:
        """Run SQL, a commit each."""
        for statement in statements:
            self.spark.sql(statement.format(t=f"delta.`{self.table}`"))

    def export(self, observe: Callable[[Event], None] | None = None) -> tuple[int, int]:
        """Deliver; return how many windows and resets there were."""
        report = mirrorlib.export(
            self.spark,
            str(self.target),
            consumer="mine",
            to=self.sink(str(self.folder)),
            start=0,
            on_expired="snapshot",
            observe=observe,
        )
        assert report.ok, str(report)
        return report.tables[0].windows, report.tables[0].resets


def held(folder: Path) -> Counter[tuple[Any, ...]]:
    """Read the lines that count: what was done to which row."""
    place = json.loads((folder / "a%20b%2Forders.position").read_text())
    data = (folder / place["file"]).read_bytes()[: place["bytes"]]
    lines = map(json.loads, data.splitlines())
    return Counter((x["_commit_version"], x["_change_type"], x["id"], x["v"]) for x in lines)


def die_on_disk(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Die before the lines are on disk."""
    fsync = os.fsync

    def dying(number: int) -> None:
        if os.fstat(number).st_ino in {file.stat().st_ino for file in folder.iterdir()}:
            raise Died
        fsync(number)

    patch.setattr(os, "fsync", dying)


def die_before_they_count(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Die before the lines count."""
    replace = Path.replace

    def dying(place: Path, new: Path) -> Path:
        if place.parent == folder:
            raise Died
        return replace(place, new)

    patch.setattr(Path, "replace", dying)


def die_after_delivery(event: Event) -> None:
    """Die before the runner writes down that the window was delivered."""
    if (event.step, event.when) == ("deliver", "after"):
        raise Died


def test_it_runs_and_holds_each_window_once_whatever_cuts_it_short(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every step of the receiver; and when history is gone, a snapshot takes its place."""
    source = Source(spark, tmp_path)
    for dying in (die_on_disk, die_before_they_count):
        with monkeypatch.context() as patch:
            dying(patch, source.folder)
            with pytest.raises(Died):
                source.export()
        assert not list(source.folder.glob("*.position"))
    with pytest.raises(Died):
        source.export(die_after_delivery)
    expected = [(1, "insert", 1, "a"), (1, "insert", 2, None)]
    expected += [(2, "update_preimage", 1, "a"), (2, "update_postimage", 1, "b")]
    assert Counter(expected) == held(source.folder)
    assert (1, 0) == source.export()
    assert Counter(expected) == held(source.folder)

    source.run("DELETE FROM {t} WHERE id = 2")
    with monkeypatch.context() as patch:
        die_before_they_count(patch, source.folder)
        with pytest.raises(Died):
            source.export()
    assert Counter(expected) == held(source.folder)
    assert (1, 0) == source.export()
    assert Counter([*expected, (3, "delete", 2, None)]) == held(source.folder)

    source.run("INSERT INTO {t} VALUES (3, 'c')", "INSERT INTO {t} VALUES (4, 'd')")
    (source.table / "_delta_log" / f"{4:020d}.json").unlink()
    assert (1, 1) == source.export()
    rows = {(1, "b"), (3, "c"), (4, "d")}
    assert Counter((5, "insert", *row) for row in rows) == held(source.folder)

    script = tmp_path / "script"
    monkeypatch.setattr(mirrorlib, "local_spark", lambda: spark, raising=False)
    monkeypatch.setattr(sys, "argv", ["own_sink.py", str(source.target), str(script)])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert held(source.folder) == held(script)

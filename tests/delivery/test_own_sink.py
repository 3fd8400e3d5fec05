"""The receiver of one's own that the example shows: it runs, and holds each window once whatever cuts it short."""

from __future__ import annotations

import contextlib
import json
import runpy
import sqlite3
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

import mirrorlib
from mirrors import Killed, at, die

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from mirrorlib.events import Event

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_sink.py"
# Version 5 can be read without 4, which gets lost.
FEED = "'delta.enableChangeDataFeed' = 'true', 'delta.checkpointInterval' = '5'"


class Source:
    """A table whose changes the example receives."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark, self.target, self.log = spark, root / "target", root / "changes.db"
        self.table = self.target / "a b/orders"
        self.sink = runpy.run_path(str(EXAMPLE))["ChangeLog"]
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
            to=self.sink(str(self.log)),
            start=0,
            on_expired="snapshot",
            observe=observe,
        )
        assert report.ok, str(report)
        return report.tables[0].windows, report.tables[0].resets


def held(file: Path) -> Counter[tuple[Any, ...]]:
    """Read the log: what was done to which row."""
    with contextlib.closing(sqlite3.connect(file)) as log:
        lines = [json.loads(line) for (line,) in log.execute("SELECT line FROM changes")]
    return Counter((x["_commit_version"], x["_change_type"], x["id"], x["v"]) for x in lines)


class Dying(sqlite3.Connection):
    """Its user dies when the rows are there, and nothing is committed."""

    def executemany(self, *told: Any) -> NoReturn:
        """Take the rows."""
        super().executemany(*told)
        raise Killed


class DyingLater(sqlite3.Connection):
    """Its user dies when all is said, and nothing is committed."""

    def __exit__(self, *_: object) -> NoReturn:
        """Commit nothing."""
        raise Killed


def die_in(patch: pytest.MonkeyPatch, kind: type[sqlite3.Connection]) -> None:
    """Let the example open its log so."""
    patch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=kind))


def test_it_runs_and_holds_each_window_once_whatever_cuts_it_short(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every step of the receiver; and when history is gone, a snapshot takes its place."""
    source = Source(spark, tmp_path)
    for kind in (Dying, DyingLater):
        with monkeypatch.context() as patch:
            die_in(patch, kind)
            with pytest.raises(Killed):
                source.export()
        assert not held(source.log)
    with pytest.raises(Killed):
        source.export(at("deliver", "after", die))  # before that is written down
    expected = [(1, "insert", 1, "a"), (1, "insert", 2, None)]
    expected += [(2, "update_preimage", 1, "a"), (2, "update_postimage", 1, "b")]
    assert Counter(expected) == held(source.log)
    assert (1, 0) == source.export()
    assert Counter(expected) == held(source.log)

    source.run("DELETE FROM {t} WHERE id = 2")
    with monkeypatch.context() as patch:
        die_in(patch, DyingLater)
        with pytest.raises(Killed):
            source.export()
    assert Counter(expected) == held(source.log)
    assert (1, 0) == source.export()
    assert Counter([*expected, (3, "delete", 2, None)]) == held(source.log)

    source.run("INSERT INTO {t} VALUES (3, 'c')", "INSERT INTO {t} VALUES (4, 'd')")
    (source.table / "_delta_log" / f"{4:020d}.json").unlink()
    assert (1, 1) == source.export()
    rows = {(1, "b"), (3, "c"), (4, "d")}
    assert Counter((5, "insert", *row) for row in rows) == held(source.log)

    script = tmp_path / "script"
    monkeypatch.setattr(mirrorlib, "local_spark", lambda: spark, raising=False)
    monkeypatch.setattr(sys, "argv", ["own_sink.py", str(source.target), str(script)])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert held(source.log) == held(script)

    source.log.unlink()
    source.run("INSERT INTO {t} VALUES (5, 'e')")
    with pytest.raises(AssertionError, match="the log was emptied"):
        source.export()

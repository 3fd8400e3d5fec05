"""Kept copies of a source with column mapping, whose columns get other values under a name that stays."""

from __future__ import annotations

import contextlib
import sqlite3
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from delivery.test_zone_sink import change_files
from mirrorlib.delivery.consumers import rewind_consumer
from mirrorlib.delivery.run import export_tables
from mirrorlib.delivery.sink import check_continued
from mirrorlib.delta.actions import Metadata
from mirrorlib.delta.columns import in_place, widening
from mirrorlib.errors import SchemaError
from mirrorlib.feed.schemas import physical_names
from mirrorlib.store import LocalStore
from oracle import replay

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from mirrorlib.delivery.report import StreamReport

FEED = "'delta.enableChangeDataFeed' = 'true'"
MAP = "ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
COPIES = ("current", "scd2", "sqlite", "zone")
OTHER = "the name stands for another column than before"


class Source:
    """A table with column mapping, and its copies of each kind."""

    def __init__(self, spark: SparkSession, root: Path, columns: str, key: str = "id") -> None:
        self.spark, self.root, self.key = spark, root, key
        self.columns: list[str] = []
        self.run(f"CREATE TABLE {{t}} ({columns}) USING delta TBLPROPERTIES ({FEED})")

    def run(self, *statements: str) -> None:
        """Run SQL, a commit each."""
        for statement in statements:
            self.spark.sql(statement.format(t=f"delta.`{self.root}/source/t`"))

    def export(self, kind: str) -> StreamReport:
        """Deliver what there is to one of the copies."""
        to = {"sqlite": f"jdbc:sqlite:{self.root}/copy.db", "zone": f"zone:{self.root}/zone"}
        options: dict[str, Any] = {"to": to.get(kind, f"delta:{self.root}/{kind}")}
        if kind not in to:
            options["mode"] = kind
        keys = {"t": [self.key]}
        source = f"{self.root}/source"
        return export_tables(self.spark, source, consumer=kind, keys=keys, **options).tables[0]

    def take(self, kinds: Sequence[str]) -> None:
        """Deliver, which has to work, and compare the copies with the source."""
        rows = self._rows(f"{self.root}/source/t")
        for kind in kinds:
            report = self.export(kind)
            assert "current" == report.state, (kind, report.reason)
            assert rows == self._copy(kind), kind

    def refuse(self, kinds: Sequence[str], *words: str, why: str = OTHER) -> None:
        """Deliver, which has to fail and to ask for a snapshot, and give that."""
        for kind in kinds:
            report = self.export(kind)
            assert "failed" == report.state, kind
            for word in (why, "mirrorlib consumers TARGET --rewind", "--to snapshot", *words):
                assert word in report.reason, kind
            rewind_consumer(f"{self.root}/source", kind, "snapshot")
        self.take(kinds)

    def forget(self, kind: str) -> None:
        """Let a copy's own log forget its windows, as Delta does after a month."""
        often = "SET TBLPROPERTIES ('delta.checkpointInterval' = '1')"
        self.spark.sql(f"ALTER TABLE delta.`{self.root}/{kind}/t` {often}")
        for file in sorted((self.root / kind / "t" / "_delta_log").glob("0*.json"))[:-1]:
            file.unlink()

    def _rows(self, path: str) -> list[tuple[Any, ...]]:
        frame = self.spark.read.format("delta").load(path)
        if "is_current" in frame.columns:
            frame = frame.where("is_current")
        else:
            self.columns = frame.columns if path.endswith("source/t") else self.columns
        return sorted((tuple(row) for row in frame.select(self.columns).collect()), key=repr)

    def _copy(self, kind: str) -> list[tuple[Any, ...]]:
        if kind == "sqlite":
            with contextlib.closing(sqlite3.connect(f"{self.root}/copy.db")) as connection:
                names = ", ".join(self.columns)
                return sorted(connection.execute(f"SELECT {names} FROM t").fetchall(), key=repr)
        if kind == "zone":
            files = change_files(LocalStore(self.root / "zone"), "t")
            rows = replay(files, keys=[self.key]).rows
            return sorted((tuple(row.get(name) for name in self.columns) for row in rows), key=repr)
        return self._rows(f"{self.root}/{kind}/t")


@pytest.mark.thorough
def test_a_column_that_was_dropped_and_added_again_asks_for_a_snapshot(
    spark: SparkSession, tmp_path: Path
) -> None:
    """In one window or in two that change no row; new names, and renaming there and back, are followed."""
    source = Source(spark, tmp_path, "id INT, c STRING, d STRING")
    source.run("INSERT INTO {t} VALUES (1, 'a', 'x'), (2, 'b', 'y')")
    source.take(COPIES)
    source.run(MAP)
    back = ("RENAME COLUMN c TO e", "RENAME COLUMN e TO c", "ADD COLUMNS (f STRING)")
    source.run(*(f"ALTER TABLE {{t}} {step}" for step in back))
    source.run("UPDATE {t} SET d = 'z', f = 'new' WHERE id = 2")
    source.take(COPIES)
    source.run("ALTER TABLE {t} DROP COLUMN c")
    for kind in COPIES:
        assert "current" == source.export(kind).state  # a window without rows, which no copy sees
    source.run("ALTER TABLE {t} ADD COLUMNS (c STRING)", "UPDATE {t} SET d = 'w' WHERE id = 2")
    source.refuse(COPIES, "column c")
    source.run("UPDATE {t} SET c = 'now' WHERE id = 1")
    source.take(COPIES)


@pytest.mark.thorough
def test_a_column_that_comes_back_later_asks_for_a_snapshot(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Behind a window that did not have it: readers of a zone hold what it was; brought back by a restore, anywhere."""
    source = Source(spark, tmp_path, "id INT, c STRING, d STRING")
    source.run(MAP, "INSERT INTO {t} VALUES (1, 'a', 'x'), (2, 'b', 'y')")
    source.take(COPIES)
    source.run("ALTER TABLE {t} DROP COLUMN c", "UPDATE {t} SET d = 'z' WHERE id = 1")
    source.take(COPIES)
    source.run("RESTORE TABLE {t} TO VERSION AS OF 2")
    source.refuse(COPIES, why="brought columns back")
    source.run("ALTER TABLE {t} DROP COLUMN c", "UPDATE {t} SET d = 'z' WHERE id = 1")
    source.take(("zone",))
    source.run("ALTER TABLE {t} ADD COLUMNS (c STRING)", "UPDATE {t} SET d = 'w' WHERE id = 1")
    source.refuse(("zone",), "column c")
    source.run("UPDATE {t} SET c = 'now' WHERE id = 1")
    source.take(("zone",))


@pytest.mark.thorough
def test_exchanged_names_ask_for_a_snapshot(spark: SparkSession, tmp_path: Path) -> None:
    """Of columns, of keys too."""
    for number, (one, other) in enumerate((("c", "d"), ("id", "c"))):
        source = Source(spark, tmp_path / str(number), "id INT, c INT, d INT")
        source.run(MAP, "INSERT INTO {t} VALUES (1, 10, 100), (2, 20, 200)")
        source.take(COPIES)
        steps = ((one, "e"), (other, one), ("e", other))
        source.run(*(f"ALTER TABLE {{t}} RENAME COLUMN {a} TO {b}" for a, b in steps))
        source.run("UPDATE {t} SET d = 7 WHERE d IN (20, 200)")
        source.refuse(COPIES, f"column {other}, {one}: {OTHER}")


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["current", "scd2"])
def test_a_copy_whose_own_log_has_forgotten_its_columns_goes_by_the_sources(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    """A quiet month at the source, and upkeep of the copy; a column that somebody adds to that is none that has gone."""
    source = Source(spark, tmp_path, "id INT, c INT, d INT")
    source.run(MAP, "INSERT INTO {t} VALUES (1, 10, 100), (2, 20, 200)")
    source.take([kind])
    spark.sql(f"ALTER TABLE delta.`{tmp_path}/{kind}/t` ADD COLUMNS (note STRING)")
    source.run("ALTER TABLE {t} ADD COLUMNS (e INT)", "UPDATE {t} SET e = 1 WHERE id = 1")
    source.take([kind])
    source.forget(kind)
    source.run("ALTER TABLE {t} DROP COLUMN e", "UPDATE {t} SET d = 7 WHERE id = 1")
    source.take([kind])
    source.forget(kind)
    source.run("ALTER TABLE {t} ADD COLUMNS (e INT)", "UPDATE {t} SET d = 8 WHERE id = 2")
    source.refuse([kind], "column e", why="a column that had been dropped is back")
    source.forget(kind)
    exchange = ("c TO x", "d TO c", "x TO d")
    source.run(*(f"ALTER TABLE {{t}} RENAME COLUMN {step}" for step in exchange))
    source.run("UPDATE {t} SET c = 9 WHERE id = 1")
    source.refuse([kind], "column d, c")


def test_what_a_name_stands_for_is_told_at_any_depth() -> None:
    """As Delta's schemas have it; names of before alone are compared, and nothing that is not known."""

    def field(name: str, kind: object, physical: str) -> dict[str, object]:
        told = {"delta.columnMapping.physicalName": physical}
        return {"name": name, "type": kind, "nullable": True, "metadata": told}

    inner = {"type": "struct", "fields": [field("a", "long", "p3")]}
    array = {"type": "array", "elementType": inner, "containsNull": True}
    schema = {"type": "struct", "fields": [field("S", array, "p1"), field("x.y", "long", "p2")]}
    mapped = Metadata(id="T", schema=schema, properties={"delta.columnMapping.mode": "name"})
    found = physical_names(mapped)
    assert {"S": "p1", "`S`.elementType.`a`": "p3", "x.y": "p2"} == found
    bare = {"type": "struct", "fields": [{"name": "N", "type": "long", "metadata": {}}]}
    assert {"N": "n"} == physical_names(Metadata(id="T", schema=bare, properties={}))
    delivery: Any = SimpleNamespace(mapped=True, renewed=dict, stream=SimpleNamespace(table="t"))
    check_continued(delivery, ([], []), ({}, found), "step")
    further = {"s": "p1", "gone": "p0"}, {**found, "new": "p0"}
    check_continued(delivery, ([], []), further, "step")
    delivery.renewed = lambda: {"p0": "p2"}
    with pytest.raises(SchemaError, match=f"t: column S: {OTHER}.*found p1, was p0"):
        check_continued(delivery, ([], []), ({"s": "p0"}, found), "step")
    delivery.renewed = lambda: {"p0": "p1"}
    check_continued(delivery, ([], []), ({"s": "p0"}, found), "step")


def test_whole_numbers_are_widened_to_wider_ones_alone() -> None:
    """A table that was made anew with narrower ones fits into the copy that it has."""
    types = widening("tinyint", "smallint")

    assert types is not None
    assert in_place(*types)
    assert widening("smallint", "tinyint") is None
    assert widening("bigint", "int") is None

"""Zones whose files have no numbers (LastUpdateTimeFileDetection): the time of writing orders them, their names are remembered."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import mirrorlib
from mirrors import Killed, at, die
from oracle import assert_same_rows, multiset
from tables import assert_each_file_once, newest_version, read_rows
from zones import TableWriter, ZoneWriter, write_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorlib.ingest.report import TableReport

pytestmark = pytest.mark.slow


@pytest.fixture
def orders(zone: ZoneWriter) -> TableWriter:
    """Make a table whose files come by time."""
    return zone.table("orders", keys=["id"], by_time=True)


def put(orders: TableWriter, name: str, second: float, value: str, key: int = 1) -> Path:
    """Publish one upsert under a name, written at a second of the past."""
    path = orders.file([{"id": key, "v": value}], [4], name=name)
    return write_at(path, second)


def apply(spark: SparkSession, zone: ZoneWriter, target: str, **options: object) -> TableReport:
    """Apply the one table."""
    return mirrorlib.apply(spark, str(zone), target, **options).tables[0]  # type: ignore[arg-type]  # any option


def values(spark: SparkSession, target: str) -> dict[object, object]:
    """Read the table: v by id."""
    return {row["id"]: row["v"] for row in read_rows(spark, Path(target) / "orders")}


def test_the_last_written_file_wins(
    spark: SparkSession, zone: ZoneWriter, target: str, orders: TableWriter
) -> None:
    """Q28: whatever its name, uuids with braces and without; of one moment's files the name decides; one file a batch or all at once."""
    put(orders, "{6F9619FF-8B86-D011-B42D-00C04FC964FF}.parquet", 1, "first")
    put(orders, "b.parquet", 3, "tie, last by name")
    put(orders, "a.parquet", 3, "tie, first by name")
    put(orders, "m.parquet", 2, "second")
    (orders.folder / "notes.txt").write_text("x")

    whole = apply(spark, zone, target)
    pieces = apply(spark, zone, f"{target} by one", max_files=1)

    assert {1: "tie, last by name"} == values(spark, target) == values(spark, f"{target} by one")
    assert ("current", 4, 1) == (whole.state, whole.position, len(whole.batches))
    assert [
        "{6F9619FF-8B86-D011-B42D-00C04FC964FF}.parquet",
        "m.parquet",
        "a.parquet",
        "b.parquet",
    ] == [b.first_file for b in pieces.batches]
    assert any("notes.txt" in warning for warning in whole.warnings)


@pytest.mark.thorough
def test_any_name_keeps_its_rows_in_order(
    spark: SparkSession,
    zone: ZoneWriter,
    target: str,
    orders: TableWriter,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark encodes names in its metadata column; no row may get lost over that."""
    monkeypatch.setattr("mirrorlib.ingest.batch.open_batch.SMALL_BYTES", -1)
    names = ("my export", "a%20b", "a b", "{x}#1", "[y]?", "q\"uote'", "ä+ü", "plain-1", "plain-2")
    for place, name in enumerate(names):
        put(orders, f"{name}.parquet", place, name)
        put(orders, f"{name} of its own.parquet", place + 0.5, name, key=place + 10)

    report = apply(spark, zone, target)

    assert ("current", 2 * len(names)) == (report.state, report.position), report.reason
    own = {place + 10: name for place, name in enumerate(names)}
    assert {1: names[-1], **own} == values(spark, target)


def test_an_applied_file_is_never_read_again(
    spark: SparkSession, zone: ZoneWriter, target: str, orders: TableWriter
) -> None:
    """Other content under its name is told; what is new beside it is applied."""
    put(orders, "a.parquet", 1, "a")
    assert "current" == apply(spark, zone, target).state
    put(orders, "b.parquet", 2, "b", key=2)
    assert "current" == apply(spark, zone, target).state
    version = newest_version(Path(target) / "orders")
    put(orders, "a.parquet", 9, "other")

    again = apply(spark, zone, target)

    assert (version, ()) == (newest_version(Path(target) / "orders"), again.batches)
    told = "what was applied and has been changed since is not read again: a.parquet (1 in all)"
    assert told in again.warnings
    (orders.folder / "b.parquet").unlink()
    put(orders, "c.parquet", 5, "c", key=3)
    assert "current" == apply(spark, zone, target).state
    assert {1: "a", 2: "b", 3: "c"} == values(spark, target)
    assert_each_file_once(Path(target) / "orders", 3)


@pytest.mark.thorough
def test_a_late_file_is_applied_late_and_counted(
    spark: SparkSession, zone: ZoneWriter, target: str, orders: TableWriter
) -> None:
    """It was written before a file that has been applied, and comes after it all the same."""
    put(orders, "b.parquet", 5, "applied first")
    apply(spark, zone, target)
    put(orders, "a.parquet", 1, "late")
    waiting = mirrorlib.status(target).tables[0]

    report = apply(spark, zone, target)

    assert ("behind", 1, "a.parquet") == (waiting.state, waiting.unapplied, waiting.file)
    assert {1: "late"} == values(spark, target)
    assert any("1 files came late" in warning for warning in report.warnings)
    assert "current" == mirrorlib.status(target).tables[0].state


@pytest.mark.thorough
def test_a_broken_file_stops_the_table_before_it(
    spark: SparkSession, zone: ZoneWriter, target: str, orders: TableWriter
) -> None:
    """A repaired one is read where its new time puts it."""
    put(orders, "a.parquet", 1, "a")
    broken = orders.folder / "b.parquet"
    broken.write_bytes(b"")
    write_at(broken, 2)
    put(orders, "c.parquet", 3, "c")

    stopped = apply(spark, zone, target)

    assert ("failed", "b.parquet", 1) == (stopped.state, stopped.file, stopped.position)
    assert {1: "a"} == values(spark, target)
    put(orders, "b.parquet", 4, "b")
    assert "current" == apply(spark, zone, target).state
    assert {1: "b"} == values(spark, target)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "step, when", [("plan", "after"), ("commit", "before"), ("commit", "after"), ("done", "after")]
)
def test_a_killed_run_is_carried_to_its_end(
    spark: SparkSession, zone: ZoneWriter, target: str, orders: TableWriter, step: str, when: str
) -> None:
    """Its plan names its files; what has come meanwhile, late or not, is another batch's."""
    put(orders, "a.parquet", 1, "a")
    apply(spark, zone, target)
    put(orders, "c.parquet", 3, "c")

    with pytest.raises(Killed):
        apply(spark, zone, target, observe=at(step, when, die))
    put(orders, "b.parquet", 2, "b")
    planned = mirrorlib.plan(spark, str(zone), target).tables[0]

    report = apply(spark, zone, target)

    assert ("current", 3) == (report.state, report.position)
    committed = (step, when) == ("commit", "after")  # there is nothing left of it to plan
    assert planned.files == sum(batch.files for batch in report.batches) - committed
    assert {1: "b"} == values(spark, target)
    assert_each_file_once(Path(target) / "orders", 3)


@pytest.mark.thorough
def test_another_order_asks_for_a_new_start(
    spark: SparkSession, zone: ZoneWriter, target: str, orders: TableWriter
) -> None:
    """Numbers say nothing about times, nor the reverse; a reset table takes everything in the new order."""
    put(orders, f"{2:020d}.parquet", 1, "first by time")
    put(orders, f"{1:020d}.parquet", 2, "first by number")
    apply(spark, zone, target)
    orders.by_time = False
    orders.metadata(keys=["id"])

    refused = apply(spark, zone, target)

    assert "failed" == refused.state
    assert "SequentialFileName instead of LastUpdateTimeFileDetection" in refused.reason
    assert "mirrorlib reset" in refused.reason
    mirrorlib.reset(spark, target, "orders")
    assert "current" == apply(spark, zone, target).state
    assert_same_rows(
        multiset([{"id": 1, "v": "first by time"}]),
        multiset(read_rows(spark, Path(target) / "orders")),
    )


@pytest.mark.thorough
def test_delimited_files_come_by_time_too(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """By the extension that the metadata states."""
    columns = [{"Name": "id", "DataType": "Int32"}, {"Name": "v", "DataType": "String"}]
    metadata = {
        "fileDetectionStrategy": "LastUpdateTimeFileDetection",
        "FileFormat": "DelimitedText",
        "FileExtension": ".tsv",
        "FileFormatTypeProperties": {"ColumnSeparator": "\t", "FirstRowAsHeader": True},
        "SchemaDefinition": {"Columns": columns},
    }
    table = zone.table("orders", keys=["id"], metadata=metadata)
    for name, second, value in (("b.tsv", 1, "old"), ("a.tsv", 2, "new"), ("c.csv", 3, "foreign")):
        path = table.folder / name
        path.write_text(f"id\tv\t__rowMarker__\n1\t{value}\t4\n")
        write_at(path, second)

    report = apply(spark, zone, target)

    assert ("current", 2) == (report.state, report.position), report.reason
    assert {1: "new"} == values(spark, target)


@pytest.mark.thorough
def test_a_reset_tells_which_applied_files_are_gone(
    spark: SparkSession, zone: ZoneWriter, target: str, orders: TableWriter
) -> None:
    """No number shows what is missing."""
    for number in (1, 2):
        orders.file([{"id": number, "v": "old"}])
    apply(spark, zone, target, cleanup="move")
    orders.file([{"id": 3, "v": "new"}])

    mirrorlib.reset(spark, target, "orders")

    for looks in (mirrorlib.plan, mirrorlib.apply):
        (found,) = looks(spark, str(zone), target).tables
        assert "files that were applied before are gone" in str(found.warnings)
        assert "(2 in all)" in str(found.warnings)
    assert {3: "new"} == values(spark, target)

    (plan,) = Path(target, "_mirrorlib/journal/orders/000002").glob("*.plan.json")
    plan.write_text("{")
    assert "JournalError" == apply(spark, zone, target).error
    mirrorlib.reset(spark, target, "orders")
    found = apply(spark, zone, target)
    assert "current" == found.state, found.reason
    assert f"gone: {plan} is damaged or lost" in found.warnings[0]


@pytest.mark.thorough
def test_a_folder_that_was_copied_back_is_known_by_what_its_files_hold(
    spark: SparkSession, zone: ZoneWriter, target: str, orders: TableWriter
) -> None:
    """They are others to the store, as from a backup."""
    zone.table("z", keys=["id"]).file([{"id": 1}])
    first, _ = (orders.file([{"id": number, "v": "old"}]) for number in (1, 2))
    assert "current" == apply(spark, zone, target, tables="orders").state
    kept = shutil.copytree(orders.folder, zone.root.with_name("kept"))
    shutil.rmtree(orders.folder)
    assert "gone" == apply(spark, zone, target, tables="orders").state
    shutil.copytree(kept, orders.folder)
    first.unlink()

    refused = apply(spark, zone, target, tables="orders")

    assert ("failed", True) == (refused.state, "come back without files" in refused.reason)
    shutil.copy2(kept / first.name, first)
    assert "current" == apply(spark, zone, target, tables="orders").state
    assert {1: "old", 2: "old"} == values(spark, target)


@pytest.mark.thorough
def test_a_folder_that_was_only_away_has_to_come_back_whole(
    spark: SparkSession, zone: ZoneWriter, target: str, orders: TableWriter
) -> None:
    """As while a zone is restored; one that was made anew begins with what is there, and says so."""
    zone.table("z", keys=["id"]).file([{"id": 1}])
    for number in (1, 2):
        orders.file([{"id": number, "v": "old"}])
    apply(spark, zone, target, cleanup="move")
    away = orders.folder.rename(zone.root.with_name("away"))
    assert "gone" == apply(spark, zone, target, tables="orders").state
    away.rename(orders.folder)
    orders.file([{"id": 3, "v": "new"}])

    refused = apply(spark, zone, target)

    assert "failed" == refused.state
    assert "come back without files that were applied" in refused.reason
    assert refused.reason == mirrorlib.plan(spark, str(zone), target).tables[0].reason
    for path in orders.folder.glob("_ProcessedFiles/*/*"):
        path.rename(orders.folder / path.name)
    assert "current" == apply(spark, zone, target).state
    assert {1: "old", 2: "old", 3: "new"} == values(spark, target)

    orders.drop()
    assert "gone" == apply(spark, zone, target, tables="orders").state
    orders.make()
    orders.metadata(keys=["id"])
    orders.file([{"id": 4, "v": "anew"}])
    found = apply(spark, zone, target)
    assert "current" == found.state
    assert "files that were applied before are gone" in str(found.warnings)
    assert {4: "anew"} == values(spark, target)

"""Tables in partition folders: each numbers its own files, none holds another back, and what a folder states is a column."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import mirrorlib
from mirrors import Killed, at, die
from oracle import assert_same_rows, multiset
from tables import assert_each_file_once, assert_feed_replays, read_rows
from zones import TableWriter, ZoneWriter, damage_pages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorlib.ingest.report import TableReport

pytestmark = pytest.mark.slow
EU, US = "Region=eu", "Region=us"
NO_REGION = "Region=__HIVE_DEFAULT_PARTITION__"
TYPES = {"id": "Int32", "r": "Int32", "at": "DateTime"}


@pytest.fixture
def orders(zone: ZoneWriter) -> TableWriter:
    """Make a table with partition folders."""
    return zone.table("orders", keys=["id"], metadata={"isPartitionEnabled": "true"})


def apply(spark: SparkSession, zone: ZoneWriter, target: str, **options: object) -> TableReport:
    """Apply the one table."""
    return mirrorlib.apply(spark, str(zone), target, **options).tables[0]  # type: ignore[arg-type]  # any option


def put(orders: TableWriter, folder: str, number: int, *ids: int, value: str = "x") -> Path:
    """Publish upserts in a partition folder."""
    rows = [{"id": key, "v": value} for key in ids]
    return orders.file(rows, [4] * len(ids), number, partition=folder)


def put_text(orders: TableWriter, folder: str, text: str) -> Path:
    """Publish the first file of a partition folder, as text."""
    path = orders.path(1, partition=folder).with_suffix(".csv")
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return path


def assert_rows(spark: SparkSession, target: str, rows: list[dict[str, object]]) -> None:
    """Compare the table with what it has to hold."""
    assert_same_rows(multiset(rows), multiset(read_rows(spark, Path(target) / "orders")))


@pytest.mark.thorough("large")
def test_what_a_folder_states_is_a_column(
    spark: SparkSession, zone: ZoneWriter, target: str, orders: TableWriter, road: str
) -> None:
    """Where the files lack it; escaped values, nested folders and no value among them; one name in many folders."""
    put(orders, "Region=eu/Day=2026-01-28", 1, 1, 2)
    put(orders, "Region=a%2Fb/Day=__HIVE_DEFAULT_PARTITION__", 1, 3)
    orders.file(
        pa.table({"id": [4], "v": ["x"], "Region": ["its own"]}), [4], 1, partition="Region=us"
    )

    report = apply(spark, zone, target)

    assert ("current", 1) == (report.state, len(report.batches)), (road, report.reason)
    nested, other = "Region=eu/Day=2026-01-28", "Region=a%2Fb/Day=__HIVE_DEFAULT_PARTITION__"
    assert {nested: 1, other: 1, US: 1} == report.position
    first = [{"id": key, "v": "x", "Region": "eu", "Day": "2026-01-28"} for key in (1, 2)]
    last = [{"id": 3, "v": "x", "Region": "a/b"}, {"id": 4, "v": "x", "Region": "its own"}]
    assert_rows(spark, target, [*first, *last])
    put(orders, nested, 2, 1, value="again")
    assert "current" == apply(spark, zone, target).state
    first[0]["v"] = "again"
    assert_rows(spark, target, [*first, *last])
    assert_feed_replays(spark, Path(target) / "orders")


@pytest.mark.thorough("large", "small")
def test_a_folder_s_column_can_be_a_key(
    spark: SparkSession, zone: ZoneWriter, target: str, road: str
) -> None:
    """The same id in two folders is two rows then."""
    table = zone.table("orders", keys=["Region", "id"], metadata={"isPartitionEnabled": True})
    put(table, EU, 1, 1)
    put(table, US, 1, 1)
    assert "current" == apply(spark, zone, target).state, road
    table.file([{"id": 1}], [2], 2, partition=US)
    put(table, EU, 2, 1, value="y")

    report = apply(spark, zone, target)

    assert ("current", ()) == (report.state, report.warnings), report.reason
    assert_rows(spark, target, [{"id": 1, "v": "y", "Region": "eu"}])


@pytest.mark.thorough
@pytest.mark.parametrize("text", [False, True])
def test_a_folder_s_null_can_be_part_of_a_key(
    spark: SparkSession, zone: ZoneWriter, target: str, road: str, *, text: bool
) -> None:
    """It is a key like any other, and told; in Parquet and in text."""
    stated = {"isPartitionEnabled": True, **({"FileFormat": "CSV"} if text else {})}
    table = zone.table("orders", keys=["Region", "id"], metadata=stated)

    def publish(folder: str, number: int, value: str) -> None:
        path = table.path(number, partition=folder).with_suffix(".csv")
        path.parent.mkdir(parents=True, exist_ok=True)
        if text:
            path.write_text(f"id,v,__rowMarker__\n1,{value},4\n")
        else:
            put(table, folder, number, 1, value=value)

    publish(NO_REGION, 1, "x")
    publish(EU, 1, "x")
    assert "current" == apply(spark, zone, target, settle=0).state, road
    publish(NO_REGION, 2, "y")

    report = apply(spark, zone, target, settle=0)

    assert "current" == report.state, report.reason
    assert any("1 NULL key values; " in warning for warning in report.warnings)
    rows = read_rows(spark, Path(target) / "orders")
    assert [("eu", "x"), (None, "y")] == sorted(
        ((row["Region"], row["v"]) for row in rows), key=lambda row: str(row[1])
    )


@pytest.mark.thorough
def test_a_partial_update_sets_the_null_that_its_folder_states(
    spark: SparkSession, zone: ZoneWriter, target: str, orders: TableWriter
) -> None:
    """The row has moved there: what a folder states, its files have."""
    put(orders, EU, 1, 1)
    assert "current" == apply(spark, zone, target, partial_updates="absent").state
    orders.file([{"id": 1}], [1], 1, partition=NO_REGION)

    assert "current" == apply(spark, zone, target, partial_updates="absent").state

    assert_rows(spark, target, [{"id": 1, "v": "x", "Region": None}])


@pytest.mark.thorough("large-*", "small-zero*", "small-page")
@pytest.mark.parametrize("trouble", ["gap", "zero bytes", "page"])
def test_one_folder_s_trouble_is_not_the_others(
    spark: SparkSession, zone: ZoneWriter, target: str, orders: TableWriter, road: str, trouble: str
) -> None:
    """They go on, the table says what is wrong, and a repaired file is simply read."""
    for folder in (EU, US):
        put(orders, folder, 1, 1 if folder == EU else 2)
    bad = put(orders, EU, 2, 1, value="bad")
    put(orders, EU, 3, 1, value="last")
    put(orders, US, 2, 2, value="y")
    whole = bad.read_bytes()
    if trouble == "gap":
        bad.unlink()
    elif trouble == "page":
        damage_pages(bad)
    else:
        bad.write_bytes(b"")

    report = apply(spark, zone, target)

    name = f"{EU}/{bad.name}"
    state = "blocked" if trouble == "gap" else "failed"
    assert (state, name) == (report.state, report.file), (road, report.reason)
    assert name in report.reason
    assert {EU: 1, US: 2} == report.position
    rows = [{"id": 1, "v": "x", "Region": "eu"}, {"id": 2, "v": "y", "Region": "us"}]
    assert_rows(spark, target, rows)
    again = apply(spark, zone, target)
    assert (state, name, ()) == (again.state, again.file, again.batches)
    told = mirrorlib.status(target).tables[0]
    assert (state, 1 if trouble == "gap" else 2) == (told.state, told.unapplied)
    put(orders, US, 3, 3)
    assert 1 == len(apply(spark, zone, target).batches)

    bad.write_bytes(whole)

    assert "current" == apply(spark, zone, target).state
    rows = [{"id": 1, "v": "last", "Region": "eu"}, rows[1], {"id": 3, "v": "x", "Region": "us"}]
    assert_rows(spark, target, rows)
    assert_each_file_once(Path(target) / "orders", 6)


@pytest.mark.thorough
@pytest.mark.parametrize("step, when", [("plan", "after"), ("commit", "after")])
def test_a_killed_run_is_carried_to_its_end(
    spark: SparkSession, zone: ZoneWriter, target: str, orders: TableWriter, step: str, when: str
) -> None:
    """A plan over several folders finds its files again."""
    put(orders, EU, 1, 1)
    apply(spark, zone, target)
    put(orders, US, 1, 2)
    put(orders, EU, 2, 1, value="y")

    with pytest.raises(Killed):
        apply(spark, zone, target, observe=at(step, when, die))
    put(orders, US, 2, 2, value="z")

    report = apply(spark, zone, target)

    assert ("current", {EU: 2, US: 2}) == (report.state, report.position)
    rows = [{"id": 1, "v": "y", "Region": "eu"}, {"id": 2, "v": "z", "Region": "us"}]
    assert_rows(spark, target, rows)
    assert_each_file_once(Path(target) / "orders", 4)


@pytest.mark.thorough
def test_folders_without_their_beginning_start_where_each_can(
    spark: SparkSession, zone: ZoneWriter, target: str, orders: TableWriter
) -> None:
    """One that shows less than the number begins with that; one that comes later begins with 1."""
    for folder, number in ((EU, 50), (EU, 51), (US, 3)):
        put(orders, folder, number, number)

    report = apply(spark, zone, target, start_at=50, max_files=1)

    assert ("current", {EU: 51, US: 3}) == (report.state, report.position), report.reason
    put(orders, "Region=th", 1, 1)
    put(orders, US, 4, 4)
    assert "current" == apply(spark, zone, target).state
    assert 5 == len(read_rows(spark, Path(target) / "orders"))


@pytest.mark.thorough
def test_one_file_a_batch_gives_the_same_table(
    spark: SparkSession, zone: ZoneWriter, target: str, orders: TableWriter
) -> None:
    """And the folders that are there first do not keep the others waiting for ever."""
    for number in (1, 2):
        put(orders, EU, number, 1, value=f"eu {number}")
        put(orders, US, number, 2, value=f"us {number}")

    report = apply(spark, zone, target, max_files=1)

    assert ("current", 4) == (report.state, len(report.batches))
    rows = [{"id": 1, "v": "eu 2", "Region": "eu"}, {"id": 2, "v": "us 2", "Region": "us"}]
    assert_rows(spark, target, rows)


@pytest.mark.thorough
def test_a_folder_whose_name_is_not_utf_8_fails_alone(
    spark: SparkSession, zone: ZoneWriter, target: str, orders: TableWriter
) -> None:
    """As a disk has it, and escaped; two such names must not come to one value."""
    for number, folder in enumerate((EU, "Region=x", "Region=%FE"), start=1):
        put(orders, folder, 1, number)
    (orders.folder / "Region=x").rename(orders.folder / "Region=\udcff")

    report = apply(spark, zone, target)

    assert ("failed", "SchemaError") == (report.state, report.error), report.reason
    assert "column Region: the folder's value is no text" in report.reason
    assert_rows(spark, target, [{"id": 1, "v": "x", "Region": "eu"}])
    assert "failed" == apply(spark, zone, target).state


@pytest.mark.thorough
def test_a_declared_type_is_the_folder_s_too(
    spark: SparkSession, zone: ZoneWriter, target: str, road: str
) -> None:
    """In text, whichever of the files have the column; a folder of no such value fails alone."""
    columns = [{"Name": name, "DataType": kind} for name, kind in TYPES.items()]
    declared = {"FileFormat": "CSV", "SchemaDefinition": {"Columns": columns}}
    table = zone.table("orders", keys=["id"], metadata={**declared, "isPartitionEnabled": True})
    put_text(table, "r=7/at=2026-01-28 10%3A00%3A00/free=07", "id\n1\n")
    put_text(table, "r=8/at=__HIVE_DEFAULT_PARTITION__", "id,r,free\n2,8,x\n")
    put_text(table, "r=", "id\n3\n")
    bad = put_text(table, "r=seven", "id\n4\n")

    report = apply(spark, zone, target, settle=0)

    assert ("failed", f"r=seven/{bad.name}") == (report.state, report.file), (road, report.reason)
    told = "column r: the folder's value is no Int32, the type in SchemaDefinition (found 5 characters, letters)"
    assert told in report.reason
    assert 3 == report.total("files")
    when = datetime(2026, 1, 28, 10, tzinfo=UTC)
    rows = [
        {"id": 1, "r": 7, "at": when, "free": "07"},
        {"id": 2, "r": 8, "free": "x"},
        {"id": 3},
    ]
    assert_rows(spark, target, rows)

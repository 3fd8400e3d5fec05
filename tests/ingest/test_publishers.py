"""What real publishers do and the format's documentation says: they clean up, and leave out what they take for granted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import mirrorlib
from tables import read_rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from mirrorlib.ingest.report import TableReport
    from tests.zones import ZoneWriter


def apply(spark: SparkSession, zone: ZoneWriter, target: str, **options: Any) -> TableReport:
    """Apply a zone of one table."""
    return mirrorlib.apply(spark, str(zone.root), target, settle=0, **options).tables[0]


@pytest.mark.parametrize("by_time", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_a_folder_that_its_publisher_has_emptied_is_current(
    spark: SparkSession, zone: ZoneWriter, target: str, *, by_time: bool
) -> None:
    """And says that it is empty, and since when, the same in every run and in `status`, until something comes."""
    orders = zone.table("orders", keys=["id"], by_time=by_time)
    for number in (1, 2):
        orders.file([{"id": number}], number=number)
    applied = apply(spark, zone, target)
    assert "current" == applied.state
    for number in (1, 2):
        orders.path(number).unlink()
    before = mirrorlib.status(target).tables[0]
    assert before.since is None  # nobody has written it down yet

    first, second = apply(spark, zone, target), apply(spark, zone, target)
    status = mirrorlib.status(target).tables[0]

    assert ("current", 2) == (before.state, before.position) == (first.state, first.position)
    assert "the folder is empty" in before.reason
    assert before.reason == first.reason == second.reason == status.reason
    assert str(applied.since) < str(first.since)
    assert first.since == second.since == status.since
    assert "orders is current since " in str(mirrorlib.status(target))
    assert "current" == mirrorlib.plan(spark, str(zone.root), target).tables[0].state
    orders.file([{"id": 3}], number=3)
    assert ("current", "") == ((found := apply(spark, zone, target)).state, found.reason)
    assert "" == mirrorlib.status(target).tables[0].reason


def test_a_table_is_blocked_since_the_first_run_that_said_so(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """However many files come meanwhile, which the reason counts."""
    orders = zone.table("orders", keys=["id"])
    orders.file([{"id": 1}], number=1)
    told = []
    for number in (3, 4):
        orders.file([{"id": number}], number=number)
        told.append(apply(spark, zone, target))

    assert ["blocked", "blocked"] == [one.state for one in told]
    assert told[0].reason != told[1].reason
    assert told[0].since == told[1].since


def test_csv_files_decide_where_metadata_states_no_format(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """CSV is the documentation's default; the keys alone are stated, and every later listing goes on so."""
    orders = zone.table("orders", keys=["id"])
    text(orders.folder, 1, "id,v\n1,a\n2,b\n")

    found = apply(spark, zone, target)
    text(orders.folder, 2, "id,v,__rowMarker__\n2,,2\n3,c,4\n")
    later = apply(spark, zone, target, listing="incremental")

    assert ("current", "current") == (found.state, later.state)
    assert any("it states no FileFormat, and all files are .csv: CSV" in w for w in found.warnings)
    rows = read_rows(spark, f"{target}/orders")
    assert [("1", "a"), ("3", "c")] == sorted((row["id"], row["v"]) for row in rows)


def test_files_of_two_formats_decide_nothing(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """The text is refused by name, with what to declare."""
    orders = zone.table("orders", keys=["id"])
    orders.file([{"id": 1}], number=1)
    text(orders.folder, 2, "id\n2\n")

    found = apply(spark, zone, target)

    assert ("failed", 1, f"{2:020d}.csv") == (found.state, found.position, found.file)
    assert '"FileFormat": "CSV"' in found.reason


def text(folder: Path, number: int, content: str) -> None:
    """Publish a numbered file of delimited text."""
    (folder / f"{number:020d}.csv").write_text(content)


def test_a_key_that_rows_lack_is_not_added_to_them(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """It would be NULL there, and an upsert would double them."""
    orders = zone.table("orders")
    orders.file([{"v": 1}])
    assert "current" == apply(spark, zone, target).state
    orders.metadata(keys=["id"])
    orders.file([{"id": 1, "v": 1}], markers=[4])

    found = apply(spark, zone, target)

    assert ("failed", True) == (found.state, "rows lack a key column" in found.reason)
    assert [{"v": 1}] == read_rows(spark, f"{target}/orders")


def test_a_key_column_may_come_after_a_file_that_has_no_rows(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """An empty frame says nothing of a text's type, and the table begins without that column."""
    orders = zone.table("orders", keys=["id"])
    empty = {"id": pa.nulls(0), "v": pa.array([], pa.int64())}
    for columns in (empty, {"id": ["a"], "v": [1]}):
        orders.file(pa.table(columns))
        assert "current" == (found := apply(spark, zone, target)).state, found.reason

    assert [{"v": 1, "id": "a"}] == read_rows(spark, f"{target}/orders")

"""A table folder that goes, comes back, or lacks its beginning; and what that makes of the Delta table."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pytest

import mirrorlib
from mirrorlib.cli.main import main
from mirrorlib.errors import JournalError
from mirrorlib.ingest.files.table_folder import open_folder
from mirrorlib.ingest.lifecycle import _next_life
from mirrorlib.ingest.options import Options
from mirrorlib.ingest.reset import _begin_anew
from mirrorlib.journal.disk import Journal
from mirrorlib.names import TableName
from mirrorlib.store import LocalStore
from operate.test_status import applied
from tables import assert_feed_replays, newest_version, read_rows
from zones import TableWriter, ZoneWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorlib.ingest.job import Job
    from mirrorlib.ingest.report import TableReport

pytestmark = pytest.mark.slow


@pytest.fixture
def orders(spark: SparkSession, zone: ZoneWriter, target: str) -> TableWriter:
    """Make and apply a table; another one stays as it is."""
    zone.table("other", keys=["id"]).file([{"id": 1}])
    table = zone.table("orders", keys=["id"])
    for number in (1, 2):
        table.file([{"id": number, "v": "old"}], [4])
    assert apply(spark, zone, target)["orders"].state == "current"
    return table


def apply(
    spark: SparkSession, zone: ZoneWriter, target: str, **options: object
) -> dict[str, TableReport]:
    """Apply the zone; give each table's report."""
    report = mirrorlib.apply(spark, str(zone), target, **options)  # type: ignore[arg-type]  # any option
    return {table.table: table for table in report.tables}


def re_create(orders: TableWriter) -> None:
    """Make the table's folder again, with one file."""
    orders.last = 0
    orders.make()
    orders.metadata(keys=["id"])
    orders.file([{"id": 7, "v": "new"}])


def values(spark: SparkSession, target: str) -> dict[object, object]:
    """Read the table: v by id."""
    return {row["id"]: row["v"] for row in read_rows(spark, Path(target) / "orders")}


@pytest.mark.thorough
def test_a_table_whose_folder_is_gone_is_kept(
    spark: SparkSession, zone: ZoneWriter, target: str, orders: TableWriter
) -> None:
    """Its rows stay; plan, apply and status say so, and nothing is wrong with that."""
    version = newest_version(Path(target) / "orders")
    shutil.rmtree(orders.folder)
    seen = {table.table: table.state for table in mirrorlib.status(target).tables}
    planned = {t.table: t.state for t in mirrorlib.plan(spark, str(zone), target).tables}

    found = apply(spark, zone, target)["orders"]

    assert {"orders": "gone", "other": "current"} == seen == planned
    assert "gone" == found.state
    assert "kept as it is" in found.reason
    assert {1: "old", 2: "old"} == values(spark, target)
    assert version == newest_version(Path(target) / "orders")
    assert "gone" == apply(spark, zone, target)["orders"].state
    assert "orders" not in apply(spark, zone, target, tables=["other"])
    assert 0 == main(["status", target])


@pytest.mark.thorough
@pytest.mark.usefixtures("orders")
def test_nothing_is_gone_from_a_zone_that_shows_nothing(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """It looks like one that is not mounted."""
    elsewhere = zone.root.with_name("elsewhere")
    zone.root.rename(elsewhere)
    zone.root.mkdir()

    report = mirrorlib.apply(spark, str(zone), target, on_gone="drop")

    assert () == report.tables
    assert report.ok
    assert "warning: The landing zone shows no table at all" in str(report)
    assert report.warnings == mirrorlib.plan(spark, str(zone), target).warnings
    told = mirrorlib.status(target).tables
    assert ["current", "current"] == [table.state for table in told]
    assert [report.warnings] * 2 == [table.warnings for table in told]
    zone.root.rmdir()
    elsewhere.rename(zone.root)
    assert "current" == apply(spark, zone, target)["orders"].state
    assert {1: "old", 2: "old"} == values(spark, target)


@pytest.mark.thorough
def test_the_last_table_of_a_zone_starts_over_when_its_owner_says_so(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """Without a reset, files of the same identity would pass for those that were applied."""
    table = zone.table("orders", keys=["id"])
    table.file([{"id": 1, "v": "old"}])
    apply(spark, zone, target)
    table.drop()
    assert {} == apply(spark, zone, target)

    mirrorlib.reset(spark, target, "orders")
    re_create(table)

    assert "current" == apply(spark, zone, target)["orders"].state
    assert {7: "new"} == values(spark, target)


@pytest.mark.thorough
def test_a_gone_table_is_told_when_it_alone_is_asked_for(
    spark: SparkSession, zone: ZoneWriter, target: str, orders: TableWriter
) -> None:
    """Others, which were not asked for, show that the zone is there."""
    shutil.rmtree(orders.folder)

    found = apply(spark, zone, target, tables=["orders"])

    assert ["gone"] == [table.state for table in found.values()]


def test_a_re_created_folder_begins_a_new_life(
    spark: SparkSession, zone: ZoneWriter, target: str, orders: TableWriter
) -> None:
    """Its content replaces the old in one commit; the feed goes on."""
    shutil.rmtree(orders.folder)
    apply(spark, zone, target)
    re_create(orders)
    assert "replaces the table" in str(mirrorlib.plan(spark, str(zone), target))
    back = next(t for t in mirrorlib.status(target).tables if t.table == "orders")
    assert ("behind", 1) == (back.state, back.unapplied)
    assert "folder is back" in back.reason

    found = apply(spark, zone, target)["orders"]

    assert ("current", 1) == (found.state, found.position)
    assert {7: "new"} == values(spark, target)
    assert_feed_replays(spark, Path(target) / "orders")
    assert 2 == next(t.life for t in mirrorlib.status(target).tables if t.table == "orders")
    orders.file([{"id": 8, "v": "newer"}])
    assert "current" == apply(spark, zone, target)["orders"].state
    assert {7: "new", 8: "newer"} == values(spark, target)


@pytest.mark.thorough
def test_a_folder_that_no_run_saw_absent_is_its_owner_s_to_judge(
    spark: SparkSession, zone: ZoneWriter, target: str, orders: TableWriter
) -> None:
    """A re-upload looks like a re-creation: the table is blocked until it is reset, whatever comes after."""
    orders.drop()
    orders.make()
    orders.metadata(keys=["id"])
    for number in (1, 2):
        orders.file([{"id": number, "v": "again"}], [4])

    found = apply(spark, zone, target)["orders"]

    assert "blocked" == found.state
    assert orders.path(1).name in found.reason
    assert "mirrorlib reset TARGET orders" in found.reason
    assert {1: "old", 2: "old"} == values(spark, target)
    assert any("changed since" in warning for warning in found.warnings)
    assert "blocked" == mirrorlib.plan(spark, str(zone), target, tables=["orders"]).tables[0].state
    assert "blocked" == next(
        t.state for t in mirrorlib.status(target).tables if t.table == "orders"
    )
    orders.file([{"id": 3, "v": "next"}], [4])
    assert "blocked" == apply(spark, zone, target)["orders"].state
    mirrorlib.reset(spark, target, "orders")
    assert "current" == apply(spark, zone, target)["orders"].state
    assert {1: "again", 2: "again", 3: "next"} == values(spark, target)


@pytest.mark.thorough
def test_a_gone_table_is_dropped_when_that_is_asked_for(
    spark: SparkSession, zone: ZoneWriter, target: str, orders: TableWriter
) -> None:
    """Its folder goes, its neighbours stay; when it comes back it is made anew."""
    shutil.rmtree(orders.folder)
    planned = mirrorlib.plan(spark, str(zone), target, on_gone="drop", cleanup="move", quiet=True)

    found = apply(spark, zone, target, on_gone="drop")

    (told,) = (table for table in planned.tables if table.table == "orders")
    assert ("gone", True) == (told.state, "will be dropped" in told.reason)
    assert ("gone", "current") == (found["orders"].state, found["other"].state)
    assert "was dropped" in found["orders"].reason
    assert not (Path(target) / "orders").exists()
    re_create(orders)
    assert "current" == apply(spark, zone, target, on_gone="drop")["orders"].state
    assert {7: "new"} == values(spark, target)


def test_no_table_is_made_inside_one_that_is_kept(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """Cleaning up the outer one would delete the inner one's files: the way out is told before anything is made."""
    outer = zone.table("orders", keys=["id"])
    outer.file([{"id": 1}])
    applied(zone, target, outer)
    (Path(target) / "orders" / "_delta_log").mkdir(parents=True)
    shutil.rmtree(outer.folder)
    zone.table("items", keys=["id"], schema="orders").file([{"id": 1}])

    planned = {table.table: table for table in mirrorlib.plan(spark, str(zone), target).tables}
    found = apply(spark, zone, target)

    states = {"orders": "gone", "orders/items": "failed"}
    assert states == {name: table.state for name, table in found.items()}
    assert states == {name: table.state for name, table in planned.items()}
    reason = found["orders/items"].reason
    assert "orders/items and orders would lie one inside the other" in reason
    assert "--on-gone drop" in reason
    assert reason == planned["orders/items"].reason
    assert ["_delta_log"] == [path.name for path in (Path(target) / "orders").iterdir()]


def test_a_run_that_was_killed_while_it_made_a_table_stops_nothing(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """Delta makes the folder of a log before its first version, and takes one without any for a table."""
    zone.table("orders", keys=["id"]).file([{"id": 1}])
    log = Path(target) / "orders" / "_delta_log"
    (log / "_staged_commits").mkdir(parents=True)
    (log / f".{0:020d}.json.ec430dc6.tmp").write_text("{")

    assert "current" == apply(spark, zone, target)["orders"].state
    assert [1] == [row["id"] for row in read_rows(spark, f"{target}/orders")]


@pytest.mark.thorough
def test_a_table_takes_the_place_of_one_that_was_dropped(
    spark: SparkSession, zone: ZoneWriter, target: str, orders: TableWriter
) -> None:
    """What was refused beside it is nobody's, so it may be dropped."""
    shutil.rmtree(orders.folder)
    zone.table("items", keys=["id"], schema="orders").file([{"id": 1}])
    zone.table("Other", keys=["id"]).file([{"id": 1}])
    refused = apply(spark, zone, target)
    assert {"Other": "failed", "other": "failed", "orders/items": "failed", "orders": "gone"} == {
        name: table.state for name, table in refused.items()
    }
    shutil.rmtree(zone.root / "Other")

    first = apply(spark, zone, target, on_gone="drop")
    second = apply(spark, zone, target)

    assert ("gone", "failed") == (first["orders"].state, first["orders/items"].state)
    assert "was dropped" in first["orders"].reason
    assert "current" == second["orders/items"].state


@pytest.mark.thorough
def test_a_table_is_dropped_unless_another_one_lies_in_its_folder_now(
    spark: SparkSession, zone: ZoneWriter, target: str, orders: TableWriter
) -> None:
    """One that the journal knows, and that was dropped itself, is in nobody's way."""
    shutil.rmtree(orders.folder)
    apply(spark, zone, target, on_gone="drop")
    inner = zone.table("items", keys=["id"], schema="orders")
    inner.file([{"id": 1}])
    apply(spark, zone, target)
    shutil.rmtree(inner.folder.parent)
    apply(spark, zone, target, on_gone="drop")
    re_create(orders)
    apply(spark, zone, target)
    shutil.rmtree(orders.folder)
    spark.range(3).write.format("delta").save(f"{target}/orders/items")

    kept = apply(spark, zone, target, on_gone="drop")["orders"]
    shutil.rmtree(f"{target}/orders/items")
    dropped = apply(spark, zone, target, on_gone="drop")["orders"]

    assert "another one lies inside its folder" in kept.reason
    assert "was dropped" in dropped.reason
    assert not Path(target, "orders").exists()


@pytest.mark.thorough
def test_a_table_that_comes_back_after_it_was_dropped_may_begin_without_rows(
    spark: SparkSession, zone: ZoneWriter, target: str, orders: TableWriter
) -> None:
    """There is nothing that it would empty."""
    shutil.rmtree(orders.folder)
    apply(spark, zone, target, on_gone="drop")
    again = zone.table("orders", keys=["id"])
    again.file(columns=pa.schema([("id", pa.int64())]), markers=[])

    planned = mirrorlib.plan(spark, str(zone), target)
    found = apply(spark, zone, target)["orders"]

    assert ("orders", "behind", "") in {
        (one.table, one.state, one.reason) for one in planned.tables
    }
    assert ("current", 1) == (found.state, found.position), found.reason
    assert 0 == spark.read.format("delta").load(f"{target}/orders").count()


@pytest.mark.thorough
def test_a_table_of_somebody_else_s_is_not_dropped(
    spark: SparkSession, zone: ZoneWriter, target: str, orders: TableWriter
) -> None:
    """What stands in its place now is not ours to drop."""
    shutil.rmtree(orders.folder)
    shutil.rmtree(Path(target) / "orders")
    spark.range(3).write.format("delta").save(f"{target}/orders")

    planned = mirrorlib.plan(spark, str(zone), target, on_gone="drop")
    found = apply(spark, zone, target, on_gone="drop")["orders"]

    assert ("failed", found.reason) in {(table.state, table.reason) for table in planned.tables}
    assert ("failed", "ForeignWriteError") == (found.state, found.error)
    assert 3 == spark.read.format("delta").load(f"{target}/orders").count()


@pytest.mark.thorough
def test_a_zone_without_its_beginning_starts_where_it_is_told(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """A cleaner's leftover is not taken as new by itself."""
    table = zone.table("orders", keys=["id"])
    table.file([{"id": 16, "v": "left"}], number=16)
    blocked = apply(spark, zone, target)["orders"]

    found = apply(spark, zone, target, start_at=16)["orders"]

    assert ("blocked", None) == (blocked.state, blocked.position)
    assert ("current", 16) == (found.state, found.position), found.reason
    table.file([{"id": 17, "v": "next"}])
    assert "current" == apply(spark, zone, target)["orders"].state
    assert {16: "left", 17: "next"} == values(spark, target)


@pytest.mark.thorough
@pytest.mark.parametrize("how", ["reset", "re-created"])
def test_a_table_that_starts_over_leaves_no_file_out(
    spark: SparkSession, zone: ZoneWriter, target: str, how: str
) -> None:
    """The number may stand in a job since the table's first life; one that is seen first begins with it, and says so."""
    table = zone.table("orders", keys=["id"])
    for number in (1, 2, 3):
        table.file([{"id": number, "v": "a"}])
    first = apply(spark, zone, target, start_at=2)["orders"]
    assert "change files that are left out: 1. The table begins with number 2" in str(
        first.warnings
    )
    assert {2: "a", 3: "a"} == values(spark, target)
    if how == "reset":
        mirrorlib.reset(spark, target, "orders", start_at=1)
    else:
        zone.table("other", keys=["id"]).file([{"id": 1}])
        table.folder.rename(zone.root.parent / "away")
        assert "gone" == apply(spark, zone, target)["orders"].state
        (zone.root.parent / "away").rename(table.folder)

    found = apply(spark, zone, target, start_at=2)["orders"]

    assert ("current", 3) == (found.state, found.position)
    assert "--start-at 2 counts for nothing" in str(found.warnings)
    assert {1: "a", 2: "a", 3: "a"} == values(spark, target)


@pytest.mark.parametrize("why, begun", [("reset", None), ("first seen", ("start at", 10))])
def test_the_number_of_a_reset_counts_for_more_than_a_job_s(
    zone: ZoneWriter, tmp_path: Path, why: str, begun: tuple[str, int] | None
) -> None:
    """Else a full load as file 13 would be applied on top of what came before it; nor is it forgotten by the next one."""
    table, name = zone.table("orders", keys=["id"]), TableName(None, "orders")
    for number in (10, 11, 12, 13):
        table.file([{"id": number}], number=number)
    journal = Journal(LocalStore(tmp_path / "state"), name)
    journal.begin_life(why, str(zone), 1, 13)
    listing = open_folder(LocalStore(zone.root), name).listing
    job = cast("Job", SimpleNamespace(options=Options(start_at=10), rebuilds=False))

    assert begun == _next_life(job, journal, journal.lives(), listing)
    with pytest.raises(JournalError, match=r"--start-at 13\..* --start-at 1\b"):
        _begin_anew(name, None, journal)
    with pytest.raises(JournalError, match=r"_ProcessedFiles, or, where number 10 is a full load"):
        _begin_anew(name, 1, journal)
    assert 10 == _begin_anew(name, 10, journal).start_at


def test_a_reset_does_not_leave_out_files_of_another_format(
    zone: ZoneWriter, tmp_path: Path
) -> None:
    """A table whose format has changed shows them, so they are not gone: whoever began behind them would lose rows."""
    table = zone.table("orders", keys=["id"], metadata={"FileFormat": "CSV"})
    table.file([{"id": 1}])
    table.path(2).with_suffix(".csv").write_text("id\n2\n")
    name = TableName(None, "orders")
    journal = Journal(LocalStore(tmp_path / "state"), name)
    journal.begin_life("first seen", str(zone), 1)

    with pytest.raises(JournalError, match=r"of another format .* 0+1\.parquet .* as file N"):
        _begin_anew(name, None, journal)


@pytest.mark.thorough
def test_a_reset_without_the_first_file_asks_where_to_start(
    spark: SparkSession, zone: ZoneWriter, target: str, orders: TableWriter
) -> None:
    """It would wait for number 1 for ever; nothing has happened to the table by then."""
    orders.path(1).unlink()
    with pytest.raises(JournalError, match="--start-at 2"):
        mirrorlib.reset(spark, target, "orders")
    assert "current" == apply(spark, zone, target)["orders"].state

    mirrorlib.reset(spark, target, "orders", start_at=2)

    assert "current" == apply(spark, zone, target)["orders"].state
    assert {2: "old"} == values(spark, target)
    assert "current" == next(
        t.state for t in mirrorlib.status(target).tables if t.table == "orders"
    )

"""Cleaning up moves what was applied, and nothing else; whatever happens in the middle, no row is lost."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import mirrorlib
from mirrorlib.errors import StoreError
from mirrorlib.store import LocalStore
from mirrors import Killed, at, die
from tables import assert_each_file_once, read_rows
from zones import TableWriter, ZoneWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorlib.ingest.report import TableReport

pytestmark = pytest.mark.slow
TODAY = "????-??-??"


def apply(spark: SparkSession, zone: ZoneWriter, target: str, **options: object) -> TableReport:
    """Apply the one table, and clean up behind it."""
    options = {"cleanup": "move", **options}
    return mirrorlib.apply(spark, str(zone), target, **options).tables[0]  # type: ignore[arg-type]  # any option


def ids(spark: SparkSession, target: str) -> list[object]:
    """Read the table's keys."""
    return sorted(str(row["id"]) for row in read_rows(spark, Path(target) / "orders"))


def left(table: TableWriter) -> list[str]:
    """Name the change files that are still in their place."""
    files = table.folder.rglob("*.parquet")
    names = (str(path.relative_to(table.folder)) for path in files)
    return sorted(name for name in names if not name.startswith("_"))


def moved(table: TableWriter, place: str = "_ProcessedFiles") -> list[str]:
    """Name the change files that were moved."""
    return sorted(path.name for path in table.folder.glob(f"{place}/{TODAY}/**/*.parquet"))


def publish(table: TableWriter, *numbers: int) -> None:
    """Publish files of one row each."""
    for number in numbers:
        table.file([{"id": number}], number=number)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "how, place", [("move", "_ProcessedFiles"), ("delete", "_FilesReadyToDelete")]
)
def test_applied_files_are_moved_but_for_the_newest(
    spark: SparkSession, zone: ZoneWriter, target: str, how: str, place: str
) -> None:
    """Publishers count on from it; what is not applied yet stays too, and the table goes on."""
    table = zone.table("orders", keys=["id"])
    publish(table, 1, 2, 3, 5)

    blocked = apply(spark, zone, target, cleanup=how)

    assert ("blocked", 3) == (blocked.state, blocked.position)
    assert [table.path(number).name for number in (1, 2)] == moved(table, place)[:2]
    assert table.path(5).name in left(table)
    publish(table, 4)
    assert "current" == apply(spark, zone, target, cleanup=how).state
    assert [table.path(5).name] == left(table)
    publish(table, 6)
    assert "current" == apply(spark, zone, target, cleanup=how).state
    assert [str(number) for number in range(1, 7)] == ids(spark, target)
    assert "current" == mirrorlib.status(target).tables[0].state


@pytest.mark.thorough
def test_files_before_the_first_one_stay(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """A life that begins with a later number has not applied them."""
    table = zone.table("orders", keys=["id"])
    publish(table, 1, 2, 3, 4)

    assert "current" == apply(spark, zone, target, start_at=3).state

    assert [table.path(number).name for number in (1, 2, 4)] == left(table)


@pytest.mark.thorough
def test_each_partition_folder_keeps_its_newest(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """Moved files keep their partition folder."""
    table = zone.table("orders", keys=["id"], metadata={"isPartitionEnabled": True})
    for folder, number in (("p=a", 1), ("p=a", 2), ("p=b", 1)):
        table.file([{"id": f"{folder} {number}"}], number=number, partition=folder)

    assert "current" == apply(spark, zone, target).state

    assert [f"p=a/{table.path(2).name}", f"p=b/{table.path(1).name}"] == left(table)
    assert 1 == len(list(table.folder.glob(f"_ProcessedFiles/{TODAY}/p=a/*.parquet")))


@pytest.mark.thorough
def test_files_without_numbers_are_all_moved_and_stay_known(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """The same name published again is an applied one."""
    table = zone.table("orders", keys=["id"], by_time=True)
    publish(table, 1, 2)
    assert "current" == apply(spark, zone, target).state
    assert [] == left(table)
    publish(table, 1, 3)

    report = apply(spark, zone, target)

    assert ("current", 3) == (report.state, report.position)
    assert any("was applied and has been changed" in warning for warning in report.warnings)
    assert [table.path(1).name] == left(table)
    assert ["1", "2", "3"] == ids(spark, target)


@pytest.mark.thorough
def test_a_file_that_was_replaced_stays(spark: SparkSession, zone: ZoneWriter, target: str) -> None:
    """Its new content was never applied."""
    table = zone.table("orders", keys=["id"])
    publish(table, 1, 2)
    apply(spark, zone, target, cleanup=None)
    publish(table, 3)
    apply(spark, zone, target, cleanup=None)
    table.replace(2, [{"id": 99}])

    apply(spark, zone, target)

    assert [table.path(2).name, table.path(3).name] == left(table)


@pytest.mark.thorough
def test_a_plain_file_that_is_overwritten_while_others_are_moved_stays(
    spark: SparkSession, zone: ZoneWriter, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run appends what it holds by then."""
    table, real = zone.table("orders", with_metadata=False), LocalStore.move
    for number in (1, 2):
        table.folder.joinpath(f"{number}.csv").write_text(f"id\n{number}\n")

    def overwrite(store: LocalStore, source: str, target: str) -> None:
        if source.endswith("1.csv"):
            table.folder.joinpath("2.csv").write_text("id\n22\n")
        real(store, source, target)

    options: dict[str, object] = {"plain_folders": "append", "allow_overwrites": True, "settle": 0}
    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "move", overwrite)
        assert "current" == apply(spark, zone, target, **options).state
    assert "current" == apply(spark, zone, target, **options).state

    assert ["1", "2", "22"] == ids(spark, target)
    assert not list(table.folder.glob("*.csv"))


@pytest.mark.thorough
@pytest.mark.parametrize("step, when", [("plan", "after"), ("commit", "after")])
def test_only_batches_that_are_done_are_cleaned_up(
    spark: SparkSession, zone: ZoneWriter, target: str, step: str, when: str
) -> None:
    """A killed run leaves its files to be looked at; the next one carries on and cleans up."""
    table = zone.table("orders", keys=["id"])
    publish(table, 1, 2)
    apply(spark, zone, target, cleanup=None)
    publish(table, 3, 4)

    with pytest.raises(Killed):
        apply(spark, zone, target, observe=at(step, when, die))
    assert {table.path(3).name, table.path(4).name} <= set(left(table))

    assert "current" == apply(spark, zone, target).state

    assert [table.path(4).name] == left(table)
    assert_each_file_once(Path(target) / "orders", 4)


def test_a_crash_in_the_middle_loses_nothing(
    spark: SparkSession, zone: ZoneWriter, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half is moved; the next run moves the rest."""
    table = zone.table("orders", keys=["id"])
    publish(table, 1, 2, 3, 4)
    real = LocalStore.move

    def die(store: LocalStore, source: str, target: str) -> None:
        if source.endswith(table.path(2).name):
            raise Killed
        real(store, source, target)

    with monkeypatch.context() as patch, suppress(Killed):
        patch.setattr(LocalStore, "move", die)
        apply(spark, zone, target)
    assert [table.path(number).name for number in (2, 3, 4)] == left(table)

    assert "current" == apply(spark, zone, target).state

    assert [table.path(4).name] == left(table)
    assert 3 == len(moved(table))


@pytest.mark.thorough
def test_moved_files_go_after_the_retention(
    spark: SparkSession, zone: ZoneWriter, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted from the day on which they were moved; what has another name is not ours. Also where no more can be moved."""
    table, asked = zone.table("orders", keys=["id"]), list[str]()
    publish(table, 1, 2, 3, 4, 5, 6)
    move, first = LocalStore.move, f"orders/{table.path(1).name}"

    def refuse(store: LocalStore, source: str, target: str) -> None:
        if first in asked[1:] and source != first:
            return move(store, source, target)
        asked.append(source)
        msg = f"cannot move {store.uri(source)} to {target}"
        raise StoreError(msg)

    monkeypatch.setattr(LocalStore, "move", refuse)
    monkeypatch.setattr(LocalStore, "at_once", 4)
    days = [datetime.now(UTC).date() - timedelta(days=age) for age in (3, 5)]
    place = table.folder / "_ProcessedFiles"
    theirs = ["20200101", "2020-W01-1", "somebody's"]
    for name in (*(day.isoformat() for day in days), *theirs):
        (place / name).mkdir(parents=True)
        (place / name / "x.parquet").write_bytes(b"x")

    apply(spark, zone, target, retention=4)

    assert sorted([days[0].isoformat(), *theirs]) == sorted(path.name for path in place.iterdir())
    # A store that cannot rename copies first; one file that cannot be moved keeps no other from it.
    assert [f"orders/{table.path(number).name}" for number in (1, 2, 3)] == asked
    apply(spark, zone, target, retention=4)
    assert [f"{number:020d}.parquet" for number in (1, 6)] == sorted(
        path.name for path in table.folder.glob("*.parquet")
    )

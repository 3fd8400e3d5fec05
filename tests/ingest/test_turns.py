"""Whose turn it is in a run of several tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import mirrorlib
from tables import read_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorlib.events import Event
    from zones import ZoneWriter

UPSERT = 4


def test_a_table_whose_files_never_end_lets_others_have_their_turn(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """What came while it was applied is left to the next run, which the others wait for; one that is alone goes on."""
    tables = {name: zone.table(name, keys=["id"]) for name in ("a", "b")}
    for table in tables.values():
        table.file([{"id": 1}], [UPSERT])

    def publish(event: Event) -> None:
        if (event.step, event.when) == ("done", "after") and (event.batch or 0) < 5:
            tables[event.table].file([{"id": 1 + (event.batch or 0)}], [UPSERT])

    def run(*only: str) -> list[tuple[str, str, int]]:
        report = mirrorlib.apply(
            spark, str(zone), target, tables=only, parallelism=1, observe=publish
        )
        return [(one.table, one.state, len(one.batches)) for one in report.tables]

    assert [("a", "behind", 1), ("b", "behind", 1)] == run()
    assert [("a", "behind", 1), ("b", "behind", 1)] == run()
    assert [("a", "current", 3)] == run("a")
    assert 5 == len(read_rows(spark, f"{target}/a"))


@pytest.mark.thorough
def test_what_a_short_look_does_not_show_was_there_too(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """It shows no more files than a batch takes; what comes meanwhile is left to the next run all the same."""
    tables = {name: zone.table(name, keys=["id"]) for name in ("a", "b")}
    for table in tables.values():
        table.file([{"id": 1}], [UPSERT])
    options: dict[str, Any] = {"listing": "incremental", "max_files": 1, "parallelism": 1}
    mirrorlib.apply(spark, str(zone), target, **options)
    for number in (2, 3):
        tables["a"].file([{"id": number}], [UPSERT])

    def publish(event: Event) -> None:
        if (event.step, event.when) == ("done", "after"):
            tables[event.table].file([{"id": 2 + (event.batch or 0)}], [UPSERT])

    report = mirrorlib.apply(spark, str(zone), target, observe=publish, **options)

    told = [(one.state, one.listing, len(one.batches)) for one in report.tables]
    assert [("behind", "incremental", 2), ("current", "incremental", 0)] == told


@pytest.mark.thorough
def test_a_folder_that_waits_for_a_file_takes_no_turn_from_others(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """What was there has its turn, and of what came as many files as wait."""
    tables = {}
    for name in ("a", "b"):
        table = tables[name] = zone.table(name, keys=["id"], metadata={"isPartitionEnabled": True})
        for number in (1, 3):
            table.file([{"id": number}], [UPSERT], number=number, partition="p=1")
        table.file([{"id": 10}], [UPSERT], number=1, partition="p=2")

    def publish(event: Event) -> None:
        if (event.step, event.when) == ("done", "after") and (event.batch or 0) < 6:
            number = 1 + (event.batch or 0)
            row = {"id": 9 + number}
            tables[event.table].file([row], [UPSERT], number=number, partition="p=2")

    report = mirrorlib.apply(spark, str(zone), target, parallelism=1, observe=publish)

    assert [("a", 2), ("b", 2)] == [(one.table, len(one.batches)) for one in report.tables]

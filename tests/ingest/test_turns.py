"""Whose turn it is in a run of several tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

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

"""What is staged is all that came, however it is cut into pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import mirrorlib
from tables import read_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from zones import ZoneWriter

NOTHING = pa.table({"id": pa.array([], pa.int64()), "v": pa.array([], pa.string())})


@pytest.mark.thorough
@pytest.mark.parametrize("keys", [None, ["id"]])
def test_a_file_without_rows_hides_none_of_those_behind_it(
    spark: SparkSession, zone: ZoneWriter, target: str, keys: list[str] | None
) -> None:
    """Before, between and behind files with rows, in the batch that makes the table and in the next one."""
    table = zone.table("t", keys=keys)
    marker = None if keys is None else [4]
    for start in (0, 10):
        for number in (start + 1, start + 2):
            table.file(NOTHING, [] if keys else None)
            table.file([{"id": number, "v": "new"}], marker)
        table.file(NOTHING, [] if keys else None)

        assert mirrorlib.apply(spark, str(zone), target).ok

        rows = sorted(row["id"] for row in read_rows(spark, f"{target}/t"))
        assert [1, 2] + ([11, 12] if start else []) == rows

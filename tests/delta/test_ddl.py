"""Rows of a table in wider types: all as they were, or a reason why they cannot be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from mirrorlib.delta.columns import Column
from mirrorlib.delta.ddl import rewritten_rows
from mirrorlib.delta.table import TableRef
from mirrorlib.errors import SchemaError
from mirrorlib.names import parse_name

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.mark.parametrize("day, fits", [(106_751_990, True), (2**31 - 1, False), (-(2**31), False)])
def test_a_date_that_no_timestamp_tells_is_refused(
    spark: SparkSession, tmp_path: Path, *, day: int, fits: bool
) -> None:
    """By a reason of ours: Java's is an overflow, and Python has no such date."""
    path = str(tmp_path / "t")
    spark.sql(f"SELECT date_from_unix_date({day}) AS d").write.format("delta").save(path)
    ref = TableRef(name=parse_name("t"), sql=f"delta.`{path}`", path=path)
    wider = (Column("d", pa.timestamp("us", "UTC")),)

    if fits:
        assert 1 == rewritten_rows(spark, ref, wider, "file").count()
        return
    with pytest.raises(SchemaError, match="of the table itself does not fit"):
        rewritten_rows(spark, ref, wider, "file")

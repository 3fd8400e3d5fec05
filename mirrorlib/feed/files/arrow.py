"""Read one file's rows in this process, with the values that Spark gives; and give Spark rows that are here.

Out: an Arrow table, or None where Arrow may not read the file as Spark does. Source: Spark takes Arrow tables from
version 4 on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa

from mirrorlib.delta.actions import ChangeFile
from mirrorlib.delta.columns import Column, Columns
from mirrorlib.feed.net import INSERT, KIND
from mirrorlib.identifiers import find_name
from mirrorlib.landing.footer import WRITER, old_calendar
from mirrorlib.landing.parquet import open_parquet
from mirrorlib.landing.types import INSTANT, WALL_CLOCK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def frame_of(spark: SparkSession, rows: pa.Table, schema: StructType) -> DataFrame:
    """Make a frame of rows, in one piece: Spark takes an Arrow batch without rows for the end."""
    return spark.createDataFrame(rows.combine_chunks(), schema)


def read_file(
    source: BinaryIO, file: ChangeFile, columns: Columns, *, most: int | None = None
) -> pa.Table | None:
    """Read columns of a data or change file in the table's types, and of what kind each row's change is.

    None where it has more than *most* rows, or Arrow may not read them as Spark does.
    """
    try:
        parquet = open_parquet(source)
        facts = parquet.metadata.metadata or {}
        few = most is None or parquet.metadata.num_rows <= most
        if WRITER not in facts or old_calendar(facts) or not few:
            return None
        there = parquet.schema_arrow.names
        rows = parquet.read(columns=[one.name for one in columns] + [KIND] * file.images)
        values = {one.name: _as_spark(rows, there, one) for one in columns}
        kinds = rows.column(KIND) if file.images else pa.repeat(INSERT, len(rows))
    except (pa.ArrowException, OSError, KeyError):
        return None
    return pa.table({**values, KIND: kinds.cast(pa.string())})


def _as_spark(rows: pa.Table, there: list[str], wanted: Column) -> pa.ChunkedArray | pa.Array:
    """Give a column in the type of the table's, if the file spells it in the same way and has it once."""
    if find_name(there, wanted.name) is None:
        return pa.nulls(len(rows), wanted.type)
    column = rows.column(wanted.name)
    if column.type == wanted.type:
        return column
    if (column.type, wanted.type) == (WALL_CLOCK, INSTANT):  # of 96 bits, which mean UTC
        return column.cast(wanted.type)
    msg = f"{wanted.name} is {column.type}, not {wanted.type}"
    raise pa.ArrowTypeError(msg)

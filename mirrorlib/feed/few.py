"""Take a window of few rows into this process: Spark would take longer to plan its way than to go it.

In: a window that was proven whole. Out: its rows as an Arrow table, in the shape of a feed, or None where they
are more, or Arrow may not read them as Spark does. Source: Spark takes Arrow tables from version 4 on.
"""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

import pyarrow as pa

from mirrorlib.apply.columns import to_columns
from mirrorlib.apply.generation import ARROW_FRAMES, spark_generation
from mirrorlib.feed.direct import change_files
from mirrorlib.feed.net import FEED_COLUMNS, INSERT, KIND, TIME, VERSION
from mirrorlib.identifiers import find_name
from mirrorlib.landing.calendars import WRITER, old_calendar
from mirrorlib.landing.footer import open_parquet
from mirrorlib.landing.types import INSTANT, WALL_CLOCK

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from mirrorlib.apply.columns import Columns
    from mirrorlib.feed.actions import ChangeFile
    from mirrorlib.feed.place import FeedTable
    from mirrorlib.feed.window import Window

FEW = 2_000  # rows that travel inside the plan: a file costs 40 ms more
HANDFUL = 4 << 20  # bytes of them
_MOST_FILES = 16  # each is fetched by itself


def frame_of(spark: SparkSession, rows: pa.Table, schema: StructType) -> DataFrame:
    """Make a frame of rows, in one piece: Spark takes an Arrow batch without rows for the end."""
    return spark.createDataFrame(rows.combine_chunks(), schema)


def read_few(table: FeedTable, window: Window, schema: StructType) -> pa.Table | None:
    """Read a window's rows, when they are few.

    Args:
        table: the table.
        window: of its versions.
        schema: its columns, and what tells the change.

    """
    known = window.rows is not None and window.rows <= FEW
    files = change_files(table, window) if known and spark_generation() >= ARROW_FRAMES else None
    if files is None or len(files) > _MOST_FILES or sum(file.size for file in files) > HANDFUL:
        return None
    fields = [one for one in schema.fields if one.name not in FEED_COLUMNS]
    columns = to_columns((one.name, one.dataType.simpleString()) for one in fields)
    times = table.commits.fed_at(window.after + 1, window.until)
    pieces = []
    for file in files:
        piece = _read(table, file, columns, times[file.version])
        if piece is None:
            return None  # what is wrong with it, Spark says
        pieces.append(piece)
    rows = pa.concat_tables(pieces)
    return rows if len(rows) <= FEW and rows.nbytes <= HANDFUL else None


def _read(
    table: FeedTable, file: ChangeFile, columns: Columns, committed_at: datetime
) -> pa.Table | None:
    """Read a file's rows in the types that Spark gives Arrow; None where that could be other values."""
    data = table.commits.content(file.path)
    if data is None:
        return None
    try:
        parquet = open_parquet(BytesIO(data))
        told = parquet.metadata.metadata or {}
        if WRITER not in told or old_calendar(told) or parquet.metadata.num_rows > FEW:
            return None
        rows = parquet.read()
        values = {one.name: _as_spark(rows, one.name, one.type) for one in columns}
        kinds = rows.column(KIND) if file.images else pa.repeat(INSERT, len(rows))
    except (pa.ArrowException, OSError, KeyError):
        return None
    at = pa.scalar(committed_at, INSTANT)
    values[KIND] = kinds.cast(pa.string())
    values[VERSION] = pa.repeat(pa.scalar(file.version, pa.int64()), len(rows))
    values[TIME] = pa.repeat(at, len(rows))
    return pa.table(values)


def _as_spark(rows: pa.Table, name: str, kind: pa.DataType) -> pa.ChunkedArray | pa.Array:
    """Give a column in the type of the table's.

    Raises:
        pa.ArrowTypeError: the file has another one.
        KeyError: the file spells the column in another way, or has it twice.

    """
    if find_name(rows.column_names, name) is None:
        return pa.nulls(len(rows), kind)
    column = rows.column(name)
    if column.type == kind:
        return column
    if (column.type, kind) == (WALL_CLOCK, INSTANT):  # of 96 bits, which mean UTC
        return column.cast(kind)
    msg = f"{name} is {column.type}, not {kind}"
    raise pa.ArrowTypeError(msg)

"""Take a window of few rows into this process: Spark would take longer to plan its way than to go it.

In: a window that was proven whole. Out: its rows as an Arrow table, in the shape of a feed, or None where they
are more, or Arrow may not read them as Spark does. Source: Spark takes Arrow tables from version 4 on.
Also one file's rows with the values that Spark gives, see `read_file`.
"""

from __future__ import annotations

from datetime import datetime
from io import BytesIO
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa

from mirrorlib.delta.actions import ChangeFile
from mirrorlib.delta.columns import Column, Columns
from mirrorlib.delta.sessions import ARROW_FRAMES, spark_generation
from mirrorlib.feed.files.direct import change_files, columns_of_window
from mirrorlib.feed.net import INSERT, KIND, TIME, VERSION
from mirrorlib.identifiers import find_name
from mirrorlib.landing.footer import WRITER, old_calendar
from mirrorlib.landing.parquet import open_parquet
from mirrorlib.landing.types import INSTANT, WALL_CLOCK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from mirrorlib.delta.address import FeedTable
    from mirrorlib.feed.window import Window

WINDOW_ROWS = 2_000  # rows that travel inside the plan: a file costs 40 ms more
WINDOW_BYTES = 4 << 20  # bytes of them
_MOST_FILES = 16  # each is fetched by itself


def to_frame(spark: SparkSession, rows: pa.Table, schema: StructType) -> DataFrame:
    """Make a frame of rows, in one piece: Spark takes an Arrow batch without rows for the end."""
    return spark.createDataFrame(rows.combine_chunks(), schema)


def read_small_window(table: FeedTable, window: Window) -> pa.Table | None:
    """Read a window's rows, when they are few: the table's columns, and what tells the change."""
    known = window.rows is not None and window.rows <= WINDOW_ROWS
    files = change_files(table, window) if known and spark_generation() >= ARROW_FRAMES else None
    if files is None or len(files) > _MOST_FILES or sum(file.size for file in files) > WINDOW_BYTES:
        return None
    columns = columns_of_window(window)
    times = table.commits.fed_at(window.after + 1, window.until)
    pieces = []
    for file in files:
        data = table.commits.store.read(file.path)
        piece = None if data is None else read_file(BytesIO(data), file, columns, most=WINDOW_ROWS)
        if piece is None:
            return None  # what is wrong with it, Spark says
        pieces.append(tell_commit(piece, file, times[file.version]))
    rows = pa.concat_tables(pieces)
    return rows if len(rows) <= WINDOW_ROWS and rows.nbytes <= WINDOW_BYTES else None


def tell_commit(rows: pa.Table, file: ChangeFile, at: datetime) -> pa.Table:
    """Add to a file's rows which commit they are of, and when that was."""
    version = pa.repeat(pa.scalar(file.version, pa.int64()), len(rows))
    moment = pa.repeat(pa.scalar(at, INSTANT), len(rows))
    return rows.append_column(VERSION, version).append_column(TIME, moment)


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

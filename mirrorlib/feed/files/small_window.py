"""Take a window of few rows into this process: Spark would take longer to plan its way than to go it.

In: a window that was proven whole. Out: its rows as an Arrow table, in the shape of a feed, or None where they
are more, or Arrow may not read them as Spark does. Source: Spark takes Arrow tables from version 4 on.
"""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

import pyarrow as pa

from mirrorlib.delta.columns import to_columns
from mirrorlib.delta.sessions import ARROW_FRAMES, spark_generation
from mirrorlib.feed.files.arrow import read_file
from mirrorlib.feed.files.direct import change_files
from mirrorlib.feed.net import FEED_COLUMNS, TIME, VERSION
from mirrorlib.landing.types import INSTANT

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from mirrorlib.delta.actions import ChangeFile
    from mirrorlib.delta.address import FeedTable
    from mirrorlib.delta.columns import Columns
    from mirrorlib.feed.window import Window

WINDOW_ROWS = 2_000  # rows that travel inside the plan: a file costs 40 ms more
WINDOW_BYTES = 4 << 20  # bytes of them
_MOST_FILES = 16  # each is fetched by itself


def frame_of(spark: SparkSession, rows: pa.Table, schema: StructType) -> DataFrame:
    """Make a frame of rows, in one piece: Spark takes an Arrow batch without rows for the end."""
    return spark.createDataFrame(rows.combine_chunks(), schema)


def read_small_window(table: FeedTable, window: Window, schema: StructType) -> pa.Table | None:
    """Read a window's rows, when they are few.

    Args:
        table: the table.
        window: of its versions.
        schema: its columns, and what tells the change.

    """
    known = window.rows is not None and window.rows <= WINDOW_ROWS
    files = change_files(table, window) if known and spark_generation() >= ARROW_FRAMES else None
    if files is None or len(files) > _MOST_FILES or sum(file.size for file in files) > WINDOW_BYTES:
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
    return rows if len(rows) <= WINDOW_ROWS and rows.nbytes <= WINDOW_BYTES else None


def _read(
    table: FeedTable, file: ChangeFile, columns: Columns, committed_at: datetime
) -> pa.Table | None:
    """Read a file's rows in the shape of a feed; None where that could be other values than Spark's."""
    data = table.commits.store.read(file.path)
    if data is None:
        return None
    rows = read_file(BytesIO(data), file, columns, most=WINDOW_ROWS)
    if rows is None:
        return None
    version = pa.repeat(pa.scalar(file.version, pa.int64()), len(rows))
    at = pa.repeat(pa.scalar(committed_at, INSTANT), len(rows))
    return rows.append_column(VERSION, version).append_column(TIME, at)

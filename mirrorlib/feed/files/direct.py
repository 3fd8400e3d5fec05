"""Read a window's files as they are, where Delta's reader would do no more than that and takes longer to.

In: a window that was proven whole. Out: what Delta's reader gives for it, or None, where some commit of it,
or the table, asks for more: rows taken out of files, partitions, columns known by ids, nested types. That
is what a mirror's commits mostly are: change files, or data files each row of which was inserted.
Source: Delta PROTOCOL.md, "Change Data Files" and "Reader Requirements for AddCDCFile".

Few rows are read by this process, as Spark would take longer to plan its way than to go it: then they are an Arrow
table, which Spark takes from version 4 on.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from datetime import datetime
from io import BytesIO
from typing import BinaryIO

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructType

from mirrorlib.delta.actions import ChangeFile
from mirrorlib.delta.address import FeedTable
from mirrorlib.delta.columns import Column, Columns, to_columns
from mirrorlib.delta.sessions import ARROW_FRAMES, PATTERN, file_reader, is_remote, spark_generation
from mirrorlib.delta.table import spark_schema
from mirrorlib.feed.net import INSERT, KIND, TIME, VERSION
from mirrorlib.feed.window import Window
from mirrorlib.identifiers import find_name, fold_name, quote
from mirrorlib.landing.footer import WRITER, old_calendar
from mirrorlib.landing.parquet import open_parquet
from mirrorlib.landing.types import INSTANT, WALL_CLOCK

_LOG = logging.getLogger(__name__)
_MANY = 10_000  # files; what is known of them travels in the plan
WINDOW_ROWS = 2_000  # rows that travel inside the plan: a file costs 40 ms more
WINDOW_BYTES = 4 << 20  # bytes of them
_MOST_FILES = 16  # each is fetched by itself
# Which Spark neither hides nor writes anew.
PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?<!\._COPYING_)")
# Of what a table may demand of its readers, what does not change what such files mean.
_PLAIN_READER_FEATURES = frozenset({
    "columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "typeWidening-preview", "v2Checkpoint",
    "vacuumProtocolCheck",
})  # fmt: skip
_OURS = "_mirror_"
_FILE, _COMMIT_FILE = "_mirror_file", "_mirror_commit_file"
_COMMIT_KIND, _COMMIT_TIME = "_mirror_kind", "_mirror_time"
_FACTS = (
    f"{_COMMIT_FILE} string, {_COMMIT_KIND} string, {VERSION} long, {_COMMIT_TIME} timestamp_ltz"
)
_LOST = (
    "A file of the change feed is not what the table's log says of it. Read again; or by the table's name in a "
    "catalog, which leaves it to Delta."
)


def change_files(table: FeedTable, window: Window) -> tuple[ChangeFile, ...] | None:
    """Name the files that are a window's changes as they are; None where they are not.

    Tables of a catalog are left to it: it may let nobody read their files, or not all of their rows.
    """
    files = window.files
    if table.path is None or not files or not _is_plain(window):
        return None
    names = {file.name for file in files}
    plain = len(names) == len(files) <= _MANY and all(map(PLAIN_NAME.fullmatch, names))
    if not plain or PATTERN.search(table.location):
        return None
    protocol = table.commits.protocol
    known = _PLAIN_READER_FEATURES.issuperset(protocol.get("readerFeatures") or ())
    return files if protocol and known else None


def _is_plain(window: Window) -> bool:
    """Say whether all versions' files have the same columns, by their names, and nothing but mirrors have, or fewer."""
    metadata = window.metadata
    if len(window.segments) != 1 or window.segments[0].past or window.rewritten:
        return False
    fields = metadata.schema["fields"]
    return (
        not (metadata.mapped or metadata.partitions)
        and len(columns_of_window(window)) == len(fields)
        and all(one["nullable"] and set(one.get("metadata") or ()) <= {"comment"} for one in fields)
        and not any(fold_name(one["name"]).startswith((_OURS, "_metadata")) for one in fields)
    )


def columns_of_window(window: Window) -> Columns:
    """Give the table's columns as of the window's end; those of types that no mirror has are left out."""
    fields = spark_schema(window.metadata).fields
    return to_columns((one.name, one.dataType.simpleString()) for one in fields)


def read_directly(
    spark: SparkSession, table: FeedTable, window: Window, schema: StructType
) -> DataFrame | None:
    """Read a window's files with Spark's own reader; None where that is not the same as what Delta reads.

    A client of Spark Connect lists files anew for each action, and what is gone by then would be missing unsaid.
    """
    files = None if is_remote(spark) else change_files(table, window)
    rows = None if files is None else _listed(spark, table, files, schema)
    if files is None or rows is None:
        return None
    columns = [f.col(quote(name)) for name in schema.names]
    # Of each file: of what kind its rows are, unless they say it themselves; which commit wrote it; when.
    times = table.commits.fed_at(window.after + 1, window.until)
    facts = [(None if one.images else INSERT, one.version, times[one.version]) for one in files]
    if len(set(facts)) == 1:
        commit_kind, version, at = (f.lit(value) for value in facts[0])
    else:
        named = [(one.name, *fact) for one, fact in zip(files, facts, strict=True)]
        known = spark.createDataFrame(named, _FACTS)
        rows = rows.select(*columns, KIND, f.col("_metadata.file_name").alias(_FILE)).join(
            f.broadcast(known), f.col(_FILE) == f.col(_COMMIT_FILE), "left"
        )
        version = f.coalesce(f.col(VERSION), f.raise_error(f.lit(_LOST)).cast("long"))
        commit_kind, at = f.col(_COMMIT_KIND), f.col(_COMMIT_TIME)
    return rows.select(
        *columns,
        f.coalesce(commit_kind.cast("string"), KIND).alias(KIND),
        version.cast("long").alias(VERSION),
        at.alias(TIME),
    )


def _listed(
    spark: SparkSession, table: FeedTable, files: Sequence[ChangeFile], schema: StructType
) -> DataFrame | None:
    """Let Spark list the files; None where it lacks some, or is not let to: why, Delta says."""
    wanted = StructType([*schema.fields]).add(KIND, StringType())
    paths = [f"{table.location}/{file.path}" for file in files]
    try:
        rows = file_reader(spark, wanted).parquet(*paths)
        return rows if len(rows.inputFiles()) == len(files) else None
    except Exception:  # noqa: BLE001  # a platform may keep Spark from reading a table's files by themselves
        _LOG.debug("%s: not read directly", table.shown, exc_info=True)
        return None


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

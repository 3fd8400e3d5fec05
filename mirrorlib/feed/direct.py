"""Read a window's files as they are, where Delta's reader would do no more than that and takes longer to.

In: a window that was proven whole. Out: what Delta's reader gives for it, or None, where some commit of it,
or the table, asks for more: rows taken out of files, partitions, columns known by ids, nested types. That
is what a mirror's commits mostly are: change files, or data files each row of which was inserted.
Source: Delta PROTOCOL.md, "Change Data Files" and "Reader Requirements for AddCDCFile".
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from mirrorlib.apply.columns import to_columns
from mirrorlib.apply.sessions import file_reader
from mirrorlib.feed.net import INSERT, KIND, TIME, VERSION
from mirrorlib.identifiers import fold_name, quote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from mirrorlib.feed.actions import ChangeFile
    from mirrorlib.feed.place import FeedTable
    from mirrorlib.feed.window import Window

_MANY = 10_000  # files; their names travel in the plan
_PLAIN_NAME = re.compile(r"[A-Za-z0-9._-]+")  # which no reader of names writes in another way
_PATTERN = re.compile(r"[{}\[\]*?\\]")  # what Hadoop takes for a pattern of names
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_SIZE, _NAME = "file_size", "file_name"  # what Spark knows of the file of a row
_FILE, _TOLD_KIND, _TOLD_TIME = "_mirror_file", "_mirror_kind", "_mirror_time"
_FACTS = f"{_TOLD_KIND} string, {VERSION} long, {_TOLD_TIME} long"
_LOST = "A file of a change feed is not the one that was asked for."


def change_files(table: FeedTable, window: Window) -> list[ChangeFile] | None:
    """Name the files that are a window's changes as they are; None where they are not.

    Tables of a catalog are left to it: it may let nobody read their files, or not all of their rows.
    """
    if table.path is None or _PATTERN.search(table.location) or not _is_plain(window):
        return None
    files: list[ChangeFile] = []
    for version in range(window.after + 1, window.until + 1):
        commit = table.commits.read(version)
        if not commit.changes:
            continue
        if commit.whole is None:
            return None
        files += commit.whole
    names = {file.name for file in files}
    plain = len(names) == len(files) <= _MANY and all(map(_PLAIN_NAME.fullmatch, names))
    return files if files and plain else None


def _is_plain(window: Window) -> bool:
    """Say whether all versions' files have the same columns, by their names, and nothing but mirrors have, or fewer."""
    metadata = window.metadata
    if len(window.segments) != 1 or window.segments[0].past or window.rewritten:
        return False
    fields = metadata.schema["fields"]
    flat = [(one["name"], _spelled(one["type"])) for one in fields if isinstance(one["type"], str)]
    return (
        not (metadata.mapped or metadata.partitions)
        and len(to_columns(flat)) == len(fields)
        and all(one["nullable"] and set(one.get("metadata") or ()) <= {"comment"} for one in fields)
        and all(fold_name(name) != "_metadata" for name, _ in flat)
    )


def _spelled(kind: str) -> str:
    """Write a type of Delta's schemas as Spark's SQL does."""
    return {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}.get(
        kind, kind
    )


def read_directly(
    spark: SparkSession, table: FeedTable, window: Window, schema: StructType
) -> DataFrame | None:
    """Read a window's files with Spark's own reader; None where that is not the same as what Delta reads."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType, StructType

    files = change_files(table, window)
    if files is None:
        return None
    wanted = StructType([*schema.fields]).add(KIND, StringType())
    rows = file_reader(spark, wanted).parquet(*[f"{table.location}/{file.path}" for file in files])
    columns = [f.col(quote(name)) for name in schema.names]
    one = files[0]
    if all((file.version, file.images) == (one.version, one.images) for file in files):
        at = f.lit(table.commits.committed_at(one.version))
        kind = f.col(KIND) if one.images else f.lit(INSERT)
        version = f.lit(one.version).cast("long")
        return rows.select(*columns, kind.alias(KIND), version.alias(VERSION), at.alias(TIME))
    told = f.broadcast(_told(spark, table, files))
    file = f.col(f"_metadata.{told.columns[0]}")
    found = rows.select(*columns, KIND, file.alias(_FILE)).join(
        told, f.col(_FILE) == told[told.columns[0]], "left"
    )
    version = f.coalesce(f.col(VERSION), f.raise_error(f.lit(_LOST)).cast("long"))
    return found.select(
        *columns,
        f.coalesce(_TOLD_KIND, KIND).alias(KIND),
        version.alias(VERSION),
        f.timestamp_micros(_TOLD_TIME).alias(TIME),
    )


def _told(spark: SparkSession, table: FeedTable, files: Sequence[ChangeFile]) -> DataFrame:
    """Say by each file's size, or by its name where sizes do not tell them apart, which commit wrote it, and when.

    A number is found in half the time.
    """
    facts = [
        (
            None if file.images else INSERT,
            file.version,
            (table.commits.committed_at(file.version) - _EPOCH) // _MICROSECOND,
        )
        for file in files
    ]
    sizes = {file.size: fact for file, fact in zip(files, facts, strict=True)}
    if all(sizes[file.size] == fact for file, fact in zip(files, facts, strict=True)):
        rows = [(size, *fact) for size, fact in sizes.items()]
        return spark.createDataFrame(rows, f"{_SIZE} long, {_FACTS}")
    named = [(file.name, *fact) for file, fact in zip(files, facts, strict=True)]
    return spark.createDataFrame(named, f"{_NAME} string, {_FACTS}")

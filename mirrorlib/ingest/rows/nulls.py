"""Count NULLs where a publisher hardly meant any: in keys, and in columns of text declared to have none.

In: what a file says of its columns, and pieces of its rows. Out: names and counts. Nothing is enforced:
NULL is a key like any other here, and the columns of a mirror are all nullable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlib.ingest.rows.marks import DELETE
from mirrorlib.names import find_key

if TYPE_CHECKING:
    from mirrorlib.ingest.files.source import Source
    from mirrorlib.landing.columns import FileSchema
    from mirrorlib.landing.delimited import Dialect


def typed_keys(source: Source, schema: FileSchema) -> list[str]:
    """Name a file's own key columns as the file does, but for those that hold nothing but NULL."""
    columns = [schema.own.key(key) for key in source.policies.keys]
    return [column.name for column in columns if column and not pa.types.is_null(column.type)]


def untyped_keys(source: Source, schema: FileSchema) -> int:
    """Count the key columns that are NULL in every row."""
    columns = [schema.key(key) for key in source.policies.keys]
    return sum(1 for column in columns if column is None or pa.types.is_null(column.type))


def count_nulls(rows: pa.Table | pa.RecordBatch, names: list[str]) -> int:
    """Count NULLs in the rows: the footer would know, but Arrow ends the process over damaged statistics."""
    return sum(int(rows.column(name).null_count) for name in names)


def required_columns(source: Source, dialect: Dialect, schema: FileSchema) -> list[str]:
    """Name a file's columns that are declared with `IsNullable` false; in keys a NULL is told anyway."""
    names = [column.name for column in schema.own.columns]
    keys = {find_key(names, key) for key in source.policies.keys}
    return [name for name in names if dialect.required(name) and name not in keys]


def count_missing(rows: pa.Table, markers: pa.ChunkedArray, names: list[str]) -> dict[str, int]:
    """Count the NULLs in some columns of rows that are more than a delete, which needs its key alone."""
    if not count_nulls(rows, names):
        return {}
    kept = pc.not_equal(markers, DELETE)
    counts = {name: pc.sum(pc.and_(pc.is_null(rows.column(name)), kept)).as_py() for name in names}
    return {name: count for name, count in counts.items() if count}

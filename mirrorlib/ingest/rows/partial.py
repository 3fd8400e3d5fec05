"""Say which columns the updates and upserts of a file set, where they set some only: `SET`, a flag for each column.

What is set under each word: docs/format.md, "Partial updates".
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from mirrorlib.commit.stage import SET
from mirrorlib.delta.columns import Columns, find_column
from mirrorlib.errors import SchemaError
from mirrorlib.identifiers import quote
from mirrorlib.ingest.files.source import Source
from mirrorlib.ingest.rows.decode import OpenedFile
from mirrorlib.ingest.rows.marks import MARKER, ORDER, ROWS_PER_FILE
from mirrorlib.ingest.rows.read import Landed
from mirrorlib.landing.columns import INSERT, UPDATE, UPSERT
from mirrorlib.landing.metadata.declared import list_column


def with_sets(opened: OpenedFile, columns: Columns, rows: DataFrame) -> DataFrame:
    """Add `SET` to the rows of a file, which have the table's columns and the markers as they were published.

    It is NULL where an update's list names what the table lacks, or cannot be read.
    """
    insert = whole = f.col(MARKER) == INSERT
    wrong = f.lit(False)  # noqa: FBT003  # a column
    mode = opened.source.policies.partial
    listed = list_column(mode)
    if mode == "nulls":
        flags = [f.col(quote(column.name)).isNotNull() for column in columns]
    elif listed is None:
        flags = [f.lit(opened.schema.column(column.name) is not None) for column in columns]
    else:
        found = find_column(columns, listed)
        names = _names_in(f.col(quote(found.name))) if found else f.lit(None).cast("array<string>")
        whole = insert | names.isNull()
        if found:
            known = f.array(*(f.lower(f.lit(column.name)) for column in columns))
            odd = names.isNull() | (f.size(f.array_except(names, known)) > 0)
            wrong = f.col(quote(found.name)).isNotNull() & odd
        flags = [
            f.lit(column is found) | f.array_contains(names, f.lower(f.lit(column.name)))
            for column in columns
        ]
    flags = [whole | f.coalesce(flag, f.lit(False)) for flag in flags]  # noqa: FBT003  # a column
    return rows.withColumn(SET, f.when(insert | ~wrong, f.array(*flags)))


def _names_in(listed: SparkColumn) -> SparkColumn:
    """Read a list of names: JSON, or names with commas between them; NULL where there is none."""
    text = f.trim(listed)
    names = f.when(text.startswith("["), f.from_json(text, "array<string>")).otherwise(
        f.split(text, ",")
    )
    return f.transform(names, lambda name: f.lower(f.trim(name)))


def check_list_column(source: Source, files: Sequence[Landed], columns: Columns) -> None:
    """See that updates and upserts can list what they set, where the table has them do so.

    Raises `SchemaError`: neither *columns*, which the table has with these files, nor the files have the one for it. In
    a file it may be without a type: no row of that lists anything.
    """
    listed = list_column(source.policies.partial)
    updates = any(one.counts[UPDATE] + one.counts[UPSERT] for one in files)
    if listed is None or not updates or find_column(columns, listed) is not None:
        return
    if not any(one.schema.column(listed) for one in files):
        msg = "no file of the table has the column that lists what updates set"
        step = "Correct partialUpdates, or publish the column."
        raise SchemaError(msg, table=source.table, column=listed, next_step=step)


def check_lists(source: Source, files: Sequence[str], columns: Columns, rows: DataFrame) -> None:
    """See that rows, with `MARKER`, `ORDER` and `SET`, list columns of the table alone; *files* are named in order.

    Raises `SchemaError`: one lists another, or its list cannot be read.
    """
    found = find_column(columns, list_column(source.policies.partial) or "")
    if found is None:
        return
    msg, row, file = "the column that lists what is set is no text", None, files[0]
    if pa.types.is_string(found.type):
        updates = rows.where(f.col(MARKER).isin(UPDATE, UPSERT) & f.col(SET).isNull())
        order = updates.agg(f.min(ORDER)).collect()[0][0]
        if order is None:
            return
        msg = "the list of what is set names a column that the table lacks, or is neither JSON nor names with commas"
        file, row = files[order // ROWS_PER_FILE], order % ROWS_PER_FILE
    table, column, kind = source.table, found.name, found.sql_type
    raise SchemaError(msg, table=table, file=file, column=column, row=row, found=kind)

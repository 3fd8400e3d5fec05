"""Fold a batch whose updates and upserts set some columns only: what a row does not set keeps its value.

In: rows of a batch with `MARKER`, `ORDER` and `SET`, a flag for each column. Out: the same columns plus `OP`, where
`SET` says what an update of the table's rows sets. Promise: carrying out the result at once, each update by
`assigned`, gives the same multiset of rows as replaying the batch row by row (judged by an oracle in the tests).

What is set: under "absent" the columns that the file has, under "nulls" those that are not NULL, under "listed:NAME"
the columns that the row's value in NAME lists; a row without a list, and one of marker 0, sets all. A row that an
update inserts has NULL where nothing is set, also when the key was deleted before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from mirrorlib.commit.staged import ADD, DROP, OP, SET
from mirrorlib.delta.columns import find_column
from mirrorlib.errors import SchemaError
from mirrorlib.identifiers import quote
from mirrorlib.ingest.batch.fold import DELETED, MARKER, ORDER, find_tail, give_ops, ops_of_winner
from mirrorlib.ingest.rows.marks import INSERT, UPDATE, UPSERT
from mirrorlib.landing.metadata.declared import list_column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from mirrorlib.delta.columns import Columns
    from mirrorlib.ingest.files.source import Source
    from mirrorlib.landing.columns import FileSchema

_HELPERS = ("_mirror_last", "_mirror_first", "_mirror_insert")


def with_sets(source: Source, schema: FileSchema, columns: Columns, rows: DataFrame) -> DataFrame:
    """Add `SET` to the rows of a file, which have the table's columns and the markers as they were published."""
    from pyspark.sql import functions as f

    whole = f.col(MARKER) == INSERT
    mode = source.policies.partial
    listed = list_column(mode)
    if mode == "nulls":
        flags = [f.col(quote(column.name)).isNotNull() for column in columns]
    elif listed is None:
        flags = [f.lit(schema.column(column.name) is not None) for column in columns]
    else:
        found = find_column(columns, listed)
        names = _names_in(f.col(quote(found.name))) if found else f.lit(None).cast("array<string>")
        whole = whole | names.isNull()
        flags = [
            f.lit(column is found) | f.array_contains(names, f.lower(f.lit(column.name)))
            for column in columns
        ]
    flags = [whole | f.coalesce(flag, f.lit(False)) for flag in flags]  # noqa: FBT003  # a column
    return rows.withColumn(SET, f.array(*flags))


def _names_in(listed: SparkColumn) -> SparkColumn:
    """Read a list of names: JSON, or names with commas between them; NULL where there is none."""
    from pyspark.sql import functions as f

    text = f.trim(listed)
    names = f.when(text.startswith("["), f.from_json(text, "array<string>")).otherwise(
        f.split(text, ",")
    )
    return f.transform(names, lambda name: f.lower(f.trim(name)))


def check_lists(
    source: Source, files: Sequence[str], columns: Columns, rows: DataFrame, rows_per_file: int
) -> None:
    """See that rows list columns only that the table has.

    Args:
        source: where the files lie.
        files: their names, in order.
        columns: the table's.
        rows: with `MARKER` and `ORDER`.
        rows_per_file: what `ORDER` grows by from file to file.

    Raises:
        SchemaError: one lists another, or its list cannot be read.

    """
    from pyspark.sql import functions as f

    found = find_column(columns, list_column(source.policies.partial) or "")
    if found is None:
        return
    listed = f.col(quote(found.name))
    if not pa.types.is_string(found.type):
        msg, row, file = "the column that lists what is set is no text", None, files[0]
    else:
        known = f.array(*(f.lower(f.lit(column.name)) for column in columns))
        names = _names_in(listed)
        wrong = listed.isNotNull() & (names.isNull() | (f.size(f.array_except(names, known)) > 0))
        updates = rows.where(f.col(MARKER).isin(UPDATE, UPSERT) & wrong)
        order = updates.agg(f.min(ORDER)).collect()[0][0]
        if order is None:
            return
        msg = "the list of what is set names a column that the table lacks, or is neither JSON nor names with commas"
        file, row = files[order // rows_per_file], order % rows_per_file
    step = "Publish a corrected file under the same name."
    raise SchemaError(
        msg,
        table=source.table,
        file=file,
        column=found.name,
        row=row,
        found=found.sql_type,
        next_step=step,
    )


def fold_partially(rows: DataFrame, keys: Sequence[str], columns: Columns) -> DataFrame:
    """Fold rows on the executors, as `fold.fold_frame` does; each row of the tail takes what later updates set."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    key = Window.partitionBy(*[f.col(quote(name)) for name in keys])
    place = f.col(ORDER)
    rows, is_update, is_insert = find_tail(rows, key)
    never = f.lit(1 << 62)
    rows = rows.withColumns(
        {
            "_mirror_last": f.coalesce(f.max(f.when(is_update, place)).over(key), f.lit(-1)),
            "_mirror_first": f.coalesce(f.min(f.when(is_update, place)).over(key), never),
            "_mirror_insert": f.coalesce(f.min(f.when(is_insert, place)).over(key), never),
        }
    )
    wins = place == f.col("_mirror_last")
    values, flags = {}, []
    # From the last row back, as a frame that grows is taken up row by row, and one that shrinks from its start.
    back = key.orderBy(place.desc())
    first, here, last = Window.unboundedPreceding, Window.currentRow, Window.unboundedFollowing
    for at, column in enumerate(columns):
        own = f.col(quote(column.name))
        if column.name in keys:
            flags.append(f.lit(True))  # noqa: FBT003  # a column
            continue
        sets = f.first(
            f.when(is_update & f.col(SET)[at], f.struct(own.alias("value"))), ignorenulls=True
        )
        every, later = (
            sets.over(back.rowsBetween(first, last)),
            sets.over(back.rowsBetween(first, here)),
        )
        values[column.name] = (
            f.when(wins, every["value"])
            .when(is_insert & later.isNotNull(), later["value"])
            .otherwise(own)
        )
        flags.append(every.isNotNull())
    rows = rows.withColumns({**values, SET: f.when(wins, f.array(*flags))})
    alone = f.col("_mirror_first") < f.col("_mirror_insert")
    ops = (
        f.when(place == f.col(DELETED), f.array(f.lit(DROP)))
        .when(wins, ops_of_winner(alone))
        .when(is_insert, f.array(f.lit(ADD)))
    )
    return give_ops(rows, ops).drop(*_HELPERS).select(*(quote(c.name) for c in columns), SET, OP)

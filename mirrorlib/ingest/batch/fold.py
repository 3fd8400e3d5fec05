"""Fold a batch to what one commit can do: per key at most one row that matches, and the inserts that match nothing.

In: rows of a batch in (file, row) order with their markers. Out: the same columns plus
`_mirror_op`, one of the `Op` codes. Two roads, one meaning: `fold_rows` for small batches in Arrow,
`fold_frame` for large ones in Spark. Promise: carrying out the result at once gives the same
multiset of rows as replaying the batch row by row (docs/guarantees.md, "How it is proven").

Per key, *tail* is what comes after the last delete, *v* the tail's last update or upsert, *m* the
plain inserts before v, and *alone* says that no plain insert precedes the tail's first update.
Plain inserts behind v stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, repeat
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as f

from mirrorlib.commit.stage import ADD, CHANGE, DROP, OP, PUT, SET
from mirrorlib.identifiers import quote
from mirrorlib.ingest.rows.marks import MARKER, ORDER
from mirrorlib.landing.columns import DELETE, INSERT, UPDATE, UPSERT

if TYPE_CHECKING:
    from mirrorlib.delta.columns import Columns

_NEVER = 1 << 62  # a place behind every row
# Per key, the place of the last delete, and of the last and first update and the first insert behind it.
_DELETED, _LAST = "_mirror_deleted", "_mirror_last"
_FIRST, _INSERTED = "_mirror_first", "_mirror_insert"
_BETTER, _COPIES = "_mirror_better", "_mirror_copies"


def fold_rows(rows: pa.Table, markers: pa.ChunkedArray, keys: Sequence[str]) -> pa.Table:
    """Fold rows that are in memory; without keys, or with inserts alone, every row is an `ADD`.

    Returns the rows that are left, with their op; their order means nothing.
    """
    inserted = pc.equal(markers, INSERT)
    if not keys or pc.all(inserted).as_py() is not False:
        return rows.append_column(OP, pa.repeat(pa.scalar(ADD, pa.int8()), len(rows)))
    numbers = _key_numbers(rows, keys)
    if pc.max(numbers).as_py() == len(rows) - 1:  # every key once, as in most batches
        comes = pc.if_else(inserted, ADD, PUT)
        return rows.append_column(
            OP, pc.if_else(pc.equal(markers, DELETE), DROP, comes).cast(pa.int8())
        )
    places, ops = _fold_places(numbers, markers)
    return rows.take(places).append_column(OP, ops)


def _key_numbers(rows: pa.Table, keys: Sequence[str]) -> pa.Array:
    """Give equal keys the same number, 0 to the count of keys, as Spark compares them.

    NULL equals NULL, -0.0 equals 0.0, NaN equals NaN.
    """
    numbers: pa.Array | None = None
    for key in keys:
        values = rows.column(key)
        if pa.types.is_floating(values.type):
            zero = pa.scalar(0.0, values.type)
            values = pc.if_else(pc.equal(values, zero), zero, values)
            values = pc.if_else(pc.is_nan(values), pa.scalar(float("nan"), values.type), values)
        codes = values.combine_chunks().dictionary_encode(null_encoding="encode")
        places = codes.indices.cast(pa.int64())
        if numbers is None:
            numbers = places
        else:  # encoded again each time, so numbers stay below the row count and the product never overflows
            pairs = pc.add(pc.multiply(numbers, len(codes.dictionary)), places)
            numbers = pairs.dictionary_encode().indices.cast(pa.int64())
    return numbers


def _fold_places(keys: pa.Array, markers: pa.ChunkedArray) -> tuple[pa.Array, pa.Array]:
    """Return which rows are left (a row may come several times) and each one's op."""
    place = pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), len(keys)), start=-1)
    marker = markers.combine_chunks()
    last_delete = _per_key(keys, pc.if_else(pc.equal(marker, DELETE), place, -1), "max")
    tail = pc.greater(place, last_delete)
    is_update = pc.and_(tail, pc.is_in(marker, value_set=pa.array([UPDATE, UPSERT], pa.int8())))
    is_insert = pc.and_(tail, pc.equal(marker, INSERT))
    last_update = _per_key(keys, pc.if_else(is_update, place, -1), "max")
    first_update = _per_key(keys, pc.if_else(is_update, place, _NEVER), "min")
    first_insert = _per_key(keys, pc.if_else(is_insert, place, _NEVER), "min")
    before = pc.and_(is_insert, pc.less(place, last_update))
    copies = _per_key(keys, before.cast(pa.int64()), "sum")
    alone = pc.less(first_update, first_insert)
    deleted = pc.greater_equal(last_delete, 0)

    is_v = pc.equal(place, last_update)
    after = pc.and_(is_insert, pc.greater(place, last_update))
    put_op = pc.if_else(deleted, ADD, pc.if_else(alone, PUT, CHANGE))
    repeats = pc.if_else(pc.and_(deleted, pc.invert(alone)), pc.subtract(copies, 1), copies)
    again = pc.and_(is_v, pc.greater(repeats, 0))
    some, times = place.filter(again).to_pylist(), repeats.filter(again).to_pylist()
    parts = [
        (place.filter(pc.equal(place, last_delete)), DROP),
        (place.filter(after), ADD),
        (pa.array(chain.from_iterable(map(repeat, some, times)), pa.int64()), ADD),
    ]
    places = [place.filter(is_v), *(rows for rows, _ in parts)]
    ops = [put_op.filter(is_v).cast(pa.int8())]
    ops += [pa.repeat(pa.scalar(op, pa.int8()), len(rows)) for rows, op in parts]
    return pa.concat_arrays(places), pa.concat_arrays(ops)


def _per_key(keys: pa.Array, values: pa.Array, what: str) -> pa.Array:
    """Aggregate per key and give each row its key's result; key numbers are 0, 1, 2 … without gaps."""
    grouped = (
        pa.table({"key": keys, "value": values})
        .group_by("key")
        .aggregate([("value", what)])
        .sort_by("key")
    )
    return grouped.column(f"value_{what}").combine_chunks().take(keys)


def fold_frame(rows: DataFrame, keys: Sequence[str], conditional: str | None = None) -> DataFrame:
    """Fold rows on the executors; *rows* has `MARKER` and `ORDER`, a long that grows in (file, row) order.

    One shuffle by key, and one more where the column *conditional* decides which updates count; nothing is
    collected. The result has `OP` in their place.
    """
    names = [f.col(quote(name)) for name in keys]
    key = Window.partitionBy(*names)
    place, last = f.col(ORDER), f.col(_LAST)
    rows, is_update, is_insert = _find_tail(rows, key)
    wins, beaten = place == last, is_insert & (place < last)
    copies = f.when(wins, f.sum(f.when(beaten, 1).otherwise(0)).over(key)).otherwise(0)
    if conditional is not None:
        # Spark compares structs field by field and takes NULL for the least; the first of equals wins.
        old = f.col(quote(conditional))
        update = f.when(is_update, f.struct(old.alias("value"), (-place).alias("place")))
        behind = key.orderBy(ORDER).rowsBetween(1, Window.unboundedFollowing)
        winner = -f.max(update).over(key)["place"]
        rows = rows.withColumns({_LAST: winner, _BETTER: f.max(update).over(behind)})
        new = f.col(_BETTER)["value"]
        beaten = is_insert & f.coalesce(new > old, new.isNotNull() & old.isNull())
        final = f.when(beaten, -f.col(_BETTER)["place"]).otherwise(place)
        shared = Window.partitionBy(*names, final)
        copies = f.sum(f.when(is_insert, 1).otherwise(0)).over(shared)
    rows = rows.withColumn(_COPIES, copies)
    own = f.when(wins, _ops_of_winner()).otherwise(f.array())
    ops = (
        f.when(place == f.col(_DELETED), f.array(f.lit(DROP)))
        # An inserted row that an update beats is that update once more.
        .when(is_update, f.concat(own, f.array_repeat(f.lit(ADD), f.col(_COPIES).cast("int"))))
        .when(is_insert & ~beaten, f.array(f.lit(ADD)))
    )
    return _give_ops(rows, ops).drop(_BETTER, _COPIES)


def fold_partially(rows: DataFrame, keys: Sequence[str], columns: Columns) -> DataFrame:
    """Fold rows of which `SET` says what they set; a row of the tail takes what later updates set.

    The result is `fold_frame`'s and has `SET`, too: what an update of the table's rows sets.
    """
    key = Window.partitionBy(*[f.col(quote(name)) for name in keys])
    place = f.col(ORDER)
    rows, is_update, is_insert = _find_tail(rows, key)
    wins = place == f.col(_LAST)
    values, flags = {}, []
    # From the last row back, as a frame that grows is taken up row by row, and one that shrinks from its start.
    back = key.orderBy(place.desc()).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    whole = back.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    for at, column in enumerate(columns):
        if column.name in keys:
            flags.append(f.lit(True))  # noqa: FBT003  # a column
            continue
        own = f.col(quote(column.name))
        set_to = f.when(is_update & f.col(SET)[at], f.struct(own.alias("value")))
        every = f.first(set_to, ignorenulls=True).over(whole)
        later = f.first(set_to, ignorenulls=True).over(back)
        values[column.name] = (
            f.when(wins, every["value"])
            .when(is_insert & later.isNotNull(), later["value"])
            .otherwise(own)
        )
        flags.append(every.isNotNull())
    rows = rows.withColumns({**values, SET: f.when(wins, f.array(*flags))})
    ops = (
        f.when(place == f.col(_DELETED), f.array(f.lit(DROP)))
        .when(wins, _ops_of_winner())
        .when(is_insert, f.array(f.lit(ADD)))
    )
    return _give_ops(rows, ops).select(*(quote(c.name) for c in columns), SET, OP)


def _find_tail(rows: DataFrame, key: WindowSpec) -> tuple[DataFrame, Column, Column]:
    """Add the places that a key's ops depend on; -1, or `_NEVER`, where there is none.

    Returns the rows, and what tells the updates and the inserts behind the last delete.
    """
    marker, place = f.col(MARKER), f.col(ORDER)
    tail = place > f.col(_DELETED)
    is_update, is_insert = tail & marker.isin(UPDATE, UPSERT), tail & (marker == INSERT)

    def last(these: Column) -> Column:
        return f.coalesce(f.max(f.when(these, place)).over(key), f.lit(-1))

    def first(these: Column) -> Column:
        return f.coalesce(f.min(f.when(these, place)).over(key), f.lit(_NEVER))

    rows = rows.withColumn(_DELETED, last(marker == DELETE)).withColumns(
        {_LAST: last(is_update), _FIRST: first(is_update), _INSERTED: first(is_insert)}
    )
    return rows, is_update, is_insert


def _ops_of_winner() -> Column:
    """Return what the update that counts does to the rows before the batch, as a list of at most one op."""
    deleted, alone = f.col(_DELETED) >= 0, f.col(_FIRST) < f.col(_INSERTED)
    return (
        f.when(deleted & alone, f.array(f.lit(ADD)))
        .when(deleted, f.array())
        .when(alone, f.array(f.lit(PUT)))
        .otherwise(f.array(f.lit(CHANGE)))
    )


def _give_ops(rows: DataFrame, ops: Column) -> DataFrame:
    """Give a row for each op of its list, none for none; `OP` takes the place of what it was found by."""
    exploded = rows.withColumn(OP, f.explode(ops.cast("array<tinyint>")))
    return exploded.drop(MARKER, ORDER, _DELETED, _LAST, _FIRST, _INSERTED)

"""Fold a batch to what one commit can do: per key at most one row that matches, and the inserts that match nothing.

In: rows of a batch in (file, row) order with their markers. Out: the same columns plus
`_mirror_op`, one of the `Op` codes. Two roads, one meaning: `fold_rows` for small batches in Arrow,
`fold_frame` for large ones in Spark. Promise: carrying out the result at once gives the same
multiset of rows as replaying the batch row by row (design §5; judged by an oracle in the tests).

Per key, *tail* is what comes after the last delete, *v* the tail's last update or upsert, *m* the
plain inserts before v, and *alone* says that no plain insert precedes the tail's first update.
Plain inserts behind v stay as they are.

Where updates are conditional, one counts only if its value in a column is greater than the row's: see
`fold_conditionally`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlib.commit.staged import ADD, CHANGE, DROP, OP, PUT
from mirrorlib.identifiers import quote
from mirrorlib.ingest.rows.marks import DELETE, INSERT, UPDATE, UPSERT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame, WindowSpec

MARKER = "_mirror_marker"
ORDER = "_mirror_order"
DELETED = "_mirror_deleted"
_NEVER = 1 << 62  # a place behind every row
_HELPERS = ("winner", "first", "insert", "better", "final", "copies")


def fold_rows(rows: pa.Table, markers: pa.ChunkedArray, keys: Sequence[str]) -> pa.Table:
    """Fold rows that are in memory; without keys, or with inserts alone, every row is an `ADD`.

    Returns:
        the rows that are left, with their op; their order means nothing.

    """
    if not keys or pc.all(pc.equal(markers, INSERT)).as_py() is not False:
        return rows.append_column(OP, pa.repeat(pa.scalar(ADD, pa.int8()), len(rows)))
    numbers = _key_numbers(rows, keys)
    once = pc.max(numbers).as_py() == len(rows) - 1
    if once:  # every key, as in most batches: nothing to fold
        return rows.append_column(OP, _ops_alone(markers))
    places, ops = _fold_places(numbers, markers)
    return rows.take(places).append_column(OP, ops)


def _ops_alone(markers: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the op of rows that are the only ones of their keys."""
    inserted = pc.if_else(pc.equal(markers, INSERT), ADD, PUT)
    return pc.if_else(pc.equal(markers, DELETE), DROP, inserted).cast(pa.int8())


def _key_numbers(rows: pa.Table, keys: Sequence[str]) -> pa.Array:
    """Give equal keys the same number, 0 to the count of keys, as Spark compares them.

    NULL equals NULL, -0.0 equals 0.0, NaN equals NaN.
    """
    numbers: pa.Array | None = None
    for key in keys:
        values = _as_compared(rows.column(key)).combine_chunks()
        codes = values.dictionary_encode(null_encoding="encode")
        if numbers is None:
            numbers = codes.indices.cast(pa.int64())
        else:  # encoded again each time, so numbers stay below the row count and the product never overflows
            pairs = pc.add(
                pc.multiply(numbers, len(codes.dictionary)), codes.indices.cast(pa.int64())
            )
            numbers = pairs.dictionary_encode().indices.cast(pa.int64())
    return numbers


def _as_compared(values: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_floating(values.type):
        return values
    nan = pa.scalar(float("nan"), values.type)
    zero = pa.scalar(0.0, values.type)
    return pc.if_else(pc.is_nan(values), nan, pc.if_else(pc.equal(values, zero), zero, values))


def _fold_places(keys: pa.Array, markers: pa.ChunkedArray) -> tuple[pa.Array, pa.Array]:
    """Return which rows are left (a row may come several times) and each one's op."""
    place = pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), len(keys))), 1)
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
    parts = [
        (place.filter(pc.equal(place, last_delete)), DROP),
        (place.filter(after), ADD),
        (_repeated(place.filter(is_v), repeats.filter(is_v)), ADD),
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


def _repeated(places: pa.Array, times: pa.Array) -> pa.Array:
    some = pc.greater(times, 0)
    pairs = zip(places.filter(some).to_pylist(), times.filter(some).to_pylist(), strict=True)
    return pa.array([place for place, count in pairs for _ in range(count)], pa.int64())


def fold_frame(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Fold rows on the executors; *rows* has `MARKER` and `ORDER`, a long that grows in (file, row) order.

    One shuffle by key; nothing is collected. The result has `OP` in their place.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    key = Window.partitionBy(*[f.col(quote(name)) for name in keys])
    place = f.col(ORDER)
    rows, is_update, is_insert = find_tail(rows, key)
    rows = rows.withColumns(
        {
            "_mirror_last": f.coalesce(f.max(f.when(is_update, place)).over(key), f.lit(-1)),
            "_mirror_first": f.coalesce(f.min(f.when(is_update, place)).over(key), f.lit(_NEVER)),
            "_mirror_insert": f.coalesce(f.min(f.when(is_insert, place)).over(key), f.lit(_NEVER)),
        }
    )
    last = f.col("_mirror_last")
    rows = rows.withColumn(
        "_mirror_copies", f.sum(f.when(is_insert & (place < last), 1).otherwise(0)).over(key)
    )
    alone = f.col("_mirror_first") < f.col("_mirror_insert")
    adds = f.array_repeat(f.lit(ADD), f.col("_mirror_copies").cast("int"))
    ops = (
        f.when(place == f.col(DELETED), f.array(f.lit(DROP)))
        .when(place == last, f.concat(ops_of_winner(alone), adds))
        .when(is_insert & (place > last), f.array(f.lit(ADD)))
    )
    helpers = ("_mirror_last", "_mirror_first", "_mirror_insert", "_mirror_copies")
    return give_ops(rows, ops).drop(*helpers)


def find_tail(rows: DataFrame, key: WindowSpec) -> tuple[DataFrame, Column, Column]:
    """Add `DELETED`, the place of the key's last delete, -1 where there is none.

    Returns:
        the rows, and what tells the updates and the inserts behind it.

    """
    from pyspark.sql import functions as f

    marker, place = f.col(MARKER), f.col(ORDER)
    deletes = f.coalesce(f.max(f.when(marker == DELETE, place)).over(key), f.lit(-1))
    tail = place > f.col(DELETED)
    is_update = tail & marker.isin(UPDATE, UPSERT)
    return rows.withColumn(DELETED, deletes), is_update, tail & (marker == INSERT)


def ops_of_winner(alone: Column) -> Column:
    """Return what the update that counts does to the rows before the batch, as a list of at most one op."""
    from pyspark.sql import functions as f

    deleted = f.col(DELETED) >= 0
    return (
        f.when(deleted & alone, f.array(f.lit(ADD)))
        .when(deleted, f.array())
        .when(alone, f.array(f.lit(PUT)))
        .otherwise(f.array(f.lit(CHANGE)))
    )


def give_ops(rows: DataFrame, ops: Column) -> DataFrame:
    """Give a row for each op of its list, none for none; `OP` takes the place of `MARKER`, `ORDER` and `DELETED`."""
    from pyspark.sql import functions as f

    exploded = rows.withColumn(OP, f.explode(ops.cast("array<tinyint>")))
    return exploded.drop(MARKER, ORDER, DELETED)


def fold_conditionally(rows: DataFrame, keys: Sequence[str], column: str) -> DataFrame:
    """Fold rows on the executors, as `fold.fold_frame` does; *column* decides which updates count."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    names = [f.col(quote(name)) for name in keys]
    key = Window.partitionBy(*names)
    behind = key.orderBy(ORDER).rowsBetween(1, Window.unboundedFollowing)
    place = f.col(ORDER)
    rows, is_update, is_insert = find_tail(rows, key)
    # Spark compares structs field by field and takes NULL for the least; the first of equals wins.
    value = f.struct(f.col(quote(column)).alias("value"), (-place).alias("place"))
    update = f.when(is_update, value)
    rows = rows.withColumns(
        {
            _named("winner"): -f.max(update).over(key)["place"],
            _named("first"): f.min(f.when(is_update, place)).over(key),
            _named("insert"): f.min(f.when(is_insert, place)).over(key),
            _named("better"): f.max(update).over(behind),
        }
    )
    beaten = is_insert & _beats(_helper("better")["value"], f.col(quote(column)))
    final = f.when(beaten, -_helper("better")["place"]).otherwise(place)
    rows = rows.withColumn(_named("final"), final)
    shared = Window.partitionBy(*names, _named("final"))
    copies = f.sum(f.when(is_insert, 1).otherwise(0)).over(shared)
    rows = rows.withColumn(_named("copies"), copies)
    ops = _ops(is_update=is_update, is_insert=is_insert)
    return give_ops(rows, ops).drop(*map(_named, _HELPERS))


def _ops(*, is_update: Column, is_insert: Column) -> Column:
    """Return what becomes of a row of a batch, as a list: nothing, once, or several times."""
    from pyspark.sql import functions as f

    place = f.col(ORDER)
    alone = f.coalesce(_helper("first") < _helper("insert"), f.expr("true"))
    own = f.when(place == _helper("winner"), ops_of_winner(alone)).otherwise(f.array())
    # An inserted row that an update beats is that update once more.
    adds = f.array_repeat(f.lit(ADD), _helper("copies").cast("int"))
    return (
        f.when(place == f.col(DELETED), f.array(f.lit(DROP)))
        .when(is_update, f.concat(own, adds))
        .when(is_insert & (_helper("final") == place), f.array(f.lit(ADD)))
        .otherwise(f.array())
    )


def _beats(new: Column, old: Column) -> Column:
    from pyspark.sql import functions as f

    return f.coalesce(new > old, new.isNotNull() & old.isNull())


def _named(helper: str) -> str:
    return f"_mirror_{helper}"


def _helper(helper: str) -> Column:
    from pyspark.sql import functions as f

    return f.col(_named(helper))

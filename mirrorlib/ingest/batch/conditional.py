"""Fold a batch whose updates and upserts count only where their value is greater than the row's.

In: rows of a batch with `MARKER` and `ORDER`, as in `fold.py`. Out: the same columns plus `OP`. For
tables whose metadata states `ConditionalUpdateColumn`, when the caller asks for it: one edition of
the documentation had the property, without a word on its meaning (landing-zone page of 2025-07-17).
Promise: carrying out the result at once, each update under `is_greater`, gives the same multiset of
rows as replaying the batch row by row (judged by an oracle in the tests).

NULL is less than every value. Per key, the *winner* of some updates is the first of those with the
greatest value. A row of the table meets all updates of the tail, an inserted row those behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.commit.staged import ADD, DROP
from mirrorlib.identifiers import quote
from mirrorlib.ingest.batch.fold import DELETED, ORDER, find_tail, give_ops, ops_of_winner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

_HELPERS = ("winner", "first", "insert", "better", "final", "copies")


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

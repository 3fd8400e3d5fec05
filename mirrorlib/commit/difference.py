"""Tell what has to happen to rows for them to become others.

In: the rows that are there, and those that are to be there. Out: the rows that differ, with their op. Rows are a
multiset: where equal ones become fewer, all go and those that stay come again, as no MERGE deletes one of two.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_, or_

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from mirrorlib.commit.stage import ADD, CHANGE, DROP, OP, WRONG
from mirrorlib.identifiers import quote

NET, NEW = "_mirror_net", "_mirror_new"


def difference(old: DataFrame, new: DataFrame, keys: Sequence[str] = ()) -> DataFrame:
    """Tell what has to go, to come and, by keys that occur once, to change, so that some rows become others."""
    names = [quote(name) for name in new.columns]
    both = new.select(*names, f.lit(1).alias(NET), f.lit(1).alias(NEW)).unionByName(
        old.select(*names, f.lit(-1).alias(NET), f.lit(0).alias(NEW))
    )
    rows = ops_of_counts(both, new.columns)
    if not keys:
        return rows
    # One row that goes and one that comes, both of one key, are an update.
    by_key = f.sort_array(f.collect_list(OP).over(Window.partitionBy(*map(quote, keys))))
    one_each = by_key == f.array(f.lit(DROP).cast("tinyint"), f.lit(ADD).cast("tinyint"))
    marked = rows.withColumn(NEW, one_each).where(~(f.col(NEW) & (f.col(OP) == DROP)))
    change = f.lit(CHANGE).cast("tinyint")
    return marked.withColumn(OP, f.when(f.col(NEW), change).otherwise(f.col(OP))).drop(NEW)


def rows_like(rows: DataFrame, *like: tuple[DataFrame, Sequence[str]]) -> DataFrame:
    """Keep the rows that equal some values in some columns, which these have in this order; NULL equals NULL.

    Where there are several of both, those that do by one of them; then each value has to be there once.
    """
    kept, flags = rows.columns, []
    for place, (values, columns) in enumerate(like):
        flag = f"_mirror_key_{place}"
        names = [f"{flag}_{number}" for number in range(len(columns))]
        pairs = zip(columns, names, strict=True)
        same = reduce(and_, [rows[quote(column)].eqNullSafe(f.col(to)) for column, to in pairs])
        named = values.toDF(*names)
        if len(like) == 1:
            return rows.join(named, same, "left_semi")
        rows = rows.join(named.withColumn(flag, f.lit(True)), same, "left")  # noqa: FBT003  # a value of a column
        flags.append(f.col(flag).isNotNull())
    return rows.where(reduce(or_, flags)).select(*map(quote, kept))


def ops_of_counts(counts: DataFrame, columns: Sequence[str], *, exact: bool = False) -> DataFrame:
    """Tell how equal rows become, in sum, `NET` more or less, of which `NEW` are left where they become less.

    Where *exact* says so, `WRONG` stands for rows of which less than none are left.
    """
    names, net, left = [quote(name) for name in columns], f.col(NET), f.col(NEW)
    summed = counts.groupBy(*names).agg(f.sum(net).alias(NET), f.sum(left).alias(NEW))
    more = f.when(net > 0, net).otherwise(f.greatest(left, f.lit(0)))
    adds = f.array_repeat(f.lit(ADD), more.cast("int"))
    ops = f.when(net < 0, f.concat(f.array(f.lit(DROP)), adds)).otherwise(adds)
    ops = f.when(left < 0, f.array(f.lit(WRONG))).otherwise(ops) if exact else ops
    different = summed.where(net != 0)
    return different.select(*names, f.explode(ops.cast("array<tinyint>")).alias(OP))

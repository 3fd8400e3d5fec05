"""Tell what has to happen to rows for them to become others.

In: the rows that are there, and those that are to be there. Out: the rows that differ, with their op. Rows are a
multiset: where equal ones become fewer, all go and those that stay come again, as no MERGE deletes one of two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mirrorlib.commit.staged import ADD, CHANGE, DROP, OP
from mirrorlib.identifiers import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NET, NEW = "_mirror_net", "_mirror_new"


def difference(old: DataFrame, new: DataFrame, keys: Sequence[str] = ()) -> DataFrame:
    """Tell what has to go, to come and, by keys that occur once, to change, so that some rows become others."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    names = [quote(name) for name in new.columns]
    both = new.select(*names, f.lit(1).alias(NET), f.lit(1).alias(NEW)).unionByName(
        old.select(*names, f.lit(-1).alias(NET), f.lit(0).alias(NEW))
    )
    counts = both.groupBy(*names).agg(f.sum(NET).alias(NET), f.sum(NEW).alias(NEW))
    come = f.array_repeat(f.lit(ADD), f.col(NET).cast("int"))
    stay = f.array_repeat(f.lit(ADD), f.col(NEW).cast("int"))
    ops = f.when(f.col(NET) > 0, come).otherwise(f.concat(f.array(f.lit(DROP)), stay))
    different = counts.where(f.col(NET) != 0)
    rows = different.select(*names, f.explode(ops.cast("array<tinyint>")).alias(OP))
    if not keys:
        return rows
    # One row that goes and one that comes, both of one key, are an update.
    by_key = f.sort_array(f.collect_list(OP).over(Window.partitionBy(*map(quote, keys))))
    one_each = by_key == f.array(f.lit(DROP).cast("tinyint"), f.lit(ADD).cast("tinyint"))
    marked = rows.withColumn(NEW, one_each).where(~(f.col(NEW) & (f.col(OP) == DROP)))
    change = f.lit(CHANGE).cast("tinyint")
    return marked.withColumn(OP, f.when(f.col(NEW), change).otherwise(f.col(OP))).drop(NEW)

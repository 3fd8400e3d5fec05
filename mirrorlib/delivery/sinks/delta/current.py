"""Keep a copy of a table.

In: a window. Out: one commit. By key, the last state that a window tells of each key counts, so windows
that come again after a rewind end in the same copy. Without keys, equal rows are counted, and versions
that the copy has are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.commit.mark import mark_nothing
from mirrorlib.commit.pause import overwrite_columns
from mirrorlib.commit.staged import ADD, DROP, FRESH, OP, PUT, WRONG
from mirrorlib.delivery.sinks.delta.collect import fold_collected
from mirrorlib.delivery.sinks.delta.fit import fit_columns
from mirrorlib.delivery.sinks.delta.merge import merge_rows, twice
from mirrorlib.delivery.sinks.delta.multiset import (
    NET,
    count_rows,
    new_rows,
    rows_like,
    stage_counts,
    unlike,
)
from mirrorlib.delivery.sinks.delta.rewrite import rewrite_copy
from mirrorlib.delivery.sinks.delta.stage import stage_rows, stage_table
from mirrorlib.delivery.sinks.delta.work import (
    Work,
    check_comparable,
    check_names,
)
from mirrorlib.delta.table import read_table
from mirrorlib.feed.net import columns_of, last_states
from mirrorlib.identifiers import quote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from mirrorlib.delivery.sink import Delivery

_HELD = "_mirror_held"


def copy_columns(frame: DataFrame) -> StructType:
    """Return the columns of a copy: the source's."""
    return frame.select(*map(quote, columns_of(frame))).schema


def check_copy(delivery: Delivery) -> None:
    """Refuse a window that no copy can take.

    Raises:
        SchemaError: a key is no column, or without keys rows cannot be compared.

    """
    check_names(delivery, ())
    if not delivery.keys:
        check_comparable(delivery)


def keep_copy(work: Work) -> int | None:
    """Bring a copy to the end of a window; return how many rows that took, None where the commit tells.

    Raises:
        SchemaError: a key occurs more than once in the source, or a column does not fit.
        ForeignWriteError: the copy is not what the changes began with.

    """
    if work.plan.kind == "snapshot":
        _replace(work)
        return None
    work = fit_columns(work, copy_columns(work.delivery.frame))
    return _merge_keys(work) if work.keys else _merge_counts(work)


def _replace(work: Work) -> None:
    """Let a snapshot take the place of rows and columns."""
    from pyspark.sql import functions as f

    if work.keys:
        _check_unique(work, work.frame)
    work = fit_columns(work, copy_columns(work.frame))
    rows = work.frame.select(
        *[f.col(quote(name)).alias(name, metadata={}) for name in work.columns]
    )
    for name in work.dropped:
        kind = work.schema[name].dataType
        rows = rows.withColumn(name, f.lit(None).cast(kind))
    overwrite_columns(work.spark, work.ref, rows, work.mark())


def _check_unique(work: Work, rows: DataFrame) -> None:
    if rows.groupBy(*map(quote, work.keys)).count().where("count > 1").limit(1).collect():
        raise twice(work, work.keys)


def _merge_keys(work: Work) -> int:
    """Give each key that a window tells of its last state."""
    if (work.last.facts or {}).get("keys", list(work.plan.keys)) != list(work.plan.keys):
        _check_unique(work, read_table(work.spark, work.ref))
    keys = work.keys
    few = None if work.few is None else fold_collected(work.few, keys, work.upto)
    if few is not None:
        schema = copy_columns(work.delivery.frame).add(OP, "byte").add(FRESH, "boolean")
        staged = stage_table(work, few, schema, keys)
    else:
        folded = last_states(work.frame, keys, work.upto if work.overlaps else -1)
        staged = stage_rows(work, folded, "folded", keys, (WRONG, DROP, PUT))
    if WRONG in staged.ops:
        raise twice(work, work.keys)
    if not staged.ops or few is None or not rewrite_copy(work, few):
        merge_rows(work, staged, work.keys, check=work.known)
    return staged.rows


def _merge_counts(work: Work) -> int:
    """Let every row occur as often as before, and as often more or less as a window tells."""
    from pyspark.sql import functions as f

    columns = work.columns
    counted = stage_counts(work, count_rows(new_rows(work), columns, columns), columns)
    if not counted.ops:
        mark_nothing(work.spark, work.ref, work.mark())
        return 0
    changes = counted.frame.select(*map(quote, columns), NET, f.lit(0).cast("long").alias(_HELD))
    if DROP in counted.ops:
        gone = counted.frame.where(f"{OP} = {DROP}")
        held = rows_like(read_table(work.spark, work.ref), gone, columns)
        held = held.select(*map(quote, columns), f.lit(0).alias(NET), f.lit(1).alias(_HELD))
        changes = changes.unionByName(held)
    changed = _ops_of_counts(changes, columns, exact=work.exact)
    staged = stage_rows(work, changed, "folded", columns, (WRONG, DROP, ADD))
    if WRONG in staged.ops:
        raise unlike(work)
    merge_rows(work, staged, columns)
    return staged.rows


def _ops_of_counts(changes: DataFrame, columns: Sequence[str], *, exact: bool) -> DataFrame:
    """Tell what a commit has to do: equal rows go together, and those that stay come again."""
    from pyspark.sql import functions as f

    counts = changes.groupBy(*map(quote, columns)).agg(
        f.sum(NET).alias(NET), f.sum(_HELD).alias(_HELD)
    )
    net, left = f.col(NET), f.col(NET) + f.col(_HELD)
    adds = f.array_repeat(f.lit(ADD), f.greatest(left, f.lit(0)).cast("int"))
    ops = (
        f.when((left < 0) & f.lit(exact), f.array(f.lit(WRONG)))
        .when(net < 0, f.concat(f.array(f.lit(DROP)), adds))
        .otherwise(adds)
    )
    return counts.select(*map(quote, columns), f.explode(ops.cast("array<tinyint>")).alias(OP))

"""Keep a copy of a table.

In: a window. Out: one commit. By key, the last state that a window tells of each key counts, so windows
that come again after a rewind end in the same copy. Without keys, equal rows are counted, and versions
that the copy has are left out.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from mirrorlib.commit.difference import NET, NEW, ops_of_counts
from mirrorlib.commit.pause import overwrite_columns
from mirrorlib.commit.stage import staged_table
from mirrorlib.commit.staged import DROP, FRESH, OP, PUT, WRONG, count_doubles
from mirrorlib.delivery.sink import Delivery
from mirrorlib.delivery.sinks.delta.fit import check_columns, fit_columns
from mirrorlib.delivery.sinks.delta.merge import merge_counts, merge_rows, rows_like, stage_rows
from mirrorlib.delivery.sinks.delta.rewrite import fold_few, rewrite_copy
from mirrorlib.delivery.sinks.delta.work import WindowWork
from mirrorlib.delta.table import read_table
from mirrorlib.feed.files.direct import to_frame
from mirrorlib.feed.net import last_states
from mirrorlib.identifiers import quote


def copy_columns(delivery: Delivery) -> t.StructType:
    """Return the columns of a copy: the source's; without keys refuse what cannot be compared."""
    check_columns(delivery, comparable=not delivery.keys)
    return delivery.frame.select(*map(quote, delivery.columns)).schema


def keep_copy(work: WindowWork) -> int | None:
    """Bring a copy to the end of a window; return how many rows that took, None where the commit tells."""
    if work.plan.kind == "snapshot":
        _replace(work)
        return None
    work = fit_columns(work)
    return _merge_keys(work) if work.keys else _merge_counts(work)


def _replace(work: WindowWork) -> None:
    if work.keys:
        _check_unique(work, work.frame)
    work = fit_columns(work)
    rows = work.frame.select(
        *[f.col(quote(name)).alias(name, metadata={}) for name in work.columns],
        *[f.lit(None).cast(work.schema[name].dataType).alias(name) for name in work.dropped],
    )
    overwrite_columns(work.spark, work.ref, rows, work.mark())


def _check_unique(work: WindowWork, rows: DataFrame) -> None:
    if count_doubles(rows, work.keys):
        raise work.twice()


def _merge_keys(work: WindowWork) -> int:
    keys = work.keys
    if (work.last.facts or {}).get("keys", list(work.plan.keys)) != list(work.plan.keys):
        _check_unique(work, read_table(work.spark, work.ref))
    few = fold_few(work)
    if few is not None:
        schema = t.StructType(list(work.wanted)).add(OP, "byte").add(FRESH, "boolean")
        staged = staged_table(to_frame(work.spark, few, schema), few, keys)
    else:
        folded = last_states(work.frame, keys, work.upto if work.overlaps else -1)
        staged = stage_rows(work, folded, "folded", keys, (WRONG, DROP, PUT))
    if WRONG in staged.ops:
        raise work.twice()
    if not staged.ops or few is None or not rewrite_copy(work, few):
        merge_rows(work, staged, keys, check=work.known)
    return staged.rows


def _merge_counts(work: WindowWork) -> int:
    """Let every row occur as often as before, and as often more or less as a window tells.

    Equal rows go together, and those that stay come again.
    """
    columns = work.columns
    names = [quote(name) for name in columns]

    def tell(counted: DataFrame, gone: DataFrame | None) -> DataFrame:
        rows = counted.select(*names, NET, f.col(NET).alias(NEW))
        if gone is not None:
            held = rows_like(read_table(work.spark, work.ref), gone, columns)
            rows = rows.unionByName(held.select(*names, f.lit(0).alias(NET), f.lit(1).alias(NEW)))
        return ops_of_counts(rows, columns, exact=work.exact)

    return merge_counts(work, work.new_rows(), columns, columns, columns, tell)

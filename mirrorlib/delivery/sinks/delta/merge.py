"""Count rows that come and go, and carry out staged changes by one MERGE, as fast as the applier does.

In: a window; `Staged`. Out: its rows with how often each comes, or goes when that is negative: what tables without
keys, and histories, go by; one commit. Rows are equal when all columns of the source are; what comes and goes in one
version cancels out, as an update does that changes nothing. One clause is of a copy's own: where a row of a
key cannot be there and is, the whole commit fails, since keys do not tell the source's rows apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from mirrorlib.commit.difference import NET
from mirrorlib.commit.mark import mark_nothing
from mirrorlib.commit.merge import commit_staged
from mirrorlib.commit.stage import stage_frame
from mirrorlib.commit.staged import ADD, DROP, FRESH, OP, WRONG, Staged
from mirrorlib.delivery.sinks.delta.work import WindowWork
from mirrorlib.delta.columns import sized_column
from mirrorlib.errors import ForeignWriteError
from mirrorlib.feed.net import count_changes
from mirrorlib.identifiers import quote
from mirrorlib.journal.entries import new_attempt

_TWICE = "MIRRORLIB_KEY_TWICE"


def merge_rows(work: WindowWork, staged: Staged, keys: Sequence[str]) -> None:
    """Commit staged rows. `ADD` rows match nothing; where the target is `known`, a match of a `FRESH` row fails it."""
    fields = [one for one in staged.frame.schema.fields if one.name not in {OP, FRESH}]
    first, refused = f"t.{quote(keys[0])}", ""
    if work.known and FRESH in staged.frame.columns:
        # It asks for the target's row, else Spark would look at the source's alone.
        there = f"{first} <=> s.{quote(keys[0])}" if staged.null_keys else f"{first} IS NOT NULL"
        raising = f"raise_error('{_TWICE}')"
        refused = f"CASE WHEN s.{FRESH} AND {there} THEN {raising} ELSE false END"
    try:
        commit_staged(
            work.spark,
            work.ref,
            staged,
            tuple(sized_column(field.name, field.dataType) for field in fields),
            keys,
            work.mark(),
            table_bytes=work.found.bytes,
            dropped=work.dropped,
            refused=refused,
        )
    except Exception as exc:
        if _TWICE in str(exc):
            raise work.twice() from exc
        raise


def stage_rows(
    work: WindowWork, frame: DataFrame, name: str, keys: Sequence[str], ops: Iterable[int]
) -> Staged:
    """Stage a frame with `OP`, of the values *ops*, under a name of this delivery's own; *keys* will match its rows."""
    path = f"{work.folder}/{name}-{new_attempt()}"  # each try has its own
    return stage_frame(work.spark, work.scratch, path, frame, keys, ops)


def merge_counts(
    work: WindowWork,
    rows: DataFrame,
    columns: Sequence[str],
    by: Sequence[str],
    keys: Sequence[str],
    tell: Callable[[DataFrame, DataFrame | None], DataFrame],
) -> int:
    """Count how often each row of a feed comes or goes, equal in *columns*, and merge what *tell* makes of it.

    That is given the rows that do not cancel out, with `NET`, and which of them go, None for none; it gives rows with
    `OP`. Equal values of *by* lie together, *keys* match the target's rows. Returns how many rows it took.
    """
    counts = count_changes(rows.repartition(*map(quote, by)), columns, NET)
    op = f.when(f.col(NET) > 0, ADD).otherwise(DROP).cast("tinyint")
    counted = stage_rows(work, counts.withColumn(OP, op), "counted", by, (DROP, ADD))
    if not counted.ops:
        mark_nothing(work.spark, work.ref, work.mark())
        return 0
    gone = counted.frame.where(f"{OP} = {DROP}") if DROP in counted.ops else None
    staged = stage_rows(work, tell(counted.frame, gone), "folded", by, (WRONG, DROP, ADD))
    if WRONG in staged.ops:
        msg = "the target lacks rows that the source has removed, so it is not what the changes began with"
        raise ForeignWriteError(msg, table=work.stream.table, next_step=work.set_right)
    merge_rows(work, staged, keys)
    return staged.rows


def rows_like(rows: DataFrame, wanted: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return those of a table's rows that equal a wanted one in some columns; NULL equals NULL."""
    held = {f"_mirror_{place}": f.col(quote(column)) for place, column in enumerate(columns)}
    few = wanted.select(*[column.alias(name) for name, column in held.items()]).distinct()
    equal = [column.eqNullSafe(f.col(name)) for name, column in held.items()]
    return rows.join(few, reduce(lambda one, other: one & other, equal), "left_semi")

"""Count rows that come and go: what tables without keys, and histories, go by.

In: a window. Out: its rows with how often each comes, or goes when that is negative. Rows are equal when
all columns of the source are; what comes and goes in one version cancels out, as an update does that
changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.commit.staged import ADD, DROP, OP
from mirrorlib.delivery.sinks.delta.stage import stage_rows
from mirrorlib.errors import ForeignWriteError
from mirrorlib.feed.net import VERSION, sign
from mirrorlib.identifiers import quote
from mirrorlib.journal.streams import snapshot_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from mirrorlib.commit.staged import Staged
    from mirrorlib.delivery.sinks.delta.work import Work

NET = "_mirror_net"


def new_rows(work: Work) -> DataFrame:
    """Return a window's rows without the versions that the target has: a rewound stream brings them again."""
    if work.overlaps:
        return work.frame.where(f"{VERSION} > {work.upto:d}")
    return work.frame


def count_rows(frame: DataFrame, columns: Sequence[str], by: Sequence[str]) -> DataFrame:
    """Count how often each row comes or goes; rows that cancel out are left out.

    Args:
        frame: rows of a feed.
        columns: what makes rows equal.
        by: those of them whose equal values are to lie together.

    """
    from pyspark.sql import functions as f

    counted = frame.repartition(*map(quote, by)).groupBy(*map(quote, columns))
    return counted.agg(f.sum(sign()).alias(NET)).where(f.col(NET) != 0)


def stage_counts(work: Work, counts: DataFrame, by: Sequence[str]) -> Staged:
    """Stage counted rows: `ADD` for those that come, `DROP` for those that go."""
    from pyspark.sql import functions as f

    op = f.when(f.col(NET) > 0, ADD).otherwise(DROP).cast("tinyint")
    return stage_rows(work, counts.withColumn(OP, op), "counted", by, (DROP, ADD))


def rows_like(rows: DataFrame, wanted: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return those of a table's rows that equal a wanted one in some columns; NULL equals NULL."""
    from functools import reduce

    from pyspark.sql import functions as f

    names = [f"_mirror_{place}" for place in range(len(columns))]
    few = wanted.select(
        *[f.col(quote(column)).alias(name) for column, name in zip(columns, names, strict=True)]
    ).distinct()
    equal = [
        f.col(quote(column)).eqNullSafe(f.col(name))
        for column, name in zip(columns, names, strict=True)
    ]
    return rows.join(few, reduce(lambda one, other: one & other, equal), "left_semi")


def unlike(work: Work) -> ForeignWriteError:
    """Say that the target lacks rows that the source has removed."""
    msg = "the target lacks rows that the source has removed, so it is not what the changes began with"
    step = f"Let a snapshot set it right: {snapshot_command(work.stream.consumer)}"
    return ForeignWriteError(msg, table=work.table, next_step=step)

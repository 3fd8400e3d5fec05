"""Compare a snapshot with its table: what has to be inserted, updated and deleted for the table to be the snapshot.

In: the snapshot's rows and the table's, in the table's types. Out: the rows that differ with their op, as a
fold leaves them (see `fold.py`). Values are equal as Spark compares them: NULL equals NULL, -0.0 equals 0.0,
NaN equals NaN. With a key, other values are compared by their hashes of 96 bits. One join, or without a key one
aggregation; nothing is collected but counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add, and_, or_
from typing import TYPE_CHECKING

from mirrorlib.commit.difference import difference
from mirrorlib.commit.staged import ADD, CHANGE, DROP, OP
from mirrorlib.delta.columns import find_column
from mirrorlib.delta.table import read_table
from mirrorlib.errors import SnapshotError
from mirrorlib.identifiers import quote
from mirrorlib.ingest.rows.marks import MARKER, ORDER
from mirrorlib.ingest.rows.spark_reader import Stage, frame_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

    from mirrorlib.delta.columns import Columns
    from mirrorlib.delta.table import TableRef
    from mirrorlib.ingest.batch.open_batch import Prepared
    from mirrorlib.ingest.files.source import Source

_HERE, _WAS = "_mirror_here", "_mirror_was"
_BITS = 62  # of a long


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """How many rows a snapshot changes.

    Attributes:
        inserts: rows that are new.
        updates: rows that have other values.
        deletes: rows that go; without a key, those that go and come again are among them.
        lost: rows that the table has less, by key where there is one.
        before: how many rows the table has.
        null_keys: a row that changes has a NULL in its key.

    """

    inserts: int
    updates: int
    deletes: int
    lost: int
    before: int
    null_keys: bool

    def __str__(self) -> str:
        """Say it in a sentence."""
        return (
            f"inserts {self.inserts:,}, updates {self.updates:,} and deletes {self.deletes:,} "
            f"of the table's {self.before:,} rows"
        )


def table_rows(spark: SparkSession, ref: TableRef, before: Columns, columns: Columns) -> DataFrame:
    """Read the table as it will be once its columns, *before*, have grown to *columns*."""
    from pyspark.sql import functions as f

    return read_table(spark, ref).select(
        *(
            (f.col(quote(old.name)) if (old := find_column(before, column.name)) else f.lit(None))
            .cast(column.sql_type)
            .alias(column.name)
            for column in columns
        )
    )


def compare_rows(
    rows: DataFrame, table: DataFrame, keys: Sequence[str], *, null_keys: bool
) -> DataFrame:
    """Return the rows that differ, with their op.

    Args:
        rows: the snapshot's.
        table: the table's, with the same columns.
        keys: the key columns; without any, rows are known by all their values.
        null_keys: the snapshot has NULLs in its key.

    """
    from pyspark.sql import functions as f

    if not keys:
        return difference(table, rows)
    names = rows.columns
    others = [name for name in names if name not in keys]
    old = {key: f"_mirror_{place}" for place, key in enumerate(keys)}
    here = rows.withColumn(_HERE, _digest(others))
    was = table.select(
        *(f.col(quote(key)).alias(old[key]) for key in keys), _digest(others).alias(_WAS)
    )
    same = (
        f.col(quote(key)).eqNullSafe(f.col(old[key]))
        if null_keys
        else f.col(quote(key))
        == f.col(old[key])  # joins faster, and is the same where no key is NULL
        for key in keys
    )
    gone = f.col(_HERE).isNull()
    op = (
        f.when(gone, DROP).when(f.col(_WAS).isNull(), ADD).when(f.col(_HERE) != f.col(_WAS), CHANGE)
    )
    values = (
        f.when(gone, f.col(old[name])).otherwise(f.col(quote(name))).alias(name)
        if name in old
        else f.col(quote(name))
        for name in names
    )
    joined = here.join(was, reduce(and_, same), "full_outer")
    return joined.select(*values, op.cast("tinyint").alias(OP)).where(f.col(OP).isNotNull())


def _digest(names: Sequence[str]) -> SparkColumn:
    """Return 96 bits of a row's values: what has to be moved of the table's rows for them to be compared.

    Spark's hashes pass NULLs over, so which values are NULL is hashed with them.
    """
    from pyspark.sql import functions as f

    nulls = (
        reduce(
            add,
            (
                f.when(f.col(quote(name)).isNull(), f.lit(1 << place))
                .otherwise(f.lit(0))
                .cast("bigint")
                for place, name in enumerate(names[start : start + _BITS])
            ),
        )
        for start in range(0, len(names), _BITS)
    )
    values = [*(f.col(quote(name)) for name in names), *nulls, f.lit(0)]
    return f.struct(f.xxhash64(*values).alias("long"), f.hash(*values).alias("short"))


def count_differences(
    changes: DataFrame, keys: Sequence[str], *, rows: int, before: int
) -> Differences | None:
    """Count what differs; None where a key is there twice, in the snapshot or in the table.

    Without any, as many rows of the one have found a row of the other as the reverse.

    Args:
        changes: as `compare_rows` returns them.
        keys: the key columns.
        rows: how many the snapshot has.
        before: how many the table has.

    """
    from pyspark.sql import functions as f

    has_null = reduce(or_, (f.col(quote(key)).isNull() for key in keys), f.lit(not keys))
    counted = changes.groupBy(OP).agg(f.count(f.lit(1)), f.max(has_null)).collect()
    count = {op: some for op, some, _ in counted}
    added, changed, deleted = (count.get(op, 0) for op in (ADD, CHANGE, DROP))
    lost = deleted
    if not keys:
        deleted, lost = before + added - rows, max(before - rows, 0)
    elif rows - added != before - deleted or has_doubles(changes.where(f.col(OP) == ADD), keys):
        return None
    return Differences(
        inserts=added,
        updates=changed,
        deletes=deleted,
        lost=lost,
        before=before,
        null_keys=any(null for _, _, null in counted),
    )


def has_doubles(rows: DataFrame, keys: Sequence[str]) -> bool:
    """Say whether some key is there twice."""
    from pyspark.sql import functions as f

    names = [quote(key) for key in keys]
    return not rows.groupBy(*names).count().where(f.col("count") > 1).isEmpty()


def check_doubles(stage: Stage, source: Source, prepared: Prepared, keys: Sequence[str]) -> None:
    """See that no key is twice in a snapshot.

    Raises:
        SnapshotError: one is.

    """
    from pyspark.sql import functions as f

    names = [quote(key) for key in keys]
    apart = Stage(spark=stage.spark, state=stage.state, folder=f"{stage.folder}/ordered")
    rows = frame_of(apart, source, prepared, ordered=True).select(*names, MARKER, ORDER)
    groups = rows.groupBy(*names).agg(f.count(f.lit(1)).alias(MARKER), f.max(ORDER).alias(ORDER))
    found = groups.where(f.col(MARKER) > 1).agg(f.count(f.lit(1)), f.min(ORDER)).collect()[0]
    if found[0]:
        msg = "the snapshot has a key in more than one row"
        shown = "1 such key" if found[0] == 1 else f"{found[0]:,} such keys"
        step = "Publish it with one row for each key, under the same name, or correct keyColumns in _metadata.json."
        raise SnapshotError(
            msg,
            table=source.table,
            file=prepared.landed[-1].file.name,
            column=", ".join(keys),
            row=found[1],
            found=shown,
            next_step=step,
        )


def check_loss(
    source: Source,
    file: str,
    differences: Differences,
    rows: int,
    *,
    most: float,
    allow_empty: bool,
) -> None:
    """See that a snapshot does not lose more rows than it may.

    Raises:
        SnapshotError: it does, and nobody has approved it.

    """
    if not rows:
        if differences.before and not allow_empty:
            msg = f"the snapshot is empty, and the table has {differences.before:,} rows"
            step = (
                "Publish it with its rows under the same name, or approve it: --allow-empty --retry"
            )
            raise SnapshotError(msg, table=source.table, file=file, next_step=step)
        return
    if differences.lost <= most * differences.before:
        return
    share = (
        -(-10_000 * differences.lost // differences.before) / 10_000
    )  # what approves it, rounded up
    msg = (
        f"the snapshot loses {differences.lost:,} of the table's {differences.before:,} rows, "
        f"more than the share of {most:g} that it may"
    )
    step = (
        "Publish it whole under the same name, or approve it in one run: "
        f"--max-loss {share:g} --retry"
    )
    raise SnapshotError(msg, table=source.table, file=file, next_step=step)

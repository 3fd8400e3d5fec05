"""Stage what a snapshot changes: the table as it is now, given as one whole file, in place of changes to it.

In: a prepared batch whose files are snapshots. Out: `Staged`, as for change files, so that the batch is committed
by the same plan, MERGE and outcome. Of several files the last is the table: what the others held no table was.

Snapshot and table are compared in the table's types, as Spark compares values: NULL equals NULL, -0.0 equals 0.0,
NaN equals NaN. One join, or without a key one aggregation; nothing is collected but counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from operator import and_, or_

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from mirrorlib.commit.difference import difference
from mirrorlib.commit.stage import ADD, CHANGE, DROP, OP, Stage, Staged, count_doubles, stage_frame
from mirrorlib.delta.columns import Columns, find_column
from mirrorlib.delta.table import TableRef, read_table
from mirrorlib.errors import ForeignWriteError, SnapshotError
from mirrorlib.identifiers import quote
from mirrorlib.ingest.batch.open_batch import Prepared
from mirrorlib.ingest.batch.spark_reader import read_frame, reads_as_it_is
from mirrorlib.ingest.batch.stage import read_whole, stage_inserts
from mirrorlib.ingest.rows.marks import MARKER, ORDER
from mirrorlib.ingest.work import Work

_OPS = (ADD, CHANGE, DROP)
_HERE, _WAS = "_mirror_here", "_mirror_was"
_BITS = 62  # of a long


def stage_snapshot(work: Work, stage: Stage, prepared: Prepared, *, replaces: bool) -> Staged:
    """Compare the last file of a batch with the table, which has its columns by now, and stage what differs.

    Rows are compared whole without a key. What *replaces* goes into a table that is empty or to be overwritten, so all
    rows are new.

    Raises `FileChangedError`: a file is no longer the one that was prepared; `SnapshotError`: a key is there twice, or
    more rows are lost than may be.
    """
    newest, keys = prepared.newest, prepared.keys
    rows = read_frame(stage, newest, ordered=False)
    if replaces and keys and count_doubles(rows, keys):
        _check_doubles(stage, newest)
    if not replaces:
        changes = _compare(work, newest, rows, newest.growth.columns)
        staged = stage_frame(stage, "differences", changes, keys or rows.columns, _OPS)
    prepared.check_files()
    if replaces:
        return stage_inserts(rows, newest.rows, counts={"inserts": newest.rows})
    counts, null_keys, _ = _count(work, stage, newest, staged.frame)
    kept = frozenset(op for op, count in zip(_OPS, counts.values(), strict=True) if count)
    return replace(staged, ops=kept, null_keys=null_keys, counts=counts)


def tell_snapshot(work: Work, prepared: Prepared, before: Columns) -> str:
    """Say what the last file of a batch will change in a table that has the columns *before*, and write nothing.

    It is "" where Spark cannot read the file as it lies.

    Raises `SnapshotError`: it will be refused.
    """
    newest = prepared.newest
    if not reads_as_it_is(newest.landed[0], newest.growth.columns):
        return ""
    stage = Stage(spark=work.spark, state=work.state)
    rows = read_frame(stage, newest, ordered=False)
    changes = _compare(work, newest, rows, before)
    counts, _, held = _count(work, stage, newest, changes)
    return (
        f"inserts {counts['inserts']:,}, updates {counts['updates']:,} and deletes {counts['deletes']:,} "
        f"of the table's {held:,} rows"
    )


def stage_difference(stage: Stage, ref: TableRef, rows: DataFrame, keys: Sequence[str]) -> Staged:
    """Stage what makes a table's rows others, of the same columns."""
    return stage_frame(stage, "differences", *_differ(stage, ref, rows, keys), _OPS)


def tell_difference(work: Work, prepared: Prepared) -> str:
    """Say what `stage_difference` will change, and write nothing; "" where that is told only by what is written."""
    stage = Stage(spark=work.spark, state=work.state)
    whole = prepared.newest if work.source.policies.snapshots else prepared
    rows = read_whole(stage, whole)
    if rows is None:
        return ""
    changes, _ = _differ(stage, work.ref, rows, whole.keys)
    count = {op: rows for op, rows in changes.groupBy(OP).count().collect()}  # noqa: C416
    added, changed, deleted = (count.get(op, 0) for op in _OPS)
    return f"inserts {added:,}, updates {changed:,} and deletes {deleted:,} rows: the others are as they have to be"


def _differ(
    stage: Stage, ref: TableRef, rows: DataFrame, keys: Sequence[str]
) -> tuple[DataFrame, tuple[str, ...]]:
    """Compare by keys where both sides have each once, else all columns."""
    table = read_table(stage.spark, ref).select(*map(quote, rows.columns))
    if keys and (count_doubles(rows, keys) or count_doubles(table, keys)):
        keys = ()
    return _compare_rows(table, rows, keys, null_keys=True), tuple(keys or rows.columns)


def _compare(work: Work, newest: Prepared, rows: DataFrame, before: Columns) -> DataFrame:
    """Return the rows that differ from the table's, which has the columns *before*, with their op."""
    table = read_table(work.spark, work.ref).select(
        *(  # as they will be once the columns have grown
            (f.col(quote(has.name)) if (has := find_column(before, column.name)) else f.lit(None))
            .cast(column.sql_type)
            .alias(column.name)
            for column in newest.growth.columns
        )
    )
    return _compare_rows(table, rows, newest.keys, null_keys=newest.landed[0].null_keys > 0)


def _compare_rows(
    table: DataFrame, rows: DataFrame, keys: Sequence[str], *, null_keys: bool
) -> DataFrame:
    """Return what has to happen to a table's rows for them to become others; each key is once on both sides."""
    if not keys:
        return difference(table, rows)
    others = [name for name in rows.columns if name not in keys]
    old = {key: f"_mirror_{place}" for place, key in enumerate(keys)}
    was = table.select(
        *(f.col(quote(key)).alias(old[key]) for key in keys), digest(others).alias(_WAS)
    )
    # "=" joins faster, and is the same where no key is NULL.
    pairs = [(f.col(quote(key)), f.col(old[key])) for key in keys]
    same = [one.eqNullSafe(other) if null_keys else one == other for one, other in pairs]
    joined = rows.withColumn(_HERE, digest(others)).join(was, reduce(and_, same), "full_outer")
    here, there = f.col(_HERE), f.col(_WAS)
    values = [
        f.when(here.isNull(), f.col(old[name])).otherwise(f.col(quote(name))).alias(name)
        if name in old
        else quote(name)
        for name in rows.columns
    ]
    op = f.when(here.isNull(), DROP).when(there.isNull(), ADD).when(here != there, CHANGE)
    return joined.select(*values, op.cast("tinyint").alias(OP)).where(f.col(OP).isNotNull())


def digest(names: Sequence[str]) -> SparkColumn:
    """Return 96 bits of a row's values: what has to be moved of the table's rows for them to be compared.

    Spark's hashes pass NULLs over, so which values are NULL is hashed with them, as the bits of longs: to hash a
    boolean for each took a fifth more time.
    """
    columns = [quote(name) for name in names]
    bits = [f"if({one} IS NULL, {1 << place % _BITS}L, 0L)" for place, one in enumerate(columns)]
    nulls = [" + ".join(bits[start : start + _BITS]) for start in range(0, len(bits), _BITS)]
    values = ", ".join([*columns, *nulls, "0"])
    return f.expr(f"struct(xxhash64({values}) AS `long`, hash({values}) AS `short`)")


def _count(
    work: Work, stage: Stage, newest: Prepared, changes: DataFrame
) -> tuple[dict[str, int], bool, int]:
    """Count what differs, and see that it may.

    Without a key, as many rows of the one have found a row of the other as the reverse; those that go and come
    again are among the deletes.

    Returns the inserts, updates and deletes, whether a row that changes has a NULL in its key, and how many rows the
    table has.

    Raises `SnapshotError`: a key is twice in the snapshot, or more rows are lost than may be; `ForeignWriteError`: a
    key is twice in the table, which no snapshot has put there.
    """
    before, rows = read_table(work.spark, work.ref).count(), newest.rows
    keys = newest.keys
    has_null = reduce(or_, (f.col(quote(key)).isNull() for key in keys), f.lit(not keys))
    counted = changes.groupBy(OP).agg(f.count(f.lit(1)), f.max(has_null)).collect()
    count = {op: some for op, some, _ in counted}
    added, changed, deleted = (count.get(op, 0) for op in _OPS)
    lost = deleted
    if not keys:
        deleted, lost = before + added - rows, max(before - rows, 0)
    elif rows - added != before - deleted or count_doubles(changes.where(f.col(OP) == ADD), keys):
        _check_doubles(stage, newest)
        msg = "the table has a key in more than one row, or was written to while it was compared with a snapshot"
        step = f"Run again; if it stays, start the table over: mirrorlib reset TARGET {work.table}"
        raise ForeignWriteError(msg, table=work.table, column=", ".join(keys), next_step=step)
    _check_loss(work, newest, before, lost)
    counts = {"inserts": added, "updates": changed, "deletes": deleted}
    return counts, any(null for _, _, null in counted), before


def _check_doubles(stage: Stage, newest: Prepared) -> None:
    keys = newest.keys
    names = [quote(key) for key in keys]
    apart = replace(stage, folder=f"{stage.folder}/ordered")
    rows = read_frame(apart, newest, ordered=True).select(*names, MARKER, ORDER)
    groups = rows.groupBy(*names).agg(f.count(f.lit(1)).alias(MARKER), f.max(ORDER).alias(ORDER))
    doubles, row = groups.where(f.col(MARKER) > 1).agg(f.count(f.lit(1)), f.min(ORDER)).collect()[0]
    if doubles:
        msg = "the snapshot has a key in more than one row"
        step = "Publish it with one row for each key, under the same name, or correct keyColumns in _metadata.json."
        raise SnapshotError(
            msg,
            table=newest.source.table,
            file=newest.landed[0].file.name,
            column=", ".join(keys),
            row=row,
            found="1 such key" if doubles == 1 else f"{doubles:,} such keys",
            next_step=step,
        )


def _check_loss(work: Work, newest: Prepared, before: int, lost: int) -> None:
    """See that a snapshot does not lose more rows than it may, unless somebody has approved it."""
    if newest.rows:
        refused = lost / max(before, 1) > work.options.max_loss
        share = -(-10_000 * lost // max(before, 1)) / 10_000  # what approves it, rounded up
        share_of = f"more than the share of {work.options.max_loss:g}"
        msg = f"the snapshot loses {lost:,} of the table's {before:,} rows, {share_of}"
        step = f"Publish it whole under the same name, or approve it in one run: --max-loss {share:g} --retry"
    else:
        refused = before > 0 and not work.options.allow_empty
        msg = f"the snapshot is empty, and the table has {before:,} rows"
        step = "Publish it with its rows under the same name, or approve it: --allow-empty --retry"
    if refused:
        file = newest.landed[0].file.name
        raise SnapshotError(msg, table=work.table, file=file, next_step=step)

"""Stage what a snapshot changes: the table as it is now, given as one whole file, in place of changes to it.

In: a prepared batch whose files are snapshots. Out: `Staged`, as for change files, so that the batch is committed
by the same plan, MERGE and outcome. Of several files the last is the table: what the others held no table was.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mirrorlib.commit.stage import stage_frame
from mirrorlib.commit.staged import ADD, CHANGE, DROP
from mirrorlib.delta.table import read_table
from mirrorlib.errors import ForeignWriteError
from mirrorlib.ingest.batch.compare import (
    check_doubles,
    check_loss,
    compare_rows,
    count_differences,
    has_doubles,
    table_rows,
)
from mirrorlib.ingest.batch.stage import stage_inserts
from mirrorlib.ingest.rows.read import check_identity
from mirrorlib.ingest.rows.spark_reader import Stage, frame_of, reads_as_it_is

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirrorlib.commit.staged import Staged
    from mirrorlib.delta.columns import Columns
    from mirrorlib.ingest.batch.compare import Differences
    from mirrorlib.ingest.batch.open_batch import Prepared
    from mirrorlib.ingest.files.source import Source
    from mirrorlib.ingest.work import Work


def stage_snapshot(
    work: Work,
    stage: Stage,
    source: Source,
    prepared: Prepared,
    keys: Sequence[str],
    *,
    replaces: bool,
) -> Staged:
    """Compare the last file of a batch with the table, and stage what differs.

    Args:
        work: the table, which has the columns of *prepared*.
        stage: where to.
        source: where the files lie.
        prepared: the batch.
        keys: the table's key columns, as the table spells them; rows are compared whole without any.
        replaces: the table is empty or to be overwritten, so all rows are new.

    Raises:
        FileChangedError: a file is no longer the one that was prepared.
        SnapshotError: a key is there twice, or more rows are lost than may be.

    """
    newest = prepared.newest
    rows = frame_of(stage, source, newest, ordered=False)
    if replaces:
        if keys and has_doubles(rows, keys):
            check_doubles(stage, source, newest, keys)
        _check_files(source, prepared)
        return stage_inserts(rows, newest.rows, counts={"inserts": newest.rows})
    columns = newest.growth.columns
    table = table_rows(work.spark, work.ref, columns, columns)
    null_keys = newest.landed[0].null_keys > 0
    path = f"{stage.folder}/differences"
    changes = compare_rows(rows, table, keys, null_keys=null_keys)
    staged = stage_frame(work.spark, stage.state, path, changes, keys, (DROP, CHANGE, ADD))
    _check_files(source, prepared)
    before = read_table(work.spark, work.ref).count()
    differences = count_differences(staged.frame, keys, rows=newest.rows, before=before)
    if differences is None:
        check_doubles(stage, source, newest, keys)
        raise _doubled_table(work, keys)
    _check_loss(work, source, newest, differences)
    ops = {ADD: differences.inserts, CHANGE: differences.updates, DROP: differences.deletes}
    return replace(
        staged,
        ops=frozenset(op for op, count in ops.items() if count),
        null_keys=differences.null_keys,
        counts={
            "inserts": differences.inserts,
            "updates": differences.updates,
            "deletes": differences.deletes,
        },
    )


def tell_snapshot(work: Work, prepared: Prepared, before: Columns, keys: Sequence[str]) -> str:
    """Say what the last file of a batch will change, and write nothing; "" where Spark cannot read it as it lies.

    Args:
        work: the table.
        prepared: the batch.
        before: the table's columns now.
        keys: its key columns, as `stage_snapshot` takes them.

    Raises:
        SnapshotError: it will be refused.

    """
    newest = prepared.newest
    columns, source = newest.growth.columns, work.source
    if not reads_as_it_is(source, newest.landed[0], columns):
        return ""
    stage = Stage(spark=work.spark, state=work.state, folder="")  # for nothing to be written to
    rows = frame_of(stage, source, newest, ordered=False)
    table = table_rows(work.spark, work.ref, before, columns)
    null_keys = newest.landed[0].null_keys > 0
    changes = compare_rows(rows, table, keys, null_keys=null_keys)
    differences = count_differences(changes, keys, rows=newest.rows, before=table.count())
    if differences is None:
        check_doubles(stage, source, newest, keys)
        raise _doubled_table(work, keys)
    _check_loss(work, source, newest, differences)
    return str(differences)


def _check_files(source: Source, prepared: Prepared) -> None:
    """See that no file was replaced while Spark has read it."""
    for landed in prepared.landed:
        check_identity(source, landed.file)


def _check_loss(work: Work, source: Source, newest: Prepared, differences: Differences) -> None:
    file = newest.landed[0].file.name
    most, empty = work.options.max_loss, work.options.allow_empty
    check_loss(source, file, differences, newest.rows, most=most, allow_empty=empty)


def _doubled_table(work: Work, keys: Sequence[str]) -> ForeignWriteError:
    """Say that it is the table that has a key twice, which no snapshot has put there."""
    msg = "the table has a key in more than one row, or was written to while it was compared with a snapshot"
    step = f"Run again; if it stays, start the table over: mirrorlib reset TARGET {work.table}"
    return ForeignWriteError(msg, table=work.table, column=", ".join(keys), next_step=step)

"""Let a table take a batch's files as they are, where every row is an insert and every file fits it to the byte.

In: a plan and its opened files. Out: whether it was done; if not, Spark reads and writes them (see `stage.py`). A first
load takes a fraction of the time so. Files are copied where the store does it itself, are told by their identity
before and after, are decoded by Spark to the last page, and count from one commit on that names the version it comes
behind (see `commit/adopt.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from mirrorlib.commit.adopt import AddedFile, commit_files, read_statistics, takes_files
from mirrorlib.commit.protocol import OvertakenError
from mirrorlib.delta.columns import Columns
from mirrorlib.delta.log import FileLog
from mirrorlib.delta.properties import LIFE_PROPERTY
from mirrorlib.delta.sessions import carries_marks
from mirrorlib.delta.table import find_table
from mirrorlib.identifiers import quote
from mirrorlib.ingest.batch.foreign_writes import find_outcome
from mirrorlib.ingest.batch.open_batch import Prepared
from mirrorlib.ingest.batch.spark_reader import read_frame, stage_nothing
from mirrorlib.ingest.batch.stage import is_plain
from mirrorlib.ingest.rows.marks import MARKER_NAMES
from mirrorlib.ingest.rows.read import Landed, can_spark_read, check_identities
from mirrorlib.ingest.work import Attempt
from mirrorlib.journal.entries import new_attempt
from mirrorlib.landing.columns import INSERT
from mirrorlib.store import Store, copy_file, open_store

_WORTH_IT = 8 << 20  # bytes a file: many small ones are better written together


def adopt_batch(attempt: Attempt, prepared: Prepared) -> bool:
    """Copy the files of a plan into its table and commit them; False where they have to be read.

    Raises `FileChangedError`: a file is no longer the one that was prepared; `OvertakenError`: another commit came
    meanwhile.
    """
    work, plan = attempt.work, attempt.plan
    version = _adoptable(attempt, prepared)
    if version is None or work.ref.path is None:
        return False
    table = open_store(work.ref.path)
    # Names unlike those of any other runner: what one that comes too late has copied is removed.
    copies = [f"{plan.batch}-{new_attempt()}.parquet" for _ in prepared.landed]
    pairs = list(zip(prepared.landed, copies, strict=True))
    facts = {
        "outcome": "applied",
        "kind": "adopt",
        "rows": {MARKER_NAMES[INSERT]: prepared.rows},
        "bytes": plan.bytes,
    }
    counts = False
    try:
        with attempt.step("stage", counted=True):
            for landed, copy in pairs:
                if not copy_file(work.source.zone, landed.file.path, table, copy):
                    return False
            _decode(attempt, prepared)
            check_identities(prepared.landed)
            files = [_added(table, landed, copy, prepared.keys) for landed, copy in pairs]
        with attempt.step("commit", counted=True):
            counts = True  # as far as anybody knows, until the store has answered
            counts = commit_files(
                table, version, files, attempt.mark(facts), replaces=not plan.before
            )
    finally:
        for copy in [] if counts else copies:
            table.delete(copy)
    if not counts:
        raise OvertakenError
    return True


def _adoptable(attempt: Attempt, prepared: Prepared) -> int | None:
    """Return the version of the table that a batch can be added behind as it is; None where it cannot."""
    work, plan = attempt.work, attempt.plan
    if not _are_inserts(attempt, prepared) or not isinstance(work.log, FileLog):
        return None
    # Nobody has looked who else has written; or a claim is needed, which only what Spark reads is bound to.
    if work.options.allow_foreign_writes or not carries_marks(work.spark):
        return None
    if not all(_fits(one, prepared.growth.columns) for one in prepared.landed):
        return None
    version, ended = find_outcome(attempt)
    found = find_table(work.spark, work.ref)
    if ended is not None or found is None or not takes_files(work.spark, work.ref, found):
        return None
    if found.properties.get(LIFE_PROPERTY) != work.life.uuid:
        return None  # fenced off, which Delta sees and this way does not
    # What a table holds that is begun anew has to go.
    return version if plan.before or not found.bytes else None


def _decode(attempt: Attempt, prepared: Prepared) -> None:
    """Let Spark decode all values: what a page does not give is found before the file counts."""
    from pyspark.sql import functions as f

    rows = read_frame(stage_nothing(attempt.work), prepared, ordered=False)
    rows.agg(*(f.count(quote(name)) for name in rows.columns)).collect()


def _are_inserts(attempt: Attempt, prepared: Prepared) -> bool:
    """Say whether the rows are to be inserted without a look, by files that are worth to be kept."""
    plan = attempt.plan
    if plan.policies.snapshots or plan.bytes < _WORTH_IT * len(plan.files):
        return False
    if any(one.schema.marker is not None or one.rows is not None for one in prepared.landed):
        return False
    return is_plain(prepared)


def _fits(landed: Landed, columns: Columns) -> bool:
    """Say whether a file's columns are the table's, in the table's types, and Spark reads it as it is."""
    types = {column.name: column.type for column in columns}
    return (
        bool(landed.schema.columns)
        and all(
            column.native
            and not column.moved
            and column.given is None
            and _stored(column.stored) == types.get(column.name)
            for column in landed.schema.columns
        )
        and can_spark_read(landed)
    )


def _stored(kind: pa.DataType) -> pa.DataType:
    """Return the type that stands in Parquet: Arrow has several for one."""
    if pa.types.is_dictionary(kind):
        return _stored(kind.value_type)
    if pa.types.is_large_string(kind):
        return pa.string()
    return pa.binary() if pa.types.is_large_binary(kind) else kind


def _added(table: Store, landed: Landed, copy: str, keys: Sequence[str]) -> AddedFile:
    flat = (one.name for one in landed.schema.columns if not pa.types.is_nested(one.stored))
    mine = [name for name in flat if name in keys]
    with table.open_file(copy) as handle:
        statistics = read_statistics(handle, mine)
    return AddedFile(
        path=copy, size=landed.file.size, rows=landed.schema.rows, statistics=statistics
    )

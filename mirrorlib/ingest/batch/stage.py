"""Bring a batch's changes to where Spark can take them in one commit.

In: a prepared batch. Out: a DataFrame over private, immutable Parquet, which MERGE may read as
often as it likes. Large batches never pass through this process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from mirrorlib.commit.stage import (
    ADD,
    CHANGE,
    DROP,
    OP,
    PUT,
    SET,
    Stage,
    Staged,
    count_doubles,
    stage_frame,
    staged_table,
)
from mirrorlib.delta.columns import find_column
from mirrorlib.delta.sessions import ARROW_FRAMES, file_reader, spark_generation
from mirrorlib.ingest.batch.fold import fold_frame, fold_partially, fold_rows
from mirrorlib.ingest.batch.open_batch import Prepared, rows_of
from mirrorlib.ingest.batch.spark_reader import read_frame, reads_as_it_is
from mirrorlib.ingest.rows.marks import join_spans
from mirrorlib.ingest.rows.partial import check_lists
from mirrorlib.landing.columns import DELETE, INSERT, UPSERT

_HANDFUL = 256 << 10  # bytes of changes that travel inside the plan: a file costs 40 ms more
_ROWS_PER_GROUP = 1 << 17  # of a staged file: a task takes whole groups, and all want some


def stage_batch(stage: Stage, prepared: Prepared, *, replaces: bool) -> Staged:
    """Fold a batch and stage it.

    What *replaces* goes into a table that is empty or to be overwritten, so no row can match.

    Raises `FileChangedError`: a change file is no longer the one that was prepared.
    """
    plain = is_plain(prepared)
    by_rows = prepared.source.policies.partial or _conditional(prepared)
    if prepared.small and (plain or not by_rows):
        return _stage_small(stage, prepared, replaces=replaces)
    prepared.check_files()
    rows = _unfolded(stage, prepared, plain=plain) if plain or replaces else None
    if rows is not None:
        return stage_inserts(rows, prepared.rows)
    return _stage_large(stage, prepared, replaces=replaces)


def read_whole(stage: Stage, prepared: Prepared) -> DataFrame | None:
    """Say what a batch comes to in an empty table, and write nothing; None where a file has to be written first."""
    columns = prepared.growth.columns
    if not all(reads_as_it_is(landed, columns) for landed in prepared.landed):
        return None
    if prepared.source.policies.snapshots or is_plain(prepared):
        return read_frame(stage, prepared, ordered=False)
    return _only_new(_read_folded(stage, prepared))


def is_plain(prepared: Prepared) -> bool:
    """Say whether all rows are inserts, of which none looks for another."""
    appends = prepared.source.policies.insert_policy == "append"
    return not prepared.keys or prepared.rows == (prepared.counts[INSERT] if appends else 0)


def _conditional(prepared: Prepared) -> str | None:
    found = find_column(prepared.growth.columns, prepared.source.policies.conditional or "")
    return found.name if found else None


def stage_inserts(frame: DataFrame, rows: int, counts: Mapping[str, int] | None = None) -> Staged:
    """Let rows be inserted as they are read from where they lie."""
    ops = frozenset({ADD})
    return Staged(frame=frame, ops=ops, rows=rows, bytes=0, private=False, counts=counts)


def _unfolded(stage: Stage, prepared: Prepared, *, plain: bool) -> DataFrame | None:
    """Read rows that need not be folded, as each is the only one of its key, and stays; None where some do."""
    partial = prepared.source.policies.partial is not None
    if not plain and (partial or prepared.counts[DELETE]):
        return None
    rows = read_frame(stage, prepared, ordered=False)
    # Keys that grow from row to row come once.
    grows = plain or join_spans([landed.key_span for landed in prepared.landed]) is not None
    return rows if grows or not count_doubles(rows, prepared.keys) else None


def _read_folded(stage: Stage, prepared: Prepared) -> DataFrame:
    """Read a batch and fold it on the executors; what changes the table's rows has its `OP`."""
    rows, keys = read_frame(stage, prepared, ordered=True), prepared.keys
    if prepared.source.policies.partial is None:
        return fold_frame(rows, keys, _conditional(prepared))
    columns, names = prepared.growth.columns, [landed.file.name for landed in prepared.landed]
    check_lists(prepared.source, names, columns, rows)
    return fold_partially(rows, keys, columns)


def _only_new(folded: DataFrame) -> DataFrame:
    """Return what folded rows come to where there is nothing else."""
    return folded.where(f.col(OP).isin(PUT, ADD)).drop(OP, SET)


def _stage_large(stage: Stage, prepared: Prepared, *, replaces: bool) -> Staged:
    folded, keys = _read_folded(stage, prepared), prepared.keys
    ops = {DROP, PUT, CHANGE, ADD}
    if replaces:
        ops, folded = {ADD}, _only_new(folded)
    elif prepared.counts[DELETE] == prepared.rows:
        ops = {DROP}
    staged = stage_frame(stage, "folded", folded, keys, ops)
    prepared.check_files()
    return replace(
        staged,
        null_keys=any(landed.null_keys for landed in prepared.landed),
        conditional=_conditional(prepared),
        partial=prepared.source.policies.partial is not None,
    )


def _stage_small(stage: Stage, prepared: Prepared, *, replaces: bool) -> Staged:
    """Fold rows that are in memory, and hand them to Spark: a handful as a part of the plan, more as a file."""
    (rows, markers), keys = rows_of(prepared), prepared.keys
    if prepared.source.policies.insert_policy == "upsert" and keys:
        markers = pc.if_else(pc.equal(markers, INSERT), pa.scalar(UPSERT, pa.int8()), markers)
    changes = fold_rows(rows, markers, keys)
    ddl = ", ".join([*(column.ddl for column in prepared.growth.columns), f"{OP} tinyint"])
    if replaces:
        stay = pc.is_in(changes.column(OP), value_set=pa.array([PUT, ADD], pa.int8()))
        changes = changes.filter(stay)
    if replaces or pc.all(pc.equal(changes.column(OP), ADD)).as_py() is not False:
        changes, ddl = changes.drop_columns([OP]), ddl.rpartition(", ")[0]
    if changes.nbytes <= _HANDFUL and spark_generation() >= ARROW_FRAMES:
        # In one piece: Spark takes an Arrow batch without rows for the end, and files may have none.
        frame = stage.spark.createDataFrame(changes.combine_chunks(), ddl)
        return staged_table(frame, changes, keys)
    path = f"{stage.folder}/changes.parquet"
    with (
        stage.state.open_new(path) as file,
        # Read a few times and deleted: dictionaries cost half of the writing, and zstd finds what they would.
        pq.ParquetWriter(file, changes.schema, compression="zstd", use_dictionary=False) as writer,
    ):
        writer.write_table(changes, row_group_size=_ROWS_PER_GROUP)
    written = stage.state.stat(path)
    frame = file_reader(stage.spark, ddl).parquet(stage.state.uri(path))
    return staged_table(frame, changes, keys, written.size if written else 0)

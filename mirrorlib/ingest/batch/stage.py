"""Bring a batch's changes to where Spark can take them in one commit.

In: a prepared batch. Out: a DataFrame over private, immutable Parquet, which MERGE may read as
often as it likes. Small batches come from memory as one file; large ones are folded by Spark and
never pass through this process.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirrorlib.commit.stage import stage_frame
from mirrorlib.commit.staged import ADD, CHANGE, DROP, OP, PUT, SET, Staged
from mirrorlib.delta.columns import find_column
from mirrorlib.delta.sessions import ARROW_FRAMES, file_reader, spark_generation
from mirrorlib.ingest.batch.fold import fold_frame, fold_partially, fold_rows
from mirrorlib.ingest.batch.open_batch import rows_of
from mirrorlib.ingest.rows.marks import DELETE, INSERT, UPSERT
from mirrorlib.ingest.rows.partial import check_lists
from mirrorlib.ingest.rows.read import check_identity
from mirrorlib.ingest.rows.spark_reader import (
    ROWS_PER_FILE,
    Stage,
    frame_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

    from mirrorlib.delta.columns import Columns
    from mirrorlib.ingest.batch.open_batch import Prepared
    from mirrorlib.ingest.files.source import Source

_HANDFUL = 256 << 10  # bytes of changes that travel inside the plan: a file costs 40 ms more
_ROWS_PER_GROUP = 1 << 17  # of a staged file: a task takes whole groups, and all want some


def stage_batch(
    stage: Stage, source: Source, prepared: Prepared, keys: Sequence[str], *, replaces: bool
) -> Staged:
    """Fold a batch and stage it.

    Args:
        stage: where to.
        source: where the change files lie.
        prepared: the batch.
        keys: the table's key columns, as the table spells them.
        replaces: the table is empty or to be overwritten, so no row can match.

    Raises:
        FileChangedError: a change file is no longer the one that was prepared.

    """
    plain = not keys or prepared.rows == _inserts(source, prepared)
    conditional = _spelled(prepared.growth.columns, source.policies.conditional)
    partial = None if plain else source.policies.partial
    if prepared.small and (plain or conditional is None) and partial is None:
        return _stage_small(stage, source, prepared, keys, replaces=replaces)
    for landed in prepared.landed:
        check_identity(source, landed.file)
    if not plain:
        return _stage_large(stage, source, prepared, keys, conditional, replaces=replaces)
    return stage_inserts(frame_of(stage, source, prepared, ordered=False), prepared.rows)


def stage_inserts(frame: DataFrame, rows: int, counts: Mapping[str, int] | None = None) -> Staged:
    """Let rows be inserted as they are read from where they lie."""
    return Staged(
        frame=frame,
        plain=True,
        ops=frozenset({ADD}),
        rows=rows,
        null_keys=False,
        bytes=0,
        private=False,
        counts=counts,
    )


def _stage_large(
    stage: Stage,
    source: Source,
    prepared: Prepared,
    keys: Sequence[str],
    conditional: str | None,
    *,
    replaces: bool,
) -> Staged:
    rows = frame_of(stage, source, prepared, ordered=True)
    columns, partial = prepared.growth.columns, source.policies.partial is not None
    if partial:
        names = [landed.file.name for landed in prepared.landed]
        check_lists(source, names, columns, rows, ROWS_PER_FILE)
        folded = fold_partially(rows, keys, columns)
    else:
        folded = fold_frame(rows, keys, conditional)
    ops = frozenset({ADD}) if replaces else _possible_ops(prepared)
    if replaces:
        folded = _without_matches(folded)
    path = f"{stage.folder}/folded"
    staged = stage_frame(stage.spark, stage.state, path, folded, keys, ops)
    for landed in prepared.landed:
        check_identity(source, landed.file)
    return replace(
        staged,
        null_keys=any(landed.null_keys for landed in prepared.landed),
        conditional=conditional,
        partial=partial,
        key_range=None,  # of many keys it is wide: its filter would cost and leave nothing out
    )


def _stage_small(
    stage: Stage, source: Source, prepared: Prepared, keys: Sequence[str], *, replaces: bool
) -> Staged:
    rows, markers = rows_of(source, prepared)
    if source.policies.insert_policy == "upsert" and keys:
        markers = pc.if_else(pc.equal(markers, INSERT), pa.scalar(UPSERT, pa.int8()), markers)
    changes = fold_rows(rows, markers, keys)
    if replaces:
        left = pc.is_in(changes.column(OP), value_set=pa.array([PUT, ADD], pa.int8()))
        changes = changes.filter(left)
        changes = changes.set_column(
            changes.num_columns - 1, OP, pa.repeat(pa.scalar(ADD, pa.int8()), len(changes))
        )
    ops = frozenset(pc.unique(changes.column(OP)).to_pylist())
    plain = ops <= {ADD}
    frame, size = _frame_of_rows(stage, prepared.growth.columns, changes, op=not plain)
    return Staged(
        frame=frame,
        plain=plain,
        ops=ops,
        rows=len(changes),
        null_keys=any(changes.column(key).null_count for key in keys),
        bytes=size,
        private=True,
        key_range=_range_of(changes.column(keys[0])) if keys else None,
    )


def _frame_of_rows(
    stage: Stage, columns: Columns, changes: pa.Table, *, op: bool
) -> tuple[DataFrame, int]:
    """Hand folded rows to Spark: a handful as a part of the plan, more as a file; return their bytes too."""
    ddl = ", ".join([*(column.ddl for column in columns), *([f"{OP} tinyint"] if op else [])])
    if changes.nbytes <= _HANDFUL and spark_generation() >= ARROW_FRAMES:
        whole = changes if op else changes.drop_columns([OP])
        # In one piece: Spark takes an Arrow batch without rows for the end, and files may have none.
        whole = whole.combine_chunks()
        return stage.spark.createDataFrame(whole, ddl), changes.nbytes
    path = f"{stage.folder}/changes.parquet"
    with (
        stage.state.open_new(path) as file,
        # Read a few times and deleted: dictionaries cost half of the writing, and zstd finds what they would.
        pq.ParquetWriter(file, changes.schema, compression="zstd", use_dictionary=False) as writer,
    ):
        writer.write_table(changes, row_group_size=_ROWS_PER_GROUP)
    staged = stage.state.stat(path)
    frame = file_reader(stage.spark, ddl).parquet(stage.state.uri(path))
    return frame, staged.size if staged else 0


def _range_of(values: pa.ChunkedArray) -> tuple[object, object] | None:
    """Return the smallest and the largest value of a type in which Arrow and Spark agree on the order."""
    if not (pa.types.is_integer(values.type) or pa.types.is_date(values.type)):
        return None
    try:
        ends = pc.min_max(values).as_py()
    except OverflowError:  # a date that Python has not
        return None
    return None if ends["min"] is None else (ends["min"], ends["max"])


def _spelled(columns: Columns, name: str | None) -> str | None:
    """Name a column as the table does."""
    found = find_column(columns, name) if name is not None else None
    return found.name if found else None


def _inserts(source: Source, prepared: Prepared) -> int:
    return prepared.counts[INSERT] if source.policies.insert_policy == "append" else 0


def _possible_ops(prepared: Prepared) -> frozenset[int]:
    only_deletes = all(count == 0 for marker, count in prepared.counts.items() if marker != DELETE)
    return frozenset({DROP}) if only_deletes else frozenset({DROP, PUT, CHANGE, ADD})


def _without_matches(folded: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    return folded.where(f.col(OP).isin(PUT, ADD)).drop(OP, SET)

"""Bring a batch's changes to where Spark can take them in one commit.

In: a prepared batch. Out: a DataFrame over private, immutable Parquet, which MERGE may read as
often as it likes. Small batches come from memory as one file; large ones are folded by Spark and
never pass through this process. Files that Spark cannot read as they are (nanoseconds, TIME,
float16) are written again, a row group at a time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirrorlib.apply.columns import find_column, sql_type
from mirrorlib.apply.conditional import fold_conditionally
from mirrorlib.apply.fold import ADD, CHANGE, DROP, MARKER, OP, ORDER, PUT, fold_frame, fold_rows
from mirrorlib.apply.generation import ARROW_FRAMES, spark_generation
from mirrorlib.apply.prepare import fitted_rows, rows_of
from mirrorlib.apply.read import (
    DELETE,
    INSERT,
    UPSERT,
    can_spark_read,
    check_identity,
    open_batches,
)
from mirrorlib.landing.names import quote
from mirrorlib.landing.types import mirror_type

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

    from mirrorlib.apply.columns import Columns
    from mirrorlib.apply.prepare import Prepared
    from mirrorlib.apply.read import Landed, Source
    from mirrorlib.landing.columns import FileSchema
    from mirrorlib.store import Store, StoredFile

_HANDFUL = 256 << 10  # bytes of changes that travel inside the plan: a file costs 40 ms more
_PLAIN_NAME = re.compile(r"[A-Za-z0-9._-]+")  # Spark's `_metadata.file_name` encodes every other
_ROWS_PER_GROUP = (
    1 << 17
)  # of a staged file: a task takes whole row groups, and there should be some for each
_ROWS_PER_FILE = 1 << 40  # more rows than a Parquet file of any publisher has


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """A batch's changes, ready to be committed.

    Attributes:
        frame: the table's columns, plus `OP` unless *plain*.
        plain: every row is to be inserted.
        ops: which ops occur, as far as known; all that markers allow for a large batch.
        rows: how many rows, at most.
        null_keys: some key may be NULL.
        key_range: smallest and largest value of the first key column, where both are known.
        bytes: how many bytes were staged, 0 when the change files themselves are read.
        private: the frame reads staged files, not the landing zone.
        conditional: the column whose value has to be greater for an update to count; None where all count.

    """

    frame: DataFrame
    plain: bool
    ops: frozenset[int]
    rows: int
    null_keys: bool
    bytes: int
    private: bool
    conditional: str | None = None
    key_range: tuple[object, object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Where one attempt stages: a folder that nobody else knows."""

    spark: SparkSession
    state: Store
    folder: str

    def clean(self) -> None:
        """Remove what was staged."""
        self.state.delete_folder(self.folder)


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
    if prepared.small and (plain or conditional is None):
        return _stage_small(stage, source, prepared, keys, replaces=replaces)
    for landed in prepared.landed:
        check_identity(source, landed.file)
    if plain:
        frame = frame_of(stage, source, prepared, ordered=False)
        return Staged(
            frame=frame,
            plain=True,
            ops=frozenset({ADD}),
            rows=prepared.rows,
            null_keys=False,
            bytes=0,
            private=False,
        )
    rows = frame_of(stage, source, prepared, ordered=True)
    folded = (
        fold_frame(rows, keys)
        if conditional is None
        else fold_conditionally(rows, keys, conditional)
    )
    path = f"{stage.folder}/folded"
    if replaces:
        folded = _without_matches(folded)
    folded.write.parquet(stage.state.uri(path))
    for landed in prepared.landed:
        check_identity(source, landed.file)
    size = sum(file.size for file in _files(stage.state, path))
    frame = _read(stage, prepared.growth.columns, [stage.state.uri(path)], op=not replaces)
    return Staged(
        frame=frame,
        plain=replaces,
        ops=frozenset({ADD}) if replaces else _possible_ops(prepared),
        rows=prepared.rows,
        null_keys=any(landed.null_keys for landed in prepared.landed),
        bytes=size,
        private=True,
        conditional=conditional,
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
    if changes.nbytes <= _HANDFUL and spark_generation() >= ARROW_FRAMES:
        told = changes if op else changes.drop_columns([OP])
        return stage.spark.createDataFrame(told, _ddl(columns, op=op)), changes.nbytes
    path = f"{stage.folder}/changes.parquet"
    with (
        stage.state.open_new(path) as file,
        pq.ParquetWriter(file, changes.schema, compression="zstd") as writer,
    ):
        writer.write_table(changes, row_group_size=_ROWS_PER_GROUP)
    staged = stage.state.stat(path)
    frame = _read(stage, columns, [stage.state.uri(path)], op=op)
    return frame, staged.size if staged else 0


def _range_of(values: pa.ChunkedArray) -> tuple[object, object] | None:
    """Return the smallest and the largest value of a type in which Arrow and Spark agree on the order."""
    if not (pa.types.is_integer(values.type) or pa.types.is_date(values.type)):
        return None
    ends = pc.min_max(values).as_py()
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

    return folded.where(f.col(OP).isin(PUT, ADD)).drop(OP)


def frame_of(stage: Stage, source: Source, prepared: Prepared, *, ordered: bool) -> DataFrame:
    """Read a large batch's files with Spark, in the table's types; *ordered* adds `MARKER` and `ORDER`.

    Files of one shape share one scan.
    """
    columns = prepared.growth.columns
    frames = []
    for group in _same_shape(prepared.landed):
        native = []
        for landed in group:
            if can_spark_read(source, landed):
                native.append(landed)
            else:
                frames.append(_rewritten(stage, source, prepared, landed, ordered=ordered))
        if native:
            frames.append(_native(stage.spark, source, prepared, native, ordered=ordered))
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.unionByName(frame)
    names = [quote(column.name) for column in columns]
    return whole.select(*names, MARKER, ORDER) if ordered else whole.select(*names)


def _same_shape(landed: Sequence[Landed]) -> Iterator[list[Landed]]:
    groups: dict[object, list[Landed]] = {}
    for one in landed:
        schema = one.schema
        folder, _, name = one.file.path.rpartition("/")  # names repeat over folders
        place = folder if _PLAIN_NAME.fullmatch(name) else one.file.path
        shape = (schema.columns, schema.marker, str(schema.marker_type), place)
        groups.setdefault(str(shape), []).append(one)
    yield from groups.values()


def _native(
    spark: SparkSession, source: Source, prepared: Prepared, group: list[Landed], *, ordered: bool
) -> DataFrame:
    from pyspark.sql import functions as f

    schema = group[0].schema
    uris = [source.zone.uri(landed.file.path) for landed in group]
    rows = (
        spark.read.schema(_read_ddl(schema))
        .option(
            "datetimeRebaseMode", "CORRECTED"
        )  # dates before 1582 are meant as they stand, not refused
        .option("int96RebaseMode", "CORRECTED")
        .option("__globPaths__", "false")  # a path is a path, whatever brackets it has
        .parquet(*uris)
    )
    values = [_cast(schema, column.name, column.sql_type) for column in prepared.growth.columns]
    if not ordered:
        return rows.select(*values)
    marker = _marker(source, schema).alias(MARKER)
    row = f.col("_metadata.row_index")
    ordinal = {landed.file.path: place for place, landed in enumerate(prepared.landed)}
    paths = [landed.file.path for landed in group]
    if len(paths) == 1:
        first = ordinal[paths[0]] * _ROWS_PER_FILE
        return rows.select(*values, marker, (row + f.lit(first)).alias(ORDER))
    names = spark.createDataFrame(
        [(path.rpartition("/")[2], ordinal[path]) for path in paths],
        "_mirror_file string, _mirror_ordinal long",
    )
    place = f.col("_mirror_ordinal") * _ROWS_PER_FILE + f.col("_mirror_row")
    placed = rows.select(
        *values,
        marker,
        f.col("_metadata.file_name").alias("_mirror_name"),
        row.alias("_mirror_row"),
    ).join(f.broadcast(names), f.col("_mirror_name") == f.col("_mirror_file"))
    helpers = ("_mirror_name", "_mirror_row", "_mirror_file", "_mirror_ordinal")
    return placed.withColumn(ORDER, place).drop(*helpers)


def _read_ddl(schema: FileSchema) -> str:
    known = [(c.name, c.stored) for c in schema.own.columns if not pa.types.is_null(c.type)]
    if (
        schema.marker is not None
        and schema.marker_type is not None
        and not pa.types.is_null(schema.marker_type)
    ):
        known.append((schema.marker, schema.marker_type))
    return ", ".join(f"{quote(name)} {_spark_reads(stored)}" for name, stored in known)


def _spark_reads(stored: pa.DataType) -> str:
    """Return the type that Spark's Parquet reader has for a stored type that it reads as it is."""
    kind = mirror_type(
        stored, "keep", instant=pa.types.is_timestamp(stored) and stored.unit == "ns"
    )  # INT96
    return sql_type(kind if kind is not None else stored)


def _cast(schema: FileSchema, name: str, kind: str) -> SparkColumn:
    from pyspark.sql import functions as f

    mine = schema.column(name)
    if mine is None or pa.types.is_null(mine.type):
        value = f.lit(None)
    elif mine.given is not None:
        value = f.lit(mine.given)
    else:
        value = f.col(quote(mine.name))
    return value.cast(kind).alias(name)


def _marker(source: Source, schema: FileSchema) -> SparkColumn:
    """Read the marker whatever its type; its values were checked when the file was opened."""
    from pyspark.sql import functions as f

    default = UPSERT if source.policies.upsert_default else INSERT
    if schema.marker is None or schema.marker_type is None or pa.types.is_null(schema.marker_type):
        marker = f.lit(default)
    else:
        marker = f.coalesce(f.col(quote(schema.marker)).cast("double").cast("int"), f.lit(default))
    return _as_upsert(source, marker)


def _as_upsert(source: Source, marker: SparkColumn) -> SparkColumn:
    from pyspark.sql import functions as f

    if source.policies.insert_policy != "upsert" or not source.policies.keys:
        return marker
    return f.when(marker == INSERT, UPSERT).otherwise(marker)


def _rewritten(
    stage: Stage, source: Source, prepared: Prepared, landed: Landed, *, ordered: bool
) -> DataFrame:
    """Write a file again in the table's types, a piece at a time, and read that."""
    columns = prepared.growth.columns
    path = f"{stage.folder}/{prepared.landed.index(landed)}.parquet"
    schema = pa.schema(
        [(c.name, c.type) for c in columns] + [(MARKER, pa.int8()), (ORDER, pa.int64())]
    )
    first = prepared.landed.index(landed) * _ROWS_PER_FILE
    with (
        stage.state.open_new(path) as file,
        pq.ParquetWriter(file, schema, compression="zstd") as writer,
    ):
        for rows, markers in open_batches(source, landed):
            part = replace(landed, rows=rows, schema=replace(landed.schema, rows=len(rows)))
            place = pc.add(
                pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), len(rows))), 1),
                first,
            )
            fitted = (
                fitted_rows(source, part, columns)
                .append_column(MARKER, markers)
                .append_column(ORDER, place)
            )
            writer.write_table(fitted.cast(schema))
            first += len(rows)
    ddl = ", ".join([*(c.ddl for c in columns), f"{MARKER} tinyint", f"{ORDER} bigint"])
    frame = (
        stage.spark.read.schema(ddl).option("__globPaths__", "false").parquet(stage.state.uri(path))
    )
    from pyspark.sql import functions as f

    marker = _as_upsert(source, f.col(MARKER).cast("int"))
    return frame.withColumn(MARKER, marker) if ordered else frame.drop(MARKER, ORDER)


def _read(stage: Stage, columns: Columns, paths: Sequence[str], *, op: bool) -> DataFrame:
    """Read staged files with their schema given, which saves Spark a job."""
    reader = stage.spark.read.schema(_ddl(columns, op=op))
    return reader.option("__globPaths__", "false").parquet(*paths)


def _ddl(columns: Columns, *, op: bool) -> str:
    return ", ".join([*(column.ddl for column in columns), *([f"{OP} tinyint"] if op else [])])


def _files(state: Store, folder: str) -> tuple[StoredFile, ...]:
    listed = state.list_folder(folder)
    return listed.files if listed else ()

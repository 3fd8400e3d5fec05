"""Let Spark read a large batch's change files as one frame, in the table's types.

In: opened files. Out: a DataFrame of the table's columns, with `MARKER` and `ORDER` where the batch is
to be folded. Nothing passes through this process but files that Spark cannot read as they are
(nanoseconds, TIME, float16, delimited text): those are written again, a row group at a time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirrorlib.commit.staged import SET
from mirrorlib.delta.columns import find_column, sql_type
from mirrorlib.delta.sessions import PATTERN, file_reader
from mirrorlib.identifiers import quote
from mirrorlib.ingest.batch.fold import MARKER, ORDER
from mirrorlib.ingest.batch.open_batch import fitted_rows
from mirrorlib.ingest.rows.marks import INSERT, UPSERT
from mirrorlib.ingest.rows.partial import with_sets
from mirrorlib.ingest.rows.read import can_spark_read, open_batches
from mirrorlib.ingest.rows.rescue import needs_rescue
from mirrorlib.landing.types import is_binary_float, mirror_type

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

    from mirrorlib.delta.columns import Columns
    from mirrorlib.ingest.batch.open_batch import Prepared
    from mirrorlib.ingest.files.source import Source
    from mirrorlib.ingest.rows.read import Landed
    from mirrorlib.landing.columns import FileSchema
    from mirrorlib.store import Store

_PLAIN_NAME = re.compile(r"[A-Za-z0-9._-]+")  # Spark's `_metadata.file_name` encodes every other
ROWS_PER_FILE = 1 << 40  # more rows than a Parquet file of any publisher has


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Where one attempt stages: a folder that nobody else knows."""

    spark: SparkSession
    state: Store
    folder: str

    def clean(self) -> None:
        """Remove what was staged."""
        self.state.delete_folder(self.folder)


def frame_of(stage: Stage, source: Source, prepared: Prepared, *, ordered: bool) -> DataFrame:
    """Read a large batch's files with Spark, in the table's types; *ordered* adds `MARKER` and `ORDER`.

    Files of one shape share one scan.
    """
    from pyspark.sql import functions as f

    columns = prepared.growth.columns
    sets = ordered and source.policies.partial is not None
    frames = []
    for group in _same_shape(source, prepared.landed, ordered=ordered):
        native = []
        for landed in group:
            if reads_as_it_is(source, landed, columns):
                native.append(landed)
            else:
                frame = _rewritten(stage, source, prepared, landed, ordered=ordered)
                frames.append(with_sets(source, landed.schema, columns, frame) if sets else frame)
        if native:
            frame = _native(stage.spark, source, prepared, native, ordered=ordered)
            frames.append(with_sets(source, native[0].schema, columns, frame) if sets else frame)
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.unionByName(frame)
    names = [quote(column.name) for column in columns]
    if not ordered:
        return whole.select(*names)
    marker = _as_upsert(source, f.col(MARKER)).alias(MARKER)
    return whole.select(*names, marker, ORDER, *([SET] if sets else []))


def reads_as_it_is(source: Source, landed: Landed, columns: Columns) -> bool:
    """Say whether Spark reads a file where it lies, so that nothing has to be written for it."""
    as_it_is = can_spark_read(source, landed) and not _has_shortest_digits(landed, columns)
    return as_it_is and not needs_rescue(source, landed, columns)


def _has_shortest_digits(landed: Landed, columns: Columns) -> bool:
    """Say whether doubles become decimals: not all Javas agree on their shortest digits (JDK-4511638)."""
    pairs = ((column, find_column(columns, column.name)) for column in landed.schema.columns)
    return any(
        mine is not None and pa.types.is_decimal(mine.type) and is_binary_float(column.type)
        for column, mine in pairs
    )


def _same_shape(
    source: Source, landed: Sequence[Landed], *, ordered: bool
) -> Iterator[list[Landed]]:
    """Group files that one scan can read; where rows have an order, by names that tell them apart.

    A path that looks like a pattern is read alone: even where patterns mean nothing, Spark reads every
    path of a scan again for each such path (`DataSource.checkAndGlobPathIfNecessary`).
    """
    groups: dict[object, list[Landed]] = {}
    for one in landed:
        schema, path = one.schema, one.file.path
        folder, _, name = path.rpartition("/")  # names repeat over folders
        place = "" if not ordered else folder if _PLAIN_NAME.fullmatch(name) else path
        place = path if PATTERN.search(source.zone.uri(path)) else place
        shape = (schema.columns, schema.marker, str(schema.marker_type), place)
        groups.setdefault(str(shape), []).append(one)
    yield from groups.values()


def _native(
    spark: SparkSession, source: Source, prepared: Prepared, group: list[Landed], *, ordered: bool
) -> DataFrame:
    from pyspark.sql import functions as f

    schema = group[0].schema
    uris = [source.zone.uri(landed.file.path) for landed in group]
    rows = file_reader(spark, _read_ddl(schema)).parquet(*uris)
    values = [_cast(schema, column.name, column.sql_type) for column in prepared.growth.columns]
    if not ordered:
        return rows.select(*values)
    marker = _marker(source, schema).alias(MARKER)
    row = f.col("_metadata.row_index")
    ordinal = {landed.file.path: place for place, landed in enumerate(prepared.landed)}
    paths = [landed.file.path for landed in group]
    if len(paths) == 1:
        first = ordinal[paths[0]] * ROWS_PER_FILE
        return rows.select(*values, marker, (row + f.lit(first)).alias(ORDER))
    names = spark.createDataFrame(
        [(path.rpartition("/")[2], ordinal[path]) for path in paths],
        "_mirror_file string, _mirror_ordinal long",
    )
    place = f.col("_mirror_ordinal") * ROWS_PER_FILE + f.col("_mirror_row")
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
    # Of nanoseconds, Spark reads INT96 alone as it is, whose values are instants.
    kind = mirror_type(
        stored, "keep", instant=pa.types.is_timestamp(stored) and stored.unit == "ns"
    )
    return sql_type(kind if kind is not None else stored)


def _cast(schema: FileSchema, name: str, kind: str) -> SparkColumn:
    from pyspark.sql import functions as f

    mine = schema.column(name)
    if mine is None or pa.types.is_null(mine.type):
        value = f.lit(None)
    elif mine.given is not None:
        value = f.lit(mine.given.as_py())
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
        value = f.col(quote(schema.marker))
        if _spark_reads(schema.marker_type) == "string":
            value = f.regexp_extract(value, "[0-9]", 0)  # what is around the digit is white space
        marker = f.coalesce(value.cast("double").cast("int"), f.lit(default))
    return marker


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
    first = prepared.landed.index(landed) * ROWS_PER_FILE
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
    frame = file_reader(stage.spark, ddl).parquet(stage.state.uri(path))
    from pyspark.sql import functions as f

    marker = f.col(MARKER).cast("int")
    return frame.withColumn(MARKER, marker) if ordered else frame.drop(MARKER, ORDER)

"""Let Spark read a large batch's change files as one frame, in the table's types.

In: opened files. Out: a DataFrame of the table's columns, with `MARKER` and `ORDER` where the batch is
to be folded. Nothing passes through this process but files that Spark cannot read as they are
(nanoseconds, TIME, float16, delimited text): those are written again, a row group at a time.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from mirrorlib.commit.stage import SET, Stage
from mirrorlib.delta.columns import Column, Columns, sql_type
from mirrorlib.delta.sessions import PATTERN, file_reader, in_scans
from mirrorlib.identifiers import by_name, fold_name, quote
from mirrorlib.ingest.rows.marks import MARKER, ORDER, ROWS_PER_FILE
from mirrorlib.ingest.rows.partial import with_sets
from mirrorlib.ingest.rows.read import Landed, can_spark_read, open_batches
from mirrorlib.ingest.rows.rescue import fitted_rows, needs_rescue
from mirrorlib.landing.columns import INSERT, UPSERT, FileColumn
from mirrorlib.landing.types import comparable, mirror_type

if TYPE_CHECKING:
    from mirrorlib.ingest.batch.open_batch import Prepared

_PLAIN_NAME = re.compile(r"[A-Za-z0-9._-]+")  # Spark's `_metadata.file_name` encodes every other


def read_frame(stage: Stage, prepared: Prepared, *, ordered: bool) -> DataFrame:
    """Read a large batch's files with Spark, in the table's types; *ordered* adds `MARKER` and `ORDER`.

    Files of one shape share one scan.
    """
    columns, policies = prepared.growth.columns, prepared.source.policies
    names = [quote(column.name) for column in columns]
    sets = ordered and policies.partial is not None
    firsts = {one.file.path: at * ROWS_PER_FILE for at, one in enumerate(prepared.landed)}
    frames = []
    for group in _same_shape(prepared.landed, ordered=ordered):
        native: list[Landed] = []
        others: list[Landed] = []
        for landed in group:
            (native if reads_as_it_is(landed, columns) else others).append(landed)
        parts = [_rewritten(stage, prepared, others, firsts)] if others else []
        if native:
            parts.append(_native(stage.spark, prepared, native, firsts, ordered=ordered))
        for part in parts:
            frame = part if ordered else part.select(*names)
            frames.append(with_sets(group[0], columns, frame) if sets else frame)
    whole = unite(frames)
    if not ordered:
        return whole
    marker = f.col(MARKER)
    if policies.insert_policy == "upsert" and policies.keys:
        marker = f.when(marker == INSERT, UPSERT).otherwise(marker).alias(MARKER)
    return whole.select(*names, marker, ORDER, *([SET] if sets else []))


def unite(frames: Iterable[DataFrame]) -> DataFrame:
    """Put frames together by the names of their columns, with NULL for those that one lacks."""
    left = [*frames]
    while len(left) > 1:  # by pairs: Spark goes over all of a chain again for each of its parts
        pairs = zip_longest(left[::2], left[1::2])
        left = [a if b is None else a.unionByName(b, allowMissingColumns=True) for a, b in pairs]
    return left[0]


def reads_as_it_is(landed: Landed, columns: Columns) -> bool:
    """Say whether Spark reads a file where it lies, so that nothing has to be written for it."""
    here = by_name(columns)
    for column in landed.schema.columns:
        mine = here.get(fold_name(column.name))
        decimal = mine is not None and pa.types.is_decimal(mine.type)
        if decimal and pa.types.is_floating(column.type):
            return False  # not all Javas agree on the shortest digits of a double (JDK-4511638)
    return can_spark_read(landed) and not needs_rescue(landed, columns)


def _same_shape(landed: Sequence[Landed], *, ordered: bool) -> Iterator[list[Landed]]:
    """Group files that one scan can read; where rows have an order, by names that tell them apart.

    A path that looks like a pattern is read alone, see `in_scans`.
    """
    groups: dict[object, list[Landed]] = {}
    for one in landed:
        schema, path = one.schema, one.file.path
        folder, _, name = path.rpartition("/")  # names repeat over folders
        place = "" if not ordered else folder if _PLAIN_NAME.fullmatch(name) else path
        place = path if PATTERN.search(one.source.zone.uri(path)) else place
        shape = (schema.columns, schema.marker, str(schema.marker_type), place)
        groups.setdefault(str(shape), []).append(one)
    yield from groups.values()


def _native(
    spark: SparkSession,
    prepared: Prepared,
    group: list[Landed],
    firsts: Mapping[str, int],
    *,
    ordered: bool,
) -> DataFrame:
    schema, source = group[0].schema, prepared.source
    known = [(c.name, c.stored) for c in schema.own.columns if not pa.types.is_null(c.type)]
    kind = schema.marker_type
    typed_marker = None if kind is None or pa.types.is_null(kind) else schema.marker
    if typed_marker is not None:
        known.append((typed_marker, kind))
    ddl = ", ".join(f"{quote(name)} {_spark_reads(stored)}" for name, stored in known)
    paths = [landed.file.path for landed in group]
    rows = file_reader(spark, ddl).parquet(*map(source.zone.uri, paths))
    its = by_name(schema.columns)
    values = [_cast(its.get(fold_name(column.name)), column) for column in prepared.growth.columns]
    if not ordered:
        return rows.select(*values)
    marker = f.lit(UPSERT if source.policies.upsert_default else INSERT)
    # Whatever its type; its values were checked when the file was opened.
    if typed_marker is not None:
        value = f.col(quote(typed_marker))
        if _spark_reads(kind) == "string":
            value = f.regexp_extract(value, "[0-9]", 0)  # what is around the digit is white space
        marker = f.coalesce(value.cast("double").cast("int"), marker)
    values.append(marker.alias(MARKER))
    row = f.col("_metadata.row_index")
    if len(paths) == 1:
        return rows.select(*values, (row + f.lit(firsts[paths[0]])).alias(ORDER))
    names = spark.createDataFrame(
        [(path.rpartition("/")[2], firsts[path]) for path in paths],
        "_mirror_file string, _mirror_first long",
    )
    name = f.col("_metadata.file_name").alias("_mirror_name")
    placed = rows.select(*values, name, row.alias("_mirror_row")).join(
        f.broadcast(names), f.col("_mirror_name") == f.col("_mirror_file")
    )
    helpers = ("_mirror_name", "_mirror_row", "_mirror_file", "_mirror_first")
    return placed.withColumn(ORDER, f.col("_mirror_first") + f.col("_mirror_row")).drop(*helpers)


def _spark_reads(stored: pa.DataType) -> str:
    """Return the type that Spark's Parquet reader has for a stored type that it reads as it is."""
    # Of nanoseconds, Spark reads INT96 alone as it is, whose values are instants.
    nanos = pa.types.is_timestamp(stored) and stored.unit == "ns"
    return sql_type(mirror_type(stored, "keep", instant=nanos) or stored)


def _cast(mine: FileColumn | None, column: Column) -> SparkColumn:
    if mine is None or pa.types.is_null(mine.type):
        value = f.lit(None)
    elif mine.given is not None:
        value = f.lit(mine.given.as_py())
    else:
        value = f.col(quote(mine.name))
        times = pa.types.is_timestamp(mine.type) and pa.types.is_timestamp(column.type)
        if not (times or comparable(mine.type, column.type)):
            value = value.cast("string")  # every value is NULL, and yet Spark refuses some casts
    return value.cast(column.sql_type).alias(column.name)


def _rewritten(
    stage: Stage, prepared: Prepared, group: list[Landed], firsts: Mapping[str, int]
) -> DataFrame:
    """Write files again in the table's types, with `MARKER` and `ORDER`, a piece at a time, and read those.

    *firsts* says from where on `ORDER` grows in each file.
    """
    columns = prepared.growth.columns
    schema = pa.schema(
        [*((c.name, c.type) for c in columns), (MARKER, pa.int32()), (ORDER, pa.int64())]
    )
    paths = []
    for landed in group:
        first = firsts[landed.file.path]
        # A batch may be read again, in other groups, or a file in another batch.
        what = hashlib.sha256(repr((landed.file, first, schema)).encode()).hexdigest()
        paths.append(f"{stage.folder}/rewritten/{what}.parquet")
        if stage.state.stat(paths[-1]) is not None:
            continue
        with (
            stage.state.open_new(paths[-1]) as file,
            pq.ParquetWriter(file, schema, compression="zstd") as writer,
        ):
            for part, markers in open_batches(landed):
                fitted = fitted_rows(part, columns).append_column(MARKER, markers)
                ones = pa.repeat(pa.scalar(1, pa.int64()), len(fitted))
                places = pc.cumulative_sum(ones, start=first - 1)
                writer.write_table(fitted.append_column(ORDER, places).cast(schema))
                first += len(fitted)
    ddl = ", ".join([*(c.ddl for c in columns), f"{MARKER} int, {ORDER} bigint"])
    reader = file_reader(stage.spark, ddl)
    return unite(reader.parquet(*some) for some in in_scans(map(stage.state.uri, paths)))

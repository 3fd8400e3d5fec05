"""Footers: what a Parquet change file says of its columns before any of its pages is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from mirrorlib.errors import ChangeFileError, SchemaError, first_line
from mirrorlib.landing.calendars import is_moved, old_calendar
from mirrorlib.landing.columns import MARKER, FileColumn, FileSchema, check_names
from mirrorlib.landing.metadata import TEXT_ENDINGS
from mirrorlib.landing.types import MAX_PRECISION, NtzPolicy, mirror_type

if TYPE_CHECKING:
    from typing import BinaryIO

    from mirrorlib.landing.calendars import Counted
    from mirrorlib.store import StoredFile

_SPARK_CODECS = ("UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD", "LZ4")
_LITTLE = 1 << 16


def open_parquet(source: BinaryIO, *, buffer: int = 0) -> pq.ParquetFile:
    """Open a Parquet file; INT96 is read to the microsecond, which holds the years 1 to 9999.

    Args:
        source: The file.
        buffer: Read columns so many bytes at a time; 0 reads a row group's column at once.

    Raises:
        pa.ArrowInvalid: it is not whole Parquet.

    """
    try:
        return pq.ParquetFile(source, buffer_size=buffer, coerce_int96_timestamp_unit="us")
    except UnicodeDecodeError as exc:
        msg = "a column's name is not UTF-8"
        raise pa.ArrowInvalid(msg) from exc


def read_footer(source: BinaryIO, file: StoredFile, *, table: str, ntz: NtzPolicy) -> FileSchema:
    """Read what the footer of a Parquet file says about its columns.

    Raises:
        ChangeFileError: the file is empty, cut short or not Parquet.
        SchemaError: a column's name or type cannot be mirrored.

    """
    if file.size == 0:
        msg = "the change file has no bytes; it may be an upload under way"
        raise ChangeFileError(msg, table=table, file=file.name, found="0 bytes")
    try:
        parquet = open_parquet(source)
        arrow, metadata = parquet.schema_arrow, parquet.metadata
    except (pa.ArrowException, OSError) as exc:
        raise _not_parquet(file, table, first_line(exc)) from exc
    physical = _physical_types(metadata)
    names = [name for name in arrow.names if name.lower() != MARKER]
    markers = [name for name in arrow.names if name.lower() == MARKER]
    check_names(names, markers, table=table, file=file.name)
    counted = old_calendar(metadata.metadata)
    columns = tuple(
        _file_column(
            arrow.field(name),
            physical.get(name, ""),
            counted,
            table=table,
            file=file.name,
            ntz=ntz,
        )
        for name in names
    )
    return FileSchema(
        columns=columns,
        marker=markers[0] if markers else None,
        marker_type=arrow.field(markers[0]).type if markers else None,
        rows=metadata.num_rows,
        decoded_bytes=_decoded_bytes(arrow, metadata),
    )


def row_bytes(schema: pa.Schema) -> int:
    """Return the bytes that a row's columns of fixed width take in memory."""
    return sum(int(kind.bit_width) for kind in schema.types if is_fixed(kind)) // 8


def is_fixed(kind: pa.DataType) -> bool:
    """Say whether all values of a type take the same memory."""
    return bool(pa.types.is_primitive(kind) or pa.types.is_decimal(kind))


def _decoded_bytes(schema: pa.Schema, metadata: pq.FileMetaData) -> int:
    """Return how large a file gets in memory, at least: a dictionary or a run says often what a page says once."""
    groups = range(metadata.num_row_groups)
    encoded: int = sum(metadata.row_group(group).total_byte_size for group in groups)
    return max(encoded, int(metadata.num_rows) * row_bytes(schema))


def _not_parquet(file: StoredFile, table: str, found: str) -> ChangeFileError:
    msg = "the change file is not whole Parquet: cut short, damaged or still being written"
    step = None
    if file.name.lower().endswith(TEXT_ENDINGS):
        msg = "the change file is not Parquet, and _metadata.json says that it is, or states no FileFormat"
        step = 'If it is delimited text, declare "FileFormat": "CSV" in _metadata.json.'
    return ChangeFileError(msg, table=table, file=file.name, found=found, next_step=step)


def spark_decodes(source: BinaryIO) -> bool:
    """Say whether Spark's reader has the codecs and encodings of a Parquet file; Spark brings no Brotli.

    A damaged file gives False: Arrow then meets the damage, and names it.
    """
    try:
        parquet = open_parquet(source, buffer=_LITTLE)
        if not parquet.num_row_groups:
            return True
        # Arrow ends the process when it is asked for a chunk whose metadata is damaged, but not when it reads one.
        next(parquet.iter_batches(batch_size=1, row_groups=[0]), None)
    except (pa.ArrowException, OSError):
        return False
    group = parquet.metadata.row_group(0)
    chunks = [group.column(i) for i in range(group.num_columns)]
    return all(
        chunk.compression in _SPARK_CODECS and "BYTE_STREAM_SPLIT" not in chunk.encodings
        for chunk in chunks
    )


def _file_column(
    field: pa.Field,
    physical: str,
    counted: frozenset[Counted],
    *,
    table: str,
    file: str,
    ntz: NtzPolicy,
) -> FileColumn:
    stored = pa.timestamp("ns") if physical == "INT96" else field.type
    kind = mirror_type(stored, ntz, instant=physical == "INT96")
    if kind is None:
        msg = "this type has no place in the open mirroring format"
        step = "Publish nested values as a JSON string and numbers with at most 38 digits."
        raise SchemaError(
            msg, table=table, file=file, column=field.name, found=str(field.type), next_step=step
        )
    return FileColumn(
        name=field.name,
        stored=stored,
        type=kind,
        native=is_native(stored, physical),
        moved=is_moved(counted, field.type, physical),
    )


def is_native(stored: pa.DataType, physical: str = "") -> bool:
    """Say whether Spark's own reader gives the same values for a type, stored in a physical one.

    Spark refuses TIME, float16, nanoseconds and more than 38 digits, and reads an all-null column as
    int (landing-zone §2.3).
    """
    if pa.types.is_timestamp(stored):
        return stored.unit != "ns" or physical == "INT96"
    if isinstance(stored, pa.BaseExtensionType):
        return False
    if pa.types.is_decimal(stored):
        return bool(stored.precision <= MAX_PRECISION)
    return not (pa.types.is_null(stored) or pa.types.is_time(stored) or pa.types.is_float16(stored))


def _physical_types(metadata: pq.FileMetaData) -> dict[str, str]:
    schema = metadata.schema
    return {schema.column(i).path: schema.column(i).physical_type for i in range(len(schema))}

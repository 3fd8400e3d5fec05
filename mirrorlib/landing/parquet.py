"""Open Parquet files, and decode them so many rows at a time as fit into memory, whatever they are packed into."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from inspect import signature
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirrorlib.landing.columns import LONGEST_ROW
from mirrorlib.landing.types import has_no_zone, plain_type
from mirrorlib.landing.values import plain_values

ROWS_AT_A_TIME = 1 << 17
_ROWS_OF_TEXT = 1 << 13  # where a value may be of any length
_BYTES_AT_A_TIME = 64 << 20
_SMALL_DICTIONARY = 512 << 10  # bytes
_MOST_OF_ONE = 256 << 20  # bytes that one value may come to, with so many rows of text at a time
_MOST_MEASURED = 1 << 30  # bytes that texts may come to, of which only the lengths are asked
_LITTLE = 1 << 16
_TEXTS = (pa.string(), pa.binary())
_FIXED = (pa.types.is_primitive, pa.types.is_decimal, pa.types.is_fixed_size_binary)
_INSTANT = "isAdjustedToUTC=true"  # in a logical type
_TEXT_KINDS = frozenset({"ENUM", "JSON"})
# Where they are, a column that is to stay a dictionary does not. Older pyarrows have none to switch off.
_NO_EXTENSIONS: dict[str, Any] = (
    {"arrow_extensions_enabled": False}
    if "arrow_extensions_enabled" in signature(pq.ParquetFile).parameters
    else {}
)
_SPARK_CODECS = ("UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD", "LZ4")


class LongRowError(pa.ArrowInvalid):  # type: ignore[misc]  # pyarrow has no types
    """A row is larger than what a process is meant to hold, however well it is packed."""


def open_parquet(
    source: BinaryIO, *, buffer: int = 0, packed: Sequence[str] = ()
) -> pq.ParquetFile:
    """Open a Parquet file; INT96 is read to the microsecond, which holds the years 1 to 9999.

    Columns are read *buffer* bytes at a time; 0 reads a row group's column at once. *packed* are columns that stay
    dictionaries: a value that all rows share takes its memory once. Raises `pa.ArrowInvalid` where it is not whole.
    """
    with _named():
        return pq.ParquetFile(
            source,
            buffer_size=buffer,
            coerce_int96_timestamp_unit="us",
            read_dictionary=list(packed),
            **_NO_EXTENSIONS,
        )


@contextmanager
def _named() -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError as exc:
        msg = "a column's name is not UTF-8"
        raise pa.ArrowInvalid(msg) from exc


def read_schema(source: BinaryIO) -> tuple[pa.Schema, pq.FileMetaData]:
    """Read a file's columns, and its footer.

    Types are plain; ENUM and JSON, bytes to pyarrow perhaps, are text, as they are for Spark.

    Raises `pa.ArrowInvalid` where the file is not whole, and `LongRowError`.
    """
    parquet = open_parquet(source)
    columns, metadata = parquet.schema_arrow, parquet.metadata
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    largest = max((one.total_byte_size // max(one.num_rows, 1) for one in groups), default=0)
    if largest > LONGEST_ROW:
        msg = f"a row has {largest >> 20:,} MiB, and {LONGEST_ROW >> 20} at most are read"
        raise LongRowError(msg)
    with _named():  # which Arrow's own copy of the schema may hide
        said = {leaf.path: (leaf.logical_type, leaf.physical_type) for leaf in metadata.schema}
    texts = {name for name, (logical, _) in said.items() if logical.type in _TEXT_KINDS}
    # INT96 means instants, by its history, and Parquet's older word, which pyarrow 14 takes for wall clocks.
    instants = {
        n for n, (logical, stored) in said.items() if _INSTANT in str(logical) or stored == "INT96"
    }
    fields = []
    for column in columns:
        kind = plain_type(column.type)
        if column.name in instants and pa.types.is_timestamp(kind) and has_no_zone(kind):
            kind = pa.timestamp(kind.unit, "UTC")
        text = column.name in texts and pa.types.is_binary(kind)
        fields.append(column.with_type(pa.string() if text else kind))
    return pa.schema(fields, columns.metadata), metadata


def iter_batches(
    source: BinaryIO, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Decode a file, or some of its columns, so many rows at a time as fit into memory however wide they are.

    Types are plain, so rows that are kept are as large as they say. Where no column is asked for, nothing comes. Raises
    `pa.ArrowException` or `OSError` where a page is damaged.
    """
    if columns is not None and not columns:
        return
    parquet = open_parquet(source)
    schema = parquet.schema_arrow
    names = schema.names if columns is None else list(columns)
    # Of twins of one name, the first is meant.
    kinds = [plain_type(schema.field(schema.get_all_field_indices(name)[0]).type) for name in names]
    texts = [name for name, kind in zip(names, kinds, strict=True) if kind in _TEXTS]
    widest = row_bytes(kinds) + _longest_texts(source, parquet.metadata, texts)
    fitting = max(_BYTES_AT_A_TIME // max(widest, 1), 1)
    most = ROWS_AT_A_TIME if all(map(is_fixed, kinds)) else min(_ROWS_OF_TEXT, ROWS_AT_A_TIME)
    for batch in parquet.iter_batches(batch_size=min(most, fitting), columns=columns):
        yield pa.RecordBatch.from_arrays(
            [plain_values(column) for column in batch.columns], names=batch.schema.names
        )


def _longest_texts(source: BinaryIO, metadata: pq.FileMetaData, texts: Sequence[str]) -> int:
    """Return the most bytes that a row's texts take, where a few bytes of a file can stand for many rows of them.

    Without a dictionary a row group's own size tells; of a large one, only the dictionaries do. What is said of a
    column is not asked: Arrow ends the process when that is damaged, but not when it reads one.
    """
    longest, parquet = 0, None
    for number in range(metadata.num_row_groups) if texts else ():
        group = metadata.row_group(number)
        few = _MOST_OF_ONE // min(max(group.num_rows, 1), _ROWS_OF_TEXT)
        if group.total_byte_size > min(_SMALL_DICTIONARY, few):
            parquet = parquet or open_parquet(source, buffer=_LITTLE, packed=texts)
            size = int(group.total_byte_size)
            values = sum(_longest_text(source, parquet, number, name, size) for name in texts)
            longest = max(longest, values + size // max(group.num_rows, 1))
    return longest


def _longest_text(
    source: BinaryIO, packed: pq.ParquetFile, number: int, name: str, size: int
) -> int:
    """Return the bytes of a column's longest value in a row group of that *size*, 0 where no value is written once."""
    some: dict[str, Any] = {"row_groups": [number], "columns": [name]}
    try:
        rows = next(packed.iter_batches(batch_size=1, **some), None)
        return _longest_value(rows.column(0)) if rows else 0
    except (pa.ArrowException, OSError) as exc:  # Arrow makes no dictionary of delta encodings
        if "DeltaLength" in str(exc):
            return 0
    # What a value begins with is not written again: none is longer than the group. Each batch costs 35 µs.
    most = max(_MOST_MEASURED // max(size, 1), 1)
    batches = open_parquet(source, buffer=_LITTLE).iter_batches(batch_size=most, **some)
    lengths = (pc.max(pc.binary_length(plain_values(rows.column(0)))) for rows in batches)
    return max((length.as_py() or 0 for length in lengths), default=0)


def _longest_value(column: pa.Array) -> int:
    """Return the bytes of the longest value of a column's dictionary, though no row here has it."""
    if not pa.types.is_dictionary(column.type):
        return 0
    return int(pc.max(pc.binary_length(column.dictionary)).as_py() or 0)


def row_bytes(kinds: Sequence[pa.DataType]) -> int:
    """Return the bytes that a row's columns of fixed width take in memory."""
    return sum(int(kind.bit_width) for kind in kinds if is_fixed(kind)) // 8


def is_fixed(kind: pa.DataType) -> bool:
    """Say whether all values of a type take the same memory."""
    return any(is_one(kind) for is_one in _FIXED)


def spark_decodes(source: BinaryIO) -> bool:
    """Say whether Spark's reader has the codecs and encodings of a Parquet file; Spark brings no Brotli.

    A damaged file gives False: Arrow then meets the damage, and names it.
    """
    try:
        parquet = open_parquet(source, buffer=_LITTLE)
        # Writers choose for a file, but DuckDB for each row group.
        each = "DuckDB" in (parquet.metadata.created_by or "")
        numbers = range(parquet.num_row_groups)[: None if each else 1]
        # Arrow ends the process when it is asked for a chunk whose metadata is damaged, but not when it reads one.
        for number in numbers:
            next(parquet.iter_batches(batch_size=1, row_groups=[number]), None)
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        return False
    groups = map(parquet.metadata.row_group, numbers)
    chunks = (group.column(i) for group in groups for i in range(group.num_columns))
    return all(
        chunk.compression in _SPARK_CODECS and "BYTE_STREAM_SPLIT" not in chunk.encodings
        for chunk in chunks
    )

"""Footers: what a Parquet change file says of its columns before any of its pages is read.

Also whose calendar its old dates are of.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import BinaryIO, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirrorlib.errors import ChangeFileError, SchemaError, first_line
from mirrorlib.landing.columns import FileColumn, FileSchema, split_marker
from mirrorlib.landing.metadata.declared import TEXT_ENDINGS
from mirrorlib.landing.parquet import LongRowError, read_schema, row_bytes
from mirrorlib.landing.types import MAX_PRECISION, NtzPolicy, has_no_zone, mirror_type
from mirrorlib.store import LentFile, StoredFile

Counted = Literal["datetime", "int96"]  # the two ways in which Spark writes dates and moments
WRITER = b"org.apache.spark.version"
# The version of Spark that first wrote each in today's calendar, and what says that the old one was asked for.
_TODAYS: Mapping[Counted, tuple[bytes, bytes]] = {
    "datetime": (b"3.0.0", b"org.apache.spark.legacyDateTime"),
    "int96": (b"3.1.0", b"org.apache.spark.legacyINT96"),
}
_FIRST_DAY = date(1582, 10, 15)
_FIRST_MOMENT = datetime(1900, 1, 1, tzinfo=UTC)
_END = 64 << 10  # bytes of a Parquet file, or its whole footer where that is longer
_BLOCK = 4 << 20
_IN_A_LONG = 18  # digits
_LENGTH = 8  # bytes behind a footer: how long it is, and Parquet's magic number
_END_OF = "end"
# What pyarrow 14 says of string views, short decimals and float16.
_UNKNOWN = re.compile(
    "Unrecognized type: |Library only supports |LogicalType that is not recognized"
)


def read_footer(source: BinaryIO, file: StoredFile, *, table: str, ntz: NtzPolicy) -> FileSchema:
    """Read what the footer of a Parquet file says about its columns."""
    arrow, metadata = _read_schema(source, file, table)
    physical = {leaf.path: leaf.physical_type for leaf in metadata.schema}
    names, marker = split_marker(arrow.names, table=table, file=file.name)
    counted = old_calendar(metadata.metadata)
    columns: list[FileColumn] = []
    for name in names:
        given, storage = arrow.field(name).type, physical.get(name, "")
        stored = pa.timestamp("ns") if storage == "INT96" else given
        kind = mirror_type(stored, ntz, instant=storage == "INT96")
        if kind is None:
            msg, found = "this type has no place in the open mirroring format", str(given)
            step = "Publish nested values as a JSON string and numbers with at most 38 digits."
            raise SchemaError(
                msg, table=table, file=file.name, column=name, found=found, next_step=step
            )
        native, moved = is_native(stored, storage), is_moved(counted, given, storage)
        columns.append(FileColumn(name=name, stored=stored, type=kind, native=native, moved=moved))
    # A dictionary or a run says often what a page says once: this is how large it gets in memory, at least.
    groups = range(metadata.num_row_groups)
    encoded: int = sum(metadata.row_group(group).total_byte_size for group in groups)
    return FileSchema(
        columns=tuple(columns),
        marker=marker,
        marker_type=arrow.field(marker).type if marker else None,
        rows=metadata.num_rows,
        decoded_bytes=max(encoded, int(metadata.num_rows) * row_bytes(arrow.types)),
    )


def _read_schema(
    source: BinaryIO, file: StoredFile, table: str
) -> tuple[pa.Schema, pq.FileMetaData]:
    """Read what a file's footer says, and see that there is a whole one, of rows that a process can hold."""
    if file.size == 0:
        msg = "the change file has no bytes; it may be an upload under way"
        raise ChangeFileError(msg, table=table, file=file.name, found="0 bytes")
    try:
        return read_schema(source)
    except (pa.ArrowException, OSError) as exc:
        msg = "the change file is not whole Parquet: cut short, damaged or still being written"
        found, step = first_line(exc).partition(". ")[0], None  # what Arrow goes on with is advice
        if file.name.lower().endswith(TEXT_ENDINGS):
            msg = "the change file is not Parquet, and _metadata.json says that it is, or states no FileFormat"
            step = 'If it is delimited text, declare "FileFormat": "CSV" in _metadata.json.'
        elif isinstance(exc, LongRowError):
            msg = "a row of the change file is larger than a row may be"
            step = "Publish less in one."
        elif _UNKNOWN.search(found):
            msg = "the change file has a type that this version of pyarrow does not know"
            step = "Install a newer one, or publish without Arrow's own copy of the schema."
        raise ChangeFileError(
            msg, table=table, file=file.name, found=found, next_step=step
        ) from exc


def is_native(stored: pa.DataType, physical: str = "") -> bool:
    """Say whether Spark's own reader gives the same values for a type, stored in a physical one.

    Spark refuses TIME, float16, nanoseconds and more than 38 digits, and reads an all-null column as
    int (landing-zone §2.3).
    """
    if pa.types.is_timestamp(stored):
        return stored.unit != "ns" or physical == "INT96"
    if pa.types.is_decimal(stored):
        # In bytes of any length, as Avro's writers have them, Spark fails where a long would hold them.
        fails = physical == "BYTE_ARRAY" and stored.precision <= _IN_A_LONG
        return bool(stored.precision <= MAX_PRECISION and not fails)
    return not (pa.types.is_null(stored) or pa.types.is_time(stored) or pa.types.is_float16(stored))


def old_calendar(metadata: Mapping[bytes, bytes] | None) -> frozenset[Counted]:
    """Say what a file counts in the old calendar; nothing where Spark did not write it."""
    version = (metadata or {}).get(WRITER)
    if metadata is None or version is None:
        return frozenset()
    # Versions are compared as text, as Spark does.
    ways = _TODAYS.items()
    return frozenset(way for way, (since, asked) in ways if version < since or asked in metadata)


def is_moved(counted: frozenset[Counted], stored: pa.DataType, physical: str) -> bool:
    """Say whether Spark moves old values of a column; those of a clock without a zone stay as they are."""
    if physical == "INT96":
        return "int96" in counted
    moment = pa.types.is_timestamp(stored) and not has_no_zone(stored)
    return "datetime" in counted and (moment or pa.types.is_date(stored))


def first_moved(values: pa.ChunkedArray) -> int | None:
    """Return the place of the first value that Spark moves; None when it takes all as they stand."""
    first = _FIRST_DAY if pa.types.is_date(values.type) else _FIRST_MOMENT
    place = pc.index(pc.less(values, pa.scalar(first, values.type)), value=True).as_py()
    return None if place < 0 else int(place)


def end_of(handle: BinaryIO, size: int) -> str:
    """Take the fingerprint of a Parquet file, of which that many bytes are known to be there."""
    footer = int.from_bytes(_from(handle, size - _LENGTH)[:4], "little") + _LENGTH
    end = _from(handle, size - max(_END, footer))
    return f"{_END_OF}:{hashlib.blake2b(b'%d:%b' % (size, end), digest_size=16).hexdigest()}"


def _from(handle: BinaryIO, place: int) -> bytes:
    """Read to the end; one call may give less."""
    handle.seek(max(place, 0))
    return b"".join(iter(lambda: bytes(handle.read(_BLOCK)), b""))


def same_kind(handle: BinaryIO, size: int, fingerprint: str) -> str:
    """Take a file's fingerprint as another one was taken: of a Parquet file's end, of text as a whole."""
    at_end = fingerprint.startswith(_END_OF)
    return end_of(handle, size) if at_end else Hashing(handle).finish()


class Hashing(LentFile):
    """A file, left open, that is hashed while it is read; whoever reads may go back, and is not counted twice."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self._digest = hashlib.blake2b(digest_size=16)
        self._hashed = 0

    def read(self, size: int = -1, /) -> bytes:
        """Read on, and hash what has not been read before."""
        start = self.tell()
        data = super().read(size)
        new = self._hashed - start
        if 0 <= new < len(data):
            self._digest.update(memoryview(data)[new:])
            self._hashed += len(data) - new
        return data

    def finish(self) -> str:
        """Read what is left, and return the fingerprint."""
        self.seek(self._hashed)
        while self.read(_BLOCK):
            pass
        return f"whole:{self._digest.hexdigest()}"

"""Open change files: footers, row markers, and for small batches the rows themselves.

In: listed files and the table's metadata. Out: `Landed` values. Promises: a file is read from one
open handle and its identity is compared after the last byte; every marker of every row is seen
before anything is planned; whole columns pass through memory only for batches that fit
`SMALL_BYTES`, else a row group at a time.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import BinaryIO, cast

import pyarrow as pa

from mirrorlib.delta.columns import sql_type
from mirrorlib.errors import MarkerError, SchemaError, StoreError
from mirrorlib.ingest.files.source import Source
from mirrorlib.ingest.rows.decode import OpenedFile, damaged, iter_pieces, open_file
from mirrorlib.ingest.rows.marks import (
    Ends,
    Span,
    count_marks,
    join_spans,
    key_span,
    read_marks,
    typed_keys,
)
from mirrorlib.landing.columns import MARKER_NAMES, FileColumn
from mirrorlib.landing.footer import Hashing, end_of, first_moved, is_native
from mirrorlib.landing.parquet import ROWS_AT_A_TIME, iter_batches, open_parquet, spark_decodes
from mirrorlib.landing.values import canonical_values, first_misfit, first_refused
from mirrorlib.store import StoredFile

SMALL_BYTES = 64 << 20  # of Parquet: a batch that is read and folded in this process
# Of Arrow memory: dictionary pages can hold far more than their size says, and a local Spark has a heap of 2 GB.
SMALL_DECODED = 256 << 20
_WRITE_CORRECTED = (
    "Write the file with Spark's datetimeRebaseModeInWrite and int96RebaseModeInWrite set to CORRECTED, "
    "under the same name."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed(OpenedFile):
    """A change file that was opened and found sound as far as it was read."""

    counts: dict[int, int]  # rows by marker
    null_keys: int  # NULLs in its key columns, all together
    key_span: Span | None = None  # the first and the last key of a large batch's file
    key_ends: Mapping[str, Ends] = field(default_factory=dict)  # of a Parquet file's key columns
    fingerprint: str  # tells its content from any other


class Room:
    """Bytes of memory that rows which are kept may take, all together, whoever reads them."""

    def __init__(self, left: int) -> None:
        self.left = left
        self._lock = threading.Lock()

    def take(self, rows: pa.RecordBatch | pa.Table) -> bool:
        """Say whether there is room for more rows; once there is not, there is for none."""
        with self._lock:
            self.left -= rows.nbytes
            return self.left >= 0


def read_landed(
    source: Source, file: StoredFile, *, decode: bool, room: Room | None = None
) -> Landed:
    """Open one change file; with *decode*, all its rows are decoded, otherwise only its marker column is read.

    A file for whose rows there is no *room* is not kept whole, nor is one with dates that only Spark can read.

    Raises `ChangeFileError`: the file is empty, cut short, damaged, or changed while it was read; `FileChangedError`:
    it was removed since it was listed; `MarkerError` and `SchemaError`: as `count_marks` does, or a marker is unknown
    or NULL, or a column cannot be mirrored.
    """
    read = _read_parquet if source.policies.kind_of(file.name) == "parquet" else _read_text
    room = (room or Room(SMALL_DECODED)) if decode else Room(-1)
    try:
        with source.zone.open_file(file.path) as handle:
            landed = read(source, file, handle, room)
    except StoreError:
        source.check(file)  # removed since it was listed, or is the store out of reach?
        raise
    source.check(file)
    return landed


def _read_parquet(source: Source, file: StoredFile, handle: BinaryIO, room: Room) -> Landed:
    opened = open_file(source, file, handle)
    schema = opened.schema
    handle.seek(0)
    try:
        rows = _read_rows(handle, room) if schema.decoded_bytes <= room.left else None
        moved = [column.name for column in schema.own.columns if column.moved]
        if rows is not None and any(first_moved(rows.column(name)) is not None for name in moved):
            rows = None  # some value is not what Arrow reads, but what Spark does
        counts = count_marks(opened, read_marks(opened, rows, handle))
        keys, untyped = typed_keys(opened)
        pieces = [rows] if rows is not None else iter_batches(handle, keys)
        spans, ends = [], {name: Ends() for name in keys}
        for piece in pieces:
            spans.append(key_span(piece, keys) if rows is None else None)
            for name, seen in ends.items():
                seen.see(piece.column(name))
        fingerprint = end_of(handle, file.size)
    except (pa.ArrowException, OSError) as exc:
        raise damaged(opened, exc) from exc
    return Landed(
        source=source,
        file=file,
        schema=schema,
        counts=counts,
        null_keys=sum(one.nulls for one in ends.values()) + untyped * schema.rows,
        key_span=None if untyped else join_spans(spans),
        key_ends=ends,
        rows=rows,
        fingerprint=fingerprint,
    )


def _read_rows(handle: BinaryIO, room: Room) -> pa.Table | None:
    """Decode a Parquet file a piece at a time; None as soon as it takes more memory than there is room for."""
    pieces: list[pa.RecordBatch] = []
    for piece in iter_batches(handle):
        if not room.take(piece):
            return None
        pieces.append(piece)
    return pa.Table.from_batches(pieces) if pieces else open_parquet(handle).read()


def _read_text(source: Source, file: StoredFile, handle: BinaryIO, room: Room) -> Landed:
    """Read text to its end: without a footer, nothing less tells its rows and whether they are sound."""
    hashing = Hashing(handle)
    text = cast("BinaryIO", hashing)
    opened = open_file(source, file, text)
    counts: Counter[int] = Counter()
    keys, untyped = typed_keys(opened)
    kept: list[pa.Table] | None = []
    seen = nulls = 0
    for rows in iter_pieces(opened, handle=text):
        part = replace(opened, schema=replace(opened.schema, rows=len(rows)))
        try:
            counts.update(count_marks(part, read_marks(part, rows)))
        except MarkerError as exc:
            raise exc.but(row=seen + (exc.row or 0)) from exc
        nulls += sum(rows.column(name).null_count for name in keys)
        seen += len(rows)
        if kept is not None and room.take(rows):
            kept.append(rows)
        else:
            kept = None
    return Landed(
        source=source,
        file=file,
        schema=replace(opened.schema, rows=seen),
        counts={marker: counts[marker] for marker in MARKER_NAMES},
        null_keys=nulls + untyped * seen,
        rows=None if kept is None else pa.concat_tables(kept),
        fingerprint=hashing.finish(),
    )


def open_batches(opened: OpenedFile) -> Iterator[tuple[OpenedFile, pa.ChunkedArray]]:
    """Give a file's pieces, decoded, with their markers; raises `ChangeFileError`: a page is damaged."""
    for rows in iter_pieces(opened):
        part = replace(opened, rows=rows, schema=replace(opened.schema, rows=len(rows)))
        yield part, read_marks(part, rows)


def column_values(opened: OpenedFile, column: FileColumn) -> Iterator[pa.ChunkedArray]:
    """Give one column's mirror values, in row order, in pieces that fit into memory.

    Raises `SchemaError`: a timestamp is finer than a microsecond, or only Spark can read it; `ChangeFileError`: a page
    is damaged.
    """
    if column.given is not None:
        total = opened.schema.rows
        size = max(total if opened.rows is not None else ROWS_AT_A_TIME, 1)
        for start in range(0, max(total, 1), size):
            yield pa.chunked_array([pa.repeat(column.given, min(size, total - start))])
        return
    if opened.rows is not None:
        yield _canonical(opened, column, opened.rows.column(column.name), 0)
        return
    seen = 0
    for rows in iter_pieces(opened, [column.name]):
        yield _canonical(opened, column, rows.column(column.name), seen)
        seen += len(rows)


def find_misfit(opened: OpenedFile, column: FileColumn, kind: pa.DataType) -> int | None:
    """Return the first row whose value a column of the table's type does not hold; raises as `column_values` does."""
    stored = column.stored
    # Its own type may refuse nanoseconds, and the time 24:00; but INT96, which is native, is read to the microsecond.
    odd = pa.types.is_time(stored) or (pa.types.is_timestamp(stored) and stored.unit == "ns")
    if column.type == kind and (column.native or not odd):
        return None
    seen = 0
    for values in column_values(opened, column):
        row = first_misfit(values, kind)
        if row is not None:
            return seen + row
        seen += len(values)
    return None


def can_spark_read(opened: OpenedFile) -> bool:
    """Say whether Spark's own reader gives the same values for all columns of a file, and its markers."""
    typed = [column for column in opened.schema.own.columns if not pa.types.is_null(column.type)]
    if not typed or not all(column.native for column in typed):
        return False
    marker = opened.schema.marker_type
    # A decimal among them is stored in whatever way Spark reads worst.
    if not (marker is None or pa.types.is_null(marker) or is_native(marker, "BYTE_ARRAY")):
        return False
    with opened.source.zone.open_file(opened.file.path) as handle:
        return spark_decodes(handle)


def _canonical(
    opened: OpenedFile, column: FileColumn, values: pa.ChunkedArray, start: int
) -> pa.ChunkedArray:
    def cast(some: pa.ChunkedArray) -> pa.ChunkedArray:
        return canonical_values(some, column.type)

    facts = {"column": column.name, "found": str(column.stored)}
    if column.moved and (place := first_moved(values)) is not None:
        msg = "only Spark's own reader can tell a value of its old calendar"
        raise opened.fault(SchemaError, msg, row=start + place, next_step=_WRITE_CORRECTED, **facts)
    try:
        return cast(values)
    except pa.ArrowInvalid as exc:
        kind = sql_type(column.type)
        step = f"Publish values that a Delta {kind} can hold, under the same name."
        if pa.types.is_time(column.stored):
            step = "Publish times before 24:00, in whole microseconds, under the same name."
        elif getattr(column.stored, "unit", "") == "ns":
            step = "Publish whole microseconds, under the same name."
        msg = f"a {column.stored} value has no place in a Delta {kind}"
        row = start + (first_refused(values, cast) or 0)
        raise opened.fault(SchemaError, msg, row=row, next_step=step, **facts) from exc

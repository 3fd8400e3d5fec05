"""Parse a delimited change file: its header, then its rows as typed Arrow tables.

In: an open file, its listing and its table's `Dialect`. Out: a `FileSchema` as for Parquet, and
tables in row order whose columns have its mirror types, the marker as text. Promises: columns go by
the header's names; memory is bounded by the blocks, not by the file; the first row that does not
fit fails the file with its line, its column and the value's shape, never the value. Nothing here
asks whether the file is still the one that was listed: that is for its caller, after the last byte.

Fields: nothing at all (`,,`) and an unquoted `NullValue` are NULL in every type; a quoted
`NullValue` is that text; a quoted nothing (`""`) is an empty String and NULL in other types.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import BinaryIO

import pyarrow as pa
from pyarrow import csv

from mirrorlib.errors import ChangeFileError, FileChangedError, SchemaError
from mirrorlib.landing.columns import MARKER, FileColumn, FileSchema, check_names
from mirrorlib.landing.delimited.dialect import Dialect
from mirrorlib.landing.delimited.grammar import Piece
from mirrorlib.landing.delimited.rows import Opened, iter_pieces, open_rows, undecodable
from mirrorlib.landing.delimited.text import BLOCK_BYTES, Origin, iter_text
from mirrorlib.landing.delimited.values import (
    ByteNotation,
    DataType,
    first_misfit,
    read_values,
    shape_of,
)
from mirrorlib.landing.types import NtzPolicy
from mirrorlib.store import StoredFile

ROWS_AT_A_TIME = 1 << 17


def read_header(
    handle: BinaryIO,
    file: StoredFile,
    dialect: Dialect,
    *,
    table: str,
    ntz: NtzPolicy = "utc",
    block_bytes: int = 1 << 16,
) -> FileSchema:
    """Read what the header says about a file's columns; the number of rows stays unknown (-1).

    Args:
        handle: The open file; it is left open.
        file: Its listing.
        dialect: How its text is written.
        table: The table's name, for messages.
        ntz: What a DateTime is: an instant, or, with "keep", a time without zone.
        block_bytes: How much is read at a time.

    Raises:
        ChangeFileError: the file is empty, has no header, or is not written as its metadata states.
        SchemaError: a column's name cannot be mirrored, or no declared column is in the file.
    """
    origin = Origin(table, file.name)
    opened = _open(handle, file, dialect, origin, block_bytes)
    names = [name for name in opened.names if name.lower() != MARKER]
    markers = [name for name in opened.names if name.lower() == MARKER]
    check_names(names, markers, table=table, file=file.name)
    undeclared = tuple(name for name in names if dialect.declared(name) is None)
    if dialect.columns and len(undeclared) == len(names):
        msg = "none of the file's columns is in SchemaDefinition"
        step = "Check ColumnSeparator and SchemaDefinition in _metadata.json."
        count = f"{len(names)} column{'' if len(names) == 1 else 's'}"
        raise SchemaError(msg, table=table, file=file.name, found=count, next_step=step)
    return FileSchema(
        columns=tuple(_column(name, dialect.data_type(name).mirror_type(ntz)) for name in names),
        marker=markers[0] if markers else None,
        marker_type=pa.string() if markers else None,
        rows=-1,
        decoded_bytes=-1,
        undeclared=undeclared,
    )


def iter_tables(
    handle: BinaryIO,
    file: StoredFile,
    dialect: Dialect,
    schema: FileSchema,
    *,
    table: str,
    rows_at_a_time: int = ROWS_AT_A_TIME,
    block_bytes: int = BLOCK_BYTES,
) -> Iterator[pa.Table]:
    """Give a file's rows as typed tables, in row order; a file without rows gives one empty table.

    Args:
        handle: The open file; it is left open.
        file: Its listing.
        dialect: How its text is written.
        schema: What `read_header` said.
        table: The table's name, for messages.
        rows_at_a_time: The most rows of a table.
        block_bytes: How much is read at a time; it changes nothing but memory and speed.

    Raises:
        ChangeFileError: a row is ragged, a value does not fit its declared type, or the text is cut
            short or not written as its metadata states.
        FileChangedError: the header is another one than *schema*.
    """
    reading = _reading(handle, file, dialect, schema, table, block_bytes)
    row = 0
    for piece in iter_pieces(reading.opened, reading.origin):
        rows = _typed(reading, piece, _parse(reading, piece, row), row)
        for start in range(0, len(rows), rows_at_a_time):
            yield rows.slice(start, rows_at_a_time)
        row += len(rows)
    if not row:
        yield arrow_schema(reading.names, schema).empty_table()


def line_of(
    handle: BinaryIO,
    file: StoredFile,
    dialect: Dialect,
    schema: FileSchema,
    row: int,
    *,
    table: str,
) -> int | None:
    """Return the line on which a row begins; None when there is no such row.

    Reads the file again up to there, and raises what `iter_tables` raises.
    """
    reading = _reading(handle, file, dialect, schema, table, BLOCK_BYTES)
    seen = 0
    for piece in iter_pieces(reading.opened, reading.origin):
        count = len(_parse(reading, piece, seen))
        if row < seen + count:
            return reading.line(piece, row - seen)
        seen += count
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """A file under way.

    Attributes:
        origin: Which one, for messages.
        dialect: How its text is written.
        opened: Its header and what follows.
        types: How each data column is read; ByteArrays remember their notation through the file.
        kinds: The mirror type of each data column.

    """

    origin: Origin
    dialect: Dialect
    opened: Opened
    types: dict[str, DataType]
    kinds: dict[str, pa.DataType]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the header's names, the marker's among them."""
        return self.opened.names

    def lines(self, piece: Piece) -> Iterator[tuple[int, int]]:
        """Give the line and the number of fields of each row of a piece, as pyarrow counts rows."""
        for line, fields in self.opened.grammar.split(piece):
            if len(self.names) == 1 or len(fields) > 1 or fields[0].strip(b"\r"):
                yield line, len(fields)

    def line(self, piece: Piece, row: int) -> int:
        """Return the line of a row of a piece, both counted from the piece's first."""
        line, _ = next(islice(self.lines(piece), row, None))
        return line


def _reading(
    handle: BinaryIO,
    file: StoredFile,
    dialect: Dialect,
    schema: FileSchema,
    table: str,
    block_bytes: int,
) -> _Reading:
    origin = Origin(table, file.name)
    opened = _open(handle, file, dialect, origin, block_bytes)
    kinds = {column.name: column.type for column in schema.columns}
    if tuple(kinds) != tuple(name for name in opened.names if name != schema.marker):
        msg = "the change file has another header than before"
        step = "Leave it in place; the next run reads it as it is then."
        raise FileChangedError(msg, table=table, file=file.name, next_step=step)
    types = {name: dialect.data_type(name) for name in kinds}
    for name, declared in types.items():
        if pa.types.is_binary(declared.mirror):
            types[name] = replace(declared, read=ByteNotation().read)
    return _Reading(origin=origin, dialect=dialect, opened=opened, types=types, kinds=kinds)


def arrow_schema(names: tuple[str, ...], schema: FileSchema) -> pa.Schema:
    """Return the schema of a file's tables: its columns in file order, the marker among them."""
    columns = {column.name: column.type for column in schema.columns}
    return pa.schema([(name, columns.get(name, pa.string())) for name in names])


def _open(
    handle: BinaryIO, file: StoredFile, dialect: Dialect, origin: Origin, block_bytes: int
) -> Opened:
    if file.size == 0:
        msg = "the change file has no bytes; it may be an upload under way"
        raise origin.fault(msg, found="0 bytes")
    text = iter_text(handle, dialect.encoding, origin, block_bytes=block_bytes)
    return open_rows(text, dialect, origin)


def _column(name: str, kind: pa.DataType) -> FileColumn:
    return FileColumn(name=name, stored=kind, type=kind, native=False)


def _parse(reading: _Reading, piece: Piece, first_row: int) -> pa.Table:
    """Have pyarrow split a piece into columns of text."""
    names, dialect = list(reading.names), reading.dialect
    if len(names) > 1 and not piece.text.strip(b"\r\n"):
        return pa.table([pa.array([], pa.string())] * len(names), names=names)
    text, escape = reading.opened.grammar.for_arrow(piece.text)
    try:
        return csv.read_csv(
            pa.BufferReader(text),
            read_options=csv.ReadOptions(column_names=names, block_size=len(text) + 1),
            parse_options=csv.ParseOptions(
                delimiter=dialect.column_separator,
                quote_char=dialect.quote or False,
                escape_char=escape.decode() or False,
                newlines_in_values=True,
                ignore_empty_lines=len(names) > 1,
            ),
            convert_options=csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                null_values=["", *([dialect.null_value] if dialect.null_value else [])],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid as exc:
        raise _unparsed(reading, piece, first_row) from exc


def _unparsed(reading: _Reading, piece: Piece, first_row: int) -> ChangeFileError:
    """Find what pyarrow could not parse; its own message shows data."""
    try:
        piece.text.decode()
    except UnicodeDecodeError as exc:
        return undecodable(exc, piece, reading.opened.grammar, reading.origin)
    expected = len(reading.names)
    for row, (line, count) in enumerate(reading.lines(piece), first_row):
        if count != expected:
            msg = f"the row has {'fewer' if count < expected else 'more'} fields than the header"
            found = f"{count} in place of {expected}"
            return reading.origin.fault(msg, row=row, line=line, found=found)
    return reading.origin.fault("the rows cannot be parsed", line=piece.line)


def _typed(reading: _Reading, piece: Piece, fields: pa.Table, first_row: int) -> pa.Table:
    """Read every data column as its declared type."""
    columns: list[pa.ChunkedArray] = []
    faults: list[tuple[int, str]] = []
    for name in fields.column_names:
        column, declared = fields.column(name), reading.types.get(name)
        if declared is not None:
            try:
                column = read_values(column, declared, reading.kinds[name])
            except pa.ArrowInvalid:
                misfit = first_misfit(column, declared, reading.kinds[name])
                faults.append((misfit or 0, name))
        columns.append(column)
    if faults:
        row, name = min(faults, key=lambda fault: fault[0])  # the first column of the first row
        value = fields.column(name)[row].as_py()
        raise _misfit(reading, piece, value, name, row, first_row)
    return pa.table(columns, names=fields.column_names)


def _misfit(
    reading: _Reading, piece: Piece, value: str, name: str, row: int, first_row: int
) -> ChangeFileError:
    declared = reading.types[name]
    msg, step = declared.complaint(value, reading.kinds[name])
    return reading.origin.fault(
        msg,
        column=name,
        row=first_row + row,
        line=reading.line(piece, row),
        found=shape_of(value),
        next_step=step,
    )

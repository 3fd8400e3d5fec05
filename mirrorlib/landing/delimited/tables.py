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
from typing import BinaryIO

import pyarrow as pa

from mirrorlib.errors import SchemaError
from mirrorlib.landing.columns import MARKER, FileColumn, FileSchema, check_names
from mirrorlib.landing.delimited.dialect import Dialect
from mirrorlib.landing.delimited.reading import (
    open_header,
    parse_rows,
    start_reading,
    type_rows,
)
from mirrorlib.landing.delimited.rows import iter_pieces
from mirrorlib.landing.delimited.text import BLOCK_BYTES, Origin
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
    opened = open_header(handle, file, dialect, origin, block_bytes)
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
    reading = start_reading(handle, file, dialect, schema, table, block_bytes)
    row = 0
    for piece in iter_pieces(reading.opened, reading.origin):
        rows = type_rows(reading, piece, parse_rows(reading, piece, row), row)
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
    reading = start_reading(handle, file, dialect, schema, table, BLOCK_BYTES)
    seen = 0
    for piece in iter_pieces(reading.opened, reading.origin):
        count = len(parse_rows(reading, piece, seen))
        if row < seen + count:
            return reading.line(piece, row - seen)
        seen += count
    return None


def arrow_schema(names: tuple[str, ...], schema: FileSchema) -> pa.Schema:
    """Return the schema of a file's tables: its columns in file order, the marker among them."""
    columns = {column.name: column.type for column in schema.columns}
    return pa.schema([(name, columns.get(name, pa.string())) for name in names])


def _column(name: str, kind: pa.DataType) -> FileColumn:
    return FileColumn(name=name, stored=kind, type=kind, native=False)

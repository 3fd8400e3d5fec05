"""Read the rows of a delimited change file a piece at a time: what `tables` raises at and `survey` goes on behind.

In: an open file, its listing, its table's `Dialect` and what its header said. Out: a `Reading`; pieces of
it as columns of text, then of their declared types. Promises: the first row or value that does not fit
is named by its line, and its column, never shown.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import BinaryIO

import pyarrow as pa
from pyarrow import csv

from mirrorlib.errors import ChangeFileError, FileChangedError
from mirrorlib.landing.columns import FileSchema
from mirrorlib.landing.delimited.dialect import Dialect
from mirrorlib.landing.delimited.grammar import Piece
from mirrorlib.landing.delimited.rows import Opened, check_utf8, open_rows
from mirrorlib.landing.delimited.text import BLOCK_BYTES, Origin, iter_text
from mirrorlib.landing.delimited.values import (
    ByteNotation,
    DataType,
    first_misfit,
    read_values,
    shape_of,
)
from mirrorlib.store import StoredFile


@dataclass(frozen=True, slots=True)
class TextFile:
    """A delimited change file that is open, and is left open; and how its text is written."""

    handle: BinaryIO
    file: StoredFile
    dialect: Dialect
    table: str  # its table's name, for messages
    block_bytes: int = BLOCK_BYTES  # how much is read at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A file under way: how each data column is read, and as which mirror type.

    ByteArrays remember their notation through the file.
    """

    opened: Opened
    dialect: Dialect
    types: dict[str, DataType]
    kinds: dict[str, pa.DataType]

    def rows(self, piece: Piece) -> Iterator[tuple[int, bytes, int]]:
        """Give the line, the text and the number of fields of each row of a piece, as pyarrow counts rows."""
        return self.opened.grammar.rows_of(piece, width=len(self.opened.names))

    def line(self, piece: Piece, row: int) -> int:
        """Return the line of a row of a piece, both counted from the piece's first."""
        line, _, _ = next(islice(self.rows(piece), row, None))
        return line


def open_header(text: TextFile) -> Opened:
    """Read the header."""
    origin, dialect = Origin(text.table, text.file.name), text.dialect
    blocks = iter_text(text.handle, dialect.encoding, origin, block_bytes=text.block_bytes)
    return open_rows(blocks, dialect, origin)


def start_reading(text: TextFile, schema: FileSchema) -> Reading:
    """Open a file's rows by what its header said."""
    opened, dialect = open_header(text), text.dialect
    kinds = {column.name: column.type for column in schema.columns}
    if tuple(kinds) != tuple(name for name in opened.names if name != schema.marker):
        msg = "the change file has another header than before"
        step = "Leave it in place; the next run reads it as it is then."
        raise FileChangedError(msg, table=text.table, file=text.file.name, next_step=step)
    types = {name: dialect.data_type(name) for name in kinds}
    for name, declared in types.items():
        if pa.types.is_binary(declared.mirror):
            types[name] = replace(declared, read=ByteNotation().read)
    return Reading(opened=opened, dialect=dialect, types=types, kinds=kinds)


def parse_rows(reading: Reading, piece: Piece, first_row: int) -> pa.Table:
    """Have pyarrow split a piece into columns of text."""
    names, dialect = list(reading.opened.names), reading.dialect
    if not reading.opened.grammar.has_rows(piece.text, width=len(names)):
        return pa.table([pa.array([], pa.string())] * len(names), names=names)
    text, escape = reading.opened.grammar.for_arrow(piece.text)
    # Part of a value: the file's own is gone, and pyarrow takes one from every buffer.
    if text.startswith(BOM_UTF8):
        text = BOM_UTF8 + text
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


def _unparsed(reading: Reading, piece: Piece, first_row: int) -> ChangeFileError:
    """Find what pyarrow could not parse; its own message shows data."""
    opened, expected = reading.opened, len(reading.opened.names)
    check_utf8(piece, opened.grammar, opened.origin)
    for row, (line, _, count) in enumerate(reading.rows(piece), first_row):
        if count != expected:
            msg = f"the row has {'fewer' if count < expected else 'more'} fields than the header"
            found = f"{count} in place of {expected}"
            return opened.origin.fault(msg, row=row, line=line, found=found)
    return opened.origin.fault("the rows cannot be parsed", line=piece.line)


def type_rows(reading: Reading, piece: Piece, fields: pa.Table, first_row: int) -> pa.Table:
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
        msg, step = reading.types[name].complaint(value, reading.kinds[name])
        raise reading.opened.origin.fault(
            msg,
            column=name,
            row=first_row + row,
            line=reading.line(piece, row),
            found=shape_of(value),
            next_step=step,
        )
    return pa.table(columns, names=fields.column_names)

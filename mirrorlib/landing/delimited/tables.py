"""Parse a delimited change file: its header, then its rows as typed Arrow tables.

In: a `TextFile`. Out: a `FileSchema` as for Parquet, and tables in row order whose columns have its mirror types, the
marker as text; or a `Reading`, whose pieces become columns of text, then of their declared types, one by one, for who
goes on behind what does not fit. Promises: columns go by the header's names; memory is bounded by the blocks, not by
the file; the first row that does not fit fails the file with its line, its column and the value's shape, never the
value. Nothing here asks whether the file is still the one that was listed: that is for its caller, after the last byte.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import pyarrow as pa
from pyarrow import csv

from mirrorlib.errors import ChangeFileError, FileChangedError, SchemaError
from mirrorlib.landing.columns import FileSchema, split_marker, text_columns
from mirrorlib.landing.delimited.grammar import Piece
from mirrorlib.landing.delimited.rows import Opened, check_utf8, iter_pieces, open_rows
from mirrorlib.landing.delimited.text import TextFile
from mirrorlib.landing.delimited.values import ByteNotation, DataType, read_values, shape_of
from mirrorlib.landing.parquet import ROWS_AT_A_TIME
from mirrorlib.landing.types import NtzPolicy
from mirrorlib.landing.values import first_refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A file under way: how each data column is read, and as which mirror type.

    ByteArrays remember their notation through the file.
    """

    opened: Opened
    types: dict[str, DataType]
    kinds: dict[str, pa.DataType]

    def rows(self, piece: Piece) -> Iterator[tuple[int, bytes]]:
        """Give the line and the text of each row of a piece, as pyarrow counts rows."""
        return self.opened.grammar.rows_of(piece, width=len(self.opened.names))

    def parse(self, piece: Piece, first_row: int) -> pa.Table:
        """Have pyarrow split a piece into columns of text."""
        names, dialect = list(self.opened.names), self.opened.file.dialect
        if not piece.text:  # of nothing at all, pyarrow makes no table
            return pa.table([pa.array([], pa.string())] * len(names), names=names)
        text, escape = self.opened.grammar.for_arrow(piece.text)
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
            raise self._unparsed(piece, first_row) from exc

    def _unparsed(self, piece: Piece, first_row: int) -> ChangeFileError:
        """Find what pyarrow could not parse; its own message shows data."""
        opened, expected = self.opened, len(self.opened.names)
        check_utf8(piece, opened.grammar, opened.file)
        for row, (line, text) in enumerate(self.rows(piece), first_row):
            if (count := len(opened.grammar.fields(text))) != expected:
                what = "fewer" if count < expected else "more"
                msg = f"the row has {what} fields than the header"
                found = f"{count} in place of {expected}"
                hint = opened.file.no_escape(text) if count < expected else ""
                step = ChangeFileError.advice + hint
                return opened.file.fault(msg, row=row, line=line, found=found, next_step=step)
        return opened.file.fault("the rows cannot be parsed", line=piece.line)

    def typed(self, piece: Piece, fields: pa.Table, first_row: int) -> pa.Table:
        """Read every data column as its declared type."""
        columns: list[pa.ChunkedArray] = []
        faults: list[tuple[int, str]] = []
        for name in fields.column_names:
            column, declared = fields.column(name), self.types.get(name)
            if declared is not None:
                read = partial(read_values, declared=declared, kind=self.kinds[name])
                try:
                    column = read(column)
                except pa.ArrowInvalid:
                    faults.append((first_refused(column, read) or 0, name))
            columns.append(column)
        if faults:
            row, name = min(faults, key=lambda fault: fault[0])  # the first column of the first row
            value = fields.column(name)[row].as_py()
            msg, step = self.types[name].complaint(self.kinds[name])
            (line, _), found = next(islice(self.rows(piece), row, None)), shape_of(value)
            raise self.opened.file.fault(
                msg, column=name, row=first_row + row, line=line, found=found, next_step=step
            )
        return pa.table(columns, names=fields.column_names)


def read_header(text: TextFile, *, ntz: NtzPolicy = "utc") -> FileSchema:
    """Read what the header says about a file's columns; the number of rows stays unknown (-1).

    A DateTime is an instant, or, with *ntz* "keep", a time without zone.
    """
    names = open_rows(replace(text, block_bytes=1 << 16)).names
    return header_schema(names, text, ntz)


def header_schema(header: Sequence[str], text: TextFile, ntz: NtzPolicy = "utc") -> FileSchema:
    """Say what a header's names mean, as `read_header`."""
    dialect, table, file = text.dialect, text.table, text.file.name
    names, marker = split_marker(header, table=table, file=file)
    undeclared = tuple(name for name in names if dialect.defined(name) is None)
    if dialect.columns and len(undeclared) == len(names):
        msg = "none of the file's columns is in SchemaDefinition"
        step = "Check ColumnSeparator and SchemaDefinition in _metadata.json."
        count = f"{len(names)} column{'' if len(names) == 1 else 's'}"
        raise SchemaError(msg, table=table, file=file, found=count, next_step=step)
    columns = text_columns({name: dialect.data_type(name).mirror_type(ntz) for name in names})
    kind = pa.string() if marker else None
    return FileSchema(columns=columns, marker=marker, marker_type=kind, undeclared=undeclared)


def iter_tables(text: TextFile, schema: FileSchema) -> Iterator[pa.Table]:
    """Give a file's rows as typed tables, by what `read_header` said; a file without rows gives one empty table."""
    reading = start_reading(text, schema)
    row = 0
    for piece in iter_pieces(reading.opened):
        rows = reading.typed(piece, reading.parse(piece, row), row)
        row += len(rows)
        for start in range(0, len(rows), ROWS_AT_A_TIME):
            yield rows.slice(start, ROWS_AT_A_TIME)
    if not row:
        empty = Piece(b"", reading.opened.rest.line)
        yield reading.typed(empty, reading.parse(empty, 0), 0)


def start_reading(text: TextFile, schema: FileSchema) -> Reading:
    """Open a file's rows by what its header said."""
    opened = open_rows(text)
    kinds = {column.name: column.type for column in schema.columns}
    if tuple(kinds) != tuple(name for name in opened.names if name != schema.marker):
        msg = "the change file has another header than before"
        raise FileChangedError(msg, table=text.table, file=text.file.name)
    types = {name: text.dialect.data_type(name) for name in kinds}
    for name, declared in types.items():
        if pa.types.is_binary(declared.mirror):
            types[name] = replace(declared, read=ByteNotation().read)
    return Reading(opened=opened, types=types, kinds=kinds)

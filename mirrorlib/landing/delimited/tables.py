"""Parse a delimited change file: its header, then its rows as typed Arrow tables.

In: a `TextFile`. Out: a `FileSchema` as for Parquet, and
tables in row order whose columns have its mirror types, the marker as text. Promises: columns go by
the header's names; memory is bounded by the blocks, not by the file; the first row that does not
fit fails the file with its line, its column and the value's shape, never the value. Nothing here
asks whether the file is still the one that was listed: that is for its caller, after the last byte.
A `Survey` goes by the same steps, and on behind rows and values that do not fit: it has a fault, or raises
itself, exactly when `iter_tables` raises.

Fields: nothing at all (`,,`) and an unquoted `NullValue` are NULL in every type; a quoted
`NullValue` is that text; a quoted nothing (`""`) is an empty String and NULL in other types.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import pyarrow as pa

from mirrorlib.errors import ChangeFileError, MirrorError, SchemaError
from mirrorlib.landing.columns import FileColumn, FileSchema, split_marker
from mirrorlib.landing.delimited.dialect import Dialect
from mirrorlib.landing.delimited.grammar import Piece
from mirrorlib.landing.delimited.reading import (
    Reading,
    TextFile,
    open_header,
    parse_rows,
    start_reading,
    type_rows,
)
from mirrorlib.landing.delimited.rows import iter_pieces
from mirrorlib.landing.types import NtzPolicy

ROWS_AT_A_TIME = 1 << 17


def read_header(text: TextFile, *, ntz: NtzPolicy = "utc") -> FileSchema:
    """Read what the header says about a file's columns; the number of rows stays unknown (-1).

    A DateTime is an instant, or, with *ntz* "keep", a time without zone.
    """
    names = open_header(replace(text, block_bytes=1 << 16)).names
    return header_schema(names, text.dialect, table=text.table, file=text.file.name, ntz=ntz)


def header_schema(
    header: Sequence[str], dialect: Dialect, *, table: str, file: str, ntz: NtzPolicy = "utc"
) -> FileSchema:
    """Say what a header's names mean, as `read_header`."""
    names, marker = split_marker(header, table=table, file=file)
    undeclared = tuple(name for name in names if dialect.declared(name) is None)
    if dialect.columns and len(undeclared) == len(names):
        msg = "none of the file's columns is in SchemaDefinition"
        step = "Check ColumnSeparator and SchemaDefinition in _metadata.json."
        count = f"{len(names)} column{'' if len(names) == 1 else 's'}"
        raise SchemaError(msg, table=table, file=file, found=count, next_step=step)
    kinds = {name: dialect.data_type(name).mirror_type(ntz) for name in names}
    return FileSchema(
        columns=tuple(
            FileColumn(name=name, stored=kind, type=kind, native=False)
            for name, kind in kinds.items()
        ),
        marker=marker,
        marker_type=pa.string() if marker else None,
        undeclared=undeclared,
    )


def iter_tables(text: TextFile, schema: FileSchema) -> Iterator[pa.Table]:
    """Give a file's rows as typed tables, by what `read_header` said; a file without rows gives one empty table."""
    reading = start_reading(text, schema)
    row = 0

    def typed(piece: Piece) -> pa.Table:
        nonlocal row
        rows = type_rows(reading, piece, parse_rows(reading, piece, row), row)
        row += len(rows)
        return rows

    # A thread costs a quarter of what a file of ten rows does, which is one piece.
    tables = map if text.file.size <= text.block_bytes else _one_ahead
    for rows in tables(typed, iter_pieces(reading.opened)):
        for start in range(0, len(rows), ROWS_AT_A_TIME):
            yield rows.slice(start, ROWS_AT_A_TIME)
    if not row:
        names = reading.opened.names
        fields = [(name, reading.kinds.get(name, pa.string())) for name in names]
        yield pa.schema(fields).empty_table()


def _one_ahead(typed: Callable[[Piece], pa.Table], pieces: Iterator[Piece]) -> Iterator[pa.Table]:
    """Type pieces in order, each while Python looks for the end of the next one: Arrow lets it."""
    with ThreadPoolExecutor(1) as pool:
        under_way: Future[pa.Table] | None = None
        while True:
            try:
                piece = next(pieces, None)
            except MirrorError:  # what is wrong with rows before comes first
                if under_way is not None:
                    yield under_way.result()
                raise
            coming = None if piece is None else pool.submit(typed, piece)
            if under_way is not None:
                yield under_way.result()
            if coming is None:
                return
            under_way = coming


def line_of(text: TextFile, schema: FileSchema, row: int) -> int | None:
    """Return the line on which a row begins, by reading the file again up to there; None when there is no such row."""
    reading = start_reading(text, schema)
    seen = 0
    for piece in iter_pieces(reading.opened):
        count = len(parse_rows(reading, piece, seen))
        if row < seen + count:
            return reading.line(piece, row - seen)
        seen += count
    return None


@dataclass(slots=True, kw_only=True)
class Survey:
    """What a reader refuses of a file, as far as the file has been gone through."""

    # The places of rows that have not as many fields as the header, counted from 0.
    ragged: array[int] = field(default_factory=lambda: array("q"))
    ragged_line: int | None = None  # the line on which the first of them begins
    # The first value that does not fit its type, None when there is none.
    misfit: ChangeFileError | None = None


def survey_tables(text: TextFile, schema: FileSchema, survey: Survey) -> Iterator[pa.Table]:
    """Give a file's sound rows, in row order, and note the others; a piece with one of these comes as text."""
    reading = start_reading(text, schema)
    row = 0
    for piece in iter_pieces(reading.opened):
        before = len(survey.ragged)
        fields = _sound(reading, piece, row, survey)
        ragged = len(survey.ragged) - before
        rows = fields
        if not ragged:
            try:
                rows = type_rows(reading, piece, fields, row)
            except ChangeFileError as exc:
                survey.misfit = survey.misfit or exc
        yield rows
        row += len(fields) + ragged


def _sound(reading: Reading, piece: Piece, first_row: int, survey: Survey) -> pa.Table:
    """Parse a piece; without its ragged rows, if it has any."""
    try:
        return parse_rows(reading, piece, first_row)
    except ChangeFileError:
        width, kept, before = len(reading.opened.names), [], len(survey.ragged)
        for row, (line, text, count) in enumerate(reading.rows(piece), first_row):
            if count == width:
                kept.append(text)
                continue
            survey.ragged.append(row)
            survey.ragged_line = survey.ragged_line or line
        if len(survey.ragged) == before:
            raise
        return parse_rows(reading, Piece(b"".join(kept), piece.line), first_row)

"""Survey a delimited change file: everything that its reader refuses, and the rows behind that.

In: what `tables` reads. Out: the sound rows as tables, and a `Survey` of the others. Promise: the steps are
those of `iter_tables`, which raises exactly when a survey has a fault or raises itself; it goes on behind
ragged rows and values that do not fit.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO

from mirrorlib.errors import ChangeFileError
from mirrorlib.landing.columns import FileSchema
from mirrorlib.landing.delimited.dialect import Dialect
from mirrorlib.landing.delimited.grammar import Piece
from mirrorlib.landing.delimited.reading import (
    Reading,
    open_header,
    parse_rows,
    start_reading,
    type_rows,
)
from mirrorlib.landing.delimited.rows import iter_pieces
from mirrorlib.landing.delimited.text import BLOCK_BYTES, Origin
from mirrorlib.store import StoredFile

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(slots=True, kw_only=True)
class Survey:
    """What a reader refuses of a file, as far as the file has been gone through.

    Attributes:
        ragged: the places of rows that have not as many fields as the header, counted from 0.
        ragged_line: the line on which the first of them begins.
        misfit: the first value that does not fit its type, None when there is none.

    """

    ragged: array[int] = field(default_factory=lambda: array("q"))
    ragged_line: int | None = None
    misfit: ChangeFileError | None = None


def read_names(
    handle: BinaryIO, file: StoredFile, dialect: Dialect, *, table: str
) -> tuple[tuple[str, ...], str]:
    """Read the header's names and how it ends; "" when the file ends with it.

    Raises:
        ChangeFileError: the file is empty, has no header, or is not written as its metadata states.

    """
    opened = open_header(handle, file, dialect, Origin(table, file.name), BLOCK_BYTES)
    return opened.names, opened.end.decode()


def survey_tables(
    handle: BinaryIO,
    file: StoredFile,
    dialect: Dialect,
    schema: FileSchema,
    survey: Survey,
    *,
    table: str,
) -> Iterator[pa.Table]:
    """Give a file's sound rows, in row order, and note the others.

    A piece with a value that does not fit, or a ragged row, is text.

    Raises:
        ChangeFileError: nothing can be read from here on.
        FileChangedError: the header is another one than *schema*.

    """
    reading = start_reading(handle, file, dialect, schema, table)
    row = 0
    for piece in iter_pieces(reading.opened, reading.origin):
        before = len(survey.ragged)
        fields = _sound(reading, piece, row, survey)
        ragged = len(survey.ragged) - before
        yield fields if ragged else _typed(reading, piece, fields, row, survey)
        row += len(fields) + ragged


def _sound(reading: Reading, piece: Piece, first_row: int, survey: Survey) -> pa.Table:
    """Parse a piece; without its ragged rows, if it has any."""
    try:
        return parse_rows(reading, piece, first_row)
    except ChangeFileError:
        width, kept, before = len(reading.names), [], len(survey.ragged)
        for row, (line, text, count) in enumerate(reading.rows(piece), first_row):
            if count == width:
                kept.append(text)
                continue
            survey.ragged.append(row)
            survey.ragged_line = survey.ragged_line or line
        if len(survey.ragged) == before:
            raise
        return parse_rows(reading, Piece(b"".join(kept), piece.line), first_row)


def _typed(
    reading: Reading, piece: Piece, fields: pa.Table, first_row: int, survey: Survey
) -> pa.Table:
    try:
        return type_rows(reading, piece, fields, first_row)
    except ChangeFileError as exc:
        survey.misfit = survey.misfit or exc
        return fields

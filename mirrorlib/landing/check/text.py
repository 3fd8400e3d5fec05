"""Review delimited text: header, rows, values, line ends, markers, keys, by the steps of the reader itself.

In: a `Review` of one listed file. Out: what it learns of that, and findings on the way. A file
has an error here exactly when a reader cannot read it; what lies behind the first one is told too, as far
as it can be read. Everything passes in pieces.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlib.errors import ChangeFileError, SchemaError
from mirrorlib.identifiers import fold_name
from mirrorlib.landing.check.facts import Review, Rows, UnreadableError
from mirrorlib.landing.check.report import tell_claim
from mirrorlib.landing.columns import INSERT, MARKER, FileSchema, missing_in, small_markers
from mirrorlib.landing.delimited.dialect import Dialect
from mirrorlib.landing.delimited.grammar import Piece
from mirrorlib.landing.delimited.rows import NO_HEADER, OPEN_QUOTE, iter_pieces, open_rows
from mirrorlib.landing.delimited.tables import Reading, header_schema, start_reading
from mirrorlib.landing.delimited.text import DAMAGED, UNDECODABLE, TextFile
from mirrorlib.landing.given import add_given
from mirrorlib.names import partition_values

_RULES = {OPEN_QUOTE: "text-open-quote", NO_HEADER: "text-no-header"}


@dataclass(slots=True, kw_only=True)
class _Survey:
    """What a reader refuses of a file, as far as the file has been gone through."""

    # The places of rows that have not as many fields as the header, counted from 0.
    ragged: array[int] = field(default_factory=lambda: array("q"))
    ragged_line: int | None = None  # the line on which the first of them begins
    # The first value that does not fit its type, None when there is none.
    misfit: ChangeFileError | None = None


def review_text(review: Review, dialect: Dialect) -> bool:
    """Review one file of delimited text; False when its rows cannot be told.

    Raises `UnreadableError` where it cannot be decoded or cut into fields.
    """
    text = TextFile(review.handle, review.file, dialect, review.policy.table)
    try:
        schema = _review_header(review, text)
        if schema is not None:
            _review_rows(review, text, schema)
    except ChangeFileError as exc:
        raise _unreadable(exc) from exc
    return schema is not None


def _unreadable(exc: ChangeFileError) -> UnreadableError:
    """Say which rule a file breaks that its reader cannot go on with."""
    rule = _RULES.get(exc.reason, "text-unparsable")
    what = tell_claim(exc)
    if exc.reason.startswith(UNDECODABLE):
        rule = "text-undecodable"
        what = f"line {exc.line} is not {exc.reason.removeprefix(UNDECODABLE)}"
    elif exc.reason.endswith(DAMAGED):
        rule, what = "damaged", "it cannot be decompressed"
    return UnreadableError(what, rule=rule, line=exc.line)


def _review_header(review: Review, text: TextFile) -> FileSchema | None:
    """Read the header and compare it with what is declared; None where a reader stops at it."""
    dialect = text.dialect
    opened = open_rows(text)
    names, end = opened.names, opened.end.decode()
    if review.policy.stated and end not in {"", dialect.row_separator}:
        what = f"{end!a}, declared is {dialect.row_separator!a}"
        review.tell("text-row-separator", what)
    try:
        schema = header_schema(names, text)
    except SchemaError as exc:
        _tell_refused(review, names, exc)
        return None
    _tell_undeclared(review, dialect, schema)
    if schema.marker:
        review.tell_marker(names, schema.marker, pa.int32())
    return schema


def _tell_refused(review: Review, names: Sequence[str], exc: SchemaError) -> None:
    """Name every column that a reader refuses, and not the first one alone."""
    markers = [name for name in names if name.lower() == MARKER]
    columns = [name for name in names if name.lower() != MARKER]
    good = review.good_names(columns)
    if len(markers) > 1:
        review.tell("marker-twice", " and ".join(markers)[:80])
    elif len(good) == len(columns):
        review.tell("text-no-header", exc.reason)


def _tell_undeclared(review: Review, dialect: Dialect, schema: FileSchema) -> None:
    """Name columns that are in the header alone, or in `SchemaDefinition` alone; keys are told with the rows."""
    for name in schema.undeclared if dialect.columns else ():
        review.tell("text-column-undeclared", "it is not declared", column=name)
    keys = (*review.policy.metadata.stated_keys, *review.policy.metadata.key_columns)
    own = (column.name for column in schema.columns)
    folded = {fold_name(name) for name in (*own, *partition_values(review.file.name), *keys)}
    for column in dialect.columns:
        name = column.name.strip()
        if fold_name(name) not in folded:
            review.tell("text-column-missing", "it is declared", column=name)


def _review_rows(review: Review, text: TextFile, schema: FileSchema) -> None:
    """Read the rows to their end, or to where nothing can be read any more; tell what was seen until there."""
    policy, dialect = review.policy, text.dialect
    names = [column.name for column in schema.columns]
    stated = policy.metadata.stated_keys
    keys = {key: column.name for key in stated if (column := schema.key(key))}
    declared = {name: dialect.defined(name) for name in names if name not in keys.values()}
    nulls = {name: Rows() for name, one in declared.items() if one and one.nullable is False}
    names += _given(review, dialect, schema)
    survey, stopped = _Survey(), None
    review.marked = bool(schema.marker)
    try:
        for rows in _survey_tables(text, schema, survey):
            start = review.rows
            if schema.marker:
                review.see_markers(rows.column(schema.marker))
            else:
                review.see_unmarked(len(rows))
            for key, name in keys.items():
                review.null_keys[key].see(pc.is_null(rows.column(name)), start)
            _see_nulls(nulls, rows, schema.marker, start)
    except ChangeFileError as exc:
        stopped = exc
    told = (review.unknown, review.unmarked, review.changes)
    for alike in (*told, *review.null_keys.values(), *nulls.values()):
        _shift(alike, survey)
    _tell_misfits(review, dialect, survey, len(schema.columns) + bool(schema.marker))
    for key in policy.missing_keys(names) if review.rows else ():
        review.tell("key-missing", "no such column", column=key)
    review.tell_rows(schema.marker)
    for name, missing in nulls.items():
        if missing.count:
            review.tell("text-null", missing.summary, column=name, row=missing.first)
    if stopped is not None:
        raise stopped


def _given(review: Review, dialect: Dialect, schema: FileSchema) -> frozenset[str]:
    """Name the columns that the file's partition folders give, and tell those that a reader refuses."""
    given = review.given_names(column.name for column in schema.columns)
    try:
        add_given(schema, review.file.name, dialect, table=review.policy.table)
    except SchemaError as exc:
        if exc.column in given:
            _tell_misfit(review, dialect, exc)
    return given


def _see_nulls(nulls: dict[str, Rows], rows: pa.Table, marker: str | None, start: int) -> None:
    """Take in a piece; a delete needs its key alone."""
    holes = [name for name in nulls if rows.column(name).null_count]
    if not holes:
        return
    # Rows without a marker are no deletes.
    markers = small_markers(rows.column(marker)) if marker else pa.scalar(INSERT)
    for name in holes:
        nulls[name].see(missing_in(rows, markers, name), start)


def _survey_tables(text: TextFile, schema: FileSchema, survey: _Survey) -> Iterator[pa.Table]:
    """Give a file's sound rows, in row order, and note the others; a piece with one of these comes as text."""
    reading = start_reading(text, schema)
    row = 0
    for piece in iter_pieces(reading.opened):
        before = len(survey.ragged)
        fields = _sound(reading, piece, row, survey)
        ragged = len(survey.ragged) - before
        if not ragged:
            try:
                fields = reading.typed(piece, fields, row)
            except ChangeFileError as exc:
                survey.misfit = survey.misfit or exc
        yield fields
        row += len(fields) + ragged


def _sound(reading: Reading, piece: Piece, first_row: int, survey: _Survey) -> pa.Table:
    """Parse a piece; without its ragged rows, if it has any."""
    try:
        return reading.parse(piece, first_row)
    except ChangeFileError:
        width, kept, before = len(reading.opened.names), [], len(survey.ragged)
        for row, (line, text) in enumerate(reading.rows(piece), first_row):
            if len(reading.opened.grammar.fields(text)) == width:
                kept.append(text)
                continue
            survey.ragged.append(row)
            survey.ragged_line = survey.ragged_line or line
        if len(survey.ragged) == before:
            raise
        return reading.parse(Piece(b"".join(kept), piece.line), first_row)


def _tell_misfits(review: Review, dialect: Dialect, survey: _Survey, width: int) -> None:
    count = len(survey.ragged)
    if count:
        what = f"{count:,} row{'' if count == 1 else 's'}; the header has {width} fields"
        line = survey.ragged_line
        review.tell("text-ragged-row", what, row=survey.ragged[0], line=line)
    if survey.misfit is not None:
        _tell_misfit(review, dialect, survey.misfit)


def _tell_misfit(review: Review, dialect: Dialect, exc: ChangeFileError | SchemaError) -> None:
    what = f"{exc.found}; {dialect.data_type(exc.column or '').name} is declared"
    review.tell("text-value", what, column=exc.column, row=exc.row, line=exc.line)


def _shift(rows: Rows, survey: _Survey) -> None:
    """Count the ragged rows, which are left out, into the place of a row."""
    for place in survey.ragged:
        if rows.first is None or place > rows.first:
            return
        rows.first += 1

"""Review delimited text: header, rows, values, line ends, markers, keys, by the steps of the reader itself.

In: a `Review` of one listed file. Out: what it learns of that, and findings on the way. A file
has an error here exactly when a reader cannot read it; rows behind a value that does not fit are told too. Everything
passes in pieces.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlib.errors import ChangeFileError, SchemaError
from mirrorlib.identifiers import fold_name
from mirrorlib.landing.check.facts import Review, Rows, UnreadableError
from mirrorlib.landing.columns import INSERT, MARKER, FileSchema, missing_in, small_markers
from mirrorlib.landing.delimited.dialect import Dialect
from mirrorlib.landing.delimited.rows import NO_HEADER, OPEN_QUOTE, iter_pieces, open_rows
from mirrorlib.landing.delimited.tables import RAGGED, header_schema, start_reading
from mirrorlib.landing.delimited.text import DAMAGED, UNDECODABLE, TextFile
from mirrorlib.landing.given import add_given
from mirrorlib.names import partition_values

_RULES = {OPEN_QUOTE: "text-open-quote", NO_HEADER: "text-no-header"}


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
    what = exc.reason if exc.found is None else f"{exc.reason}: {exc.found}"
    if exc.reason.startswith(UNDECODABLE):
        rule = "text-undecodable"
        what = f"line {exc.line} is not {exc.reason.removeprefix(UNDECODABLE)}"
    elif exc.reason.endswith(RAGGED):
        rule, what = "text-ragged-row", f"{exc.found} fields"
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
    names += _given(review, dialect, schema)
    stated = policy.metadata.stated_keys
    keys = {key: column.name for key in stated if (column := schema.key(key))}
    required = (column.name for column in schema.columns if dialect.required(column.name))
    nulls = {name: Rows() for name in required if name not in keys.values()}
    misfits: list[ChangeFileError] = []
    stopped = None
    review.marked = bool(schema.marker)
    try:
        for rows in _iter_rows(text, schema, misfits):
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
    if misfits:
        _tell_misfit(review, dialect, misfits[0])
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


def _iter_rows(
    text: TextFile, schema: FileSchema, misfits: list[ChangeFileError]
) -> Iterator[pa.Table]:
    """Give a file's rows in pieces; one with a value that does not fit is noted, and comes as text."""
    reading = start_reading(text, schema)
    row = 0
    for piece in iter_pieces(reading.opened):
        rows = reading.parse(piece, row)
        try:
            rows = reading.typed(piece, rows, row)
        except ChangeFileError as exc:
            misfits.append(exc)
        yield rows
        row += len(rows)


def _tell_misfit(review: Review, dialect: Dialect, exc: ChangeFileError | SchemaError) -> None:
    what = f"{exc.found}; {dialect.data_type(exc.column or '').name} is declared"
    review.tell("text-value", what, column=exc.column, row=exc.row, line=exc.line)

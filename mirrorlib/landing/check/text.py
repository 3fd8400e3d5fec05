"""Review delimited text: header, rows, values, line ends, markers, keys, by the steps of the reader itself.

In: one listed file. Out: its `Facts`, None when its rows cannot be told, and findings on the way. A file
has an error here exactly when a reader stops at it; what lies behind the first one is told too, as far
as it can be read. Everything passes in pieces.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from mirrorlib.errors import ChangeFileError, FileChangedError, SchemaError
from mirrorlib.identifiers import fold_name
from mirrorlib.landing.check.facts import (
    Facts,
    Review,
    Rows,
    Scan,
    UnreadableError,
    good_names,
    scan_keys,
    scan_markers,
    scan_unmarked,
    tell_marker,
    tell_rows,
)
from mirrorlib.landing.columns import INSERT, MARKER, FileSchema, missing_in, small_markers
from mirrorlib.landing.delimited.dialect import Dialect
from mirrorlib.landing.delimited.reading import TextFile, open_header
from mirrorlib.landing.delimited.rows import NO_HEADER, OPEN_QUOTE
from mirrorlib.landing.delimited.tables import Survey, header_schema, line_of, survey_tables
from mirrorlib.landing.delimited.text import DAMAGED, UNDECODABLE
from mirrorlib.landing.given import add_given
from mirrorlib.names import partition_values

_RULES = {OPEN_QUOTE: "text-open-quote", NO_HEADER: "text-no-header"}


def review_text(review: Review, dialect: Dialect) -> Facts | None:
    """Review one file of delimited text; raises `UnreadableError` where it cannot be decoded or cut into fields."""
    text = TextFile(review.handle, review.file, dialect, review.policy.table)
    try:
        schema = _review_header(review, text)
        return None if schema is None else _review_rows(review, text, schema)
    except FileChangedError:
        review.tell("file-changing", "another file than was listed")
    except ChangeFileError as exc:
        raise _unreadable(exc) from exc
    return None


def _unreadable(exc: ChangeFileError) -> UnreadableError:
    """Say which rule a file breaks that its reader cannot go on with."""
    rule = _RULES.get(exc.reason, "text-unparsable")
    what = exc.reason if exc.found is None else f"{exc.reason}: {exc.found}"
    if exc.reason.startswith(UNDECODABLE):
        rule = "text-undecodable"
        what = f"line {exc.line} is not {exc.reason.removeprefix(UNDECODABLE)}"
    elif exc.reason.endswith(DAMAGED):
        rule, what = "damaged", "it cannot be decompressed"
    return UnreadableError(what, rule=rule, line=exc.line)


def _review_header(review: Review, text: TextFile) -> FileSchema | None:
    """Read the header and compare it with what is declared; None where a reader stops at it."""
    file, policy, dialect = review.file, review.policy, text.dialect
    opened = open_header(text)
    names, end = opened.names, opened.end.decode()
    if policy.stated and end not in {"", dialect.row_separator}:
        what = f"{end!a}, declared is {dialect.row_separator!a}"
        review.tell("text-row-separator", what)
    try:
        schema = header_schema(names, dialect, table=policy.table, file=file.name)
    except SchemaError as exc:
        _tell_refused(review, names, exc)
        return None
    _tell_undeclared(review, dialect, schema, names)
    if schema.marker:
        tell_marker(review, names, schema.marker, pa.int32())
    return schema


def _tell_refused(review: Review, names: Sequence[str], exc: SchemaError) -> None:
    """Name every column that a reader refuses, and not the first one alone."""
    markers = [name for name in names if name.lower() == MARKER]
    columns = [name for name in names if name.lower() != MARKER]
    good = good_names(review, columns)
    if len(markers) > 1:
        review.tell("marker-twice", " and ".join(markers)[:80])
    elif len(good) == len(columns):
        review.tell("text-no-header", exc.reason)


def _tell_undeclared(
    review: Review, dialect: Dialect, schema: FileSchema, names: Sequence[str]
) -> None:
    """Name columns that are in the header alone, or in `SchemaDefinition` alone; keys are told with the rows."""
    for name in schema.undeclared if dialect.columns else ():
        review.tell("text-column-undeclared", "it is not declared", column=name)
    stated = review.policy.metadata.stated_keys
    keys = (form for key in stated for form in (key, key.strip()))
    folded = {fold_name(name) for name in (*names, *partition_values(review.file.name), *keys)}
    for column in dialect.columns:
        name = column.name.strip()
        if fold_name(name) not in folded:
            review.tell("text-column-missing", "it is declared", column=name)


def _review_rows(review: Review, text: TextFile, schema: FileSchema) -> Facts:
    """Read the rows to their end, or to where nothing can be read any more; tell what was seen until there."""
    policy, dialect = review.policy, text.dialect
    names = [column.name for column in schema.columns]
    names += _given(review, dialect, schema)
    stated = policy.metadata.stated_keys
    keys = {key: column.name for key in stated if (column := schema.key(key))}
    required = (column.name for column in schema.columns if dialect.required(column.name))
    nulls = {name: Rows() for name in required if name not in keys.values()}
    survey, scan, stopped = Survey(), Scan(), None
    try:
        for rows in survey_tables(text, schema, survey):
            start = scan.rows
            if schema.marker:
                scan_markers(scan, rows.column(schema.marker), policy)
            else:
                scan_unmarked(scan, len(rows), policy)
            scan_keys(scan, {key: rows.column(name) for key, name in keys.items()}, start)
            _see_nulls(nulls, rows, schema.marker, start)
    except ChangeFileError as exc:
        stopped = exc
    for seen in (scan.unknown, scan.unmarked, scan.changes, *scan.null_keys.values()):
        _shift(seen, survey)
    _tell_misfits(review, dialect, survey, len(schema.columns) + bool(schema.marker))
    for key in policy.missing_keys(names) if scan.rows else ():
        review.tell("key-missing", "no such column", column=key)
    tell_rows(review, scan, schema.marker)
    for name, missing in nulls.items():
        _tell_nulls(review, text, schema, survey, name, missing)
    if stopped is not None:
        raise stopped
    return Facts(file=review.file, columns=None, marked=bool(schema.marker), scan=scan)


def _given(review: Review, dialect: Dialect, schema: FileSchema) -> tuple[str, ...]:
    """Name the columns that the file's partition folders give, and tell the one that a reader refuses."""
    file, table = review.file.name, review.policy.table
    try:
        whole = add_given(schema, file, dialect, table=table)
    except SchemaError as exc:
        lacking = [name for name in partition_values(file) if schema.column(name) is None]
        if len(good_names(review, lacking)) == len(lacking):
            _tell_misfit(review, dialect, exc)
        return tuple(lacking)
    return tuple(column.name for column in whole.columns[len(schema.columns) :])


def _see_nulls(nulls: dict[str, Rows], rows: pa.Table, marker: str | None, start: int) -> None:
    """Take in a piece; a delete needs its key alone."""
    holes = [name for name in nulls if rows.column(name).null_count]
    if not holes:
        return
    # Rows without a marker are no deletes.
    markers = small_markers(rows.column(marker)) if marker else pa.scalar(INSERT)
    for name in holes:
        nulls[name].see(missing_in(rows, markers, name), start)


def _tell_misfits(review: Review, dialect: Dialect, survey: Survey, width: int) -> None:
    count = len(survey.ragged)
    if count:
        what = f"{count:,} row{'' if count == 1 else 's'}; the header has {width} fields"
        line = survey.ragged_line
        review.tell("text-ragged-row", what, row=survey.ragged[0], line=line)
    if survey.misfit is not None and survey.misfit.column is not None:
        _tell_misfit(review, dialect, survey.misfit)


def _tell_misfit(review: Review, dialect: Dialect, exc: ChangeFileError | SchemaError) -> None:
    what = f"{exc.found}; {dialect.data_type(exc.column or '').name} is declared"
    review.tell("text-value", what, column=exc.column, row=exc.row, line=exc.line)


def _tell_nulls(
    review: Review, text: TextFile, schema: FileSchema, survey: Survey, name: str, missing: Rows
) -> None:
    if missing.first is None:
        return
    line = None
    if not survey.ragged and not survey.misfit:
        line = line_of(text, schema, missing.first)
    _shift(missing, survey)
    review.tell("text-null", missing.summary, column=name, row=missing.first, line=line)


def _shift(rows: Rows, survey: Survey) -> None:
    """Count the ragged rows, which are left out, into the place of a row."""
    for place in survey.ragged if rows.first is not None else ():
        if rows.first is None or place > rows.first:
            return
        rows.first += 1

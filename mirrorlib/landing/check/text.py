"""Review delimited text: header, rows, values, line ends, markers, keys, by the steps of the reader itself.

In: one listed file. Out: its `Facts`, None when its rows cannot be told, and findings on the way. A file
has an error here exactly when a reader stops at it; what lies behind the first one is told too, as far
as it can be read. Everything passes in pieces.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlib.errors import ChangeFileError, FileChangedError, SchemaError
from mirrorlib.identifiers import fold_name
from mirrorlib.landing.check.columns import Facts, UnreadableError, good_names
from mirrorlib.landing.check.faults import rule_of
from mirrorlib.landing.check.rows import (
    DELETE,
    Policy,
    Rows,
    Scan,
    missing_keys,
    scan_keys,
    scan_markers,
    scan_unmarked,
    tell_marker,
    tell_rows,
)
from mirrorlib.landing.columns import MARKER, small_markers
from mirrorlib.landing.delimited import Survey, line_of, read_header, read_names, survey_tables
from mirrorlib.landing.given import add_given
from mirrorlib.names import partition_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirrorlib.landing.check.findings import Findings
    from mirrorlib.landing.check.folder import ChangeFile
    from mirrorlib.landing.columns import FileSchema
    from mirrorlib.landing.delimited import Dialect
    from mirrorlib.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class _Review:
    """What every step here needs."""

    file: ChangeFile
    handle: BinaryIO
    dialect: Dialect
    policy: Policy
    found: Findings

    @property
    def name(self) -> str:
        return self.file.name


@dataclass(slots=True, kw_only=True)
class _Reviewed:
    """What the rows of a file say, as far as they have been read."""

    survey: Survey = field(default_factory=Survey)
    scan: Scan = field(default_factory=Scan)
    nulls: dict[str, Rows] = field(default_factory=dict)
    rows: int = 0


def review_text(
    zone: Store, file: ChangeFile, dialect: Dialect, policy: Policy, found: Findings
) -> Facts | None:
    """Read one file of delimited text.

    Raises:
        UnreadableError: it cannot be decoded, decompressed or cut into fields.
        StoreError: the store failed.

    """
    with zone.open_file(file.stored.path) as handle:
        review = _Review(file=file, handle=handle, dialect=dialect, policy=policy, found=found)
        try:
            schema = _review_header(review)
            return None if schema is None else _review_rows(review, schema)
        except FileChangedError:
            found.add("file-changing", "another file than was listed", file=file.name)
        except ChangeFileError as exc:
            raise UnreadableError(*rule_of(exc), line=exc.line) from exc
    return None


def _review_header(review: _Review) -> FileSchema | None:
    """Read the header and compare it with what is declared; None where a reader stops at it."""
    stored, dialect, table = review.file.stored, review.dialect, review.policy.table
    names, end = read_names(review.handle, stored, dialect, table=table)
    if review.policy.stated and end not in {"", dialect.row_separator}:
        what = f"{end!a}, declared is {dialect.row_separator!a}"
        review.found.add("text-row-separator", what, file=review.name)
    markers = [name for name in names if name.lower() == MARKER]
    try:
        schema = read_header(review.handle, stored, dialect, table=table)
    except SchemaError as exc:
        _tell_refused(review, names, markers, exc)
        return None
    _tell_undeclared(review, schema, names)
    if schema.marker:
        tell_marker(names, schema.marker, None, review.name, review.found)
    return schema


def _tell_refused(
    review: _Review, names: Sequence[str], markers: Sequence[str], exc: SchemaError
) -> None:
    """Name every column that a reader refuses, and not the first one alone."""
    columns = [name for name in names if name.lower() != MARKER]
    good = good_names(columns, review.name, review.policy.table, review.found)
    if len(markers) > 1:
        review.found.add("marker-twice", " and ".join(markers)[:80], file=review.name)
    elif len(good) == len(columns):
        review.found.add("text-no-header", exc.reason, file=review.name)


def _tell_undeclared(review: _Review, schema: FileSchema, names: Sequence[str]) -> None:
    """Name columns that are in the header alone, or in `SchemaDefinition` alone; keys are told with the rows."""
    for name in schema.undeclared if review.dialect.columns else ():
        review.found.add(
            "text-column-undeclared", "it is not declared", file=review.name, column=name
        )
    keys = (form for key in review.policy.keys for form in (key, key.strip()))
    folded = {fold_name(name) for name in (*names, *partition_values(review.name), *keys)}
    for column in review.dialect.columns:
        name = column.name.strip()
        if fold_name(name) not in folded:
            review.found.add("text-column-missing", "it is declared", file=review.name, column=name)


def _review_rows(review: _Review, schema: FileSchema) -> Facts:
    """Read the rows to their end, or to where nothing can be read any more; tell what was seen until there."""
    given = _given(review, schema)
    seen = _Reviewed()
    try:
        _scan(review, schema, seen)
    except ChangeFileError:
        _tell(review, schema, seen, given)
        raise
    _tell(review, schema, seen, given)
    return Facts(file=review.file, columns=(), marked=bool(schema.marker), scan=seen.scan)


def _given(review: _Review, schema: FileSchema) -> tuple[str, ...]:
    """Name the columns that the file's partition folders give, and tell the one that a reader refuses."""
    file, table, found = review.name, review.policy.table, review.found
    own = [column.name for column in schema.columns]
    try:
        whole = add_given(schema, file, review.dialect, table=table)
    except SchemaError as exc:
        lacking = [name for name in partition_values(file) if schema.column(name) is None]
        good = good_names(lacking, file, table, found)
        if len(good) == len(lacking):
            what = f"{exc.found}; {review.dialect.data_type(exc.column or '').name} is declared"
            found.add("text-value", what, file=file, column=exc.column)
        return tuple(lacking)
    return tuple(column.name for column in whole.columns if column.name not in own)


def _scan(review: _Review, schema: FileSchema, seen: _Reviewed) -> None:
    stored, dialect, policy = review.file.stored, review.dialect, review.policy
    keys = {key: column.name for key in policy.keys if (column := schema.key(key))}
    required = [column.name for column in schema.columns if dialect.required(column.name)]
    seen.nulls = {name: Rows() for name in required if name not in keys.values()}
    tables = survey_tables(review.handle, stored, dialect, schema, seen.survey, table=policy.table)
    for rows in tables:
        if schema.marker:
            scan_markers(seen.scan, rows.column(schema.marker), seen.rows, policy)
        else:
            plain = scan_unmarked(seen.rows + len(rows), policy)
            plain.null_keys = seen.scan.null_keys
            seen.scan = plain
        scan_keys(seen.scan, {key: rows.column(name) for key, name in keys.items()}, seen.rows)
        _see_nulls(seen.nulls, rows, schema.marker, seen.rows)
        seen.rows += len(rows)


def _see_nulls(nulls: dict[str, Rows], rows: pa.Table, marker: str | None, start: int) -> None:
    """Take in a piece; a delete needs its key alone."""
    holes = [name for name in nulls if rows.column(name).null_count]
    if not holes:
        return
    kept = pa.scalar(value=True)
    if marker is not None:
        markers = small_markers(rows.column(marker))
        kept = pc.fill_null(pc.not_equal(markers, DELETE), fill_value=True)
    for name in holes:
        mask = pc.and_(pc.is_null(rows.column(name)), kept)
        nulls[name].see(mask, start, rows.column(name))


def _tell(review: _Review, schema: FileSchema, seen: _Reviewed, given: tuple[str, ...]) -> None:
    """Make findings of what was seen."""
    scan, file, found = seen.scan, review.name, review.found
    for rows in (scan.unknown, scan.unmarked, scan.changes, *scan.null_keys.values()):
        _shift(rows, seen.survey)
    _tell_misfits(review, seen.survey, len(schema.columns) + bool(schema.marker))
    names = (*(column.name for column in schema.columns), *given)
    for key in missing_keys(names, review.policy) if scan.rows else ():
        found.add("key-missing", "no such column", file=file, column=key)
    tell_rows(scan, review.policy, file, schema.marker, found)
    for name, missing in seen.nulls.items():
        _tell_nulls(review, schema, seen.survey, name, missing)


def _tell_misfits(review: _Review, survey: Survey, width: int) -> None:
    if survey.ragged:
        what = f"{len(survey.ragged):,} rows" if len(survey.ragged) > 1 else "1 row"
        review.found.add(
            "text-ragged-row",
            f"{what}; the header has {width} fields",
            file=review.name,
            row=survey.ragged[0],
            line=survey.ragged_line,
        )
    exc = survey.misfit
    if exc is not None and exc.column is not None:
        what = f"{exc.found}; {review.dialect.data_type(exc.column).name} is declared"
        review.found.add(
            "text-value", what, file=review.name, column=exc.column, row=exc.row, line=exc.line
        )


def _tell_nulls(
    review: _Review, schema: FileSchema, survey: Survey, name: str, missing: Rows
) -> None:
    if missing.first is None:
        return
    line = None
    if not survey.ragged and not survey.misfit:
        line = line_of(
            review.handle,
            review.file.stored,
            review.dialect,
            schema,
            missing.first,
            table=review.policy.table,
        )
    _shift(missing, survey)
    review.found.add(
        "text-null", missing.summary, file=review.name, column=name, row=missing.first, line=line
    )


def _shift(rows: Rows, survey: Survey) -> None:
    """Count the ragged rows, which are left out, into the place of a row."""
    for place in survey.ragged if rows.first is not None else ():
        if rows.first is None or place > rows.first:
            return
        rows.first += 1

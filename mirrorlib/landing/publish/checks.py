"""Check rows against what was published before, and give each column the type that its table has.

In: rows and the known schema. Out: `Fitted`: rows that can be encoded as they are, and the schema
that is known once they are published. Promises: values are cast only where every one survives; a
change that would stop a Fabric table is refused with the reason, before anything is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlib.errors import MarkerError, SchemaError
from mirrorlib.identifiers import find_name, fold_name
from mirrorlib.landing.columns import INSERT, UPSERT
from mirrorlib.landing.delimited.values import DATA_TYPES, has_four_digits, read_values
from mirrorlib.landing.metadata.declared import DefinedColumn, TableMetadata
from mirrorlib.landing.publish.declare import OR_ANEW, published_type
from mirrorlib.landing.publish.files import has_no_numbers
from mirrorlib.landing.publish.known import KnownSchema
from mirrorlib.landing.publish.rows import MARKER_COLUMN, count_markers, mark_rows, spelled_in
from mirrorlib.landing.types import is_number
from mirrorlib.landing.values import canonical_values, first_misfit, first_refused, fit_values


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What the checks go by: what the table is, what is known of it, and whether it may be overridden."""

    table: str
    metadata: TableMetadata
    known: KnownSchema
    partition_by: tuple[str, ...] = ()
    force: bool = False

    @property
    def default(self) -> int:
        """The marker that rows without one are read by."""
        return UPSERT if self.metadata.upsert_default else INSERT

    def refused(
        self, reason: str, column: str | None, step: str, **facts: str | int | None
    ) -> SchemaError:
        """Say why a column is refused, and what to do."""
        return SchemaError(reason, table=self.table, column=column, next_step=step, **facts)  # type: ignore[arg-type]  # its own parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """Rows that fit."""

    rows: pa.Table  # known columns first, in their order, then new ones; every type is the table's
    # The schema after these rows, with a new version's number when it has changed.
    known: KnownSchema
    # The columns as delimited text declares them, for a table's first file.
    definition: tuple[DefinedColumn, ...]
    notes: tuple[str, ...]  # what the caller may want to know, a sentence each


def fit_rows(rows: pa.Table, given: Given) -> Fitted:
    """Fit rows to their table."""
    names = [name for name in rows.column_names if name != MARKER_COLUMN]
    _check_keys(rows, given)
    data = rows.select(names)
    known = {fold_name(column.name): column for column in given.known.columns}
    mine: dict[str, tuple[pa.Field, pa.ChunkedArray, str]] = {}
    notes: list[str] = []
    for field, column in zip(data.schema, data.columns, strict=True):
        found = _fit_column(column, field, known.get(fold_name(field.name)), given)
        if found is None:
            notes.append(f"column {field.name} is left out: it has no values and no type yet")
        else:
            mine[fold_name(field.name)] = found
    if not mine:
        msg = "the rows have no column that has a type"
        step = "Give the columns' types, also where there are no rows."
        raise given.refused(msg, None, step)
    lacking = [column for name, column in known.items() if name not in mine]
    _check_columns([mine[name][0] for name in mine if name not in known], lacking, given)
    partial = given.metadata.partial_updates
    kinds = count_markers(rows, given.default).keys() - {"delete"}
    if lacking and partial == "absent" and given.metadata.is_text and kinds - {"insert"}:
        msg = "delimited text has every column, and the update cannot leave one out: it would become NULL"
        step = "Publish whole rows, or to a table of Parquet files."
        raise given.refused(msg, lacking[0].name, step)
    if lacking and (kinds & {"insert"} if partial else kinds):
        gone = ", ".join(column.name for column in lacking)
        notes.append(f"the rows lack columns that were published before, which become NULL: {gone}")
    columns = known | {name: field for name, (field, *_) in mine.items()}
    values = {name: column for name, (_, column, _) in mine.items()}
    _check_times(values, given)
    fitted = _arranged(columns, values, rows, given)
    fields = tuple(columns.values())
    markers = given.known.markers or MARKER_COLUMN in fitted.column_names
    after = replace(given.known, columns=fields, markers=markers, partition_by=given.partition_by)
    if after != given.known or not after.version:
        after = replace(after, version=given.known.version + 1)
    # Whoever died behind the schema has declared none of its columns.
    words = {name: published_type(field.type, text=True)[1] for name, field in known.items()}
    words |= {fold_name(one.name): one.data_type for one in given.metadata.schema_definition}
    words |= {name: word for name, (_, _, word) in mine.items()}
    definition = tuple(
        DefinedColumn(name=field.name, data_type=words[name], nullable=field.nullable)
        for name, field in columns.items()
    )
    return Fitted(rows=fitted, known=after, definition=definition, notes=tuple(notes))


def _check_keys(rows: pa.Table, given: Given) -> None:
    keys = given.metadata.key_columns
    if not keys and count_markers(rows, given.default).keys() - {"insert"}:
        msg = "updates, deletes and upserts need keys to go by, and the table has none"
        raise MarkerError(msg, table=given.table, next_step="Declare the table's keys.")
    for key in keys:
        name = spelled_in(rows, key, given.table)
        if rows[name].null_count:
            row = _first_null(rows[name])
            msg = "a key is NULL"
            raise given.refused(msg, key, "Give every row its key.", row=row)


def _check_columns(new: list[pa.Field], lacking: list[pa.Field], given: Given) -> None:
    """Refuse to lack what must not be missing, and new columns of delimited text, whose types are declared once."""
    if given.force:
        return
    for column in lacking:
        if not column.nullable:
            msg = "the column was published as NOT NULL before and is missing now, which stops a Fabric table"
            raise given.refused(msg, column.name, f"Add the column, {OR_ANEW}")
    if given.metadata.is_text and given.known.columns and new:
        msg = "a table of delimited text takes no new columns"
        raise given.refused(msg, new[0].name, f"Leave it out, {OR_ANEW}")


def _check_times(values: Mapping[str, pa.ChunkedArray], given: Given) -> None:
    """Refuse text that is no time where delimited text declares one: mirrors have both as text, and readers stop."""
    declared = DATA_TYPES["itime"]
    checked = given.metadata.is_text and not given.force
    for column in given.metadata.schema_definition if checked else ():
        texts = values.get(fold_name(column.name))
        if texts is None or column.data_type.casefold() != declared.name.casefold():
            continue
        row = first_refused(texts, lambda part: read_values(part, declared, pa.string()))
        if row is not None:
            msg = f"the value is no {declared.name}, as which the column is declared"
            step = f"Write it as {declared.written}, {OR_ANEW}"
            raise given.refused(msg, column.name, step, row=row)


def _arranged(
    columns: Mapping[str, pa.Field],
    values: Mapping[str, pa.ChunkedArray],
    rows: pa.Table,
    given: Given,
) -> pa.Table:
    """Put columns into their order, the markers last; delimited text has all of them, always.

    It has markers also where a file without them would not be read as meant: a table whose files had the column
    keeps it, and a row of one NULL would be an empty line.
    """
    text = given.metadata.is_text
    shown = {name: field for name, field in columns.items() if text or name in values}
    arrays = [
        values[name] if name in values else pa.nulls(rows.num_rows, field.type)
        for name, field in shown.items()
    ]
    fitted = pa.Table.from_arrays(arrays, schema=pa.schema(list(shown.values())))
    if MARKER_COLUMN in rows.column_names:
        return fitted.append_column(rows.schema.field(MARKER_COLUMN), rows[MARKER_COLUMN])
    blank = fitted.num_columns == 1 and fitted.column(0).null_count
    if text and (blank or given.known.markers):
        return mark_rows(fitted, given.default)
    return fitted


def _fit_column(
    values: pa.ChunkedArray, field: pa.Field, known: pa.Field | None, given: Given
) -> tuple[pa.Field, pa.ChunkedArray, str] | None:
    """Give a column its table's type, and that type's name in delimited text.

    None for a column of nothing but NULL that nobody has seen yet: it waits until its type is known, for which
    delimited text, and keys, cannot wait.
    """
    kind, word = published_type(field.type, text=given.metadata.is_text)
    if kind is None:
        msg = "this type has no place in the open mirroring format"
        step = (
            "Publish nested values as a JSON string, durations as whole numbers of one unit, and numbers with at most "
            "38 digits."
        )
        if given.metadata.is_text:
            msg = "this type has no place in delimited text"
            step = "Convert the column to double or string, or publish Parquet."
        raise given.refused(msg, field.name, step, found=str(field.type))
    if known is None and pa.types.is_null(kind):
        if given.metadata.is_text or find_name(given.metadata.key_columns, field.name) is not None:
            msg = "the column has no type: all its values are NULL"
            raise given.refused(msg, field.name, "Give it a type.")
        return None
    nullable = _nullable(field, known, values, given)
    values = _as_published(values, kind, field.name, given)
    if known is None:
        return pa.field(field.name, kind, nullable), values, word
    values = _as_known(values, known.type, field, given)
    return pa.field(known.name, values.type, nullable), values, word


def _as_published(
    values: pa.ChunkedArray, kind: pa.DataType, name: str, given: Given
) -> pa.ChunkedArray:
    """Cast to the type that is published; only nanoseconds can fail, and in delimited text years of not four digits."""
    try:
        published = canonical_values(values, kind)
    except pa.ArrowInvalid as exc:
        msg = "a value is finer than a microsecond, or a moment that microseconds do not reach"
        step = "Round or correct the values yourself, as it suits your data."
        raise given.refused(msg, name, step, found=str(values.type)) from exc
    if given.metadata.is_text and pa.types.is_string(kind):  # which others may have read as bytes
        try:
            published.validate(full=True)
        except pa.ArrowInvalid as exc:
            msg = "text that is not UTF-8, which delimited text has to be"
            raise given.refused(msg, name, "Decode the values as what they are.") from exc
    if given.metadata.is_text and pa.types.is_temporal(kind):  # every reader stops at such years
        row = pc.index(has_four_digits(published), value=False).as_py()
        if row >= 0:
            msg = "delimited text has a place for the years 1 to 9999 alone"
            raise given.refused(msg, name, "Publish Parquet, or correct the value.", row=row)
    return published


def _as_known(
    published: pa.ChunkedArray, known: pa.DataType, field: pa.Field, given: Given
) -> pa.ChunkedArray:
    """Cast to the type that was published before, if every value survives."""

    def read(texts: pa.ChunkedArray) -> pa.ChunkedArray:
        if is_number(known) and has_no_numbers(texts, known):
            msg = "text that is no number"
            raise pa.ArrowInvalid(msg)
        return texts.cast(known)

    try:
        return fit_values(published, known)
    except pa.ArrowInvalid as exc:
        if given.force:
            return published
        # Of text, the first that is not written like a value of the table's type.
        row = first_refused(published, read) if pa.types.is_string(published.type) else None
        row = first_misfit(published, known) if row is None else row
        msg = f"the column was published as {known} before, and a type change stops a Fabric table"
        step = f"Convert the values, {OR_ANEW}"
        found = str(field.type)
        raise given.refused(msg, field.name, step, row=row, found=found) from exc


def _nullable(
    field: pa.Field, known: pa.Field | None, values: pa.ChunkedArray, given: Given
) -> bool:
    """Say whether the column may be NULL, from now on as before.

    Arrow calls a column nullable when nobody says otherwise: one without a NULL goes with NOT NULL.
    """
    if not field.nullable and values.null_count:
        msg = "the column is declared NOT NULL, and has a NULL"
        raise given.refused(msg, field.name, "Correct the data.", row=_first_null(values))
    if not given.known.columns or given.force:
        return bool(field.nullable)
    before = known is None or bool(known.nullable)
    if before and not field.nullable:
        msg = "the column is new, or was published as nullable before, and is NOT NULL now, which stops a Fabric table"
        raise given.refused(msg, field.name, f"Declare it nullable, {OR_ANEW}")
    if not before and values.null_count:
        msg = "the column was published as NOT NULL before and has a NULL now, which stops a Fabric table"
        raise given.refused(msg, field.name, f"Fill the value in, {OR_ANEW}")
    return before


def _first_null(values: pa.ChunkedArray) -> int:
    return int(pc.index(pc.is_null(values), value=True).as_py())

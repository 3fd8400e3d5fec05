"""Check rows against what was published before, and give each column the type that its table has.

In: rows and the known schema. Out: `Fitted`: rows that can be encoded as they are, and the schema
that is known once they are published. Promises: values are cast only where every one survives; a
change that would stop a Fabric table is refused with the reason, before anything is written
(landing-zone format: a type change, a column that is missing though it must not be NULL, a new
NOT NULL column, another nullability).
"""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirrorlib.errors import MarkerError, SchemaError
from mirrorlib.identifiers import fold_name
from mirrorlib.landing.footer import read_footer
from mirrorlib.landing.metadata.declared import DefinedColumn
from mirrorlib.landing.publish.columns import OR_ANEW, FittedColumn, Given, fit_column, refused
from mirrorlib.landing.publish.known import KnownColumn, KnownSchema
from mirrorlib.landing.publish.rows import INSERT, UPSERT, Rows, missing_column, same_marker
from mirrorlib.store import StoredFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """Rows that fit.

    Attributes:
        rows: known columns first, in their order, then new ones; every type is the table's.
        known: the schema after these rows, with a new version's number when it has changed.
        definition: the columns as delimited text declares them, for a table's first file.
        notes: what the caller may want to know, a sentence each.

    """

    rows: Rows
    known: KnownSchema
    definition: tuple[DefinedColumn, ...]
    notes: tuple[str, ...]


def fit_rows(rows: Rows, given: Given) -> Fitted:
    """Fit rows to their table.

    Raises:
        MarkerError: there are updates or deletes, and no keys.
        SchemaError: a name or type has no place in the format, a key is missing or NULL, or the rows
            do not go with what was published before.

    """
    _check_names(rows.data.column_names, given.table)
    _check_keys(rows, given)
    columns = {field.name: fit_column(rows.data, field, given) for field in rows.data.schema}
    omitted = [name for name, column in columns.items() if column is None]
    fitted = [column for column in columns.values() if column is not None]
    if not fitted:
        msg = "the rows have no column that has a type"
        step = "Give the columns' types, also where there are no rows."
        raise SchemaError(msg, table=given.table, next_step=step)
    missing = _missing(fitted, given)
    _check_new(fitted, given)
    data = _ordered(fitted, missing, rows.data.num_rows, given)
    after = replace(_known_after(given.known, fitted), partition_by=given.partition_by)
    marked = _marked(replace(rows, data=data), given)
    if marked.markers is not None and not after.markers:
        after = replace(after, markers=True)
    if after != given.known or not after.version:
        after = replace(after, version=given.known.version + 1)
    return Fitted(
        rows=marked,
        known=after,
        definition=tuple(column.defined for column in fitted),
        notes=tuple(_notes(rows, omitted, missing)),
    )


def _check_names(names: Sequence[str], table: str) -> None:
    """Let our own reader judge the names: what we publish it can read."""
    sink = io.BytesIO()
    pq.write_table(pa.schema([(name, pa.int32()) for name in names]).empty_table(), sink)
    made = StoredFile(path="the data", size=sink.tell(), modified=datetime.now(UTC), etag="")
    read_footer(sink, made, table=table, ntz="keep")


def _check_keys(rows: Rows, given: Given) -> None:
    if not given.keys:
        by_key = rows.markers is not None and not pc.all(pc.equal(rows.markers, INSERT)).as_py()
        if by_key and len(rows.markers or ()):
            msg = "updates, deletes and upserts need keys to go by, and the table has none"
            raise MarkerError(msg, table=given.table, next_step="Declare the table's keys.")
    names = {fold_name(name): name for name in rows.data.column_names}
    for key in given.keys:
        if fold_name(key) not in names:
            raise missing_column(key, given.table)
        values = rows.data[names[fold_name(key)]]
        if values.null_count:
            msg = "a key is NULL"
            row = pc.index(pc.is_null(values), value=True).as_py()
            raise SchemaError(
                msg, table=given.table, column=key, row=row, next_step="Give every row its key."
            )


def _missing(fitted: Sequence[FittedColumn], given: Given) -> tuple[KnownColumn, ...]:
    """Find the known columns that the rows lack, and refuse those that must not be missing."""
    have = {fold_name(column.known.name) for column in fitted}
    missing = tuple(column for column in given.known.columns if fold_name(column.name) not in have)
    for column in missing:
        if not column.nullable and not given.force:
            msg = "the column was published as NOT NULL before and is missing now, which stops a Fabric table"
            raise refused(msg, column.name, f"Add the column, {OR_ANEW}", given)
    return missing


def _check_new(fitted: Sequence[FittedColumn], given: Given) -> None:
    """Refuse new columns of delimited text, whose types are declared once."""
    if given.file_format == "csv" and given.known.columns and not given.force:
        for column in fitted:
            if given.known.column(column.known.name) is None:
                msg = "a table of delimited text takes no new columns"
                raise refused(msg, column.known.name, f"Leave it out, {OR_ANEW}", given)


def _ordered(
    fitted: Sequence[FittedColumn], missing: Sequence[KnownColumn], count: int, given: Given
) -> pa.Table:
    """Put known columns first, in their order; delimited text has all of them, always."""
    mine = {fold_name(column.known.name): column for column in fitted}
    fields, values = [], []
    for known in given.known.columns:
        column = mine.pop(fold_name(known.name), None)
        if column is not None:
            fields.append(_field(column.known))
            values.append(column.values)
        elif given.file_format == "csv" and known in missing:
            fields.append(_field(known))
            values.append(pa.chunked_array([pa.nulls(count, known.type)], known.type))
    for column in mine.values():
        fields.append(_field(column.known))
        values.append(column.values)
    return pa.Table.from_arrays(values, schema=pa.schema(fields))


def _field(column: KnownColumn) -> pa.Field:
    return pa.field(column.name, column.type, nullable=column.nullable)


def _known_after(known: KnownSchema, fitted: Sequence[FittedColumn]) -> KnownSchema:
    mine = {fold_name(column.known.name): column.known for column in fitted}
    kept = [mine.pop(fold_name(column.name), column) for column in known.columns]
    return replace(known, columns=(*kept, *mine.values()))


def _marked(rows: Rows, given: Given) -> Rows:
    """Give delimited text its markers where a file without them would not be read as meant.

    A table whose files had the column keeps it, and a row of one NULL would be an empty line.
    """
    if rows.markers is not None or given.file_format == "parquet":
        return rows
    blank = rows.data.num_columns == 1 and rows.data.column(0).null_count
    if not blank and not given.known.markers:
        return rows
    default = UPSERT if given.upsert_default else INSERT
    return replace(rows, markers=same_marker(default, rows.data.num_rows, given.table))


def _notes(rows: Rows, omitted: Sequence[str], missing: Sequence[KnownColumn]) -> Iterator[str]:
    for name in omitted:
        yield f"column {name} is left out: it has no values and no type yet"
    if missing and not rows.only_deletes and rows.data.num_rows:
        names = ", ".join(column.name for column in missing)
        yield f"the rows lack columns that were published before, which become NULL: {names}"

"""Read row markers: which change every row of a file is, and what such changes ask of the file.

In: a file's rows, or one column of them. Out: markers as int8. Promise: a marker that is unknown, or
NULL where the table has no default, stops the file by its row before anything is planned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirrorlib.errors import MarkerError, MirrorError, SchemaError
from mirrorlib.landing.columns import show_marker, small_markers
from mirrorlib.landing.delimited import line_of

if TYPE_CHECKING:
    from mirrorlib.ingest.files.source import Source
    from mirrorlib.landing.columns import FileSchema
    from mirrorlib.landing.delimited import Dialect
    from mirrorlib.store import StoredFile

_Error = TypeVar("_Error", bound=MirrorError)

INSERT, UPDATE, DELETE, UPSERT = 0, 1, 2, 4
MARKER_NAMES = {INSERT: "inserts", UPDATE: "updates", DELETE: "deletes", UPSERT: "upserts"}


def read_marks(
    source: Source,
    file: StoredFile,
    schema: FileSchema,
    rows: pa.Table | None,
    handle: object,
    *,
    first: int = 0,
) -> pa.ChunkedArray:
    """Return every row's marker as int8; a file without the column gives the table's default to all."""
    default = UPSERT if source.policies.upsert_default else INSERT
    if schema.marker is None:
        return pa.chunked_array([pa.repeat(pa.scalar(default, pa.int8()), schema.rows)])
    if rows is None:
        rows = pq.read_table(handle, columns=[schema.marker], read_dictionary=[schema.marker])
    values = rows.column(schema.marker)
    if values.null_count and not source.policies.upsert_default:
        msg = "the row marker is NULL"
        row = first + pc.index(pc.is_null(values), value=True).as_py()
        raise _marker_error(source, file, schema, msg, "NULL", row)
    if values.null_count == len(values):
        return pa.chunked_array([pa.repeat(pa.scalar(default, pa.int8()), len(values))])
    markers = small_markers(values)
    known = pc.is_in(markers, value_set=pa.array(list(MARKER_NAMES), pa.int8()))
    bad = pc.and_(pc.invert(known), pc.is_valid(values))
    if pc.any(bad).as_py():
        row = pc.index(bad, value=True).as_py()
        raise _marker_error(
            source,
            file,
            schema,
            "the row marker is not 0, 1, 2 or 4",
            show_marker(values, row),
            first + row,
        )
    return pc.fill_null(markers, default)


def count_marks(markers: pa.ChunkedArray) -> dict[int, int]:
    """Count rows by marker."""
    counted = {pair["values"]: pair["counts"] for pair in pc.value_counts(markers).to_pylist()}
    return {marker: counted.get(marker, 0) for marker in MARKER_NAMES}


def check_columns(
    source: Source,
    file: StoredFile,
    schema: FileSchema,
    counts: dict[int, int],
    markers: pa.ChunkedArray,
    *,
    first: int = 0,
) -> None:
    """See that a file has the columns that its changes ask for; its first row is row *first*.

    Raises:
        MarkerError: a change needs keys and the table has none.
        SchemaError: a key column is missing, or the one that decides which updates count.

    """
    keys = source.policies.keys
    if source.policies.snapshots and counts[UPDATE] + counts[DELETE]:
        changes = pc.is_in(markers, value_set=pa.array([UPDATE, DELETE], pa.int8()))
        row = pc.index(changes, value=True).as_py()
        msg, found = "a snapshot holds rows, and no updates or deletes", str(markers[row].as_py())
        step = "Publish the whole table without row markers, or apply without --snapshots."
        raise _marker_error(source, file, schema, msg, found, first + row, step)
    if not keys and sum(counts.values()) > counts[INSERT]:
        row = pc.index(pc.not_equal(markers, INSERT), value=True).as_py()
        msg, found = "updates, upserts and deletes need keys", str(markers[row].as_py())
        step = "Declare keyColumns in _metadata.json."
        raise _marker_error(source, file, schema, msg, found, first + row, step)
    missing = [key for key in keys if schema.rows and schema.key(key) is None]
    if missing:
        msg = "a key column of the table is missing in the file"
        step = "Publish a file with all key columns under the same name, or correct keyColumns in _metadata.json."
        raise SchemaError(
            msg, table=source.table, file=file.name, column=missing[0], next_step=step
        )
    inserts = counts[INSERT] if source.policies.insert_policy == "append" else 0
    updates = sum(counts.values()) - counts[DELETE] - inserts
    conditional = source.policies.conditional
    if conditional and updates and schema.column(conditional) is None:
        msg = "the table's ConditionalUpdateColumn is missing in a file with updates"
        step = "Publish the column, or apply without --conditional-updates."
        raise SchemaError(
            msg, table=source.table, file=file.name, column=conditional, next_step=step
        )


def with_line(
    source: Source, dialect: Dialect, file: StoredFile, schema: FileSchema, exc: _Error
) -> _Error:
    """Give an error about a row of text the line on which the row begins."""
    if exc.row is None:
        return exc
    with source.zone.open_file(file.path) as handle:
        line = line_of(handle, file, dialect, schema.own, exc.row, table=source.table)
    return exc.but(line=line)


def _marker_error(
    source: Source,
    file: StoredFile,
    schema: FileSchema,
    msg: str,
    found: str,
    row: int,
    next_step: str | None = None,
) -> MarkerError:
    return MarkerError(
        msg,
        table=source.table,
        file=file.name,
        column=schema.marker,
        row=row,
        found=found,
        next_step=next_step,
    )

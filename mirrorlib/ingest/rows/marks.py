"""Read row markers: which change every row of a file is, and what such changes ask of the file; and count NULLs.

In: a file's rows, or one column of them. Out: markers as int8. Promise: a marker that is unknown, or
NULL where the table has no default, stops the file by its row before anything is planned. NULL is a key like any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import BinaryIO, TypeAlias, cast

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlib.errors import MarkerError, SchemaError
from mirrorlib.ingest.rows.decode import OpenedFile
from mirrorlib.journal.entries import Policies
from mirrorlib.landing.columns import (
    DELETE,
    INSERT,
    MARKER_NAMES,
    UPDATE,
    UPSERT,
    judge_markers,
    show_marker,
)
from mirrorlib.landing.parquet import iter_batches

Span: TypeAlias = tuple[int, int]

# Columns of rows that are to be folded: the change, and a long that grows in (file, row) order.
MARKER, ORDER = "_mirror_marker", "_mirror_order"
_TOLD_ALIKE = (
    pa.types.is_integer,
    pa.types.is_date32,
    pa.types.is_string,
)
ROWS_PER_FILE = 1 << 40  # what `ORDER` grows by: more rows than a Parquet file of any publisher has


def read_marks(opened: OpenedFile, rows: pa.Table | None, handle: object = None) -> pa.ChunkedArray:
    """Return every row's marker as int8; a file without the column gives the table's default to all.

    Where no *rows* are in memory, they are read from its *handle*, a piece at a time.
    """
    schema = opened.schema
    default = UPSERT if opened.source.policies.upsert_default else INSERT
    if schema.marker is None:
        return pa.chunked_array([pa.repeat(pa.scalar(default, pa.int8()), schema.rows)])
    if rows is not None:
        return _judged(opened, rows.column(schema.marker), default)
    marks, seen = list[pa.Array](), 0
    for piece in iter_batches(cast("BinaryIO", handle), [schema.marker]):
        marks += _judged(opened, pa.chunked_array(piece.columns), default, seen).chunks
        seen += len(piece)
    return pa.chunked_array(marks, pa.int8())


def _judged(
    opened: OpenedFile, values: pa.ChunkedArray, default: int, start: int = 0
) -> pa.ChunkedArray:
    """Give markers from row *start* on as int8; one that is NULL is an upsert where that is the *default*."""
    if values.null_count and default != UPSERT:
        row = start + pc.index(pc.is_null(values), value=True).as_py()
        raise _error(opened, "the row marker is NULL", "NULL", row)
    markers, unknown, _ = judge_markers(values)
    row = pc.index(unknown, value=True).as_py()
    if row >= 0:
        msg = "the row marker is not 0, 1, 2 or 4"
        raise _error(opened, msg, show_marker(values, row), start + row)
    return pc.fill_null(markers, default)


def count_marks(opened: OpenedFile, markers: pa.ChunkedArray) -> dict[int, int]:
    """Count rows by marker, and see that a file has the columns that these ask for.

    Raises `MarkerError`: a change needs keys and the table has none; `SchemaError`: a key column is missing, or the one
    that decides which updates count.
    """
    counted = {pair["values"]: pair["counts"] for pair in pc.value_counts(markers).to_pylist()}
    counts = {marker: counted.get(marker, 0) for marker in MARKER_NAMES}
    schema, policies = opened.schema, opened.source.policies
    keys = policies.keys

    def refuse(wrong: pa.ChunkedArray, msg: str, step: str) -> MarkerError:
        row = pc.index(wrong, value=True).as_py()
        return _error(opened, msg, str(markers[row].as_py()), row, step)

    if policies.snapshots and counts[UPDATE] + counts[DELETE]:
        changes = pc.is_in(markers, value_set=pa.array([UPDATE, DELETE], pa.int8()))
        msg = "a snapshot holds rows, and no updates or deletes"
        step = "Publish the whole table without row markers, or apply without --snapshots."
        raise refuse(changes, msg, step)
    if not keys and sum(counts.values()) > counts[INSERT]:
        msg = "updates, upserts and deletes need keys"
        step = "Declare keyColumns in _metadata.json."
        raise refuse(pc.not_equal(markers, INSERT), msg, step)
    missing = next((key for key in keys if schema.rows and schema.key(key) is None), None)
    if missing is not None:
        msg = "a key column of the table is missing in the file"
        step = "Publish a file with all key columns under the same name, or correct keyColumns in _metadata.json."
        raise opened.fault(SchemaError, msg, column=missing, next_step=step)
    wanted = policies.conditional
    if wanted and count_updates(counts, policies) and schema.column(wanted) is None:
        msg = "the table's ConditionalUpdateColumn is missing in a file with updates"
        step = "Publish the column, or apply without --conditional-updates."
        raise opened.fault(SchemaError, msg, column=wanted, next_step=step)
    return counts


def count_updates(counts: Mapping[int, int], policies: Policies) -> int:
    """Count the rows, of so many by marker, that may update another one."""
    inserts = counts[INSERT] if policies.insert_policy == "append" else 0
    return sum(counts.values()) - counts[DELETE] - inserts


def _error(
    opened: OpenedFile, msg: str, found: str, row: int, step: str | None = None
) -> MarkerError:
    column = opened.schema.marker
    return opened.fault(MarkerError, msg, column=column, row=row, found=found, next_step=step)


def typed_keys(opened: OpenedFile) -> tuple[list[str], int]:
    """Name a file's own key columns as the file does, and count those that are NULL in every row."""
    found = [opened.schema.key(key) for key in opened.source.policies.keys]
    typed = [column for column in found if column and not pa.types.is_null(column.type)]
    return [column.name for column in typed if column.given is None], len(found) - len(typed)


@dataclass(slots=True)
class Ends:
    """What a log tells of a column of a data file: how many NULLs it has, and values among which both ends are.

    They are those of the rows: Arrow ends the process that asks it for damaged ones of a footer, and a footer may lie.
    """

    nulls: int = 0
    values: list[pa.Scalar] = field(default_factory=list)

    def see(self, values: pa.Array | pa.ChunkedArray) -> None:
        """Take in a piece; of values that a log tells otherwise than Arrow, none is kept."""
        self.nulls += values.null_count
        if any(tells(values.type) for tells in _TOLD_ALIKE):
            self.values += pc.min_max(values).values()


def key_span(rows: pa.RecordBatch, names: list[str]) -> Span | None:
    """Return the first and the last key of rows; None unless it is one whole number that grows from row to row."""
    values = rows.column(names[0]) if len(names) == 1 and len(rows) else None
    if values is None or values.null_count or not pa.types.is_integer(values.type):
        return None
    grows = pc.all(pc.less(values.slice(0, len(rows) - 1), values.slice(1))).as_py() is not False
    return (values[0].as_py(), values[-1].as_py()) if grows else None


def join_spans(spans: Sequence[Span | None]) -> Span | None:
    """Return the span of rows that follow each other; None where one is unknown, or begins before another ends."""
    known = [span for span in spans if span is not None]
    if not known or len(known) < len(spans):
        return None
    apart = all(one[1] < other[0] for one, other in pairwise(known))
    return (known[0][0], known[-1][1]) if apart else None

"""Review Parquet change files: footer, columns, markers, keys; every page when asked to.

In: a `Review` of one listed file. Out: what it learns of that, and findings on the way. The footer
is read, and of the rows only the marker and such key columns as may be NULL, a piece at a time. Nothing
asks for the footer's statistics: Arrow ends the process over damaged ones.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlib.errors import first_line
from mirrorlib.landing.check.facts import Review, UnreadableError
from mirrorlib.landing.columns import MARKER, MOST_COLUMNS
from mirrorlib.landing.parquet import iter_batches, read_schema
from mirrorlib.landing.types import mirror_type
from mirrorlib.landing.values import canonical_values, first_misfit, first_refused
from mirrorlib.names import find_key
from mirrorlib.store import Store, StoredFile

_BROKEN = (pa.ArrowException, OSError)


def review_parquet(review: Review) -> None:
    """Review one Parquet file; raises `UnreadableError` where it is not whole, or a page is damaged."""
    try:
        schema, metadata = read_schema(review.handle)
        names, rows = schema.names, metadata.num_rows
    except _BROKEN as exc:
        raise UnreadableError(first_line(exc, 120), rule="unreadable") from exc
    markers = [name for name in names if name.lower() == MARKER]
    if len(names) - len(markers) > MOST_COLUMNS:
        msg = f"more than {MOST_COLUMNS:,} columns"
        raise UnreadableError(msg, rule="column-name")
    review.columns = _review_columns(review, schema)
    marker = markers[0] if len(markers) == 1 else None
    if marker:
        review.tell_marker(names, marker, schema.field(schema.get_field_index(marker)).type)
    elif markers:
        review.tell("marker-twice", " and ".join(markers)[:80])
    speaks = rows or any(not pa.types.is_null(field.type) for field in schema)
    given = review.given_names(names) if speaks else ()
    for key in review.policy.missing_keys((*names, *given)) if rows else ():
        review.tell("key-missing", "no such column", column=key)
    review.marked = bool(markers)
    if not markers:
        review.see_unmarked(rows)
    elif not marker:
        review.rows = rows
    try:
        _scan(review, review.columns, marker)
    except _BROKEN as exc:
        raise UnreadableError(first_line(exc, 120), rule="damaged") from exc
    review.tell_rows(marker)


def misfit(zone: Store, file: StoredFile, column: pa.Field, kind: pa.DataType) -> int | None:
    """Return the first row of a column that the mirror type *kind* does not hold, None when it holds all.

    None too where a value does not fit its own type, which is said already.
    """
    seen = 0
    with suppress(*_BROKEN), zone.open_file(file.path) as handle:
        for batch in iter_batches(handle, [column.name]):
            values = canonical_values(_values(batch, column.name), column.type)
            row = first_misfit(values, kind)
            if row is not None:
                return seen + row
            seen += len(batch)
    return None


def _review_columns(review: Review, schema: pa.Schema) -> tuple[pa.Field, ...]:
    good = review.good_names(name for name in schema.names if name.lower() != MARKER)
    columns: list[pa.Field] = []
    for field in schema:
        if field.name not in good:
            continue
        kind = mirror_type(field.type, "utc")
        if kind is None:
            review.tell("column-type", f"the type {field.type}"[:80], column=field.name)
            continue
        if pa.types.is_null(kind):
            review.tell("column-untyped", "no type", column=field.name)
        columns.append(field.with_type(kind))
    return tuple(columns)


def _scan(review: Review, columns: tuple[pa.Field, ...], marker: str | None) -> None:
    policy = review.policy
    keys = {find_key([c.name for c in columns], key) for key in policy.metadata.stated_keys}
    open_keys = [c.name for c in columns if c.name in keys and c.nullable]
    wanted = [name for name in (marker, *open_keys) if name]
    reported: set[str] = set()
    seen = 0
    for batch in iter_batches(review.handle, None if policy.deep else wanted):
        if marker:
            review.see_markers(_values(batch, marker))
        for name in open_keys:
            review.null_keys[name].see(pc.is_null(_values(batch, name)), seen)
        for column in columns if policy.deep else ():
            cast = partial(canonical_values, kind=column.type)
            row = first_refused(_values(batch, column.name), cast)
            if row is not None and column.name not in reported:
                reported.add(column.name)
                what = f"a value that {column.type} does not hold"
                review.tell("value-out-of-range", what, column=column.name, row=seen + row)
        seen += len(batch)


def _values(batch: pa.RecordBatch, name: str) -> pa.ChunkedArray:
    """Give a column by its exact name, the first of several."""
    return pa.chunked_array([batch.column(batch.schema.get_all_field_indices(name)[0])])

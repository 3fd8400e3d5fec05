"""Review Parquet change files: footer, columns, markers, keys; every page when asked to.

In: one listed file. Out: its `Facts`, None when it cannot be read, and findings on the way. The
footer is read, and of the rows only the marker and such key columns as may be NULL, a piece at a
time. Nothing asks for the footer's statistics: Arrow ends the process over damaged ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from mirrorlib.errors import first_line
from mirrorlib.landing.check.columns import (
    DAMAGED,
    UNREADABLE,
    ColumnFacts,
    Facts,
    UnreadableError,
    given_names,
    good_names,
)
from mirrorlib.landing.check.rows import (
    Policy,
    Scan,
    missing_keys,
    scan_keys,
    scan_markers,
    scan_unmarked,
    tell_marker,
    tell_rows,
)
from mirrorlib.landing.columns import MARKER
from mirrorlib.landing.parquet import check_rows, iter_batches, open_parquet
from mirrorlib.landing.types import mirror_type
from mirrorlib.landing.values import canonical_values, first_misfit, first_refused
from mirrorlib.names import find_key

if TYPE_CHECKING:
    from typing import BinaryIO

    from mirrorlib.landing.check.findings import Findings
    from mirrorlib.landing.check.folder import ChangeFile
    from mirrorlib.store import Store

_BROKEN = (pa.ArrowException, OSError)
_PANDAS_INDEX = "__index_level_"


def review_parquet(zone: Store, file: ChangeFile, policy: Policy, found: Findings) -> Facts:
    """Open one Parquet file.

    Raises:
        UnreadableError: it is not whole Parquet, or a page is damaged.
        StoreError: the store failed.

    """
    with zone.open_file(file.stored.path) as handle:
        try:
            parquet = open_parquet(handle)
            check_rows(parquet.metadata)
            schema = parquet.schema_arrow
            names = schema.names
        except _BROKEN as exc:
            raise UnreadableError(UNREADABLE, first_line(exc, 120)) from exc
        columns = _review_columns(schema, file.name, policy, found)
        markers = [name for name in names if name.lower() == MARKER]
        marker = _review_marker(schema, markers, file.name, found)
        rows = parquet.metadata.num_rows
        speaks = rows or any(not pa.types.is_null(field.type) for field in schema)
        given = given_names(file.name, names, policy.table, found) if speaks else ()
        for key in missing_keys((*names, *given), policy) if rows else ():
            found.add("key-missing", "no such column", file=file.name, column=key)
        try:
            scan = Scan() if marker else Scan(rows=rows) if markers else scan_unmarked(rows, policy)
            _scan(scan, handle, columns, marker, file.name, policy, found)
        except _BROKEN as exc:
            raise UnreadableError(DAMAGED, first_line(exc, 120)) from exc
    tell_rows(scan, policy, file.name, marker, found)
    return Facts(file=file, columns=columns, marked=bool(markers), scan=scan)


def misfit(zone: Store, file: ChangeFile, column: ColumnFacts, kind: pa.DataType) -> int | None:
    """Return the first row of a column that the mirror type *kind* does not hold, None when it holds all.

    Raises:
        pa.ArrowException: a page is damaged, or a value has no place in its own type.
        StoreError: the store failed.

    """
    seen = 0
    with zone.open_file(file.stored.path) as handle:
        for batch in iter_batches(handle, [column.name]):
            values = canonical_values(_values(batch, column.name), column.type, "utc")
            row = first_misfit(values, kind)
            if row is not None:
                return seen + row
            seen += len(batch)
    return None


def _review_columns(
    schema: pa.Schema, file: str, policy: Policy, found: Findings
) -> tuple[ColumnFacts, ...]:
    """Give the columns that a table can have; name the others."""
    names = [name for name in schema.names if name.lower() != MARKER]
    good = good_names(names, file, policy.table, found)
    columns: list[ColumnFacts] = []
    for field in schema:
        if field.name not in good:
            continue
        kind = mirror_type(field.type, "utc")
        if kind is None:
            found.add("column-type", f"the type {field.type}"[:80], file=file, column=field.name)
            continue
        if pa.types.is_null(kind):
            found.add("column-untyped", "no type", file=file, column=field.name)
        elif _is_converted(field.type):
            what = f"{field.type} becomes {kind}"
            found.add("column-type-converted", what, file=file, column=field.name)
        if field.name.startswith(_PANDAS_INDEX):
            found.add("index-column", "a pandas index", file=file, column=field.name)
        columns.append(ColumnFacts(name=field.name, type=kind, nullable=field.nullable))
    return tuple(columns)


def _review_marker(schema: pa.Schema, markers: list[str], file: str, found: Findings) -> str | None:
    """Give the one marker column, None when there is none or one too many."""
    if len(markers) > 1:
        found.add("marker-twice", " and ".join(markers)[:80], file=file)
    if len(markers) != 1:
        return None
    kind = schema.field(schema.get_field_index(markers[0])).type
    tell_marker(schema.names, markers[0], kind, file, found)
    return markers[0]


def _is_converted(kind: pa.DataType) -> bool:
    """Say whether Delta has no such type: what only pyarrow tells apart (large strings) is not meant."""
    if pa.types.is_dictionary(kind):
        return _is_converted(kind.value_type)
    types = pa.types
    if types.is_timestamp(kind):
        return bool(kind.unit == "ns")
    return bool(
        types.is_time(kind)
        or types.is_unsigned_integer(kind)
        or types.is_float16(kind)
        or types.is_duration(kind)
    )


def _scan(
    scan: Scan,
    handle: BinaryIO,
    columns: tuple[ColumnFacts, ...],
    marker: str | None,
    file: str,
    policy: Policy,
    found: Findings,
) -> None:
    """Read the rows as far as they have to be read."""
    names = {find_key([c.name for c in columns], key) for key in policy.keys}
    keys = [c for c in columns if c.name in names]
    open_keys = [key.name for key in keys if key.nullable]
    wanted = [name for name in (marker, *open_keys) if name]
    reported: set[str] = set()
    seen = 0
    for batch in iter_batches(handle, None if policy.deep else wanted):
        if marker:
            scan_markers(scan, _values(batch, marker), seen, policy)
        scan_keys(scan, {name: _values(batch, name) for name in open_keys}, seen)
        for column in columns if policy.deep else ():
            row = _first_refused(_values(batch, column.name), column)
            if row is not None and column.name not in reported:
                reported.add(column.name)
                kind = f"a value that {column.type} does not hold"
                found.add("value-out-of-range", kind, file=file, column=column.name, row=seen + row)
        seen += len(batch)


def _values(batch: pa.RecordBatch, name: str) -> pa.ChunkedArray:
    """Give a column by its exact name, the first of several."""
    return pa.chunked_array([batch.column(batch.schema.get_all_field_indices(name)[0])])


def _first_refused(values: pa.ChunkedArray, column: ColumnFacts) -> int | None:
    """Return the first place whose value has no place in the column's mirror type."""
    return first_refused(values, lambda head: canonical_values(head, column.type, "utc"))

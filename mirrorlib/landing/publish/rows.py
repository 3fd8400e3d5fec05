"""Take what a publisher has and make an Arrow table of it: rows, and the marker of each.

In: what `LandingTable.write` takes. Out: an Arrow table, whose last column `__rowMarker__` is int32
of 0, 1, 2 and 4 where the rows have markers; then bytes. Promise: no value is changed.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Container, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv

from mirrorlib.errors import ChangeFileError, MarkerError, SchemaError
from mirrorlib.identifiers import find_name
from mirrorlib.landing.columns import (
    DELETE,
    INSERT,
    MARKER,
    MARKER_NAMES,
    judge_markers,
    show_marker,
)
from mirrorlib.landing.publish.files import read_file
from mirrorlib.landing.types import mirror_type
from mirrorlib.landing.values import canonical_values

MARKER_COLUMN = "__rowMarker__"
MARKER_TYPE = pa.int32()
_INDEX = "__index_level_"  # of rows that were filtered, for one; a level follows


def take_rows(
    data: object, marker: int | str | None, *, table: str, types: Mapping[str, pa.DataType]
) -> pa.Table:
    """Take rows, as the module says; their markers, where they have any, are the last column.

    *marker* is one for all rows, or the name of the column that holds them; None when they are in `__rowMarker__`, or
    nowhere. *types* are the table's by column name, for CSV input; others are inferred.
    """
    rows = _bare(_as_table(data, table, types), types)
    found = [name for name in rows.column_names if name.lower() == MARKER]
    if len(found) > 1:
        msg = "the data has two row marker columns"
        step = "Leave one of them out."
        raise SchemaError(msg, table=table, found=", ".join(found), next_step=step)
    if found and marker is not None and marker != found[0]:
        msg = f"the data has the column {found[0]}, and a marker is given beside it"
        raise MarkerError(msg, table=table, next_step="Leave one of the two out.")
    if isinstance(marker, str) or found:
        return _with_column(rows, found[0] if found else str(marker), table)
    if marker is None:
        return rows
    if marker not in MARKER_NAMES:
        raise _unknown(table, marker)
    return mark_rows(rows, marker)


def mark_rows(rows: pa.Table, marker: int) -> pa.Table:
    """Give all rows one marker."""
    markers = pa.repeat(pa.scalar(marker, MARKER_TYPE), rows.num_rows)
    return rows.append_column(pa.field(MARKER_COLUMN, MARKER_TYPE), markers)


def count_markers(rows: pa.Table, default: int) -> dict[str, int]:
    """Count rows by the marker's name; rows without markers count as *default*."""
    if MARKER_COLUMN not in rows.column_names:
        return {MARKER_NAMES[default]: rows.num_rows} if rows.num_rows else {}
    found = pc.value_counts(rows[MARKER_COLUMN]).to_pylist()
    return {MARKER_NAMES[item["values"]]: item["counts"] for item in found}


def change_key_rows(
    old: pa.Table, new: pa.Table, *, keys: tuple[str, ...], fixed: tuple[str, ...], table: str
) -> pa.Table:
    """Split key changes into deletes of the old keys and inserts of the new rows.

    All deletes stand before all inserts: keys may be swapped among the rows. In the deletes, every
    other column is NULL, or the new row's value where NULL is not allowed. *old* has a row for each of the *new*
    rows, which are whole; *fixed* are the columns that name the partition folder, in which both have to lie.
    """
    if MARKER_COLUMN in {*old.column_names, *new.column_names}:
        msg = "a changed key is a delete and an insert, and the rows have markers of their own"
        raise MarkerError(msg, table=table, next_step="Leave the marker column out.")
    if old.num_rows != new.num_rows:
        msg = f"there are {old.num_rows:,} old keys and {new.num_rows:,} new rows"
        step = "Give one old key for every new row, in the same order."
        raise SchemaError(msg, table=table, next_step=step)
    kept = {name: _old_values(old, new, name, table) for name in (*keys, *fixed)}
    for name in fixed:
        if not kept[name].equals(new[name]):
            msg = "old and new row lie in different partitions, which one file cannot hold"
            step = "Publish the delete and the insert yourself."
            raise SchemaError(msg, table=table, column=name, next_step=step)
    for field in new.schema:
        nothing = pa.chunked_array([pa.nulls(new.num_rows, field.type)])
        kept.setdefault(field.name, nothing if field.nullable else new[field.name])
    gone = [kept[name] for name in new.column_names]
    deletes = pa.Table.from_arrays(gone, schema=new.schema)
    return pa.concat_tables([mark_rows(deletes, DELETE), mark_rows(new, INSERT)])


def column_of(rows: pa.Table, name: str, table: str) -> pa.ChunkedArray:
    """Return a column by its very name; the rows have to have it."""
    if name not in rows.column_names:
        msg = "the data has no such column"
        step = "Add the column, or correct its name."
        raise SchemaError(msg, table=table, column=name, next_step=step)
    return rows[name]


def spelled_in(rows: pa.Table, name: str, table: str) -> str:
    """Return a column's name as the rows spell it, in whatever case; they have to have it."""
    found = find_name(rows.column_names, name) or name
    column_of(rows, found, table)
    return found


def _old_values(old: pa.Table, new: pa.Table, name: str, table: str) -> pa.ChunkedArray:
    """Give a column of the old keys with the type that it has in the new rows."""
    given, wanted = column_of(old, name, table), column_of(new, name, table).type
    try:
        return given.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as exc:
        msg = f"the old keys do not fit the new rows' type, {wanted}"
        step, found = "Give both the same type.", str(given.type)
        raise SchemaError(msg, table=table, column=name, found=found, next_step=step) from exc


def _with_column(rows: pa.Table, name: str, table: str) -> pa.Table:
    """Put the markers of a column, of any type that publishers write, at the end; the first that is none is named."""
    values = column_of(rows, name, table)
    markers, unknown, null = judge_markers(values)
    row = pc.index(pc.or_(unknown, null), value=True).as_py()
    if row >= 0:
        found = show_marker(values, row)
        if not values[row].is_valid:
            found = "NULL"
        # No number: the column may hold something else than markers.
        elif found.strip("-.0123456789"):
            found = str(values.type)
        raise _unknown(table, found, column=name, row=row)
    field = pa.field(MARKER_COLUMN, MARKER_TYPE)
    return rows.drop_columns([name]).append_column(field, markers.cast(MARKER_TYPE))


def _unknown(table: str, found: str | int, **place: str | int | None) -> MarkerError:
    msg = "the row marker is not 0, 1, 2 or 4"
    step = "Use 0 (insert), 1 (update), 2 (delete) or 4 (upsert)."
    return MarkerError(msg, table=table, found=found, next_step=step, **place)  # type: ignore[arg-type]  # its own parameters


def _as_table(data: object, table: str, types: Mapping[str, pa.DataType]) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, str) and not data:  # of which Python makes the working directory
        msg = "the path of the file to publish is empty"
        step = "Give that of a Parquet or CSV file."
        raise ChangeFileError(msg, table=table, next_step=step)
    if isinstance(data, str | Path):
        return read_file(Path(data), table=table, types=types)
    if hasattr(data, "toArrow"):  # a Spark 4 frame, classic or Connect
        return data.toArrow()
    if hasattr(data, "__arrow_c_stream__"):  # Arrow's own reader, polars, DuckDB, pandas 2.2 …
        try:
            if "Object" in map(str, getattr(data, "dtypes", ())):
                raise TypeError  # noqa: TRY301  # polars hands out where in memory they are
            return pa.table(data)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as exc:
            # The error's own text shows values.
            msg = "the frame cannot be handed out as Arrow"
            step = "Give each column values of one type that this version of pyarrow knows."
            found = type(exc).__name__
            raise SchemaError(msg, table=table, found=found, next_step=step) from None
    msg = (
        f"cannot take rows from {type(data).__name__}: give an Arrow table, batch or reader, a frame that hands out "
        "Arrow, or the path of a Parquet or CSV file (write a Spark 3 frame as Parquet first)"
    )
    raise TypeError(msg)


def _bare(rows: pa.Table, known: Container[str]) -> pa.Table:
    """Leave out what others noted in the schema, which would travel with every file, and pandas' index without a name.

    A column of the table that is *known* stays.
    """
    index = (rows.schema.pandas_metadata or {}).get("index_columns", ())
    unnamed = [one for one in rows.column_names if one.startswith(_INDEX) and one in index]
    rows = rows.drop_columns([one for one in unnamed if one not in known])
    bare = pa.schema([field.remove_metadata() for field in rows.schema])
    return pa.Table.from_arrays(rows.columns, schema=bare)


def encode_rows(rows: pa.Table, *, text: bool) -> bytes:
    """Encode one change file; without rows it is a whole file too."""
    sink = io.BytesIO()
    if not text:
        # Without Arrow's own copy of the schema every reader sees the same types.
        pq.write_table(rows.combine_chunks(), sink, compression="zstd", store_schema=False)
        return sink.getvalue()
    columns = [_as_text(column) for column in rows.columns]
    # As `declare.CSV_PROPERTIES` says: text in quotes, NULL as nothing at all.
    # Up to pyarrow 18, of an empty piece what was written last comes again.
    csv.write_csv(pa.table(columns, names=rows.column_names).combine_chunks(), sink)
    return sink.getvalue()


def fingerprint_rows(rows: pa.Table) -> str:
    """Name rows by their values, names and types: the same whichever version of Arrow holds them, and how.

    A publisher that died may be another build when it comes back. What its Parquet looks like changes with the version.
    """
    digest = hashlib.sha256()
    for field, column in zip(rows.schema, rows.columns, strict=True):
        values = canonical_values(column, mirror_type(field.type, "keep") or field.type)
        digest.update(str(values.type).encode())
        # What lies where NULL is, is anything; and behind the last of packed bits, which get a byte each.
        for part in (pc.is_valid(values), values.drop_null()):
            bare = part.cast(pa.int8()) if pa.types.is_boolean(part.type) else part
            whole = pa.table({field.name: bare}).combine_chunks()
            with pa.BufferOutputStream() as sink, pa.ipc.new_stream(sink, whole.schema) as stream:
                stream.write_table(whole)
            digest.update(sink.getvalue())
    return digest.hexdigest()


def _as_text(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Turn into text what pyarrow cannot write, or writes as .NET does not read it.

    Bytes are hexadecimal: base64 has no word for no bytes at all, which is not NULL.
    """
    if pa.types.is_binary(values.type):
        texts = [None if value is None else f"0x{value.hex()}" for value in values.to_pylist()]
        return pa.chunked_array([pa.array(texts, pa.string())])
    if pa.types.is_floating(values.type) and pc.all(pc.is_finite(values)).as_py() is False:
        texts = values.cast(pa.string())
        # As .NET spells them.
        for ours, word in ("nan", "NaN"), ("inf", "Infinity"), ("-inf", "-Infinity"):
            texts = pc.if_else(pc.equal(texts, ours), word, texts)
        return texts
    return values

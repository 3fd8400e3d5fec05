"""Take what a publisher has and make an Arrow table of it: rows, and the marker of each.

In: an Arrow table, batch or reader, anything that hands out Arrow (a Spark, polars or DuckDB frame),
or the path of a Parquet or CSV file. Out: `Rows`, with markers as int32 values of 0, 1, 2 and 4.
Promises: no value is changed; nothing is written anywhere.
Then as Parquet, once, in memory or in a file.
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirrorlib.errors import MarkerError, SchemaError
from mirrorlib.landing.columns import MARKER
from mirrorlib.landing.publish.declare import PublishFormat
from mirrorlib.landing.publish.files import read_file
from mirrorlib.landing.types import mirror_type

if TYPE_CHECKING:
    from collections.abc import Mapping

MARKER_COLUMN = "__rowMarker__"
MARKER_TYPE = pa.int32()
INSERT, UPDATE, DELETE, UPSERT = 0, 1, 2, 4
MARKER_NAMES = {INSERT: "insert", UPDATE: "update", DELETE: "delete", UPSERT: "upsert"}

_STREAM = "__arrow_c_stream__"
_CODEC = "zstd"  # one of the four that the format takes
_WORDS = (("nan", "NaN"), ("inf", "Infinity"), ("-inf", "-Infinity"))  # as .NET spells them


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows to be published.

    Attributes:
        data: the columns without the marker.
        markers: one a row; None when the rows have none.

    """

    data: pa.Table
    markers: pa.ChunkedArray | None

    def counts(self, default: int) -> dict[str, int]:
        """Count rows by the marker's name; rows without markers count as *default*."""
        if self.markers is None:
            return {MARKER_NAMES[default]: self.data.num_rows} if self.data.num_rows else {}
        found = pc.value_counts(self.markers).to_pylist()
        return {MARKER_NAMES[item["values"]]: item["counts"] for item in found}

    @property
    def only_deletes(self) -> bool:
        """Whether there are rows, and every one of them is a delete."""
        return (
            self.markers is not None
            and len(self.markers) > 0
            and pc.all(pc.equal(self.markers, DELETE)).as_py()
        )


def take_rows(
    data: object, marker: int | str | None, *, table: str, types: Mapping[str, pa.DataType]
) -> Rows:
    """Take rows and their markers.

    Args:
        data: See the module.
        marker: One marker for all rows, or the name of the column that holds them; None when they
            are in `__rowMarker__`, or nowhere.
        table: The table's name, for messages.
        types: The table's types by column name, for CSV input; others are inferred.

    Raises:
        ChangeFileError: the file cannot be read.
        MarkerError: the marker is not known, or is stated twice.
        SchemaError: the column that should hold the markers is not there.
        TypeError: it is nothing that rows can be taken from.

    """
    rows = _bare(_as_table(data, table, types))
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
        return Rows(data=rows, markers=None)
    return Rows(data=rows, markers=same_marker(marker, rows.num_rows, table))


def same_marker(marker: int, count: int, table: str) -> pa.ChunkedArray:
    """Give one marker to *count* rows."""
    if marker not in MARKER_NAMES:
        raise _unknown(table, marker)
    return pa.chunked_array([pa.repeat(pa.scalar(marker, MARKER_TYPE), count)], MARKER_TYPE)


def change_key_rows(
    old: Rows, new: Rows, *, keys: tuple[str, ...], fixed: tuple[str, ...], table: str
) -> Rows:
    """Split key changes into deletes of the old keys and inserts of the new rows.

    All deletes stand before all inserts: keys may be swapped among the rows. In the deletes, every
    other column is NULL, or the new row's value where NULL is not allowed.

    Args:
        old: The old keys, one for each new row.
        new: The whole rows.
        keys: The key columns.
        fixed: The columns that name the partition folder, in which both have to lie.
        table: The table's name, for messages.

    Raises:
        MarkerError: the rows have markers.
        SchemaError: there are not as many old keys as new rows, a column is missing, or the rows move
            to another partition.

    """
    if old.markers is not None or new.markers is not None:
        msg = "a changed key is a delete and an insert, and the rows have markers of their own"
        raise MarkerError(msg, table=table, next_step="Leave the marker column out.")
    before, after = old.data, new.data
    if before.num_rows != after.num_rows:
        msg = f"there are {before.num_rows:,} old keys and {after.num_rows:,} new rows"
        step = "Give one old key for every new row, in the same order."
        raise SchemaError(msg, table=table, next_step=step)
    kept = {name: _old_values(before, after, name, table) for name in (*keys, *fixed)}
    for name in fixed:
        if not kept[name].equals(after[name]):
            msg = "old and new row lie in different partitions, which one file cannot hold"
            step = "Publish the delete and the insert yourself."
            raise SchemaError(msg, table=table, column=name, next_step=step)
    gone = [_gone(after, field, kept) for field in after.schema]
    deletes = pa.Table.from_arrays(gone, schema=after.schema)
    marks = [same_marker(mark, after.num_rows, table) for mark in (DELETE, INSERT)]
    chunks = [chunk for mark in marks for chunk in mark.chunks]
    return Rows(
        data=pa.concat_tables([deletes, after]), markers=pa.chunked_array(chunks, MARKER_TYPE)
    )


def missing_column(name: str, table: str) -> SchemaError:
    """Say that the data lacks a column that it has to have."""
    msg = "the data has no such column"
    step = "Add the column, or correct its name."
    return SchemaError(msg, table=table, column=name, next_step=step)


def _old_values(before: pa.Table, after: pa.Table, name: str, table: str) -> pa.ChunkedArray:
    """Give a column of the old keys with the type that it has in the new rows."""
    for rows in (before, after):
        if name not in rows.column_names:
            raise missing_column(name, table)
    try:
        return before[name].cast(after[name].type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as exc:
        msg = f"the old keys do not fit the new rows' type, {after[name].type}"
        step = "Give both the same type."
        raise SchemaError(
            msg, table=table, column=name, found=str(before[name].type), next_step=step
        ) from exc


def _gone(after: pa.Table, field: pa.Field, kept: Mapping[str, pa.ChunkedArray]) -> pa.ChunkedArray:
    if field.name in kept:
        return kept[field.name]
    if not field.nullable:
        return after[field.name]
    return pa.chunked_array([pa.nulls(after.num_rows, field.type)], field.type)


def _with_column(rows: pa.Table, name: str, table: str) -> Rows:
    if name not in rows.column_names:
        raise missing_column(name, table)
    markers = _checked(rows[name], table, name)
    return Rows(data=rows.drop_columns([name]), markers=markers)


def _checked(values: pa.ChunkedArray, table: str, column: str) -> pa.ChunkedArray:
    """Read markers of any type that publishers write; the first that is none is named."""
    try:
        texts = pa.types.is_dictionary(values.type) or pa.types.is_boolean(values.type)
        plain = values.cast(pa.string()) if texts else values  # true is not 1
        markers = plain.cast(MARKER_TYPE)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as exc:
        msg = "the row markers are no whole numbers"
        step = "Use 0 (insert), 1 (update), 2 (delete) or 4 (upsert)."
        raise MarkerError(
            msg, table=table, column=column, found=str(values.type), next_step=step
        ) from exc
    known = pc.is_in(markers, value_set=pa.array(list(MARKER_NAMES), MARKER_TYPE))
    row = pc.index(known, value=False).as_py()
    if row >= 0:
        raise _unknown(table, markers[row].as_py(), column=column, row=row)
    return markers


def _unknown(
    table: str, found: int | None, *, column: str | None = None, row: int | None = None
) -> MarkerError:
    msg = "the row marker is not 0, 1, 2 or 4"
    step = "Use 0 (insert), 1 (update), 2 (delete) or 4 (upsert)."
    shown = "NULL" if found is None else found
    return MarkerError(msg, table=table, column=column, row=row, found=shown, next_step=step)


def _as_table(data: object, table: str, types: Mapping[str, pa.DataType]) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, pa.RecordBatchReader):
        return data.read_all()
    if isinstance(data, str | Path):
        return read_file(Path(data), table=table, types=types)
    if hasattr(data, "toArrow"):  # a Spark 4 frame, classic or Connect
        return data.toArrow()
    if hasattr(data, _STREAM):  # polars, DuckDB, pandas 2.2 …
        return pa.table(data)
    msg = (
        f"cannot take rows from {type(data).__name__}: give an Arrow table, batch or reader, a frame that hands out "
        "Arrow, or the path of a Parquet or CSV file (write a Spark 3 frame as Parquet first)"
    )
    raise TypeError(msg)


def _bare(rows: pa.Table) -> pa.Table:
    """Leave out what others noted in the schema: it would travel with every file.

    Decimals that end before the point are written out: Parquet has no word for them.
    """
    fields = [field.remove_metadata().with_type(_written(field.type)) for field in rows.schema]
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(rows.columns, fields, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _written(kind: pa.DataType) -> pa.DataType:
    ends_early = pa.types.is_decimal(kind) and kind.scale < 0
    return (mirror_type(kind, "keep") or kind) if ends_early else kind


def encode_rows(rows: Rows, file_format: PublishFormat) -> bytes:
    """Encode one change file; without rows it is a whole file too."""
    data = _with_markers(rows)
    return _parquet(data, _CODEC) if file_format == "parquet" else _csv(data)


def fingerprint_rows(rows: Rows) -> str:
    """Name rows by their values, names and types; Parquet is a form in which equal rows are equal bytes."""
    return hashlib.sha256(_parquet(_with_markers(rows), "none")).hexdigest()


def _with_markers(rows: Rows) -> pa.Table:
    data = rows.data.combine_chunks()
    if rows.markers is None:
        return data
    return data.append_column(pa.field(MARKER_COLUMN, MARKER_TYPE), rows.markers.combine_chunks())


def _parquet(data: pa.Table, codec: str) -> bytes:
    """Write Parquet without Arrow's own copy of the schema: every reader sees the same types."""
    sink = io.BytesIO()
    pq.write_table(data, sink, compression=codec, store_schema=False)
    return sink.getvalue()


def _csv(data: pa.Table) -> bytes:
    """Write delimited text as `declare.CSV_PROPERTIES` says: text in quotes, NULL as nothing at all."""
    from pyarrow import csv  # only delimited text needs it

    columns = [_as_text(column) for column in data.columns]
    sink = io.BytesIO()
    csv.write_csv(pa.table(columns, names=data.column_names), sink)
    return sink.getvalue()


def _as_text(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Turn into text what pyarrow cannot write, or writes as .NET does not read it.

    Bytes are hexadecimal: base64 has no word for no bytes at all, which is not NULL.
    """
    if pa.types.is_binary(values.type):
        texts = [None if value is None else f"0x{value.hex()}" for value in values.to_pylist()]
        return pa.chunked_array([pa.array(texts, pa.string())])
    if pa.types.is_floating(values.type) and not _finite(values):
        texts = values.cast(pa.string())
        for ours, word in _WORDS:
            texts = pc.if_else(pc.equal(texts, ours), word, texts)
        return texts
    return values


def _finite(values: pa.ChunkedArray) -> bool:
    return pc.all(pc.is_finite(values)).as_py() is not False

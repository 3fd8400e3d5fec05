"""Encode rows as the bytes of a change file: Parquet or delimited text, the marker column last.

In: rows that fit (see `checks`). Out: the whole file. The same rows always give the same bytes: no
time, host or chunk shows in them, so that a repetition is known by its content.
"""

from __future__ import annotations

import hashlib
import io

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirrorlib.landing.publish.declare import PublishFormat
from mirrorlib.landing.publish.rows import MARKER_COLUMN, MARKER_TYPE, Rows

_CODEC = "zstd"  # one of the four that the format takes
_WORDS = (("nan", "NaN"), ("inf", "Infinity"), ("-inf", "-Infinity"))  # as .NET spells them


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

"""Rescue what fits no column of a plain folder's table: keep it beside the row, as JSON text.

In: an opened file, or a piece of it, and the table's columns. Out: its rows in the table's types. A
value that its column does not hold is NULL there, and a column that the table lacks is left out;
both are members of the JSON object in `_rescued_data`, with the file's path as `_file_path`. A row
of which nothing had to be rescued has NULL there. The words are Auto Loader's.
"""

from __future__ import annotations

import base64
import json
import math
from typing import TYPE_CHECKING

import pyarrow as pa

from mirrorlib.delta.columns import Column, find_column
from mirrorlib.ingest.rows.read import column_values
from mirrorlib.landing.plain import FILE_PATH, RESCUED
from mirrorlib.landing.types import INSTANT, WALL_CLOCK
from mirrorlib.landing.values import first_misfit, split_misfits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirrorlib.delta.columns import Columns
    from mirrorlib.ingest.files.source import Source
    from mirrorlib.ingest.rows.read import Landed

RESCUED_COLUMN = Column(RESCUED, pa.string())


def needs_rescue(source: Source, landed: Landed, columns: Columns) -> bool:
    """Say whether some value of a file has no place in the table's columns."""
    if not source.policies.rescues:
        return False
    for column in landed.schema.columns:
        mine = find_column(columns, column.name)
        if pa.types.is_null(column.type) or (mine is not None and mine.type == column.type):
            continue
        if mine is None or any(
            first_misfit(values, mine.type) is not None
            for values in column_values(source, landed, column)
        ):
            return True
    return False


def rescued_rows(source: Source, landed: Landed, columns: Columns) -> pa.Table:
    """Return one decoded file's rows in the table's types; what does not fit is rescued."""
    rows = landed.schema.rows
    fitted: dict[str, pa.ChunkedArray] = {}
    left: dict[str, pa.ChunkedArray] = {}
    for column in landed.schema.columns:
        if pa.types.is_null(column.type):
            continue
        values = next(column_values(source, landed, column))
        mine = find_column(columns, column.name)
        if mine is not None:
            fitted[mine.name], values = split_misfits(values, mine.type)
        if values.null_count < len(values):
            left[column.name] = values
    fitted[RESCUED] = _texts(left, rows, source.zone.uri(landed.file.path))
    arrays = [
        fitted.get(column.name, pa.chunked_array([pa.nulls(rows, column.type)]))
        for column in columns
    ]
    return pa.table(arrays, names=[column.name for column in columns])


def _texts(left: Mapping[str, pa.ChunkedArray], rows: int, path: str) -> pa.ChunkedArray:
    """Write each row's rescued values as one JSON object."""
    found: dict[int, dict[str, object]] = {}
    for name, values in left.items():
        for row, value in enumerate(_as_json(values)):
            if value is not None:
                found.setdefault(row, {})[name] = value
    texts: list[str | None] = [None] * rows
    for row, members in found.items():
        texts[row] = json.dumps({**members, FILE_PATH: path}, ensure_ascii=False)
    return pa.chunked_array([pa.array(texts, pa.string())])


def _as_json(values: pa.ChunkedArray) -> list[object]:
    """Give values as JSON has them: numbers and booleans as they are, bytes as base64, others as text."""
    kind = values.type
    if kind == INSTANT:
        clock = values.cast(WALL_CLOCK).cast(pa.string()).to_pylist()
        return [None if value is None else f"{value}Z" for value in clock]
    if pa.types.is_binary(kind):
        return [v if v is None else base64.b64encode(v).decode() for v in values.to_pylist()]
    if pa.types.is_floating(kind):
        return [v if v is None or math.isfinite(v) else str(v) for v in values.to_pylist()]
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return list(values.to_pylist())
    return list(values.cast(pa.string()).to_pylist())

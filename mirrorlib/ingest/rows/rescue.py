"""Fit rows to the table's columns; rescue what fits none in a plain folder: keep it beside the row, as JSON text.

In: an opened file, or a piece of it, and the table's columns. Out: its rows in the table's types, with `_rescued_data`
as docs/format.md tells of `--plain-evolution`; the words are Auto Loader's.
"""

from __future__ import annotations

import base64
import json
import math

import pyarrow as pa

from mirrorlib.delta.columns import Column, Columns
from mirrorlib.errors import SchemaError
from mirrorlib.identifiers import by_name, fold_name
from mirrorlib.ingest.rows.decode import OpenedFile
from mirrorlib.ingest.rows.read import column_values, find_misfit
from mirrorlib.landing.plain import FILE_PATH, RESCUED
from mirrorlib.landing.types import INSTANT, WALL_CLOCK
from mirrorlib.landing.values import fit_values, split_misfits

RESCUED_COLUMN = Column(RESCUED, pa.string())


def needs_rescue(opened: OpenedFile, columns: Columns) -> bool:
    """Say whether some value of a file has no place in the table's columns."""
    if not opened.source.policies.rescues:
        return False
    here = by_name(columns)
    for column in opened.schema.columns:
        mine = here.get(fold_name(column.name))
        if pa.types.is_null(column.type) or (mine is not None and mine.type == column.type):
            continue
        if mine is None or find_misfit(opened, column, mine.type) is not None:
            return True
    return False


def fitted_rows(opened: OpenedFile, columns: Columns) -> pa.Table:
    """Return one decoded file's rows in the table's types; a column that it lacks is NULL.

    What does not fit is rescued where the policies say so.

    Raises `pa.ArrowInvalid`: else, some value does not fit; `SchemaError`: what is to be rescued is not UTF-8.
    """
    rows, rescues, here = opened.schema.rows, opened.source.policies.rescues, by_name(columns)
    fitted: dict[str, pa.ChunkedArray] = {}
    left: dict[int, dict[str, object]] = {}
    for column in opened.schema.columns:
        mine = here.get(fold_name(column.name))
        if pa.types.is_null(column.type) or not (mine or rescues):
            continue
        values = next(column_values(opened, column))
        if mine is not None and not rescues:
            fitted[mine.name] = fit_values(values, mine.type)
            continue
        if mine is not None:
            fitted[mine.name], values = split_misfits(values, mine.type)
        try:
            told = _as_json(values) if values.null_count < rows else []
        except UnicodeDecodeError as exc:
            raise opened.fault(SchemaError, "the text is not UTF-8", column=column.name) from exc
        for row, value in enumerate(told):
            if value is not None:
                left.setdefault(row, {})[column.name] = value
    if rescues:
        path = {FILE_PATH: opened.source.zone.uri(opened.file.path)}
        texts: list[str | None] = [None] * rows
        for row, members in left.items():
            texts[row] = json.dumps({**members, **path}, ensure_ascii=False)
        fitted[RESCUED] = pa.chunked_array([pa.array(texts, pa.string())])
    arrays = [
        fitted.get(column.name, pa.chunked_array([pa.nulls(rows, column.type)]))
        for column in columns
    ]
    return pa.table(arrays, names=[column.name for column in columns])


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

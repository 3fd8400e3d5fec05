"""Calendars: which columns of a Parquet file have dates and moments that Spark counted in its old calendar.

In: a footer's key-value metadata, and values as pyarrow reads them. Out: whether Spark moves old values of a
column, and the first of them. Before version 3 Spark counted days before 1582-10-15 by the Julian calendar, and
moments before 1900 by the rough zones of old Java; later versions do so on request. Its reader moves such
values, by the writer's time zone, and no other reader does. Source: Spark's `DataSourceUtils.getRebaseSpec` and
`RebaseDateTime`.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Mapping

Counted = Literal["datetime", "int96"]  # the two ways in which Spark writes dates and moments
WRITER = b"org.apache.spark.version"
_SINCE = {"datetime": b"3.0.0", "int96": b"3.1.0"}
_ASKED_FOR = {
    "datetime": b"org.apache.spark.legacyDateTime",
    "int96": b"org.apache.spark.legacyINT96",
}
_FIRST_DAY = date(1582, 10, 15)
_FIRST_MOMENT = datetime(1900, 1, 1, tzinfo=UTC)


def old_calendar(told: Mapping[bytes, bytes] | None) -> frozenset[Counted]:
    """Say what a file counts in the old calendar; nothing where Spark did not write it."""
    version = (told or {}).get(WRITER)
    if told is None or version is None:
        return frozenset()
    ways: tuple[Counted, ...] = ("datetime", "int96")
    # Versions are compared as text, as Spark does.
    return frozenset(way for way in ways if version < _SINCE[way] or _ASKED_FOR[way] in told)


def is_moved(counted: frozenset[Counted], stored: pa.DataType, physical: str) -> bool:
    """Say whether Spark moves old values of a column; those of a clock without a zone stay as they are."""
    if physical == "INT96":
        return "int96" in counted
    moment = pa.types.is_timestamp(stored) and stored.tz is not None
    return "datetime" in counted and (moment or pa.types.is_date(stored))


def first_moved(values: pa.ChunkedArray) -> int | None:
    """Return the place of the first value that Spark moves; None when it takes all as they stand."""
    first = _FIRST_DAY if pa.types.is_date(values.type) else _FIRST_MOMENT
    place = pc.index(pc.less(values, pa.scalar(first, values.type)), value=True).as_py()
    return None if place < 0 else int(place)

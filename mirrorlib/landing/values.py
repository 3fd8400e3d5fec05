"""Values: cast to mirror types and to a table's types, and whether every one survives.

In: columns as pyarrow shows them. Out: cast columns, and the first row that does not fit. Promises:
nothing is ever rounded, cut or wrapped; what does not fit is named.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlib.landing.types import (
    INTEGERS,
    MAX_PRECISION,
    WALL_CLOCK,
    comparable,
    plain_type,
)

_DAY = 86_400_000_000  # microseconds


def canonical_values(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Cast what pyarrow read to its mirror type.

    Raises `pa.ArrowInvalid` for a moment or a time finer than a microsecond, and for a time that no day has.
    """
    stored = values.type
    if pa.types.is_time(stored):
        micros = values.cast(pa.time64("us")).cast(pa.int64())
        ends = pc.min_max(micros)
        if (ends["min"].as_py() or 0) < 0 or (ends["max"].as_py() or 0) >= _DAY:
            msg = "no day has this time"
            raise pa.ArrowInvalid(msg)
        return clock_text(micros.cast(WALL_CLOCK))
    plain = plain_type(stored)
    if plain != stored:
        chunks = [plain_values(chunk) for chunk in values.chunks]
        return canonical_values(pa.chunked_array(chunks, plain), kind)
    return values.cast(kind)


def plain_values(values: pa.Array) -> pa.Array:
    """Give each row its value, as a `plain_type`."""
    if pa.types.is_dictionary(values.type):
        # Not cast at once: polars has views there, which Arrow cannot take one by one.
        return plain_values(values.dictionary).take(values.indices)
    if isinstance(values.type, pa.BaseExtensionType):
        return plain_values(values.storage)
    plain = plain_type(values.type)
    return values if values.type == plain else values.cast(plain)


def fit_values(values: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    """Cast mirror values to a table's type without loss, or raise `pa.ArrowInvalid`: `first_misfit` finds the value."""
    if values.type == target:
        return values
    if values.null_count == len(values):
        return pa.chunked_array([pa.nulls(len(values), target)])
    if not comparable(values.type, target):
        msg = f"{values.type} values have no place in {target}"
        raise pa.ArrowInvalid(msg)
    if pa.types.is_decimal(values.type) and pa.types.is_float32(target):
        # As doubles: the nearest single of 0.35 is written 0.35 too, and another number in a column that widens.
        return fit_values(fit_values(values, pa.float64()), target)
    cast = _cast(values, target)
    back = _cast(cast, values.type)
    if not pc.all(equal_values(back, values)).as_py():
        msg = "a value changes when it is cast"
        raise pa.ArrowInvalid(msg)
    return cast


def equal_values(one: pa.ChunkedArray, other: pa.ChunkedArray) -> pa.ChunkedArray:
    """Compare values as Spark groups them: NULL is NULL, and NaN is NaN."""
    same = pc.equal(one, other)
    if pa.types.is_floating(one.type):
        same = pc.or_(same, pc.and_(pc.is_nan(one), pc.is_nan(other)))
    return pc.coalesce(same, pc.and_(pc.is_null(one), pc.is_null(other)))


def split_misfits(
    values: pa.ChunkedArray, target: pa.DataType
) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Tell the values that `fit_values` takes from those that it refuses.

    The fitting ones come in the table's type, the others as they are; each is NULL where the other has a value.
    """
    try:
        return fit_values(values, target), _nothing(values, values.type)
    except pa.ArrowInvalid:
        if len(values) == 1 or not comparable(values.type, target):
            return _nothing(values, target), values
    half = len(values) // 2
    halves = [split_misfits(part, target) for part in (values.slice(0, half), values.slice(half))]
    fitting, others = zip(*halves, strict=True)
    return (
        pa.chunked_array([chunk for part in fitting for chunk in part.chunks], target),
        pa.chunked_array([chunk for part in others for chunk in part.chunks], values.type),
    )


def _nothing(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return pa.chunked_array([pa.nulls(len(values), kind)])


def first_misfit(values: pa.ChunkedArray, target: pa.DataType) -> int | None:
    """Return the place of the first value that `fit_values` refuses, counted from 0."""
    return first_refused(values, lambda head: fit_values(head, target))


def first_refused(
    values: pa.ChunkedArray, cast: Callable[[pa.ChunkedArray], pa.ChunkedArray]
) -> int | None:
    """Return the place of the first value that *cast* refuses with `pa.ArrowInvalid`, None when it takes all."""

    def refused(count: int) -> bool:
        try:
            cast(values.slice(0, count))
        except pa.ArrowInvalid:
            return True
        return False

    if not refused(len(values)):
        return None
    return bisect_left(range(1, len(values) + 1), x=True, key=refused)


def clock_text(moments: pa.ChunkedArray) -> pa.ChunkedArray:
    """Write the time of day of moments as `HH:mm:ss.ffffff`: Delta has no TIME."""
    return pc.strftime(moments, format="%H:%M:%S")


def _cast(values: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    """Cast by way of a type from which pyarrow checks values, not just declared precision."""
    if pa.types.is_decimal(target) and values.type in INTEGERS:
        return values.cast(pa.decimal128(MAX_PRECISION, 0)).cast(target)
    kinds = {values.type, target}
    if any(map(pa.types.is_decimal, kinds)) and any(map(pa.types.is_floating, kinds)):
        # By the digits: Arrow's own cast makes 751.76 a little less, and 0.35 becomes 0.35000000000000003.
        return values.cast(pa.string()).cast(target)
    return values.cast(target)

"""Types: what a table makes of a stored type, and which type holds the values of two.

A *mirror type* is one of twelve Arrow types that Delta has too. Rules:
docs/format.md, "Row markers, columns and types"; landing-zone quirks Q9-Q19.
"""

from __future__ import annotations

from typing import Literal

import pyarrow as pa

NtzPolicy = Literal["utc", "keep"]

INSTANT = pa.timestamp("us", "UTC")
WALL_CLOCK = pa.timestamp("us")
MAX_PRECISION = 38
# What Delta asks of a decimal that an integer column is widened to in place
# (TypeWidening.isTypeChangeSupported).
_INT_DIGITS = {pa.int8(): 10, pa.int16(): 10, pa.int32(): 10, pa.int64(): 20}
INTEGERS = tuple(_INT_DIGITS)
_FLOATS = (pa.float32(), pa.float64())
_EXACT_IN_DOUBLE = (pa.int8(), pa.int16(), pa.int32(), pa.float32())
# By their names: pyarrow 14 has no words for views.
_TEXTS = {
    **dict.fromkeys(("large_string", "string_view"), pa.string()),
    **dict.fromkeys(("large_binary", "binary_view"), pa.binary()),
}
_SAME = (pa.null(), pa.bool_(), *INTEGERS, *_FLOATS, pa.date32(), pa.string(), pa.binary())
_MIRROR_TYPES = {
    **{kind: kind for kind in _SAME},
    pa.uint8(): pa.int16(),  # unsigned: the next wider signed type, as Spark reads them
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
}
_MIRROR_FAMILIES = (
    (pa.types.is_time, pa.string()),
    (pa.types.is_duration, pa.int64()),  # Parquet has none: other readers see the plain number too
    (pa.types.is_fixed_size_binary, pa.binary()),
)


def mirror_type(
    stored: pa.DataType, ntz: NtzPolicy, *, instant: bool = False
) -> pa.DataType | None:
    """Return the mirror type of a stored type, None when it has none; *instant* says that it is INT96."""
    types, stored = pa.types, plain_type(stored)
    if types.is_timestamp(stored):
        return WALL_CLOCK if has_no_zone(stored) and ntz == "keep" and not instant else INSTANT
    if types.is_decimal(stored):
        scale = max(stored.scale, 0)
        precision = stored.precision - min(stored.scale, 0)
        return pa.decimal128(precision, scale) if precision <= MAX_PRECISION else None
    families = (kind for is_kind, kind in _MIRROR_FAMILIES if is_kind(stored))
    return _MIRROR_TYPES.get(stored) or next(families, None)


def plain_type(stored: pa.DataType) -> pa.DataType:
    """Return the type of the values, however Arrow holds them: by a dictionary, in an extension, as views."""
    if pa.types.is_dictionary(stored):
        return plain_type(stored.value_type)
    if isinstance(stored, pa.BaseExtensionType):
        return plain_type(stored.storage_type)
    return _TEXTS.get(str(stored), stored)


def has_no_zone(stored: pa.TimestampType) -> bool:
    """Say whether a timestamp is a wall clock's. What is the zone is not asked: in a damaged file it is not UTF-8."""
    return bool(stored == pa.timestamp(stored.unit))


def widen_type(table: pa.DataType, file: pa.DataType) -> pa.DataType | None:
    """Return the smallest mirror type that holds every value of both, None when there is none."""
    if table == file or pa.types.is_null(file):
        return table
    if pa.types.is_null(table):
        return file
    if table in INTEGERS and file in INTEGERS:
        return max(table, file, key=INTEGERS.index)
    if pa.types.is_float32(table) and pa.types.is_decimal(file):
        return pa.float64()  # whose values are looked at one by one
    if pa.types.is_floating(table) or pa.types.is_floating(file):
        numbers = all(pa.types.is_floating(kind) or kind in INTEGERS for kind in (table, file))
        return pa.float64() if numbers else None
    digits, scale = zip(*(_digits(kind) for kind in (table, file)), strict=True)
    if None not in digits:
        precision = max(digits) + max(scale)
        return pa.decimal128(precision, max(scale)) if precision <= MAX_PRECISION else None
    if pa.date32() in {table, file}:
        return next((kind for kind in (INSTANT, WALL_CLOCK) if kind in {table, file}), None)
    return None


def widens_in_place(table: pa.DataType, wider: pa.DataType) -> bool:
    """Say whether Delta changes a column from *table* to *wider* without rewriting it (PROTOCOL.md, Type Widening)."""
    if table in INTEGERS and wider in INTEGERS:
        return True
    if wider == pa.float64():
        return table in _EXACT_IN_DOUBLE
    if pa.types.is_decimal(wider):
        digits, scale = _digits(table)
        room = wider.precision - wider.scale
        return digits is not None and room >= digits and wider.scale >= scale
    return False


def comparable(file: pa.DataType, table: pa.DataType) -> bool:
    """Say whether some values of the one mirror type can be values of the other."""
    if {file, table} == {pa.date32(), WALL_CLOCK}:
        return True

    def family(kind: pa.DataType) -> str:
        if is_number(kind):
            return "number"
        return "time" if kind in (pa.date32(), INSTANT) else str(kind)

    return family(file) == family(table)


def is_number(kind: pa.DataType) -> bool:
    """Say whether a mirror type is one of numbers."""
    return kind in INTEGERS or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _digits(kind: pa.DataType) -> tuple[int | None, int]:
    """Return digits before and after the point; None for a type that is no exact number."""
    if pa.types.is_decimal(kind):
        return kind.precision - kind.scale, kind.scale
    return _INT_DIGITS.get(kind), 0

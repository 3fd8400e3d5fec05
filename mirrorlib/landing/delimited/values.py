"""Values: what each `DataType` of a `SchemaDefinition` is written like in text, and how it is read.

In: a column's fields as pyarrow split them, NULL where nothing or the `NullValue` stood. Out: the
column in its mirror type. What is decided beyond Microsoft's one example of each: docs/format.md, "Delimited text".
"""

from __future__ import annotations

import base64
import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlib.landing.types import INSTANT, WALL_CLOCK, NtzPolicy
from mirrorlib.landing.values import clock_text

_Fields: TypeAlias = pa.ChunkedArray
Read: TypeAlias = Callable[[_Fields, pa.DataType], _Fields]
Cast: TypeAlias = Callable[[_Fields, pa.DataType], tuple[_Fields, _Fields]]

_INTEGER = r"^[+-]?[0-9]+(\.0*)?$"
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_NO_NUMBER = r"^([+-]?(?i:inf(inity)?)|(?i:nan))$"
_DATE = r"(?P<date>(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])-[0-9]{2}-[0-9]{2})"
_CLOCK = r"(?P<clock>[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6}0*)?)?)"
_ZONE = r"(?: ?(?P<zone>[Zz]|[+-][0-9]{2}(?::?[0-9]{2})?))?"
_DATE_TIME = rf"^{_DATE}(?:[Tt ]{_CLOCK}{_ZONE})?$"
_DATE_ALONE = rf"^{_DATE}(?:[Tt ]00:00(?::00(?:\.0+)?)?[Zz]?)?$"
_TIME_OF_DAY = rf"^(?:{_DATE}[Tt ])?{_CLOCK}{_ZONE}$"
_HEXADECIMAL = r"^0[xX]([0-9a-fA-F]{2})*$"
# As databases write bytes; base64 of random ones is such text once in two thousand million.
_BARE_HEXADECIMAL = re.compile(r"(?=.*[0-9])(?:[0-9a-f]{16,}|[0-9A-F]{16,})")
_SOME = 64  # values: Arrow takes 30 times as long to refuse one as to read one
_LONGEST_CLOCK = len("hh:mm:ss.ffffff")


@dataclass(frozen=True, slots=True)
class DataType:
    """One `DataType` of a `SchemaDefinition`."""

    name: str
    mirror: pa.DataType
    read: Read  # reads fields, or raises `pa.ArrowInvalid` when one of them does not fit
    written: str  # what its values look like, for those who correct them
    # What Arrow's own cast makes of fields as they are, and where that is sure to be what `read` says.
    cast: Cast | None = None

    def mirror_type(self, ntz: NtzPolicy) -> pa.DataType:
        """Return the mirror type under a policy for timestamps without zone."""
        return WALL_CLOCK if self.mirror == INSTANT and ntz == "keep" else self.mirror

    def complaint(self, kind: pa.DataType) -> tuple[str, str]:
        """Say that a value does not fit the mirror type *kind*, and what to do."""
        policy = ", without zone as --ntz keep asks" if kind == WALL_CLOCK else ""
        msg = f"the value is no {self.name}, the type in SchemaDefinition"
        step = f"Write it as {self.written}{policy}, under the same name, or correct DataType in _metadata.json."
        return msg, step


def read_values(fields: _Fields, declared: DataType, kind: pa.DataType) -> _Fields:
    """Read fields as the mirror type *kind* of their declared type, or raise `pa.ArrowInvalid`."""
    if declared is STRING:
        return fields
    if cast := declared.cast:
        with contextlib.suppress(pa.ArrowInvalid):  # a fifth of the patterns' time, as a rule
            cast(fields.slice(0, _SOME), kind)
            values, sound = cast(fields, kind)
            if pc.all(sound).as_py() is not False:
                return values
    trimmed = pc.ascii_trim_whitespace(fields)
    values = pc.if_else(pc.equal(trimmed, ""), pa.scalar(None, pa.string()), trimmed)
    if values.null_count == len(values):
        return pa.chunked_array([pa.nulls(len(values), kind)])
    return declared.read(values, kind)


@dataclass(slots=True, eq=False)
class ByteNotation:
    """How one file writes a ByteArray column: as its first value looks; so no block size matters."""

    hexadecimal: bool | None = None

    def read(self, values: _Fields, _: pa.DataType) -> _Fields:
        """Decode; settle on a notation when the first value comes by."""
        digits = pc.match_substring_regex(values, _HEXADECIMAL)
        if self.hexadecimal is None:
            if _BARE_HEXADECIMAL.fullmatch(pc.drop_null(values)[0].as_py()):
                msg = "hexadecimal digits without 0x are base64, too, of other bytes"
                raise pa.ArrowInvalid(msg)
            self.hexadecimal = bool(pc.drop_null(digits)[0].as_py())
        if self.hexadecimal:
            _demand(digits)
        decode = (lambda text: bytes.fromhex(text[2:])) if self.hexadecimal else _from_base64
        decoded = [None if value is None else decode(value) for value in values.to_pylist()]
        return pa.chunked_array([decoded], pa.binary())


def shape_of(value: str) -> str:
    """Describe a value without giving it away: "7 characters, letters and digits"."""
    tests: tuple[tuple[str, Callable[[str], bool]], ...] = (
        ("letters", str.isalpha),
        ("digits", str.isdigit),
        ("blanks", str.isspace),
        ("signs", lambda one: not (one.isalpha() or one.isdigit() or one.isspace())),
    )
    kinds = [name for name, test in tests if any(map(test, value))]
    count = f"{len(value):,} character{'' if len(value) == 1 else 's'}"
    head, last = ", ".join(kinds[:-1]), kinds[-1:]
    return f"{count}, {' and '.join(part for part in (head, *last) if part)}" if kinds else count


def _demand(fit: _Fields) -> None:
    """Refuse a column unless every value, NULLs aside, fits."""
    if pc.all(fit).as_py() is False:
        msg = "a value is not written like its type"
        raise pa.ArrowInvalid(msg)


def _parts(values: _Fields, pattern: str) -> dict[str, _Fields]:
    """Split values by the groups of a pattern that every one has to match; a group left out is empty."""
    matched = pc.extract_regex(values, pattern)
    _demand(pc.or_(pc.is_valid(matched), pc.is_null(values)))
    there, nothing = pc.is_valid(values), pa.scalar(None, pa.string())
    return {
        field.name: pc.if_else(there, pc.struct_field(matched, field.name), nothing)
        for field in matched.type
    }


def _integers(values: _Fields, kind: pa.DataType) -> _Fields:
    _demand(pc.match_substring_regex(values, _INTEGER))
    return pc.replace_substring_regex(values, r"^\+|\.0*$", "").cast(kind)


def _floats(values: _Fields, kind: pa.DataType) -> _Fields:
    finite = pc.match_substring_regex(values, _NUMBER)
    _demand(pc.or_(finite, pc.match_substring_regex(values, _NO_NUMBER)))
    numbers = pc.replace_substring_regex(values, r"^\+", "").cast(kind)
    _demand(pc.invert(pc.and_(finite, pc.is_inf(numbers))))
    return numbers


def _booleans(values: _Fields, kind: pa.DataType) -> _Fields:
    _demand(pc.match_substring_regex(values, r"^(?i:true|false|1|0)$"))
    return pc.ascii_lower(values).cast(kind)


def _timestamps(values: _Fields, kind: pa.DataType) -> _Fields:
    parts = _parts(values, _DATE_TIME)
    clock = pc.if_else(pc.equal(parts["clock"], ""), "00:00:00", parts["clock"])
    local = pc.binary_join_element_wise(parts["date"], _to_microseconds(clock), "T")
    if kind == WALL_CLOCK:  # an offset has no place in a time on the wall
        _demand(pc.equal(parts["zone"], ""))
        return local.cast(kind)
    zone = pc.if_else(pc.equal(parts["zone"], ""), "Z", pc.ascii_upper(parts["zone"]))
    instants = pc.binary_join_element_wise(local, zone, "").cast(kind)
    _demand(has_four_digits(instants))
    return instants


def has_four_digits(moments: _Fields) -> _Fields:
    """Tell which dates or timestamps are in the years 1, where Delta begins, to 9999."""
    kind = date if pa.types.is_date(moments.type) else datetime
    first, last = (pa.scalar(end, moments.type) for end in (kind.min, kind.max))
    return pc.and_(pc.greater_equal(moments, first), pc.less_equal(moments, last))


def _dates(values: _Fields, kind: pa.DataType) -> _Fields:
    return _parts(values, _DATE_ALONE)["date"].cast(kind)


def _times(values: _Fields, _: pa.DataType) -> _Fields:
    """Write a time of day as Parquet's TIME is mirrored."""
    clock = _to_microseconds(_parts(values, _TIME_OF_DAY)["clock"])
    return clock_text(pc.binary_join_element_wise("1970-01-01", clock, "T").cast(WALL_CLOCK))


def _to_microseconds(clock: _Fields) -> _Fields:
    """Cut the zeros behind the microseconds, which Arrow does not read."""
    return pc.utf8_slice_codeunits(clock, 0, _LONGEST_CLOCK)


def _bytes(values: _Fields, kind: pa.DataType) -> _Fields:
    return ByteNotation().read(values, kind)


def _from_base64(value: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except ValueError as exc:
        msg = "a value is not base64"
        raise pa.ArrowInvalid(msg) from exc


def _cast_integers(fields: _Fields, kind: pa.DataType) -> tuple[_Fields, pa.Array]:
    texts = [buffer.to_pybytes() for one in fields.chunks for buffer in one.buffers()[2:] if buffer]
    decimal = [b"x" not in text and b"X" not in text for text in texts]  # Arrow reads 0x1F as 31
    return fields.cast(kind), pa.array(decimal, pa.bool_())


def _cast_floats(fields: _Fields, kind: pa.DataType) -> tuple[_Fields, _Fields]:
    numbers = fields.cast(kind)
    return numbers, pc.is_finite(numbers)  # infinite may be too large, and Arrow reads nan(x)


def _cast_booleans(fields: _Fields, kind: pa.DataType) -> tuple[_Fields, pa.Array]:
    return fields.cast(kind), pa.array([True])


def _cast_dates(fields: _Fields, kind: pa.DataType) -> tuple[_Fields, _Fields]:
    days = fields.cast(kind)
    return days, has_four_digits(days)


def _cast_timestamps(fields: _Fields, kind: pa.DataType) -> tuple[_Fields, _Fields]:
    try:
        fields.slice(0, _SOME).cast(WALL_CLOCK)
    except pa.ArrowInvalid:  # they have zones
        moments = fields.cast(kind)
    else:
        moments = fields.cast(WALL_CLOCK).cast(kind)
    # Arrow reads an hour alone, too; no offset makes two colons of that.
    timed = pc.greater(pc.count_substring(fields, ":"), 1)
    return moments, pc.and_(timed, has_four_digits(moments))


STRING = DataType("String", pa.string(), lambda fields, _: fields, "text")
_WHOLE = "digits, of a number in its range"
_DECIMAL = "digits with a decimal point, of a number in its range"
_MOMENT = "2025-06-17 14:30:00.123456"
_BYTES = "base64, or everywhere as hexadecimal digits after 0x"
_TYPES = (
    STRING,
    DataType("Int16", pa.int16(), _integers, _WHOLE, _cast_integers),
    DataType("Int32", pa.int32(), _integers, _WHOLE, _cast_integers),
    DataType("Int64", pa.int64(), _integers, _WHOLE, _cast_integers),
    DataType("Double", pa.float64(), _floats, _DECIMAL, _cast_floats),
    DataType("Single", pa.float32(), _floats, _DECIMAL, _cast_floats),
    DataType("Boolean", pa.bool_(), _booleans, "true, false, 1 or 0", _cast_booleans),
    DataType("DateTime", INSTANT, _timestamps, _MOMENT, _cast_timestamps),
    DataType("IDate", pa.date32(), _dates, "2025-06-17", _cast_dates),
    DataType("ITime", pa.string(), _times, "14:30:00.123456"),
    DataType("ByteArray", pa.binary(), _bytes, _BYTES),
)
DATA_TYPES = {declared.name.casefold(): declared for declared in _TYPES}

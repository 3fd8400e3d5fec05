"""Values: every declared type is read exactly as it may be written, or refused."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, date, datetime

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mirrorlib.landing.delimited.values import DATA_TYPES, DataType, read_values, shape_of
from mirrorlib.landing.types import INSTANT, WALL_CLOCK
from texts import dialect, header, refusal, rows

TOP = datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)
NOON = datetime(2025, 6, 17, 14, 30, tzinfo=UTC)
MICRO = datetime(2025, 6, 17, 14, 30, 0, 123456, UTC)


def read(declared: str, *values: str) -> list[object]:
    """Read values as a declared type; the fields are quoted, so that they may hold anything."""
    text = "id,v\n" + "".join(f'1,"{value}"\n' for value in values)
    return [row[1] for row in rows(text.encode(), dialect({"id": "Int32", "v": declared}))]


@pytest.mark.parametrize(
    "declared,kind",
    [
        ("String", pa.string()),
        ("Int16", pa.int16()),
        ("INT32", pa.int32()),
        ("int64", pa.int64()),
        ("Double", pa.float64()),
        ("Single", pa.float32()),
        ("Boolean", pa.bool_()),
        ("DateTime", INSTANT),
        ("IDate", pa.date32()),
        ("ITime", pa.string()),
        ("ByteArray", pa.binary()),
    ],
)
def test_every_declared_type_has_its_mirror_type(declared: str, kind: pa.DataType) -> None:
    """Also in a column that holds nothing."""
    how = dialect({"id": "Int32", "v": declared})

    assert kind == header(b"id,v\n", how).columns[1].type
    assert [(1, None)] == rows(b"id,v\n1,\n", how)


@pytest.mark.parametrize(
    "declared,text,value",
    [
        ("Int16", "-32768", -32768),
        ("Int32", "+2147483647", 2147483647),
        ("Int64", "-9223372036854775808", -(2**63)),
        ("Int32", " 007 ", 7),
        ("Int32", "-0", 0),
        ("Int32", "5.0", 5),
        ("Int32", "5.", 5),
        ("Double", "3.14159", 3.14159),
        ("Double", "-.5", -0.5),
        ("Double", "+5.", 5.0),
        ("Double", "1E-5", 1e-5),
        ("Double", "1.7976931348623157e308", 1.7976931348623157e308),
        ("Double", "Infinity", math.inf),
        ("Double", "-inf", -math.inf),
        ("Double", "+INF", math.inf),
        ("Single", "0.1", 0.10000000149011612),
        ("Single", "3.4028235e38", 3.4028234663852886e38),
        ("Single", "16777217.0000001", 16777218.0),
        ("Boolean", "TRUE", True),
        ("Boolean", "False", False),
        ("Boolean", "1", True),
        ("Boolean", "0", False),
        ("IDate", "1900-01-01", date(1900, 1, 1)),
        ("IDate", "0001-01-01", date(1, 1, 1)),
        ("IDate", "9999-12-31", date(9999, 12, 31)),
        ("IDate", "2024-02-29 00:00:00", date(2024, 2, 29)),
        ("IDate", "2024-02-29T00:00:00.0000000Z", date(2024, 2, 29)),
        ("ITime", "14:30", "14:30:00.000000"),
        ("ITime", "14:30:05", "14:30:05.000000"),
        ("ITime", "2025-06-17 14:30:00", "14:30:00.000000"),
        ("ITime", "2025-06-17T14:30:00.25+02:00", "14:30:00.250000"),
        ("ITime", "23:59:59.9999990", "23:59:59.999999"),
        ("ITime", "00:00:00.5", "00:00:00.500000"),
        ("ByteArray", "AQL/", b"\x01\x02\xff"),
        ("ByteArray", "0x0102fF", b"\x01\x02\xff"),
        ("ByteArray", "0x", b""),
        ("String", " as it is ", " as it is "),
        ("String", "NaN", "NaN"),
    ],
)
def test_a_value_is_read_exactly(declared: str, text: str, value: object) -> None:
    """Blanks around it make no difference but to text."""
    found = read(declared, text)

    assert [value] == found
    assert type(value) is type(found[0])


@pytest.mark.parametrize("text", ["NaN", "nan", "NAN"])
def test_not_a_number_is_a_number(text: str) -> None:
    """In whatever case a platform writes it."""
    (found,) = read("Double", text)

    assert isinstance(found, float)
    assert math.isnan(found)


@pytest.mark.parametrize(
    "text,value",
    [
        ("2025-06-17 14:30:00", NOON),
        ("2025-06-17T14:30:00", NOON),
        ("2025-06-17t14:30z", NOON),
        ("2025-06-17T14:30:00Z", NOON),
        ("2025-06-17 14:30:00.000Z", NOON),
        ("2025-06-17 20:00:00+05:30", NOON),
        ("2025-06-17 20:00:00.0000000 +05:30", NOON),
        ("2025-06-17T09:30:00-0500", NOON),
        ("2025-06-17T15:30:00+01", NOON),
        ("2025-06-17T14:30:00.123456", MICRO),
        ("2025-06-17T14:30:00.1234560", MICRO),
        ("2025-06-17T14:30:00.123456000Z", MICRO),
        ("2025-06-17", datetime(2025, 6, 17, tzinfo=UTC)),
        ("1900-01-01T00:00:00Z", datetime(1900, 1, 1, tzinfo=UTC)),
        ("0001-01-01 00:00:00", datetime(1, 1, 1, tzinfo=UTC)),
        ("9999-12-31T23:59:59.999999Z", TOP),
    ],
)
def test_q40_a_date_time_is_iso_8601_with_or_without_a_zone(text: str, value: datetime) -> None:
    """`Z`, offsets, seven digits that are zeros behind the sixth, and placeholders of old dates."""
    assert [value] == read("DateTime", text)
    assert [value, None, value] == read("DateTime", text, "", text)


def test_date_times_without_zone_may_stay_so() -> None:
    """Then one with a zone has no place in the column."""
    how = dialect({"id": "Int32", "v": "DateTime"})
    plain, zoned = b"id,v\n1,2025-06-17 14:30\n", b"id,v\n1,2025-06-17 14:30Z\n"

    assert WALL_CLOCK == header(plain, how, ntz="keep").columns[1].type
    assert [(1, NOON.replace(tzinfo=None))] == rows(plain, how, ntz="keep")
    error = refusal(zoned, how, ntz="keep")
    assert "the value is no DateTime, the type in SchemaDefinition" == error.reason
    step = "Write it as 2025-06-17 14:30:00.123456, without zone as --ntz keep asks, under the same name, or correct DataType in _metadata.json."
    assert step == error.next_step


@pytest.mark.parametrize(
    "declared,text",
    [
        ("Int32", "5.5"),
        ("Int32", "1e3"),
        ("Int32", "0x1F"),
        ("Int32", "1 000"),
        ("Int32", "1,000"),
        ("Int32", "--1"),
        ("Int32", "\u0661"),
        ("Double", "1,5"),
        ("Double", "0x1p3"),
        ("Double", "."),
        ("Double", "1e"),
        ("Double", "None"),
        ("Double", "-nan"),
        ("Single", "1.5f"),
        ("Boolean", "yes"),
        ("Boolean", "t"),
        ("Boolean", "2"),
        ("DateTime", "17/06/2025"),
        ("DateTime", "2025-6-17"),
        ("DateTime", "2025-02-30"),
        ("DateTime", "2025-06-17 24:00:00"),
        ("DateTime", "2025-06-17 14:30:60"),
        ("DateTime", "2025-06-17 14:30:00.1234567"),
        ("DateTime", "2025-06-17 14:30.5"),
        ("DateTime", "2025-06-17 14:300"),
        ("DateTime", "2025-06-17 14"),
        ("DateTime", "2025-06-17 2:30 PM"),
        ("DateTime", "2025-06-17 14:30 Europe/Paris"),
        ("DateTime", "0001-01-01T00:00:00+00:01"),
        ("DateTime", "9999-12-31T23:59:59-00:01"),
        ("DateTime", "0000-01-01"),
        ("DateTime", "12025-01-01"),
        ("IDate", "2025-06-17 00:00:01"),
        ("IDate", "2023-02-29"),
        ("IDate", "0000-01-01"),
        ("IDate", "20250617"),
        ("ITime", "24:00:00"),
        ("ITime", "2:30"),
        ("ITime", "14:30:00 PM"),
        ("ITime", "14:30:00.1234567"),
        ("ITime", "2025-06-17"),
        ("ByteArray", "AQ"),
        ("ByteArray", "A*=="),
        ("ByteArray", "b'x'"),
        ("ByteArray", "\u00e9\u00e9\u00e9\u00e9"),
    ],
)
def test_what_is_not_exactly_of_its_type_is_refused(declared: str, text: str) -> None:
    """Wherever it stands; the message says what it should look like, and not what it is."""
    how = dialect({"id": "Int32", "v": declared})
    good = {"ByteArray": "AQ==", "Boolean": "1", "DateTime": "2025-01-01", "ITime": "01:01"}
    other = good.get(declared, "2025-01-01" if declared == "IDate" else "1")
    lines = [f'1,"{other}"', "1,", f'1,"{text}"', f'1,"{other}"']

    for bad in range(3):
        mixed = lines[2 - bad :] + lines[: 2 - bad]
        error = refusal(("id,v\n" + "\n".join(mixed)).encode(), how)

        assert f"the value is no {declared}, the type in SchemaDefinition" == error.reason
        assert ("v", bad, bad + 2) == (error.column, error.row, error.line)
        assert shape_of(text) == error.found
        assert len(text) < 3 or f" {text} " not in f" {error} ".replace(
            "2025-06-17 14:30:00.123456", ""
        )
        assert str(error.next_step).startswith("Write it as ")


def test_a_file_keeps_to_the_byte_notation_of_its_first_value() -> None:
    """`0x12` is hexadecimal and base64; what a column begins with decides, whatever is read at once."""
    how = dialect({"id": "Int32", "v": "ByteArray"})
    coded = b"id,v\n1,\n2,AQ==\n3,0x12\n"

    for block_bytes in (10, 16, 1000):
        found = rows(coded, how, block_bytes=block_bytes)
        assert [(1, None), (2, b"\x01"), (3, b"\xd3\x1d\x76")] == found
        assert [(1, b"\x12"), (2, None), (3, b"\xff")] == rows(
            b"id,v\n1,0x12\n2,\n3,0XFF\n", how, block_bytes=block_bytes
        )
        error = refusal(b"id,v\n1,0x12\n2,AQ==\n", how, block_bytes=block_bytes)
        assert (3, "4 characters, letters and signs") == (error.line, error.found)


@pytest.mark.parametrize("value", ["0123456789ABCDEF", "0123456789abcdef" * 2])
def test_hexadecimal_digits_without_0x_are_not_taken_for_base64(value: str) -> None:
    """Databases write bytes so, and base64 of other bytes looks the same; zeros in base64 have no digits."""
    how = dialect({"id": "Int32", "v": "ByteArray"})

    assert "0x" in str(refusal(f"id,v\n1,\n2,{value}\n".encode(), how))
    assert [(1, bytes(12))] == rows(b"id,v\n1,AAAAAAAAAAAAAAAA\n", how)


@pytest.mark.parametrize(
    "value,shape",
    [
        ("", "0 characters"),
        ("x", "1 character, letters"),
        ("12a", "3 characters, letters and digits"),
        ("1 é-", "4 characters, letters, digits, blanks and signs"),
        ("\n", "1 character, blanks"),
        ("x" * 1234, "1,234 characters, letters"),
    ],
)
def test_the_shape_of_a_value_gives_nothing_away(value: str, shape: str) -> None:
    """But how long it is and what kind of characters it has."""
    assert shape == shape_of(value)


_DIGITS = st.integers(-(10**20), 10**20).map(str)
_DAYS = st.dates(date(1, 1, 1)).map(date.isoformat) | st.sampled_from(["0000-01-01", "2024-02-30"])
_CLOCKS = st.sampled_from(
    ["12", "12:30", "1230", "24:00", "23:59:59", "23:59:59.1", "00:00:00.1234567"]
)
_ZONES = st.sampled_from(["", "Z", "z", "+05", "+0530", "-05:30", " +05:30", "+99:99"])
_ALMOST = st.one_of(
    st.none(),
    _DIGITS,
    st.builds(
        "{}{}{}".format,
        _DIGITS,
        st.sampled_from([".", ".0", ".5", "e5", "e400"]),
        st.sampled_from(["", " "]),
    ),
    st.text("0123456789+-.eExXnaif()", max_size=7),
    st.sampled_from(
        [
            "true",
            "FALSE",
            "tRue",
            "1",
            "0",
            "t",
            "nan",
            "nan(1)",
            "-inf",
            "Infinity",
            "0x1F",
            "-0X1f",
        ]
    ),
    _DAYS,
    st.builds("{}{}{}{}".format, _DAYS, st.sampled_from("T t"), _CLOCKS, _ZONES),
)


@pytest.mark.parametrize(
    "declared", ["Int16", "Int32", "Int64", "Double", "Single", "Boolean", "IDate", "DateTime"]
)
@given(fields=st.lists(_ALMOST, min_size=1, max_size=4), wall=st.booleans())
@example(fields=["0x1F"], wall=False)
@example(fields=["nan(1)"], wall=False)
@example(fields=["1e400"], wall=False)
@example(fields=["2024-01-01T12+05:30"], wall=False)
@example(fields=["0000-01-01"], wall=False)
@example(fields=["0000-01-01 00:00:00"], wall=True)
@example(fields=["0001-01-01T00:00:00+01:00"], wall=False)
def test_what_arrow_reads_by_itself_is_what_the_patterns_read(
    declared: str, fields: list[str | None], *, wall: bool
) -> None:
    """Arrow alone would take 0x1F, an hour without minutes, and what is too large."""
    how = DATA_TYPES[declared.casefold()]
    kind = how.mirror_type("keep" if wall else "utc")
    column = pa.chunked_array([fields], pa.string())

    def outcome(how: DataType) -> object:
        try:
            read = read_values(column, how, kind)
        except pa.ArrowInvalid:
            return "refused"
        return read.type, read.cast(pa.string()).to_pylist()

    assert outcome(replace(how, cast=None)) == outcome(how)

"""Types: what a table makes of a file's columns, and that no value is ever rounded, cut or wrapped."""

from __future__ import annotations

import io
import math
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mirrorlib.errors import ChangeFileError, SchemaError
from mirrorlib.landing.columns import FileSchema
from mirrorlib.landing.footer import read_footer
from mirrorlib.landing.types import INSTANT, WALL_CLOCK, mirror_type, widen_type, widens_in_place
from mirrorlib.landing.values import canonical_values, first_misfit, fit_values
from mirrorlib.store import StoredFile

if TYPE_CHECKING:
    from mirrorlib.landing.types import NtzPolicy

DEC = pa.decimal128


def footer(table: pa.Table, *, ntz: NtzPolicy = "utc", **options: object) -> FileSchema:
    """Write a table and read its footer."""
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return read_bytes(sink.getvalue(), ntz=ntz)


def read_bytes(data: bytes, *, ntz: NtzPolicy = "utc") -> FileSchema:
    """Read the footer of a file's bytes."""
    now = datetime.now(UTC)
    file = StoredFile(path="orders/1.parquet", size=len(data), modified=now, etag="e")
    return read_footer(io.BytesIO(data), file, table="orders", ntz=ntz)


def refused(table: pa.Table) -> SchemaError:
    """Give the refusal of a file's columns."""
    with pytest.raises(SchemaError) as caught:
        footer(table)
    assert "1.parquet" == caught.value.file
    return caught.value


@pytest.mark.parametrize(
    "stored,kind",
    [
        (pa.bool_(), pa.bool_()),
        (pa.int8(), pa.int8()),
        (pa.uint8(), pa.int16()),
        (pa.uint16(), pa.int32()),
        (pa.uint32(), pa.int64()),
        (pa.uint64(), DEC(20, 0)),
        (pa.float16(), pa.float32()),
        (pa.large_string(), pa.string()),
        (pa.string_view(), pa.string()),
        (pa.binary_view(), pa.binary()),
        (pa.binary(16), pa.binary()),
        (pa.uuid(), pa.binary()),
        (pa.json_(), pa.string()),
        (pa.date64(), pa.date32()),
        (pa.time32("s"), pa.string()),
        (pa.time64("ns"), pa.string()),
        (pa.duration("us"), pa.int64()),
        (pa.timestamp("ms"), INSTANT),
        (pa.timestamp("ns", "+07:00"), INSTANT),
        (pa.decimal32(5, 2), DEC(5, 2)),
        (pa.decimal256(38, 38), DEC(38, 38)),
        (DEC(3, -2), DEC(5, 0)),
        (pa.dictionary(pa.int8(), pa.large_string()), pa.string()),
        (pa.null(), pa.null()),
        (pa.decimal256(39, 0), None),
        (pa.list_(pa.int8()), None),
        (pa.struct([("a", pa.int8())]), None),
        (pa.map_(pa.string(), pa.string()), None),
    ],
    ids=str,
)
def test_every_stored_type_has_its_mirror_type(
    stored: pa.DataType, kind: pa.DataType | None
) -> None:
    """Or none, which is refused."""
    assert kind == mirror_type(stored, "utc")


def test_timestamps_without_zone_may_stay_so() -> None:
    """Only on request; INT96 is an instant by its history."""
    moment = datetime(2026, 1, 1)
    table = pa.table({"t": pa.array([moment], pa.timestamp("us"))})

    assert INSTANT == footer(table).columns[0].type
    assert WALL_CLOCK == footer(table, ntz="keep").columns[0].type
    int96 = footer(table, ntz="keep", use_deprecated_int96_timestamps=True)
    assert INSTANT == int96.columns[0].type


def test_the_footer_tells_columns_marker_and_rows() -> None:
    """The marker is none of the columns, whatever its case and place."""
    found = footer(pa.table({"id": [1], "__ROWMARKER__": ["1"], "v": ["x"]}))

    assert ["id", "v"] == [column.name for column in found.columns]
    assert ("__ROWMARKER__", pa.string(), 1) == (found.marker, found.marker_type, found.rows)
    assert found.column("V") is found.columns[1]
    assert None is found.column("w")


@pytest.mark.parametrize(
    "array,options,native",
    [
        (pa.array([1]), {}, True),
        (pa.array([datetime(2026, 1, 1)], pa.timestamp("us")), {}, True),
        (pa.array([datetime(2026, 1, 1)], pa.timestamp("us")), {"use_deprecated_int96_timestamps": True}, True),
        (pa.array([datetime(2026, 1, 1)], pa.timestamp("ns")), {}, False),
        (pa.array([time(1)], pa.time64("us")), {}, False),
        (pa.array([1.5], pa.float16()), {}, False),
        (pa.nulls(1), {}, False),
        (pa.array([1]), {"compression": "brotli"}, False),
        (pa.array([1]), {"compression": "lz4"}, True),
        (pa.array([1.5]), {"use_byte_stream_split": True, "use_dictionary": False}, False),
    ],
)  # fmt: skip
def test_what_spark_cannot_read_is_known(
    array: pa.Array, options: dict[str, object], native: bool
) -> None:
    """Such files are written again before Spark sees them."""
    assert native is footer(pa.table({"v": array}), **options).columns[0].native


@pytest.mark.parametrize(
    "name",
    [
        "_change_type",
        "_COMMIT_VERSION",
        "_commit_timestamp",
        "_metadata",
        "_mirror_",
        "_Mirror_op",
        "",
    ],
)
def test_reserved_names_are_refused(name: str) -> None:
    """In any case; a column without a name has none to be called by."""
    error = refused(pa.table({name: [1]}))

    assert name == error.column
    assert "Rename the column" in str(error)


@pytest.mark.parametrize("name", ["a\x00b", "a\x01b", "a\rb", "a`b", "x" * 256])
def test_names_that_cannot_be_carried_are_refused_printably(name: str) -> None:
    """Control characters and names too long, before anything is planned."""
    assert str(refused(pa.table({name: [1]}))).isprintable()


@pytest.mark.parametrize(
    "name", ["a b", "a,b", "a=b", "a.b", "a'b", "${x}", "ก", "x" * 255, "__index_level_0__"]
)
def test_other_names_are_taken(name: str) -> None:
    """Whatever Delta can hold."""
    assert name == footer(pa.table({name: [1]})).columns[0].name


@pytest.mark.parametrize("names", [["v", "V"], ["v", "v"], ["É", "é"]])
def test_columns_that_differ_only_by_case_are_refused(names: list[str]) -> None:
    """Delta takes them for one."""
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=names)

    assert "differ only by case" in str(refused(table))


def test_two_markers_are_refused() -> None:
    """Equal in name or only without regard to case."""
    for names in (["__rowMarker__", "__ROWMARKER__"], ["__rowMarker__"] * 2):
        table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=names)
        assert "two row marker columns" in str(refused(table))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PAR1",
        b"PAR1\0\0\0\0PAR1",
        b"\xff" * 1000,
        b"PAR1" + b"\0" * 100 + b"\xff\xff\xff\x7fPAR1",
    ],
)
def test_what_is_no_parquet_is_refused(data: bytes) -> None:
    """Whatever its last bytes claim."""
    with pytest.raises(ChangeFileError):
        read_bytes(data)


@pytest.mark.parametrize(
    "table,file,wider,in_place",
    [
        (pa.int32(), pa.int32(), pa.int32(), False),
        (pa.int32(), pa.null(), pa.int32(), False),
        (pa.null(), pa.int8(), pa.int8(), False),
        (pa.int32(), pa.int64(), pa.int64(), True),
        (pa.int64(), pa.int32(), pa.int64(), False),
        (pa.int32(), pa.float64(), pa.float64(), True),
        (pa.int8(), pa.float32(), pa.float64(), True),
        (pa.int64(), pa.float64(), pa.float64(), False),
        (pa.float32(), pa.float64(), pa.float64(), True),
        (pa.float64(), pa.int64(), pa.float64(), False),
        (pa.int32(), DEC(4, 2), DEC(12, 2), True),
        (pa.int64(), DEC(20, 0), DEC(20, 0), True),
        (pa.int64(), DEC(4, 2), DEC(22, 2), True),
        (DEC(4, 2), DEC(4, 1), DEC(5, 2), True),
        (DEC(4, 1), DEC(4, 2), DEC(5, 2), True),
        (DEC(4, 2), DEC(6, 4), DEC(6, 4), True),
        (DEC(6, 1), DEC(4, 3), DEC(8, 3), True),
        (DEC(38, 0), DEC(38, 10), None, False),
        (DEC(4, 2), pa.float64(), None, False),
        (pa.date32(), INSTANT, INSTANT, False),
        (pa.string(), pa.int32(), None, False),
        (pa.bool_(), pa.int8(), None, False),
        (pa.string(), pa.binary(), None, False),
        (INSTANT, pa.int64(), None, False),
    ],
    ids=str,
)
def test_the_wider_type_holds_both(
    table: pa.DataType,
    file: pa.DataType,
    wider: pa.DataType | None,
    in_place: bool,
) -> None:
    """The smallest one; None when there is none. Delta's own rules say whether it is widened in place."""
    assert wider == widen_type(table, file)
    if wider is not None and wider != table and not pa.types.is_null(table):
        assert in_place is widens_in_place(table, wider)


def chunked(values: list[object], kind: pa.DataType) -> pa.ChunkedArray:
    """Write values as a column."""
    return pa.chunked_array([pa.array(values, kind)])


@pytest.mark.parametrize(
    "values,kind,target",
    [
        ([5.0, -0.0, None], pa.float64(), pa.int64()),
        ([1, 127], pa.int64(), pa.int8()),
        ([2**53, -(2**53)], pa.int64(), pa.float64()),
        ([2**24], pa.int32(), pa.float32()),
        ([0.5, math.nan, math.inf, None], pa.float64(), pa.float32()),
        ([Decimal("1.0"), Decimal("-7.0")], DEC(9, 1), pa.int8()),
        ([Decimal("1.50")], DEC(9, 2), DEC(2, 1)),
        ([Decimal("0.5")], DEC(1, 1), pa.float32()),
        ([0.25], pa.float64(), DEC(4, 2)),
        ([99], pa.int64(), DEC(2, 0)),
        ([2**63 - 1], pa.int64(), DEC(38, 10)),
        ([datetime(2026, 1, 1, tzinfo=UTC)], INSTANT, pa.date32()),
        ([datetime(1900, 1, 1, tzinfo=UTC)], INSTANT, pa.date32()),
        ([date(1, 1, 1), date(9999, 12, 31)], pa.date32(), INSTANT),
        ([None, None], pa.string(), pa.int32()),
        ([], pa.string(), pa.int32()),
    ],
)
def test_values_that_survive_are_cast(
    values: list[object], kind: pa.DataType, target: pa.DataType
) -> None:
    """To the table's type, value by value."""
    fitted = fit_values(chunked(values, kind), target)

    assert target == fitted.type
    back = fit_values(fitted, kind).to_pylist()
    assert [str(v) for v in values] == [str(v) for v in back] or values == back


@pytest.mark.parametrize(
    "good,bad,kind,target",
    [
        (5.0, 5.5, pa.float64(), pa.int64()),
        (1.0, math.nan, pa.float64(), pa.int64()),
        (1.0, math.inf, pa.float64(), pa.int32()),
        (1.0, 2.0**63, pa.float64(), pa.int64()),
        (1, 128, pa.int64(), pa.int8()),
        (1, 2**53 + 1, pa.int64(), pa.float64()),
        (1, 2**63 - 1, pa.int64(), pa.float64()),
        (1, 2**24 + 1, pa.int32(), pa.float32()),
        (0.5, 0.1, pa.float64(), pa.float32()),
        (0.5, 1e300, pa.float64(), pa.float32()),
        (Decimal("1.00"), Decimal("1.01"), DEC(9, 2), pa.int64()),
        (Decimal("1.00"), Decimal("300.00"), DEC(9, 2), pa.int8()),
        (Decimal("1.10"), Decimal("1.11"), DEC(9, 2), DEC(9, 1)),
        (Decimal("1.10"), Decimal("1000.00"), DEC(9, 2), DEC(3, 1)),
        (0.25, 0.125, pa.float64(), DEC(4, 2)),
        (99, 100, pa.int64(), DEC(2, 0)),
        (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC), INSTANT, pa.date32()),
        (None, "1", pa.string(), pa.int64()),
        (None, 1, pa.int64(), pa.string()),
        (None, True, pa.bool_(), pa.int8()),
        (None, b"x", pa.binary(), pa.string()),
        (None, datetime(2026, 1, 1), WALL_CLOCK, INSTANT),
    ],
)  # fmt: skip
def test_values_that_would_change_are_found(
    good: object, bad: object, kind: pa.DataType, target: pa.DataType
) -> None:
    """Nothing is rounded, cut or wrapped; the first such value is found by its place."""
    values = chunked([good] * 5 + [bad] + [good, bad], kind)

    with pytest.raises(pa.ArrowInvalid):
        fit_values(values, target)
    assert 5 == first_misfit(values, target)
    assert None is first_misfit(values.slice(0, 5), target)


NUMBERS = {
    **{kind: st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for kind, bits in ((pa.int8(), 8), (pa.int32(), 32), (pa.int64(), 64))},
    pa.float64(): st.floats(),
    pa.float32(): st.floats(width=32),
    DEC(5, 2): st.decimals(-999, 999, places=2),
    DEC(20, 0): st.integers(-(10**20) + 1, 10**20 - 1).map(Decimal),
}  # fmt: skip


@given(st.data())
def test_what_is_cast_is_equal(data: st.DataObject) -> None:
    """Between any two number types: what is cast is the same number, digit by digit."""
    kind, target = (
        data.draw(st.sampled_from(list(NUMBERS))),
        data.draw(st.sampled_from(list(NUMBERS))),
    )
    decimal, floating = (
        is_kind(kind) or is_kind(target) for is_kind in (pa.types.is_decimal, pa.types.is_floating)
    )
    assume(not (decimal and floating))  # a double stands for its shortest digits there
    value = data.draw(NUMBERS[kind])
    try:
        fitted = fit_values(chunked([value], kind), target)
    except pa.ArrowInvalid:
        return

    found = fitted[0].as_py()
    assert found == value or (math.isnan(found) and math.isnan(value))


def test_decimals_become_the_nearest_double() -> None:
    """As Spark makes them, bit for bit: Arrow alone would make 0.35 a little too much."""
    values = [Decimal(number).scaleb(-2) for number in range(-2000, 2000)]

    fitted = fit_values(chunked(list(values), DEC(9, 2)), pa.float64())

    assert [float(value) for value in values] == fitted.to_pylist()
    assert values == fit_values(fitted, DEC(9, 2)).to_pylist()


@given(st.data())
def test_the_wider_type_takes_every_value_of_both(data: st.DataObject) -> None:
    """But for a bigint in a double, which is looked at value by value."""
    kinds = st.sampled_from(list(NUMBERS))
    table, file = data.draw(kinds), data.draw(kinds)
    wider = widen_type(table, file)
    if wider is None:
        return
    for kind in (table, file):
        value = data.draw(NUMBERS[kind])
        if wider == pa.float64() and kind == pa.int64() and abs(value) > 2**53:
            continue
        assert target_of(value, kind, wider)


def target_of(value: object, kind: pa.DataType, wider: pa.DataType) -> bool:
    """Say whether a value fits the wider type."""
    return first_misfit(chunked([value], kind), wider) is None


@pytest.mark.parametrize(
    "values,kind,expected",
    [
        (pa.array([time(1, 2, 3)], pa.time32("s")), pa.string(), ["01:02:03.000000"]),
        (pa.array([None, time(0, 0, 0, 1)], pa.time64("us")), pa.string(), [None, "00:00:00.000001"]),
        (pa.array([], pa.time64("us")), pa.string(), []),
        (pa.array([1_000], pa.timestamp("ns")), INSTANT, [datetime(1970, 1, 1, microsecond=1, tzinfo=UTC)]),
        (pa.array([-1], pa.timestamp("ms")), INSTANT, [datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)]),
        (pa.array([0], pa.timestamp("s", "Asia/Bangkok")), INSTANT, [datetime(1970, 1, 1, tzinfo=UTC)]),
        (pa.array([2**64 - 1], pa.uint64()), DEC(20, 0), [Decimal(2**64 - 1)]),
        (pa.array(["x", None]).dictionary_encode(), pa.string(), ["x", None]),
        (pa.array([0], pa.timestamp("us")).dictionary_encode(), INSTANT, [datetime(1970, 1, 1, tzinfo=UTC)]),
        (pa.array([1.5], pa.float16()), pa.float32(), [1.5]),
        (pa.array([b"ab"], pa.binary(2)), pa.binary(), [b"ab"]),
        (pa.array(["x"], pa.string_view()), pa.string(), ["x"]),
        (pa.array([Decimal("1.5")], pa.decimal256(38, 1)), DEC(38, 1), [Decimal("1.5")]),
        (pa.array([5], pa.duration("ms")), pa.int64(), [5]),
    ],
)  # fmt: skip
def test_stored_values_become_mirror_values(
    values: pa.Array, kind: pa.DataType, expected: list[object]
) -> None:
    """Each in its own way."""
    assert expected == canonical_values(pa.chunked_array([values]), kind, "utc").to_pylist()


@pytest.mark.parametrize(
    "kind", [pa.timestamp("ns"), pa.timestamp("ns", "UTC"), pa.time64("ns")], ids=str
)
def test_nanoseconds_are_never_cut(kind: pa.DataType) -> None:
    """A value finer than a microsecond has no place."""
    target = pa.string() if pa.types.is_time(kind) else INSTANT

    with pytest.raises(pa.ArrowInvalid):
        canonical_values(pa.chunked_array([pa.array([1001], kind)]), target, "utc")

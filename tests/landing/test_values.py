"""Values: no value is ever rounded, cut or wrapped, and what does not fit is found."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow", minversion="21", reason="an older one has not all types")

from mirrorlib.landing.types import INSTANT, WALL_CLOCK, widen_type
from mirrorlib.landing.values import canonical_values, first_misfit, fit_values, split_misfits

DEC = pa.decimal128


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
        ([datetime(1, 1, 1), datetime(2026, 1, 1)], WALL_CLOCK, pa.date32()),
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
        (Decimal(2**24), Decimal(2**63 - 1), DEC(20, 0), pa.float32()),
        (Decimal("1.5"), Decimal("1.50000000000000000001"), DEC(38, 20), pa.float32()),
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
    """Between any two number types: what is cast is the same number, digit by digit, or the double of its digits."""
    kind, target = (
        data.draw(st.sampled_from(list(NUMBERS))),
        data.draw(st.sampled_from(list(NUMBERS))),
    )
    value = data.draw(NUMBERS[kind])
    try:
        fitted = fit_values(chunked([value], kind), target)
    except pa.ArrowInvalid:
        return

    found = fitted[0].as_py()
    if pa.types.is_decimal(target) and pa.types.is_floating(kind):
        value = Decimal(shortest(value) if kind == pa.float32() else repr(value))
    elif pa.types.is_decimal(kind) and pa.types.is_floating(target):
        found = Decimal(repr(found))
    assert found == value or (math.isnan(found) and math.isnan(value))


def shortest(value: float) -> str:
    """Write a single with the fewest digits that tell it from its neighbours."""
    told = (f"{value:.{digits}g}" for digits in range(1, 10))
    return next(text for text in told if pa.scalar(float(text), pa.float32()).as_py() == value)


def test_decimals_become_the_nearest_double() -> None:
    """As Spark makes them, bit for bit: Arrow alone would make 0.35 a little too much."""
    values = [Decimal(number).scaleb(-2) for number in range(-2000, 2000)]

    fitted = fit_values(chunked(list(values), DEC(9, 2)), pa.float64())

    assert [float(value) for value in values] == fitted.to_pylist()
    assert values == fit_values(fitted, DEC(9, 2)).to_pylist()


@pytest.mark.parametrize(
    "value,kind,target,expected",
    [
        (751.76, pa.float64(), DEC(38, 18), "751.76"),
        (0.1, pa.float64(), DEC(38, 18), "0.1"),
        (1e-18, pa.float64(), DEC(38, 18), "1e-18"),
        (2.0**60, pa.float64(), DEC(38, 2), "1152921504606847000"),
        (0.1, pa.float32(), DEC(38, 18), "0.1"),
        (0.1, pa.float32(), DEC(12, 12), "0.1"),
        (1e-7, pa.float32(), DEC(38, 18), "1e-7"),
        (16777216.0, pa.float32(), DEC(38, 0), "16777216"),
        (0.1, pa.float32(), DEC(4, 2), "0.1"),
        (0.5, pa.float32(), DEC(4, 2), "0.5"),
    ],
)
def test_doubles_become_the_decimals_that_they_are_written_as(
    value: float, kind: pa.DataType, target: pa.DataType, expected: str
) -> None:
    """As Spark makes them: not by their binary digits, in which 751.76 is a little less."""
    assert [Decimal(expected)] == fit_values(chunked([value], kind), target).to_pylist()


@given(st.data())
def test_the_wider_type_takes_every_value_of_both(data: st.DataObject) -> None:
    """But for a bigint or a decimal in a double, which are looked at value by value."""
    kinds = st.sampled_from(list(NUMBERS))
    table, file = data.draw(kinds), data.draw(kinds)
    wider = widen_type(table, file)
    if wider is None:
        return
    for kind in (table, file):
        value = data.draw(NUMBERS[kind])
        if wider == pa.float64() and kind == pa.int64() and abs(value) > 2**53:
            continue
        if (
            wider == pa.float64()
            and pa.types.is_decimal(kind)
            and Decimal(repr(float(value))) != value
        ):
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
        (
            pa.DictionaryArray.from_arrays(pa.array([0, None], pa.uint32()), pa.array(["x"], pa.string_view())),
            pa.string(),
            ["x", None],
        ),  # as polars has categories
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
    assert expected == canonical_values(pa.chunked_array([values]), kind).to_pylist()


@pytest.mark.parametrize(
    "kind", [pa.timestamp("ns"), pa.timestamp("ns", "UTC"), pa.time64("ns")], ids=str
)
def test_nanoseconds_are_never_cut(kind: pa.DataType) -> None:
    """A value finer than a microsecond has no place."""
    target = pa.string() if pa.types.is_time(kind) else INSTANT

    with pytest.raises(pa.ArrowInvalid):
        canonical_values(pa.chunked_array([pa.array([1001], kind)]), target)


@pytest.mark.parametrize("value", [-1, 86_400_000, 86_400_005])
def test_a_time_that_no_day_has_is_no_other_one(value: int) -> None:
    """DuckDB writes 24:00 as a file can have it: it is not midnight, of which it would become a second row."""
    times = pa.chunked_array([pa.array([0, value], pa.int32()).cast(pa.time32("ms"))])

    with pytest.raises(pa.ArrowInvalid):
        canonical_values(times, pa.string())


@given(
    st.lists(st.none() | st.sampled_from([0.5, 1.0, -0.0, 2.0**53, 1e300, math.inf, 3.0]), max_size=30),
    st.sampled_from([pa.int64(), pa.int8(), DEC(4, 1), pa.float32(), pa.string()]),
)  # fmt: skip
def test_what_fits_is_told_from_what_does_not(
    values: list[float | None], target: pa.DataType
) -> None:
    """Value by value, each on one of two sides and in its place."""
    fitting, others = split_misfits(chunked(values, pa.float64()), target)

    assert (target, pa.float64()) == (fitting.type, others.type)
    assert len(values) == len(fitting) == len(others)
    for value, fit, other in zip(values, fitting.to_pylist(), others.to_pylist(), strict=True):
        misfit = first_misfit(chunked([value], pa.float64()), target) is not None
        assert ((None, value) if misfit else (value, None)) == (fit, other)

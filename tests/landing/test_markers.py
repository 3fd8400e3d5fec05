"""Row markers are read from whatever type publishers gave them (Q2)."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from mirrorlib.landing.columns import small_markers


@pytest.mark.parametrize(
    "values, kind, expected",
    [
        ([0, 1, 2, 4, None], pa.int8(), [0, 1, 2, 4, None]),
        ([0, 4, None], pa.int64(), [0, 4, None]),
        ([3, 5, -1, 2**40], pa.int64(), [-1, -1, -1, -1]),
        ([0, 255], pa.uint8(), [0, -1]),
        (["0", " 4 ", None], pa.string(), [0, 4, None]),
        (["", "D", "01", "-1", "1.0", "٤"], pa.string(), [-1] * 6),
        (["1", "7"], pa.large_string(), [1, 7]),
        ([1.0, 2.5, float("nan"), None], pa.float64(), [1, -1, -1, None]),
        ([Decimal(1), Decimal("1.5")], pa.decimal128(3, 1), [1, -1]),
        ([True, None], pa.bool_(), [-1, None]),
        ([b"1"], pa.binary(), [-1]),
        ([None], pa.null(), [None]),
        ([], pa.string(), []),
    ],
    ids=str,
)
def test_markers_of_any_type(
    values: list[object], kind: pa.DataType, expected: list[int | None]
) -> None:
    """What is no digit, or no marker at all, is never taken for one."""
    for column in (pa.array(values, kind), pa.array(values, kind).dictionary_encode()):
        if pa.types.is_null(kind) and pa.types.is_dictionary(column.type):
            continue
        found = small_markers(pa.chunked_array([column]))

        assert pa.int8() == found.type
        assert expected == found.to_pylist()


def test_markers_are_read_with_the_pyarrow_of_fabrics_runtime(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Version 14 has no string views, nor what asks for them."""
    monkeypatch.delattr(pa, "string_view", raising=False)
    monkeypatch.delattr(pa.types, "is_string_view", raising=False)

    assert [1, -1] == small_markers(pa.chunked_array([pa.array([1, 3])])).to_pylist()


@pytest.mark.skipif(not hasattr(pa, "string_view"), reason="this pyarrow has no string views")
def test_markers_may_be_string_views() -> None:
    """As newer publishers write text."""
    values = pa.array(["0", "9", None], pa.string_view())

    assert [0, 9, None] == small_markers(pa.chunked_array([values])).to_pylist()

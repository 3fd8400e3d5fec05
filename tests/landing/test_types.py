"""Types: what a table makes of a file's columns, and which type holds both."""

from __future__ import annotations

import pyarrow as pa
import pytest

pytest.importorskip("pyarrow", minversion="21", reason="an older one has not all types")

from mirrorlib.landing.types import INSTANT, WALL_CLOCK, mirror_type, widen_type, widens_in_place

DEC = pa.decimal128


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
        (DEC(4, 2), pa.float32(), None, False),
        (pa.float32(), DEC(4, 2), pa.float64(), True),
        (pa.float64(), DEC(4, 2), None, False),
        (pa.date32(), INSTANT, INSTANT, False),
        (WALL_CLOCK, pa.date32(), WALL_CLOCK, False),
        (pa.date32(), WALL_CLOCK, WALL_CLOCK, False),
        (pa.date32(), pa.string(), None, False),
        (WALL_CLOCK, INSTANT, None, False),
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

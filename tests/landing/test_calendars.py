"""Which dates and moments Spark has counted in its old calendar; no Spark is needed to see it."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pyarrow as pa
import pytest

from mirrorlib.landing.footer import first_moved, is_moved, old_calendar

DATE, MOMENT, CLOCK = pa.date32(), pa.timestamp("us", "UTC"), pa.timestamp("us")


@pytest.mark.parametrize(
    "version,keys,counted",
    [
        (None, (), ()),
        (None, ("legacyDateTime", "legacyINT96"), ()),
        ("2.4.8", (), ("datetime", "int96")),
        ("3.0.3", (), ("int96",)),
        ("3.5.0", (), ()),
        ("4.2.0", ("legacyDateTime",), ("datetime",)),
        ("4.2.0", ("legacyINT96",), ("int96",)),
    ],
)
def test_a_footer_says_what_is_counted_in_the_old_calendar(
    version: str | None, keys: tuple[str, ...], counted: tuple[str, ...]
) -> None:
    """By Spark's own rule, which goes by nothing where no version of Spark is told."""
    told = {f"org.apache.spark.{key}".encode(): b"" for key in keys}
    if version is not None:
        told[b"org.apache.spark.version"] = version.encode()

    assert frozenset(counted) == old_calendar(told)
    assert frozenset() == old_calendar(None)


@pytest.mark.parametrize(
    "kind,physical,moved",
    [
        (DATE, "INT32", {"datetime"}),
        (MOMENT, "INT64", {"datetime"}),
        (CLOCK, "INT64", set()),
        (CLOCK, "INT96", {"int96"}),
        (pa.int64(), "INT64", set()),
    ],
)
def test_only_days_and_moments_are_moved(kind: pa.DataType, physical: str, moved: set[str]) -> None:
    """A clock without a zone has no calendar that Spark would move it to."""
    assert moved == {
        way for way in ("datetime", "int96") if is_moved(frozenset({way}), kind, physical)
    }  # type: ignore[arg-type]  # both are its words


@pytest.mark.parametrize(
    "kind,old,new",
    [
        (DATE, date(1582, 10, 14), date(1582, 10, 15)),
        (MOMENT, datetime(1899, 12, 31, 23, 59, 59, tzinfo=UTC), datetime(1900, 1, 1, tzinfo=UTC)),
        (CLOCK, datetime(1899, 12, 31, 23, 59, 59), datetime(1900, 1, 1)),
    ],
    ids=str,
)
def test_the_first_value_that_is_moved_is_found(kind: pa.DataType, old: date, new: date) -> None:
    """What came later is the same in both calendars."""
    assert 2 == first_moved(pa.chunked_array([pa.array([None, new], kind), pa.array([old], kind)]))
    assert None is first_moved(pa.chunked_array([pa.array([None, new], kind)]))
    assert None is first_moved(pa.chunked_array([], kind))

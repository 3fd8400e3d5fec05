"""Make up tables of every type that can be published, publish them, and compare what comes back.

In: a number, which names the values that hypothesis makes up. Out: `Trip`s: a table's name, what it
is published as, and its rows as the oracle replays them. Hypothesis makes up values, not tables: the
rows of a table of forty types take them in turn, so that few tables hold every value.

As a script, in a process whose Spark has S3's connector: publish into a bucket, apply there, compare.
Its arguments are the number and the bucket's URL.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import cache
from typing import Any, Literal

import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

import mirrorlib
from oracle import ChangeFile, Replayed, Row, assert_same_rows, multiset, replay

MARKERS = (0, 1, 2, 4)
ROWS = 60  # of a table's first file: more than any type has values
MADE = 12  # values of each type that hypothesis makes up
SECOND, MICROSECOND = timedelta(seconds=1), timedelta(microseconds=1)
FIRST, LAST = datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)
WORDS = (
    "", " ", "  both sides  ", "NULL", "null", "None", "N/A", '"', '""', '"quoted"', "'", ",", ";", "\t", "\\", "\\\\",
    '\\"', "a\rb", "a\nb", "a\r\nb", "\r\n", "\n", "\x00", "\x1f", "\x7f", "\ufeff", "é", "e\u0301", "東京", "😀", "\u2028",
    "0x", "0x12", "1", "1.0", "true", "NaN", "0001-01-01", "x" * 5_000,
)  # fmt: skip
TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def whole(low: int, high: int) -> tuple[st.SearchStrategy[int], tuple[int, ...]]:
    """Make up whole numbers between two, both of them too."""
    return st.integers(low, high), (low, high, 0)


def floats(width: Literal[16, 32, 64], *more: float) -> tuple[st.SearchStrategy[float], Any]:
    """Make up floating-point numbers of a width."""
    special = (0.0, -0.0, float("inf"), float("-inf"), float("nan"))
    return st.floats(width=width), (*special, *more)


def decimals(precision: int, scale: int) -> tuple[st.SearchStrategy[Decimal], Any]:
    """Make up decimals."""
    most = 10**precision - 1

    def scaled(digits: int) -> Decimal:
        return Decimal((int(digits < 0), tuple(map(int, str(abs(digits)))), -scale))

    return st.integers(-most, most).map(scaled), (scaled(most), scaled(-most), scaled(0))


def moments(
    step: timedelta, zone: Any = None, low: datetime = FIRST, high: datetime = LAST
) -> tuple[st.SearchStrategy[datetime], Any]:
    """Make up moments that are whole steps."""

    def cut(value: datetime) -> datetime:
        left = value.replace(microsecond=0) if step == SECOND else value
        milli = step == timedelta(milliseconds=1)
        return left.replace(microsecond=value.microsecond // 1000 * 1000) if milli else left

    old = (cut(low), cut(high), datetime(1970, 1, 1), datetime(1969, 12, 31, 23, 59, 59))
    zoned = tuple(value.replace(tzinfo=zone) for value in old)
    return st.datetimes(low, high).map(lambda value: cut(value).replace(tzinfo=zone)), zoned


Values = tuple[st.SearchStrategy[Any], Sequence[Any]]
MILLI = timedelta(milliseconds=1)
IN_NANOSECONDS = (datetime(1678, 1, 1), datetime(2262, 1, 1))
DATES: Values = (st.dates(), (date(1, 1, 1), date(9999, 12, 31), date(1582, 10, 10)))
CLOCKS: Values = (st.times(), (time(0), time(23, 59, 59, 999999)))
BYTES: Values = (st.binary(), (b"", b"\x00", b"\xff" * 300))
TYPES: dict[pa.DataType, Values] = {
    pa.bool_(): (st.booleans(), (True, False)),
    pa.int8(): whole(-(2**7), 2**7 - 1),
    pa.int16(): whole(-(2**15), 2**15 - 1),
    pa.int32(): whole(-(2**31), 2**31 - 1),
    pa.int64(): whole(-(2**63), 2**63 - 1),
    pa.uint8(): whole(0, 2**8 - 1),
    pa.uint16(): whole(0, 2**16 - 1),
    pa.uint32(): whole(0, 2**32 - 1),
    pa.uint64(): whole(0, 2**64 - 1),
    pa.float16(): floats(16, 65504.0),
    pa.float32(): floats(32, 2.0**-149, 3.4028234663852886e38),
    pa.float64(): floats(64, 5e-324, 1.7976931348623157e308, 0.1),
    pa.decimal128(1, 0): decimals(1, 0),
    pa.decimal128(12, 3): decimals(12, 3),
    pa.decimal128(38, 0): decimals(38, 0),
    pa.decimal128(38, 38): decimals(38, 38),
    pa.decimal256(30, 2): decimals(30, 2),
    pa.string(): (TEXT, WORDS),
    pa.large_string(): (TEXT, WORDS),
    pa.string_view(): (TEXT, WORDS),
    pa.dictionary(pa.int32(), pa.string()): (TEXT, WORDS),
    pa.binary(): BYTES,
    pa.large_binary(): BYTES,
    pa.binary_view(): BYTES,
    pa.binary(3): (st.binary(min_size=3, max_size=3), (b"\0\0\0", b"\xff\xff\xff")),
    pa.date32(): DATES,
    pa.date64(): DATES,
    pa.time32("s"): (st.times().map(lambda t: t.replace(microsecond=0)), (time(0),)),
    pa.time32("ms"): (st.times().map(lambda t: t.replace(microsecond=5000)), (time(0),)),
    pa.time64("us"): CLOCKS,
    pa.time64("ns"): CLOCKS,
    pa.timestamp("s"): moments(SECOND),
    pa.timestamp("ms"): moments(MILLI),
    pa.timestamp("us"): moments(MICROSECOND),
    pa.timestamp("ns"): moments(MICROSECOND, None, *IN_NANOSECONDS),
    pa.timestamp("s", "UTC"): moments(SECOND, UTC),
    pa.timestamp("ms", "UTC"): moments(MILLI, UTC),
    pa.timestamp("us", "UTC"): moments(MICROSECOND, UTC),
    pa.timestamp("us", "+05:30"): moments(MICROSECOND, UTC, datetime(2, 1, 1), datetime(9998, 1, 1)),
    pa.timestamp("ns", "UTC"): moments(MICROSECOND, UTC, *IN_NANOSECONDS),
}  # fmt: skip
# SchemaDefinition has no Decimal, which is what a uint64 becomes.
NO_TEXT = (pa.decimal128(1, 0), pa.decimal128(12, 3), pa.decimal128(38, 0), pa.decimal128(38, 38),
           pa.decimal256(30, 2), pa.uint64())  # fmt: skip


@dataclass(frozen=True, slots=True)
class Trip:
    """A table that is published: its name and format, and its files as publisher and oracle have them."""

    name: str
    file_format: Literal["parquet", "csv"]
    files: tuple[ChangeFile, ...]

    @property
    def types(self) -> dict[str, pa.DataType]:
        """Return the columns and the types in which they are handed to the writer."""
        left_out = NO_TEXT if self.file_format == "csv" else ()
        return {"id": pa.int64()} | {str(kind): kind for kind in TYPES if kind not in left_out}

    def publish(self, zone: str) -> None:
        """Publish every file."""
        table = mirrorlib.LandingZoneWriter(zone).table(
            self.name, keys="id", file_format=self.file_format
        )
        for file in self.files:
            fields = [pa.field(n, kind, nullable=n != "id") for n, kind in self.types.items()]
            arrays = [array([row[field.name] for row in file.rows], field.type) for field in fields]
            rows = pa.Table.from_arrays(arrays, schema=pa.schema(fields))
            if file.markers is not None:
                rows = rows.append_column("__rowMarker__", pa.array(file.markers, pa.int64()))
            table.write(rows)

    def expected(self) -> Replayed:
        """Replay the files: what has to come back."""
        files = [
            ChangeFile(
                columns=tuple(self.types),
                rows=tuple({name: row[name] for name in self.types} for row in file.rows),
                markers=file.markers,
            )
            for file in self.files
        ]
        return replay(files, keys=["id"])


def array(values: Sequence[object], kind: pa.DataType) -> pa.Array:
    """Make a column of a type."""
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).cast(kind)
    return pa.array(values, kind)


def make_trips(number: int) -> list[Trip]:
    """Make up the tables of a zone: each format with and without markers, and one without a row."""
    names = list(map(str, TYPES))
    first = tuple(row_of(number, place, place) for place in range(ROWS))
    more = tuple(row_of(number, 7 * place + 3, ROWS + place) for place in range(ROWS // 2))
    # Every third key again, and some that are new; of keys that stand there twice, too.
    changes = tuple(
        row_of(number, 5 * place + 1, (3 * place) % (ROWS + 6)) for place in range(ROWS)
    )
    marks = tuple(MARKERS[(place + number) % len(MARKERS)] for place in range(ROWS))
    plain = [file(first), file(()), file(more)]
    marked = [file(first), file(changes, marks), file((), ()), file(changes[::-1], marks)]
    assert set(names) < set(first[0])
    return [
        Trip(f"{file_format}_{what}", file_format, tuple(files))
        for file_format in ("parquet", "csv")
        for what, files in (("plain", plain), ("marked", marked), ("empty", [file(())]))
    ]


def file(rows: Sequence[Row], markers: Sequence[int] | None = None) -> ChangeFile:
    """Make a change file with the columns of all types."""
    marks = None if markers is None else tuple(markers)
    return ChangeFile(columns=("id", *map(str, TYPES)), rows=tuple(rows), markers=marks)


def row_of(number: int, place: int, key: int) -> dict[str, object]:
    """Take each type's value at a place of its list; lists have different lengths."""
    row: dict[str, object] = {"id": key}
    for at, kind in enumerate(TYPES):
        values = values_of(kind, number)
        row[str(kind)] = values[(place + at) % len(values)]
    return row


@cache
def values_of(kind: pa.DataType, number: int) -> list[object]:
    """Give NULL, the extremes of a type, and what hypothesis makes up: always the same of a number."""
    strategy, extremes = TYPES[kind]
    made: list[object] = []

    def collect(value: object) -> None:
        made.append(value)

    run: Callable[[], None] = seed(number)(
        settings(
            max_examples=MADE,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )(given(strategy)(collect))
    )
    run()
    return [None, *extremes, *made]


def assert_came_back(trips: Sequence[Trip], read: Callable[[str], pa.Table]) -> None:
    """Compare every table with what was published; column by column first, as forty in a row are no message."""
    for trip in trips:
        found, expected = read(trip.name), trip.expected()
        assert expected.columns == found.column_names
        assert bool(expected.rows) == any(file.rows for file in trip.files)
        for name in expected.columns:
            mine = multiset({"id": row["id"], name: row[name.lower()]} for row in expected.rows)
            theirs = multiset(found.select(list({"id", name})).to_pylist())
            assert_same_rows(mine, theirs, f"{trip.name}, {name}")
        assert_same_rows(expected.multiset, multiset(found.to_pylist()), trip.name)


def main(number: int, bucket: str) -> None:
    """Take a zone's tables to a bucket and back."""
    conf = {"spark.sql.shuffle.partitions": "2", "spark.sql.codegen.wholeStage": "false"}
    spark = mirrorlib.local_spark(cores=2, conf=conf, stores=[bucket])
    zone, target = f"{bucket}/zone", f"{bucket}/target"
    trips = make_trips(number)
    for trip in trips:
        trip.publish(zone)
    report = mirrorlib.apply(spark, zone, target, settle=0)
    assert report.ok, report
    reader = spark.read.format("delta")
    tables = target.replace("s3://", "s3a://")
    assert_came_back(trips, lambda name: reader.load(f"{tables}/{name}").toArrow())
    spark.stop()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])

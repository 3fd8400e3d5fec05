"""Make up logs: what publishers may legally write about one table, as hypothesis strategies.

A `Log` is a table's keys and its change files in order: markers in any order and any type, rows of
few keys many times over, columns that come, go, move and change their type, files without rows.
Every log here must be applied; none may fail a table. It knows two forms of each file: the one for
the oracle (`ChangeFile`) and the one that is published (Arrow).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from oracle import ChangeFile, Replayed, canonical_row, replay
from zones import MARKER, Place, TableWriter

Types = Callable[[Sequence[object]], list[pa.DataType]]

SEVERAL_FILES = 6
SIZES = (
    12,
    8,
    8,
    6,
    4,
    3,
    2,
    1,
    0,
)  # rows of a file; hypothesis is fond of small lists, folds are not


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """One kind of column: the values that it takes, and the types in which a file may store some of them.

    Attributes:
        name: for people.
        values: all that a column of this kind is filled with.
        types: given the non-NULL values of one file, the types that hold them; any may follow any other.

    """

    name: str
    values: tuple[object, ...]
    types: Types


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFile:
    """One change file.

    Attributes:
        types: column names and types in file order; a null type holds NULLs only.
        rows: values in the order of *types*.
        markers: one a row; None for a file without the column.
        marker_name: in any case.
        marker_type: any type that publishers use.
        marker_at: where the column stands.
        int96: timestamps are written the old way.

    """

    types: tuple[tuple[str, pa.DataType], ...]
    rows: tuple[tuple[object, ...], ...]
    markers: tuple[int | None, ...] | None
    marker_name: str = MARKER
    marker_type: pa.DataType = pa.int32()  # noqa: RUF009  # immutable
    marker_at: Place = "last"
    int96: bool = False

    def change_file(self) -> ChangeFile:
        """Give the file to the oracle; a column is there once a file gives it a type."""
        names = [name for name, _ in self.types]
        return ChangeFile(
            columns=tuple(name for name, kind in self.types if not pa.types.is_null(kind)),
            rows=tuple(dict(zip(names, row, strict=True)) for row in self.rows),
            markers=self.markers,
        )

    def arrow(self) -> pa.Table:
        """Give the data columns as they are published."""
        columns = list(zip(*self.rows, strict=True)) or [()] * len(self.types)
        arrays = [
            _array(values, kind) for values, (_, kind) in zip(columns, self.types, strict=True)
        ]
        return pa.table(arrays, names=[name for name, _ in self.types])


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """Everything that is ever published about one table.

    Attributes:
        keys: key columns.
        files: in order.
        upsert_default: rows without a marker are upserts.

    """

    keys: tuple[str, ...]
    files: tuple[LogFile, ...]
    upsert_default: bool = False

    def replay(
        self, *, insert_policy: str, count: int | None = None, partial: str | None = None
    ) -> Replayed:
        """Ask the oracle what the first *count* files make."""
        return replay(
            [file.change_file() for file in self.files[:count]],
            keys=self.keys,
            insert_policy=insert_policy,
            upsert_default=self.upsert_default,
            partial=partial,
        )

    def publish(self, table: TableWriter, until: int | None = None) -> None:
        """Publish the files up to *until* that are not there yet."""
        table.metadata({"isUpsertDefaultRowMarker": self.upsert_default}, keys=self.keys)
        for file in self.files[table.last : until]:
            publish_file(table, file)

    def smaller(self) -> Iterator[Log]:
        """Give logs with one file, row or value column less, to find what a failure needs."""
        for at in range(len(self.files)):
            yield replace(self, files=self.files[:at] + self.files[at + 1 :])
        for at, file in enumerate(self.files):
            for less in _smaller_file(file, self.keys):
                yield replace(self, files=(*self.files[:at], less, *self.files[at + 1 :]))


def publish_file(table: TableWriter, file: LogFile, partition: str = "") -> None:
    """Publish one file under the next number."""
    table.file(
        file.arrow(),
        file.markers,
        marker_name=file.marker_name,
        marker_type=file.marker_type,
        marker_at=file.marker_at,
        parquet={"use_deprecated_int96_timestamps": file.int96},
        partition=partition,
    )


def _smaller_file(file: LogFile, keys: Sequence[str]) -> Iterator[LogFile]:
    for row in range(len(file.rows)):
        markers = file.markers
        if markers is not None:
            markers = markers[:row] + markers[row + 1 :]
        yield replace(file, rows=file.rows[:row] + file.rows[row + 1 :], markers=markers)
    lowered = [key.lower() for key in keys]
    for at, (name, _) in enumerate(file.types):
        if name.lower() not in lowered:
            rows = tuple(row[:at] + row[at + 1 :] for row in file.rows)
            yield replace(file, types=file.types[:at] + file.types[at + 1 :], rows=rows)


def _array(values: Sequence[object], kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode()
    if pa.types.is_timestamp(kind) and kind.tz is None:
        plain = [
            value.replace(tzinfo=None) if isinstance(value, datetime) else value for value in values
        ]
        return pa.array(plain, kind)
    if pa.types.is_integer(kind):  # a whole number that another file holds as a double
        return pa.array(
            [int(value) if isinstance(value, float) else value for value in values], kind
        )
    if pa.types.is_floating(kind):
        return pa.array([None if value is None else float(value) for value in values], kind)  # type: ignore[arg-type]
    if pa.types.is_decimal(kind):
        step = Decimal(1).scaleb(-kind.scale)
        exact = [None if value is None else Decimal(value).quantize(step) for value in values]  # type: ignore[arg-type]
        return pa.array(exact, kind)
    return pa.array(values, kind)


# Kinds of columns. Each `types` must offer only what the table can always follow, whatever came before.

_INTS = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32())


def _int_types(values: Sequence[object]) -> list[pa.DataType]:
    fitting = [kind for kind in _INTS if all(_in_range(value, kind) for value in values)]
    return [*fitting, pa.float64()]  # Q13: a NULL made pandas write whole numbers as double


def _in_range(value: object, kind: pa.DataType) -> bool:
    signed = pa.types.is_signed_integer(kind)
    bits = kind.bit_width - signed
    return isinstance(value, int) and (-(2**bits) if signed else 0) <= value < 2**bits


def _float_types(values: Sequence[object]) -> list[pa.DataType]:
    numbers = [value for value in values if isinstance(value, float)]
    kinds = [pa.float64()]
    if all(math.isnan(x) or pa.scalar(x, pa.float32()).as_py() == x for x in numbers):
        kinds.append(pa.float32())
    whole = all(math.isfinite(x) and x == int(x) and math.copysign(1, x) > 0 for x in numbers)
    if whole and all(x < 100 for x in numbers):
        kinds += [pa.int8(), pa.int32(), pa.int64()]  # then a fraction comes, and the table widens
    return kinds


_DECIMALS = ((4, 1), (4, 2), (9, 2), (18, 2), (12, 4), (38, 10))


def _decimal_types(values: Sequence[object]) -> list[pa.DataType]:
    numbers = [value for value in values if isinstance(value, Decimal)]
    kinds = [
        pa.decimal128(precision, scale)
        for precision, scale in _DECIMALS
        if all(
            abs(x) < Decimal(10) ** (precision - scale)
            and x == x.quantize(Decimal(1).scaleb(-scale))
            for x in numbers
        )
    ]
    return [*kinds, pa.decimal256(38, 10)]


def _text_types(values: Sequence[object]) -> list[pa.DataType]:
    del values
    return [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]


def _instant_types(values: Sequence[object]) -> list[pa.DataType]:
    kinds = [
        pa.timestamp("us", "UTC"),
        pa.timestamp("us"),
        pa.timestamp("ns"),
        pa.timestamp("ns", "UTC"),
    ]
    if all(isinstance(value, datetime) and value.microsecond % 1000 == 0 for value in values):
        kinds += [pa.timestamp("ms"), pa.timestamp("ms", "Europe/Paris")]
    return kinds


def _only(*kinds: pa.DataType) -> Types:
    return lambda _values: list(kinds)


_BIG = 2**53 - 1
INTEGER = Domain(
    name="integer",
    values=(0, 1, 2, -1, 127, 128, -129, 40_000, -(2**31), 2**31, 3_000_000_000, _BIG, -_BIG),
    types=_int_types,
)
SMALL = Domain(name="small integer", values=(0, 1, 2, 3, -4), types=_int_types)
FLOAT = Domain(
    name="float",
    values=(0.0, -0.0, math.nan, 1.0, 2.0, 0.5, 0.1, -1e300, math.inf, -math.inf),
    types=_float_types,
)
DECIMAL = Domain(
    name="decimal",
    values=(
        Decimal(0),
        Decimal("1.0"),
        Decimal("1.25"),
        Decimal("-9.9"),
        Decimal("123456.78"),
        Decimal("0.0001"),
    ),
    types=_decimal_types,
)
TEXT = Domain(
    name="text",
    values=("", "a", "A", "a ", "ä", "a\u0308", "NULL", "it's `so`", "1", "\U0001f600"),
    types=_text_types,
)
DAY = Domain(
    name="date",
    values=(date(1970, 1, 1), date(1955, 11, 5), date(2026, 2, 28), date(9999, 12, 31)),
    types=_only(pa.date32(), pa.date64()),
)
INSTANT = Domain(
    name="timestamp",
    values=(
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(1955, 11, 5, 6, 15, 0, 1000, tzinfo=UTC),
        datetime(2026, 3, 29, 1, 30, tzinfo=UTC),
        datetime(1999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    ),
    types=_instant_types,
)
FLAG = Domain(name="bool", values=(True, False), types=_only(pa.bool_()))
BYTES = Domain(
    name="binary", values=(b"", b"\x00\xff", b"abc"), types=_only(pa.binary(), pa.large_binary())
)
CLOCK = Domain(
    name="time",
    values=(time(0, 0), time(14, 30), time(23, 59, 59, 999000)),
    types=_only(pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
)

KEY_DOMAINS = (INTEGER, SMALL, TEXT, DAY, DECIMAL, INSTANT, FLAG, FLOAT)
VALUE_DOMAINS = (*KEY_DOMAINS, BYTES, CLOCK)
MARKER_TYPES = (
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.uint8(),
    pa.string(),
    pa.large_string(),
    pa.dictionary(pa.int32(), pa.string()),
    pa.decimal128(1, 0),
    pa.decimal128(18, 0),
    pa.float32(),
    pa.float64(),
)
# What generators choose from: mostly the plain thing, so that the odd one meets it.
_KEY_NAMES = ("id", "Key B", "k_c")
_VALUE_NAMES = ("v", "w", "x", "späte", "Z z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What stays the same in all files of a log: the columns' kinds and the values that they draw from."""

    keys: tuple[tuple[str, Domain], ...]
    key_rows: tuple[tuple[object, ...], ...]
    values: tuple[tuple[str, Domain, tuple[object, ...]], ...]
    upsert_default: bool


@st.composite
def shapes(draw: st.DrawFn, *, mapped_names: bool) -> Shape:
    """Draw the columns of a table and the few keys that its rows have."""
    names = _KEY_NAMES if mapped_names else ("id", "key_b", "k_c")
    width = draw(st.sampled_from([1, 1, 2, 3]))
    keys = tuple((name, draw(st.sampled_from(KEY_DOMAINS))) for name in names[:width])
    one_key = st.tuples(*(_value(domain, nulls=1) for _, domain in keys))
    count = draw(st.sampled_from([4, 3, 2, 1]))
    key_rows = tuple(draw(st.lists(one_key, min_size=count, max_size=count)))
    others = _VALUE_NAMES if mapped_names else ("v", "w", "x", "later", "last")
    values = []
    for name in others[: draw(st.integers(1, len(others)))]:
        domain = draw(st.sampled_from(VALUE_DOMAINS))
        pool = tuple(draw(st.lists(_value(domain, nulls=3), min_size=1, max_size=4)))
        values.append((name, domain, pool))
    default = draw(st.sampled_from([False, False, True]))
    return Shape(keys=keys, key_rows=key_rows, values=tuple(values), upsert_default=default)


def _value(domain: Domain, *, nulls: int) -> st.SearchStrategy[object]:
    """Draw a value of a kind; NULL about *nulls* times in ten."""
    return st.integers(0, 9).flatmap(
        lambda dice: st.none() if dice >= 10 - nulls else st.sampled_from(domain.values)
    )


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """Draw everything that is published about one table."""
    shape = draw(shapes(mapped_names=draw(st.sampled_from([False, False, False, True]))))
    count = draw(st.sampled_from(range(1, SEVERAL_FILES + 1)))
    files = tuple(draw(log_files(shape, place / count)) for place in range(count))
    return Log(
        keys=tuple(name for name, _ in shape.keys), files=files, upsert_default=shape.upsert_default
    )


@st.composite
def log_files(draw: st.DrawFn, shape: Shape, age: float) -> LogFile:
    """Draw one file; *age* runs from 0 to 1 over a log, and later columns come late."""
    size = draw(st.sampled_from(SIZES))
    rows = draw(st.lists(st.sampled_from(shape.key_rows), min_size=size, max_size=size))
    known = shape.values[: 1 + math.ceil(age * len(shape.values))]
    form = draw(st.sampled_from(["all", "all", "all", "some", "keys only"]))
    columns = (
        list(known)
        if form == "all"
        else [c for c in known if form == "some" and draw(st.booleans())]
    )
    markers = draw(_markers(len(rows), form, shape))
    cells = {name: [draw(st.sampled_from(pool)) for _ in rows] for name, _, pool in columns}
    for at, (name, _) in enumerate(shape.keys):
        cells[name] = [row[at] for row in rows]
    domains = {**dict(shape.keys), **{name: domain for name, domain, _ in columns}}
    keys = {name for name, _ in shape.keys}
    order = draw(st.permutations(list(cells))) if draw(st.booleans()) else list(cells)
    types = tuple(
        (draw(_spelling(name, age)), draw(_type(domains[name], cells[name], key=name in keys)))
        for name in order
    )
    return LogFile(
        types=types,
        rows=tuple(zip(*(cells[name] for name in order), strict=True)),
        markers=markers,
        marker_name=draw(st.sampled_from([MARKER, MARKER, MARKER.upper(), MARKER.lower()])),
        marker_type=draw(st.sampled_from(MARKER_TYPES)),
        marker_at=draw(st.sampled_from(["last", "first", "middle"])),
        int96=_int96_holds(cells) and draw(st.sampled_from([False, False, True])),
    )


def _int96_holds(cells: dict[str, list[object]]) -> bool:
    """Say whether no value lies where old writers and new readers disagree about the calendar."""
    moments = [
        value for column in cells.values() for value in column if isinstance(value, datetime)
    ]
    return all(moment > datetime(1901, 1, 1, tzinfo=UTC) + timedelta(days=1) for moment in moments)


def _markers(
    count: int, form: str, shape: Shape
) -> st.SearchStrategy[tuple[int | None, ...] | None]:
    if form == "keys only":
        return st.just((2,) * count)
    known = [0, 0, 1, 1, 2, 2, 4, None] if shape.upsert_default else [0, 0, 1, 1, 2, 2, 4]
    some = st.lists(st.sampled_from(known), min_size=count, max_size=count).map(tuple)
    return st.integers(0, 4).flatmap(lambda dice: st.none() if dice == 4 else some)


def _spelling(name: str, age: float) -> st.SearchStrategy[str]:
    """Spell a column as its publisher does; later files may change the case."""
    return st.sampled_from([name] * 9 + [name.upper()]) if age else st.just(name)


def _type(domain: Domain, values: Sequence[object], *, key: bool) -> st.SearchStrategy[pa.DataType]:
    """Draw a type that holds a column's values; a column of NULLs may have none at all (Q10, Q11)."""
    present = [value for value in values if value is not None]
    kinds = domain.types(present)
    if not present and (not key or not values):
        kinds = [*kinds, pa.null(), pa.null()]
    return st.sampled_from(kinds)


def make_logs(count: int, number: int | None = None) -> list[Log]:
    """Let hypothesis make up *count* logs: always the same ones, or those of a seed *number*.

    It begins small and repeats itself, which is right for shrinking and dull for a few dozen logs:
    of five logs, at most one has a single file or hardly any distinct rows.
    """
    made: list[Log] = []

    def collect(log: Log) -> None:
        if len(made) >= count:
            raise _EnoughError
        if len(made) % 5 == 4 or _is_lively(log):
            made.append(log)

    run = given(logs())(collect)
    run = settings(
        max_examples=20 * count + 50,
        derandomize=number is None,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )(run)
    with contextlib.suppress(_EnoughError):
        (run if number is None else seed(number)(run))()
    return made


class _EnoughError(Exception):
    """There are as many logs as were asked for."""


def _is_lively(log: Log) -> bool:
    rows = [canonical_row(row) for file in log.files for row in file.change_file().rows]
    return len(log.files) > 1 and len(set(rows)) > len(log.files) + 2

"""Turn rows of a change feed into changes that people and JSON can read: what was before, what is now.

In: a feed of any size. Out: `Changes`, at most as many as are asked for, oldest first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import MAXYEAR, MINYEAR, UTC, datetime, timedelta
from itertools import groupby, zip_longest
from math import isfinite, isnan
from typing import TYPE_CHECKING, Any, ClassVar

from mirrorlib.errors import FeedError, printable
from mirrorlib.identifiers import find_name, quote
from mirrorlib.tabular import Cell, Part, Tabular

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row
    from pyspark.sql.types import DataType

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change of one row; as JSON, its shape is a contract.

    The moment when the version was committed is ISO 8601 in UTC. A change is insert, update or delete, or an image of
    an update on its own where no key tells its other one; nothing is before an insert, or after a delete.
    """

    version: int
    timestamp: str
    change: str
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True, repr=False)
class Changes(Tabular):
    """Some changes of a table, oldest first, told by its key columns; there may be more than these."""

    columns: ClassVar = ("version", "change", "key", "columns")
    table: str
    changes: tuple[Change, ...]
    keys: tuple[str, ...]
    more: bool

    def rows(self) -> list[tuple[str, ...]]:
        """Return one row a change; of an update only the columns that differ, each with both values."""
        found = list[tuple[str, ...]]()
        for change in self.changes:
            row = change.after or change.before or {}
            key = ", ".join(_shown(row.get(name)) for name in self.keys) or "-"
            found.append((str(change.version), change.change, key, self._columns(change)))
        return found

    def notes(self) -> list[str]:
        """Say what is not shown."""
        if not self.changes:
            return ["Nothing has changed."]
        return ["There are more: ask for them with --limit."] if self.more else []

    def _columns(self, change: Change) -> Cell:
        before, after, parts = change.before, change.after, list[Part]()
        if before is not None and after is not None:
            names = [name for name, value in after.items() if before.get(name) != value]
            for name in names:
                was, now = _shown(before.get(name)), _shown(after[name])
                parts += [", ", f"{name}: ", (was, "before"), " → ", (now, "after")]
            return Cell(parts[1:] if names else ["unchanged"])
        row, side = (before, "before") if after is None else (after, "after")
        for name, value in (row or {}).items():
            if name not in self.keys:
                parts += [", ", f"{name}: ", (_shown(value), side)]
        return Cell(parts[1:])  # without the first comma


def first_changes(frame: DataFrame, table: str, keys: Sequence[str], limit: int) -> Changes:
    """Collect at most *limit* of the oldest changes that `read_feed` gave; images of an update are one, by the keys."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    from mirrorlib.feed import net

    columns = net.columns_of(frame)
    keys = [find_name(columns, key) or key for key in keys]
    place = net.Helpers(columns).place
    images = Window.partitionBy(net.VERSION, *map(quote, keys), net.KIND)
    nth = f.row_number().over(images.orderBy(*net.orderable(frame, columns)))
    # As a number: a timestamp is given in the zone of this process, and without saying so.
    places = {net.TIME: f.unix_micros(net.TIME), place: nth if keys else f.lit(1)}
    numbered = frame.withColumns(places)
    order = [net.VERSION, *map(quote, keys), place]
    oldest = numbered.orderBy(*order, net.place_of_kind()).limit(2 * (limit + 1))
    try:
        rows = oldest.collect()
    except (OverflowError, ValueError):
        msg = "a row has a moment or a day of a year that Python has no date for"
        raise FeedError(msg, table=table, next_step="Read the feed by Spark: read_feed.") from None
    types = {name: frame.schema[name].dataType for name in columns}
    found = list(_pair(rows, types, keys, place))
    return Changes(table, tuple(found[:limit]), tuple(keys), len(found) > limit)


def _pair(
    rows: Iterable[Row], types: Mapping[str, DataType], keys: Sequence[str], place: str
) -> Iterator[Change]:
    """Make changes of rows in order: the n-th image before of a key belongs to its n-th image after."""
    from mirrorlib.feed import net

    def group(row: Row) -> tuple[object, ...]:
        return (row[net.VERSION], *(_plain(row[key], types[key]) for key in keys), row[place])

    def change(kind: str, before: Row | None, after: Row | None) -> Change:
        was, now = (
            None if row is None else {name: _plain(row[name], one) for name, one in types.items()}
            for row in (before, after)
        )
        row = after if after is not None else before
        assert row is not None  # noqa: S101  # one of the two is there
        at = (_EPOCH + timedelta(microseconds=row[net.TIME])).isoformat()
        return Change(version=row[net.VERSION], timestamp=at, change=kind, before=was, after=now)

    for _, members in groupby(rows, key=group):
        images: dict[str, list[Row]] = {kind: [] for kind in net.ORDER}
        for row in members:
            images[row[net.KIND]].append(row)
        yield from (change(net.DELETE, row, None) for row in images[net.DELETE])
        if keys:
            for before, after in zip_longest(images[net.PRE], images[net.POST]):
                yield change("update", before, after)
        else:
            yield from (change(net.PRE, row, None) for row in images[net.PRE])
            yield from (change(net.POST, None, row) for row in images[net.POST])
        yield from (change(net.INSERT, None, row) for row in images[net.INSERT])


def _plain(value: Any, kind: DataType) -> Any:  # noqa: ANN401  # a value of the data
    """Give a value as JSON can have it; what JSON has no word for is a text."""
    from pyspark.sql import types as t

    if value is None:
        return None
    if isinstance(kind, t.StructType):
        fields = zip(kind.fields, value, strict=True)
        return {field.name: _plain(inner, field.dataType) for field, inner in fields}
    if isinstance(kind, t.ArrayType):
        return [_plain(item, kind.elementType) for item in value]
    if isinstance(kind, t.MapType):
        items = [(_plain(key, kind.keyType), item) for key, item in value.items()]
        return {str(key): _plain(item, kind.valueType) for key, item in items}
    if isinstance(value, float) and not isfinite(value):
        return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    if isinstance(kind, t.TimestampType):
        # PySpark gives it in this process' zone; zones are not known to the first and last days.
        away = {MINYEAR: _DAY, MAXYEAR: -_DAY}.get(value.year, timedelta())
        # Of an hour that comes twice, `fold` tells which one it is, and adding forgets it.
        known = (value + away).replace(fold=value.fold)
        offset = known.astimezone().utcoffset() or timedelta()
        return (value - offset).replace(tzinfo=UTC).isoformat()
    if kind.typeName() == "variant":  # two equal ones differ for Python
        return str(value)
    return value.isoformat() if isinstance(value, datetime) else value


def _shown(value: object) -> str:
    return "NULL" if value is None else printable(str(value))

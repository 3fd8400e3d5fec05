"""Turn rows of a change feed into changes that people and JSON can read: what was before, what is now.

In: a feed of any size. Out: `Changes`, at most as many as are asked for, oldest first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import groupby, zip_longest
from typing import TYPE_CHECKING, Any

from mirrorlib.feed.net import DELETE, FEED_COLUMNS, INSERT, KIND, POST, PRE, TIME, VERSION
from mirrorlib.landing.names import quote
from mirrorlib.tabular import Tabular

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, Row

_ORDER = {DELETE: 0, PRE: 1, POST: 2, INSERT: 3}
_ARROW = "→"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change of one row.

    Attributes:
        version: the Delta version that made it.
        timestamp: when that was committed, ISO 8601.
        change: insert, update or delete; an image of an update on its own where no key tells its other one.
        before: the row before it; None for an insert.
        after: the row after it; None for a delete.

    """

    version: int
    timestamp: str
    change: str
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values; the shape is a contract."""
        return asdict(self)


@dataclass(frozen=True, slots=True, repr=False)
class Changes(Tabular):
    """Some changes of a table.

    Attributes:
        table: its name.
        changes: oldest first.
        keys: its key columns.
        more: there are more than these.

    """

    table: str
    changes: tuple[Change, ...]
    keys: tuple[str, ...]
    more: bool

    def header(self) -> tuple[str, ...]:
        """Name the columns."""
        return ("version", "change", "key", "columns")

    def rows(self) -> list[tuple[str, ...]]:
        """Return one row a change; of an update only the columns that differ."""
        return [
            (str(change.version), change.change, self._key(change), self._columns(change))
            for change in self.changes
        ]

    def notes(self) -> list[str]:
        """Say what is not shown."""
        if not self.changes:
            return ["Nothing has changed."]
        return ["There are more: ask for them with --limit."] if self.more else []

    def _key(self, change: Change) -> str:
        row = change.after or change.before or {}
        return ", ".join(_shown(row.get(key)) for key in self.keys) or "-"

    def _columns(self, change: Change) -> str:
        before, after = change.before or {}, change.after or {}
        if change.before is not None and change.after is not None:
            cells = [
                f"{name}: {_shown(before.get(name))} {_ARROW} {_shown(value)}"
                for name, value in after.items()
                if before.get(name) != value
            ]
            return ", ".join(cells) or "unchanged"
        row = after or before
        return ", ".join(
            f"{name}: {_shown(value)}" for name, value in row.items() if name not in self.keys
        )


def first_changes(frame: DataFrame, table: str, keys: Sequence[str], limit: int) -> Changes:
    """Collect the oldest changes of a feed, the two images of an update as one.

    Args:
        frame: what `read_feed` gave.
        table: the table's name.
        keys: its key columns, by which images are paired.
        limit: how many changes at most.

    """
    from pyspark.sql import functions as f

    kinds = f.create_map(*[f.lit(value) for pair in _ORDER.items() for value in pair])
    order = [f.col(name) for name in (VERSION, *map(quote, keys))]
    rows = frame.orderBy(*order, kinds[f.col(KIND)]).limit(2 * (limit + 1)).collect()
    found = list(_pair(rows, keys))
    return Changes(table, tuple(found[:limit]), tuple(keys), len(found) > limit)


def _pair(rows: Iterable[Row], keys: Sequence[str]) -> Iterator[Change]:
    for _, group in groupby(rows, key=lambda row: (row[VERSION], *(row[key] for key in keys))):
        members = list(group)
        images = {kind: [row for row in members if row[KIND] == kind] for kind in _ORDER}
        yield from (_change(DELETE, row, None) for row in images[DELETE])
        if keys:
            for before, after in zip_longest(images[PRE], images[POST]):
                yield _change("update", before, after)
        else:
            yield from (_change(PRE, row, None) for row in images[PRE])
            yield from (_change(POST, None, row) for row in images[POST])
        yield from (_change(INSERT, None, row) for row in images[INSERT])


def _change(kind: str, before: Row | None, after: Row | None) -> Change:
    row = after if after is not None else before
    assert row is not None  # noqa: S101  # one of the two is there
    return Change(
        version=row[VERSION],
        timestamp=row[TIME].isoformat(),
        change=kind,
        before=None if before is None else _values(before),
        after=None if after is None else _values(after),
    )


def _values(row: Row) -> dict[str, Any]:
    told = row.asDict(recursive=True)
    return {name: _plain(value) for name, value in told.items() if name not in FEED_COLUMNS}


def _plain(value: Any) -> Any:  # noqa: ANN401  # a value of the data
    return bytes(value).hex() if isinstance(value, bytes | bytearray) else value


def _shown(value: object) -> str:
    return "NULL" if value is None else str(value)

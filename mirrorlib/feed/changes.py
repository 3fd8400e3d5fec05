"""Turn rows of a change feed into changes that people and JSON can read: what was before, what is now.

In: a feed of any size. Out: `Changes`, at most as many as are asked for, oldest first.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, zip_longest
from typing import TYPE_CHECKING, Any, ClassVar

from mirrorlib.errors import printable
from mirrorlib.identifiers import find_name, quote
from mirrorlib.tabular import Cell, Part, Tabular

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row


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
    from mirrorlib.feed.exact_text import json_of

    columns = net.columns_of(frame)
    keys = [find_name(columns, key) or key for key in keys]
    place = net.Helpers(columns).place
    images = Window.partitionBy(net.VERSION, *map(quote, keys), net.KIND)
    nth = f.row_number().over(images.orderBy(*net.orderable(frame, columns)))
    numbered = frame.withColumn(place, nth if keys else f.lit(1))
    order = [net.VERSION, *map(quote, keys), place]
    oldest = numbered.orderBy(*order, net.place_of_kind()).limit(2 * (limit + 1))
    # As JSON: Python has no date for some years, and takes equal variants for different.
    values = json_of(frame, [*columns, net.TIME])
    rows = oldest.select(net.VERSION, f.col(place), net.KIND, values).collect()
    found = list(_pair(rows, keys))
    return Changes(table, tuple(found[:limit]), tuple(keys), len(found) > limit)


def _pair(rows: Iterable[Row], keys: Sequence[str]) -> Iterator[Change]:
    """Make changes of rows in order: the n-th image before of a key belongs to its n-th image after."""
    from mirrorlib.feed import net

    told = [(version, place, kind, json.loads(values)) for version, place, kind, values in rows]
    groups = groupby(told, key=lambda one: (*one[:2], *(one[3][key] for key in keys)))
    for group, members in groups:
        images: dict[str, list[dict[str, Any]]] = {kind: [] for kind in net.ORDER}
        for *_, kind, row in members:
            at = row.pop(net.TIME)
            images[kind].append(row)
        change = partial(Change, version=group[0], timestamp=at, before=None, after=None)
        yield from (change(change=net.DELETE, before=row) for row in images[net.DELETE])
        if keys:
            for before, after in zip_longest(images[net.PRE], images[net.POST]):
                yield change(change="update", before=before, after=after)
        else:
            yield from (change(change=net.PRE, before=row) for row in images[net.PRE])
            yield from (change(change=net.POST, after=row) for row in images[net.POST])
        yield from (change(change=net.INSERT, after=row) for row in images[net.INSERT])


def _shown(value: object) -> str:
    return "NULL" if value is None else printable(str(value))

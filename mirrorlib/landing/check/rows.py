"""Review row markers and keys, whatever format they were read from.

In: pieces of a file, in row order, as Arrow columns. Out: a `Scan`: what the rows say, in one pass
and bounded memory; `tell_rows` makes findings of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlib.landing.columns import KNOWN_MARKERS, show_marker, small_markers
from mirrorlib.names import find_key

if TYPE_CHECKING:
    from mirrorlib.landing.check.findings import Findings

INSERT, DELETE = 0, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What a table's metadata says about rows, and how closely to look.

    Attributes:
        table: its name, for messages.
        keys: the declared key columns.
        upsert_default: rows without a marker are upserts.
        stated: the metadata could be read, so that missing keys are really missing.
        deep: decode every page.

    """

    table: str
    keys: tuple[str, ...]
    upsert_default: bool
    stated: bool
    deep: bool


@dataclass(slots=True)
class Rows:
    """Rows that have something in common: how many, and which is the first."""

    count: int = 0
    first: int | None = None
    shown: str = ""

    def see(self, mask: pa.Array | pa.ChunkedArray, start: int, values: pa.ChunkedArray) -> None:
        """Count the true places of *mask*; *start* is the row of its first place."""
        count = pc.sum(mask).as_py() or 0
        if count and self.first is None:
            place = pc.index(mask, value=True).as_py()
            self.first = start + place
            self.shown = show_marker(values, place)
        self.count += count

    @property
    def summary(self) -> str:
        """Say how many there are."""
        return "1 row" if self.count == 1 else f"{self.count:,} rows"


@dataclass(slots=True, kw_only=True)
class Scan:
    """What the rows of one file say.

    Attributes:
        rows: how many there are.
        inserts: rows of marker 0, or without a marker where that is the default.
        deletes: rows of marker 2.
        unknown: rows whose marker means nothing.
        unmarked: rows whose marker is NULL, in a file that has the column.
        changes: rows that need keys.
        null_keys: rows whose key column is NULL, by column.

    """

    rows: int = 0
    inserts: int = 0
    deletes: int = 0
    unknown: Rows = field(default_factory=Rows)
    unmarked: Rows = field(default_factory=Rows)
    changes: Rows = field(default_factory=Rows)
    null_keys: dict[str, Rows] = field(default_factory=dict)

    @property
    def carries_rows(self) -> bool:
        """Say whether some row is more than a delete, and so has to have all columns."""
        return self.rows > self.deletes


def scan_unmarked(rows: int, policy: Policy) -> Scan:
    """Give the scan of a file without a marker column, before its keys are looked at."""
    if policy.upsert_default:
        return Scan(rows=rows, changes=Rows(rows, 0 if rows else None, "4"))
    return Scan(rows=rows, inserts=rows)


def scan_markers(scan: Scan, values: pa.ChunkedArray, start: int, policy: Policy) -> None:
    """Take in one piece of a marker column."""
    markers = small_markers(values)
    known = pc.is_in(markers, value_set=pa.array(KNOWN_MARKERS, pa.int8()))
    given = pc.is_valid(values)
    scan.rows += len(values)
    scan.inserts += pc.sum(pc.equal(markers, INSERT)).as_py() or 0
    scan.deletes += pc.sum(pc.equal(markers, DELETE)).as_py() or 0
    scan.unknown.see(pc.and_(pc.invert(known), given), start, values)
    scan.unmarked.see(pc.invert(given), start, values)
    keyed = pc.and_(known, pc.fill_null(pc.not_equal(markers, INSERT), fill_value=False))
    by_default = pc.and_(pc.invert(given), pa.scalar(policy.upsert_default))
    scan.changes.see(pc.or_(keyed, by_default), start, values)


def scan_keys(scan: Scan, keys: Mapping[str, pa.ChunkedArray], start: int) -> None:
    """Take in one piece of the key columns."""
    for name, values in keys.items():
        seen = scan.null_keys.setdefault(name, Rows())
        seen.see(pc.is_null(values), start, values)


def tell_rows(scan: Scan, policy: Policy, file: str, marker: str | None, found: Findings) -> None:
    """Make findings of a scan."""
    if scan.unknown.count:
        what = f"{scan.unknown.summary}, the first with the marker {scan.unknown.shown!a}"
        found.add("marker-unknown", what, file=file, column=marker, row=scan.unknown.first)
    if scan.unmarked.count:
        rule = "marker-null-defaulted" if policy.upsert_default else "marker-null"
        found.add(rule, scan.unmarked.summary, file=file, column=marker, row=scan.unmarked.first)
    if scan.changes.count and policy.stated and not policy.keys:
        found.add("no-keys", scan.changes.summary, file=file, row=scan.changes.first)
    for name, rows in scan.null_keys.items():
        if rows.count:
            found.add("key-null", rows.summary, file=file, column=name, row=rows.first)


def tell_marker(
    names: Sequence[str], marker: str, kind: pa.DataType | None, file: str, found: Findings
) -> None:
    """Review a marker column's place, spelling and type; *kind* is None where text has no types."""
    if marker != "__rowMarker__":
        found.add("marker-name", f"{marker!a}", file=file, column=marker)
    if names[-1] != marker:
        place = "the first column" if names[0] == marker else "a column in the middle"
        found.add("marker-not-last", place, file=file, column=marker)
    if kind is not None and not pa.types.is_integer(kind):
        found.add("marker-type", f"the type {kind}", file=file, column=marker)


def missing_keys(names: Iterable[str], policy: Policy) -> tuple[str, ...]:
    """Return the key columns that a file lacks; names compare without regard to case."""
    there = tuple(names)
    return tuple(key for key in policy.keys if find_key(there, key) is None)

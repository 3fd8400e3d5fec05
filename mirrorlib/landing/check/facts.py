"""What the review learns of one file, whatever its format: its columns, what its row markers and keys say.

In: pieces of the file, in row order, as Arrow columns. Out: a `Review`, in one pass and bounded memory, and
findings on the way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlib.identifiers import fold_name, with_twins
from mirrorlib.landing.check.report import Findings
from mirrorlib.landing.columns import DELETE, INSERT, judge_markers, refusal_of, show_marker
from mirrorlib.landing.delimited.dialect import Dialect
from mirrorlib.landing.metadata.declared import TableMetadata
from mirrorlib.names import extension_of, find_key, partition_values
from mirrorlib.store import StoredFile

UNSTATED = TableMetadata(partitioned=True)  # where no metadata can be read: nothing contradicts it


@dataclass(eq=False)
class UnreadableError(Exception):
    """A file cannot be read; carries the rule that says why."""

    found: str
    rule: str
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How a table's files are read, and how closely to look."""

    table: str
    metadata: TableMetadata  # what its publisher states; `UNSTATED` where nothing can be understood
    dialect: Dialect | None  # how its text is written; None where it cannot be read
    deep: bool

    @property
    def stated(self) -> bool:
        """Say whether the metadata could be read, so that missing keys are really missing."""
        return self.metadata is not UNSTATED

    @property
    def by_time(self) -> bool:
        """Say whether times order the files, and not numbers."""
        return self.metadata.detection == "last_update_time"

    def is_text(self, file: StoredFile) -> bool:
        """Say how a file is read: by the metadata, and by its name only where there is none."""
        if self.stated:
            return self.metadata.is_text
        return extension_of(file.name) != "parquet"

    def missing_keys(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the key columns that a file lacks; names compare without regard to case."""
        there = tuple(names)
        return tuple(key for key in self.metadata.stated_keys if find_key(there, key) is None)


@dataclass(slots=True)
class Rows:
    """Rows that have something in common: how many, and which is the first."""

    count: int = 0
    first: int | None = None

    def see(self, mask: pa.Array | pa.ChunkedArray, start: int) -> None:
        """Count the true places of *mask*; *start* is the row of its first place."""
        count = pc.sum(mask).as_py() or 0
        if count and self.first is None:
            self.first = start + pc.index(mask, value=True).as_py()
        self.count += count

    @property
    def summary(self) -> str:
        """Say how many there are."""
        return "1 row" if self.count == 1 else f"{self.count:,} rows"


@dataclass(slots=True, kw_only=True)
class Review:
    """One file under review: what it breaks is told, and what it holds is kept to compare it with its neighbours."""

    file: StoredFile
    handle: BinaryIO
    policy: Policy
    found: Findings
    # Data columns, of their mirror types; None for delimited text, whose types are declared once.
    columns: tuple[pa.Field, ...] | None = None
    marked: bool = False  # it has a marker column
    rows: int = 0
    deletes: int = 0  # rows of marker 2
    unknown: Rows = field(default_factory=Rows)  # rows whose marker means nothing
    shown: str | None = None  # the first of those markers
    # Rows whose marker is NULL, in a file that has the column.
    unmarked: Rows = field(default_factory=Rows)
    changes: Rows = field(default_factory=Rows)  # rows that need keys
    # Rows whose key column is NULL, by column.
    null_keys: dict[str, Rows] = field(default_factory=lambda: defaultdict(Rows))

    def tell(self, rule: str, found: str, **place: str | int | None) -> None:
        """Note that the file breaks a rule, in a column, a row or a line."""
        self.found.add(rule, found, file=self.file.name, **place)  # type: ignore[arg-type]  # no *fix* is

    def see_unmarked(self, rows: int) -> None:
        """Take in rows of a file without a marker column."""
        self.rows += rows
        if self.policy.metadata.upsert_default:
            self.changes = Rows(self.rows, 0 if self.rows else None)

    def see_markers(self, values: pa.ChunkedArray) -> None:
        """Take in one piece of a marker column."""
        (markers, unknown, null), start = judge_markers(values), self.rows
        self.rows += len(values)
        self.deletes += pc.sum(pc.equal(markers, DELETE)).as_py() or 0
        self.unknown.see(unknown, start)
        if self.unknown.first is not None and self.shown is None:
            self.shown = show_marker(values, self.unknown.first - start)
        self.unmarked.see(null, start)
        keyed = pc.fill_null(pc.not_equal(markers, INSERT), self.policy.metadata.upsert_default)
        self.changes.see(pc.and_(keyed, pc.invert(unknown)), start)

    def tell_rows(self, marker: str | None) -> None:
        """Make findings of what the rows say."""
        metadata, unknown, unmarked = self.policy.metadata, self.unknown, self.unmarked
        if unknown.count:
            what = f"{unknown.summary}, the first with the marker {self.shown!a}"
            self.tell("marker-unknown", what, column=marker, row=unknown.first)
        if unmarked.count:
            rule = "marker-null-defaulted" if metadata.upsert_default else "marker-null"
            self.tell(rule, unmarked.summary, column=marker, row=unmarked.first)
        if self.changes.count and self.policy.stated and not metadata.key_columns:
            self.tell("no-keys", self.changes.summary, row=self.changes.first)
        for name, rows in self.null_keys.items():
            if rows.count:
                self.tell("key-null", rows.summary, column=name, row=rows.first)

    def tell_marker(self, names: Sequence[str], marker: str, kind: pa.DataType) -> None:
        """Review a marker column's place, spelling and type; text has no types, and gives an integer's."""
        if marker != "__rowMarker__":
            self.tell("marker-name", f"{marker!a}", column=marker)
        if names[-1] != marker:
            place = "the first column" if names[0] == marker else "a column in the middle"
            self.tell("marker-not-last", place, column=marker)
        if not pa.types.is_integer(kind):
            self.tell("marker-type", f"the type {kind}", column=marker)

    def good_names(self, names: Iterable[str]) -> frozenset[str]:
        """Return the column names that a table can have; say of the others why it cannot."""
        good: set[str] = set()
        for name, first in with_twins(names):
            if reason := refusal_of(name):
                self.tell("column-name", reason, column=name[:80])
            elif first is not None:
                self.tell("columns-collide", f"{first!a} and {name!a}"[:80], column=name)
            else:
                good.add(name)
        return frozenset(good)

    def given_names(self, names: Iterable[str]) -> frozenset[str]:
        """Return the good names that its partition folders state and the file, which has these *names*, lacks."""
        there = set(map(fold_name, names))
        stated = partition_values(self.file.name)
        return self.good_names(name for name in stated if fold_name(name) not in there)

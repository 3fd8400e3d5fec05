"""Verify that tables hold what the landing files come to that were applied to them.

In: a landing zone and a target. Out: `VerifyReport`. What cannot be verified is said by name, and is not equal. Nothing
is written but, in the state folder, `verified/<table>.json`, which version was found right last, and for a while what
Spark cannot read as it lies.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from mirrorlib.delta.address import FeedTable, find_feed_table
from mirrorlib.delta.columns import find_column, spelled_keys, to_columns
from mirrorlib.delta.sessions import lend_session
from mirrorlib.delta.trouble import as_mirror_error
from mirrorlib.errors import ChangeFileError, ForeignWriteError, JournalError
from mirrorlib.events import emit, pick
from mirrorlib.feed.changes import Change
from mirrorlib.feed.declared_keys import table_address
from mirrorlib.feed.read import read_rows
from mirrorlib.ingest.batch.spark_reader import Stage
from mirrorlib.journal.disk import Journal
from mirrorlib.journal.entries import Entry, new_attempt, now
from mirrorlib.journal.plan_log import Values
from mirrorlib.landing.plain import RESCUED
from mirrorlib.names import TableName, matches, refuse_unmatched
from mirrorlib.operate.ledger import find_applied
from mirrorlib.operate.replay import SIDE, Opened, Sides, list_batches, open_files, read_files
from mirrorlib.store import PathOrUrl, Store, open_store
from mirrorlib.store.target import Target
from mirrorlib.tabular import Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COLUMNS = ("table", "state", "version", "files", "expected", "found", "seconds")
_WELL = frozenset({"equal", "marked"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A key whose rows differ, or, with an empty *key*, a row of a table without keys.

    *values* are what is expected and found, by column, where that is to be shown: of a row on both sides what differs.
    """

    key: Mapping[str, Any]
    what: str
    values: Mapping[str, tuple[Any, Any]]

    @classmethod
    def of(cls, change: Change, keys: Sequence[str], *, show_values: bool) -> Difference:
        """Tell a change of what is expected to what is found."""
        expected, found = change.before or {}, change.after or {}
        row, what = expected or found, "is missing" if expected else "is not expected"
        pairs = {name: (expected.get(name), found.get(name)) for name in row}
        if expected and found:
            pairs = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
            what = f"differs in {', '.join(pairs)}"
        key = {name: row[name] for name in keys}
        return cls(key=key, what=what, values=pairs if show_values else {})

    def __str__(self) -> str:
        """Say it in one line, NULL as None."""
        key = ", ".join(f"{name} = {value}" for name, value in self.key.items())
        pairs = [f"{name} {one} -> {other}" for name, (one, other) in self.values.items()]
        return ": ".join([f"{key or 'a row'} {self.what}", *([", ".join(pairs)] if pairs else [])])


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What came of one table.

    Attributes:
        table: "dbo/orders".
        state: equal; different; marked, and taken for right from now on; or not verified.
        version: the Delta version that was looked at.
        since: the version that was taken for right, and verified from there; None where all of the past was.
        files: how many landing files were read.
        expected: how many rows there have to be, of those that were looked at; *found* how many there are.
        differences: the first of them; there may be *more*.
        reasons: why it was not verified, what of it was not, and what else is to be known.

    """

    table: str
    state: Literal["equal", "different", "marked", "not verified"]
    version: int | None = None
    since: int | None = None
    files: int = 0
    expected: int = 0
    found: int = 0
    differences: tuple[Difference, ...] = ()
    more: bool = False
    reasons: tuple[str, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class VerifyReport(Report):
    """What came of every table."""

    columns: ClassVar = _COLUMNS
    target: str
    tables: tuple[Verified, ...]

    @property
    def ok(self) -> bool:
        """Say whether every table is equal, or was marked."""
        return all(table.state in _WELL for table in self.tables)

    def rows(self) -> list[tuple[str, ...]]:
        """Return one row a table."""
        told = [[getattr(table, name) for name in _COLUMNS] for table in self.tables]
        return [
            tuple(f"{one:,}" if isinstance(one, int) else str(one or "-") for one in row)
            for row in told
        ]

    def notes(self) -> list[str]:
        """Say of each table what differs, and what is to be known."""
        lines = list[str]()
        for table in self.tables:
            said = [*table.differences, *(["there may be more"] if table.more else ())]
            lines += [f"{table.table}: {one}" for one in (*said, *table.reasons)]
        return lines


def verify_tables(
    spark: SparkSession,
    landing_zone: PathOrUrl,
    target: PathOrUrl,
    *,
    tables: Sequence[str] = (),
    sample: float = 1.0,
    show_values: bool = False,
    mark: bool = False,
    catalog: str | None = None,
    state: PathOrUrl | None = None,
) -> VerifyReport:
    """Compare what tables hold with what the landing files come to that were applied to them.

    A table is taken as it is now, whoever wrote it; while a batch is under way, as it was before that. Files are known
    by what they hold, also where they were moved to `_ProcessedFiles`. Where some are gone, the version that was found
    equal last takes their place, as long as Delta can read it. Of columns that no file can hold nothing is said, nor
    of `_rescued_data`, which names files by where they lay.

    Args:
        spark: any Spark with Delta.
        landing_zone: as for `apply`.
        target: as for `apply`.
        tables: names or globs; empty is all of them.
        sample: the share of keys to look at; all of the files and tables is read all the same.
        show_values: let differences tell all values, not only those of keys.
        mark: where files are gone, take the table for right as it is, and verify what comes from now on.
        catalog: as for `apply`.
        state: as for `apply`.

    Raises:
        JournalError: nothing has ever been applied to this target.
        LandingZoneError: a pattern matches none of its tables, or it has none.

    """
    place = Target.of(target, catalog=catalog, state=state)
    zone, store = open_store(landing_zone), open_store(place.state)
    applied = [*find_applied(store)]
    refuse_unmatched(tables or ("*",), applied)
    names = [name for name in applied if matches(name, tables)]

    def verify(name: TableName) -> Verified:
        began = time.perf_counter()
        try:
            with lend_session(spark) as session:
                table = find_feed_table(session, table_address(place, name), shown=name.shown)
                look = _Look(session, zone, store, name, table, sample, show_values)
                told = look.verify(mark=mark)
        except Exception as exc:  # noqa: BLE001  # one table's trouble is not its neighbours'
            reason = f"not verified: {as_mirror_error(exc, name.shown)}"
            told = Verified(table=name.shown, state="not verified", reasons=(reason,))
        told = replace(told, seconds=round(time.perf_counter() - began, 1))
        said = {**pick(told, *_COLUMNS, "reasons"), "well": told.state in _WELL}
        emit("verify", "%(table)s: %(state)s, version %(version)s", **said)
        return told

    return VerifyReport(target=place.shown, tables=tuple(map(verify, names)))


@dataclass(frozen=True, slots=True)
class _Look:
    """One table that is looked at, and how."""

    spark: SparkSession
    zone: Store
    state: Store
    name: TableName
    table: FeedTable
    sample: float
    show_values: bool

    def verify(self, *, mark: bool) -> Verified:
        """Verify it; remember its version where it is equal, or where files are gone and *mark* asks for it."""
        journal = Journal(self.state, self.name)
        version, reasons = self._settled(journal)
        entries = list_batches(journal, version)
        ends = [[one.plan.life, one.plan.batch] for one in entries]
        right = {"version": version, "batch": ends[-1], "at": now()}
        right["table"] = self.table.commits.metadata_at(version).id
        kept, path = Values(self.state, self.name.shown), f"verified/{self.name.segment}.json"
        told, since = Verified(table=self.name.shown, state="marked", version=version), None
        try:
            opened = open_files(self.zone, self.name, entries)
        except ChangeFileError as exc:
            if mark:
                kept.write_status(path, {**right, "how": "marked"})
                return replace(told, reasons=(f"taken for right from now on; not verified: {exc}",))
            known = kept.read_status(path)
            if known.get("batch") not in ends or known["table"] != right["table"]:
                raise
            since = int(known["version"])
            reasons.append(f"from version {since} on, which was {known['how']} at {known['at']}")
            opened = open_files(self.zone, self.name, entries[ends.index(known["batch"]) + 1 :])
        stage = Stage(spark=self.spark, state=self.state, folder=f"verified/{new_attempt()}")
        try:
            sides, left = self._sides(stage, opened, entries[-1], version, since)
            compared = sides.compare()
        finally:
            self.state.delete_folder(stage.folder)
        equal = not (compared.changes or compared.more)
        if equal and self.sample == 1:
            kept.write_status(path, {**right, "how": "verified"})
        reasons += [f"a sample: {self.sample:g} of the keys"] if self.sample < 1 else []
        return replace(
            told,
            state="equal" if equal else "different",
            since=since,
            files=len(opened),
            expected=compared.expected,
            found=compared.found,
            differences=tuple(
                Difference.of(one, sides.keys, show_values=self.show_values)
                for one in compared.changes
            ),
            more=compared.more,
            reasons=(*reasons, *(f"not verified: the column {name}" for name in left)),
        )

    def _settled(self, journal: Journal) -> tuple[int, list[str]]:
        """Return the version to look at, of whose batches it is known how they ended, and what to say of it."""
        newest = self.table.commits.newest  # first, as what is planned after that is not in it
        entry = journal.newest_of(journal.lives())
        if entry is None or entry.done is not None:
            return newest, []
        before = (entry.plan.previous or {}).get("version", -1)
        return before, [f"batch {entry.plan.batch} is under way, and this is the table before it"]

    def _sides(
        self, stage: Stage, opened: Sequence[Opened], last: Entry, version: int, since: int | None
    ) -> tuple[Sides, list[str]]:
        """Read both sides, and name the columns that are left out; *last* is the newest batch."""
        from pyspark.sql import functions as f

        conditional = {source.policies.conditional or "" for source, _ in opened} or {""}
        if len(conditional) > 1:
            msg = (
                "updates were conditional in some batches only, and what that comes to is not told"
            )
            raise JournalError(msg, table=self.name.shown)
        rows = read_rows(self.spark, self.table, version)
        start = None if since is None else read_rows(self.spark, self.table, since)
        every = to_columns(rows.dtypes)
        had = last.done.columns if last.done else ()
        if gone := [name for name, _ in had if not find_column(every, name)]:
            msg = "the table lacks a column that it had after its last batch"
            raise ForeignWriteError(msg, table=self.name.shown, column=gone[0])
        # What was rescued names files by where they lay when they were applied.
        columns = tuple(column for column in every if column.name != RESCUED)
        by = find_column(columns, conditional.pop())
        sides = Sides(
            rows=read_files(stage, opened, columns, start),
            found=rows.withColumn(SIDE, f.lit(-1)),
            columns=tuple(column.name for column in columns),
            keys=spelled_keys(columns, last.plan.policies.keys),
            conditional=by.name if by else None,
            sample=self.sample,
        )
        return sides, [name for name in rows.columns if name not in sides.columns]

"""Tell from its landing files what a table has to hold, by a fold of its own, and compare that with what it holds.

In: the batches that a table's journal knows as applied, and the zone. Out: rows, and `Compared`. Files are decoded and
cast as `apply` does it, by each batch's policies. What their markers come to is told anew, by windows of SQL over all
rows at once. Both sides are read once, and hashed; where hashes differ they are read once more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import groupby
from typing import TYPE_CHECKING, TypeAlias

from mirrorlib.commit.staged import SET
from mirrorlib.delta.columns import Columns
from mirrorlib.errors import FileChangedError, JournalError
from mirrorlib.feed.changes import Change, first_changes
from mirrorlib.feed.net import KIND, POST, PRE, TIME, VERSION
from mirrorlib.identifiers import find_name, quote
from mirrorlib.ingest.batch.evolve import Growth
from mirrorlib.ingest.batch.open_batch import Prepared
from mirrorlib.ingest.batch.snapshot import digest
from mirrorlib.ingest.batch.spark_reader import Stage, read_frame
from mirrorlib.ingest.files.cleanup import PLACES
from mirrorlib.ingest.files.continued_life import applied_entries
from mirrorlib.ingest.files.source import Source
from mirrorlib.ingest.rows.marks import MARKER, ORDER, ROWS_PER_FILE
from mirrorlib.ingest.rows.read import Landed, read_landed
from mirrorlib.journal.disk import Journal
from mirrorlib.journal.entries import Entry, PlannedFile
from mirrorlib.landing.columns import DELETE, INSERT
from mirrorlib.names import TableName
from mirrorlib.store import Store

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Opened: TypeAlias = tuple[Source, Landed]
_DELETES, _BEFORE, _FINAL = "_mirror_deletes", "_mirror_before", "_mirror_final"
SIDE = "_mirror_side"  # -1 for a row that is found, 1 for one that takes such a row back, as logs of changes have
_WANTED, _HASH = "_mirror_wanted", "_mirror_hash"
_BUCKETS = 4096
_LOOKED_AT = 200_000  # rows of both sides, in buckets that differ
_NAMED = 10  # keys that differ


def list_batches(journal: Journal, until: int) -> list[Entry]:
    """Give the batches that make up a table at a version, oldest first; of snapshots the last file alone.

    Raises:
        JournalError: there is none.

    """
    lives = journal.lives()
    first = max((place for place, life in enumerate(lives) if not life.keeps), default=0)
    found = [
        entry
        for life in lives[first:]
        for entry in reversed([*applied_entries(journal, life, journal.newest(life))])
        if entry.done is not None and entry.done.version <= until
    ]
    if not found:
        msg = "no batch of the table's present life has been applied"
        raise JournalError(msg, next_step="Run: mirrorlib apply")
    last = found[-1].plan
    if last.policies.snapshots:
        return [replace(found[-1], plan=replace(last, files=last.files[-1:]))]
    return found


def open_files(zone: Store, name: TableName, entries: Sequence[Entry]) -> list[Opened]:
    """Open the files of batches where they were, or where applied files are moved to.

    Raises:
        FileChangedError: one is gone, or is not what was applied.

    """
    places, opened = [*list_places(zone, name)], list[Opened]()
    for entry in entries:
        policies = entry.plan.policies
        source = Source(zone=zone, table=name.shown, folder=name.folder, policies=policies)
        opened += [(source, open_planned(source, one, places)) for one in entry.plan.files]
    return opened


def list_places(zone: Store, name: TableName) -> Iterator[str]:
    """Name the folders in which a table's applied files may lie, their own first."""
    yield name.folder
    for place in PLACES.values():
        listed = zone.list_folder(f"{name.folder}/{place}")
        days = ("", *(f"/{day}" for day in listed.folders)) if listed else ()
        yield from (f"{name.folder}/{place}{day}" for day in days)


def open_planned(source: Source, planned: PlannedFile, places: Iterable[str]) -> Landed:
    """Open a file that was planned, in the first place that has it; `FileChangedError` where none has."""
    msg = "the change file is gone"
    for place in places:
        one = source.zone.stat(f"{place}/{planned.name}")
        if one is None:
            continue
        msg = "the change file is not what was applied"
        landed = read_landed(source, replace(one, below=planned.name), decode=False)
        # Earlier versions kept no fingerprint of what a file holds.
        same_file = not planned.fingerprint and one.etag == planned.etag
        if same_file or landed.fingerprint == planned.fingerprint:
            return landed
    step = "Bring it back, or verify only what comes from now on: --mark"
    raise FileChangedError(msg, table=source.table, file=planned.name, next_step=step)


def read_files(
    stage: Stage, opened: Sequence[Opened], columns: Columns, start: DataFrame | None
) -> DataFrame:
    """Read all rows, those of *start* first, in a table's *columns*.

    Where some are more than plain inserts, they have what `replay_rows` needs: `MARKER`, `ORDER` over all files and,
    where updates are partial, `SET`.
    """
    from pyspark.sql import functions as f

    folds = any(
        source.policies.keys
        and (source.policies.insert_policy == "upsert" or one.counts[INSERT] < one.schema.rows)
        for source, one in opened
    )
    helpers = [MARKER, ORDER] if folds else []
    helpers += [SET] if folds and any(source.policies.partial for source, _ in opened) else []
    frames: list[DataFrame] = []
    if start is not None:
        had = [find_name(start.columns, column.name) for column in columns]
        values = [f.col(quote(name)) if name else f.lit(None) for name in had]
        typed = [v.cast(c.sql_type).alias(c.name) for v, c in zip(values, columns, strict=True)]
        marked = start.select(*typed, f.lit(INSERT).alias(MARKER), f.lit(-1).alias(ORDER))
        frames.append(marked)
    seen = 0
    for source, some in groupby(opened, lambda one: one[0]):
        landed = tuple(one for _, one in some)
        prepared = Prepared(landed=landed, growth=Growth(columns=columns), fault=None)
        part = replace(stage, folder=f"{stage.folder}/{seen}")
        rows = read_frame(part, source, prepared, ordered=folds)
        frames.append(
            rows.withColumn(ORDER, f.col(ORDER) + seen * ROWS_PER_FILE) if folds else rows
        )
        seen += len(landed)
    sets = {SET: f.array(*[f.lit(True)] * len(columns))}  # noqa: FBT003  # a column
    whole = [one if SET in one.columns else one.withColumns(sets) for one in frames]
    names = [*(quote(column.name) for column in columns), *helpers]
    return reduce(lambda one, other: one.unionByName(other), (one.select(*names) for one in whole))


def replay_rows(
    rows: DataFrame, keys: Sequence[str], values: Sequence[str], conditional: str | None = None
) -> DataFrame:
    """Tell what rows with `MARKER`, `ORDER` and maybe `SET` come to in an empty table; *keys* and *values* are kept.

    A row is born into the table if it is an insert, or an update that finds none: the first of its key, or the first
    behind a delete. It lives if no delete follows, and ends as the newest update that follows; as the one with the
    greatest value, of equal ones the first, where the column *conditional* decides. Where updates are partial, that is
    said of each value by itself. All of it is seen from a key's last row back, in one sort.
    """
    by_key = f"PARTITION BY {', '.join(map(quote, keys))} ORDER BY {ORDER} DESC"
    back = f"OVER ({by_key} ROWS UNBOUNDED PRECEDING)"
    by, told, final = quote(conditional or ""), list[str](), [*map(quote, keys)]
    for place, value in enumerate(values):
        if value in keys:
            continue
        name, best = quote(value), f"{_FINAL}_{place}"
        updates = f"{MARKER} NOT IN ({INSERT}, {DELETE})"
        own, counts = name, f"{best} IS NOT NULL"
        if SET in rows.columns:
            updates += f" AND {SET}[{place}]"
            own = f"if({MARKER} = {INSERT}, {name}, NULL)"
        if conditional is None:
            told.append(
                f"first_value(if({updates}, struct({name} AS value), NULL), true) {back} AS {best}"
            )
        else:
            rank = f"struct({by} AS by, -{ORDER} AS place, {name} AS value)"
            told.append(f"max(if({updates}, {rank}, NULL)) {back} AS {best}")
            counts = f"coalesce({best}.by > {by}, {best}.by IS NOT NULL AND {by} IS NULL)"
        final.append(f"if({counts}, {best}.value, {own}) AS {name}")
    before = f"coalesce(lead({MARKER}) OVER ({by_key}), {DELETE}) AS {_BEFORE}"
    deletes = f"count_if({MARKER} = {DELETE}) {back} AS {_DELETES}"
    fated = rows.selectExpr("*", before, deletes, *told)
    born = f"({MARKER} = {INSERT} OR {_BEFORE} = {DELETE})"
    return fated.where(f"{_DELETES} = 0 AND {born}").selectExpr(*final)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """How many rows have to be there, how many are, and the first that differ, as changes; there may be *more*."""

    expected: int
    found: int
    changes: tuple[Change, ...]
    more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """What is compared: the *columns* of two sides, which have them in the same types.

    Attributes:
        rows: what has to be there, or, with `MARKER`, what `replay_rows` makes it of, for which *conditional* is.
        found: what is there, with `SIDE`.
        keys: tell rows apart; none where nothing does.
        sample: the share of the keys that is looked at.

    """

    rows: DataFrame
    found: DataFrame
    columns: tuple[str, ...]
    keys: tuple[str, ...]
    conditional: str | None
    sample: float

    def compare(self) -> Compared:
        """Compare by sums of hashes in the bucket of each key, or of each row, and rows of those that differ."""
        from pyspark.sql import functions as f

        side, hashed = f.col(SIDE), f.col(_HASH)
        halves = (hashed.bitwiseAND(0xFFFFFFFF), f.shiftright(hashed, 32))  # whose sums stay longs
        sums = [f.sum(_WANTED), f.sum(SIDE), *(f.sum(side * half) for half in halves)]
        told = self._both([*self.keys, _HASH]).groupBy(self._bucket()).agg(*sums).collect()
        expected, net = (sum(row[place] for row in told) for place in (1, 2))
        differing = sorted(row[0] for row in told if any(row[2:]))
        each = max(1, (2 * expected - net) // max(len(told), 1))
        looked = differing[: max(1, _LOOKED_AT // each)]
        first, more = self._first(looked) if looked else ((), False)
        return Compared(
            expected=expected,
            found=expected - net,
            changes=first,
            more=more or len(looked) < len(differing) or len(differing) > 0 == len(first),
        )

    def _both(self, values: Sequence[str], buckets: Sequence[int] = ()) -> DataFrame:
        """Put both sides together, or some buckets of them: of each row `SIDE`, `_WANTED` and *values*."""
        from pyspark.sql import functions as f

        hashed = digest(self.columns)["long"]
        rows, found = (one.withColumn(_HASH, hashed) for one in (self.rows, self.found))
        if buckets or self.sample < 1:
            some = buckets or range(max(round(self.sample * _BUCKETS), 1))
            rows, found = (one.where(self._bucket().isin(*some)) for one in (rows, found))
        if SET in rows.columns:  # the values of a row may come from several
            rows = replay_rows(rows, self.keys, self.columns).withColumn(_HASH, hashed)
        elif MARKER in rows.columns:
            rows = replay_rows(rows, self.keys, values, self.conditional)
        names = [quote(name) for name in values]
        rows = rows.select(*names, f.lit(1).alias(SIDE), f.lit(1).alias(_WANTED))
        return rows.unionByName(found.select(*names, SIDE, f.lit(0).alias(_WANTED)))

    def _bucket(self) -> Column:
        from pyspark.sql import functions as f

        by = f.xxhash64(*map(quote, self.keys)) if self.keys else f.col(_HASH)
        return f.pmod(by, f.lit(_BUCKETS))

    def _first(self, buckets: Sequence[int]) -> tuple[tuple[Change, ...], bool]:
        """Find the first rows in some buckets that one side alone has, two of one key as an update; are there more?"""
        from pyspark.sql import functions as f

        names = [quote(name) for name in self.columns]
        net = self._both(self.columns, buckets).groupBy(*names).agg(f.sum(SIDE).alias(SIDE))
        told = net.where(f.col(SIDE) != 0).select(
            *names,
            f.when(f.col(SIDE) > 0, PRE).otherwise(POST).alias(KIND),
            f.lit(0).cast("long").alias(VERSION),
            f.timestamp_micros(f.lit(0)).alias(TIME),
        )
        found = first_changes(told, "", self.keys, _NAMED)
        return found.changes, found.more

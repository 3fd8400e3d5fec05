"""Verify that tables hold what the landing files come to that were applied to them.

Files are decoded and cast as `apply` does it, by each batch's policies; `compare` folds what they give. Nothing is
written but, in the state folder, `verified/<table>.json`, which version was found right last, and for a while what
Spark cannot read as it lies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, groupby, takewhile
from typing import TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from mirrorlib.commit.stage import Stage, staging
from mirrorlib.delta.address import FeedTable, find_feed_table
from mirrorlib.delta.columns import Columns, find_column, spelled_keys, to_columns
from mirrorlib.delta.sessions import lend_session
from mirrorlib.delta.table import refer
from mirrorlib.errors import ChangeFileError, ForeignWriteError, JournalError, StoreError
from mirrorlib.feed.read import read_rows
from mirrorlib.identifiers import find_name, quote
from mirrorlib.ingest.batch.evolve import Growth
from mirrorlib.ingest.batch.open_batch import Prepared
from mirrorlib.ingest.batch.spark_reader import read_frame, unite
from mirrorlib.ingest.rows.marks import ORDER, ROWS_PER_FILE, join_spans
from mirrorlib.ingest.rows.read import Landed
from mirrorlib.journal.disk import Journal
from mirrorlib.journal.entries import Entry, now
from mirrorlib.journal.plan_log import read_word, write_word
from mirrorlib.landing.columns import DELETE, INSERT
from mirrorlib.landing.listing import list_tables
from mirrorlib.landing.plain import RESCUED
from mirrorlib.names import TableName, matches, refuse_unmatched
from mirrorlib.operate.ledger import find_applied
from mirrorlib.operate.verify.applied_files import list_batches, open_files
from mirrorlib.operate.verify.compare import Sides, as_found
from mirrorlib.operate.verify.report import Verified, VerifyReport, check_sample, verify_safely
from mirrorlib.store import PathOrUrl, Store, open_store
from mirrorlib.store.target import Target

Taken: TypeAlias = tuple[Landed, Columns]  # a file, and the columns by which its rows are taken
_FEW = 2_000_000  # rows whose keys a process holds


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
        LandingZoneError: there is no landing zone, a pattern matches none of its tables, or the sample is no share.

    """
    check_sample(sample)
    place = Target.of(target, catalog=catalog, state=state)
    zone, store = open_store(landing_zone), open_store(place.state)
    list_tables(zone)  # says where there is none: a table without its files may count as equal
    applied = [*find_applied(store)]
    refuse_unmatched(tables, applied)
    names = [name for name in applied if matches(name, tables)]

    def verify(name: TableName, told: Verified) -> Verified:
        with lend_session(spark) as session:
            table = find_feed_table(session, refer(place, name).address, shown=name.shown)
            look = _Look(session, zone, store, name, table, sample, show_values)
            return look.verify(told, mark=mark)

    done = tuple(verify_safely(name.shown, partial(verify, name)) for name in names)
    return VerifyReport(target=place.shown, tables=done)


@dataclass(frozen=True, slots=True)
class _Look:
    spark: SparkSession
    zone: Store
    state: Store
    name: TableName
    table: FeedTable
    sample: float
    show_values: bool

    def verify(self, told: Verified, *, mark: bool) -> Verified:
        """Verify it; remember its version where it is equal, or where files are gone and *mark* asks for it."""
        journal = Journal(self.state, self.name)
        version, reasons = self._settled(journal)
        entries = list_batches(journal, version)
        ends = [[one.plan.life, one.plan.batch] for one in entries]
        right = {"version": version, "batch": ends[-1], "at": now()}
        right["table"] = self.table.commits.metadata_at(version).id
        path = f"verified/{self.name.segment}.json"
        told = replace(told, version=version)
        try:
            opened = open_files(self.zone, self.name, entries)
        except ChangeFileError as exc:
            if mark:
                write_word(self.state, path, {**right, "how": "marked"})
                reason = f"taken for right from now on; not verified: {exc}"
                return replace(told, state="marked", reasons=(reason,))
            known = read_word(self.state, path)
            if known.get("batch") not in ends or known["table"] != right["table"]:
                raise
            told = replace(told, since=int(known["version"]))
            reasons.append(
                f"from version {told.since} on, which was {known['how']} at {known['at']}"
            )
            opened = open_files(self.zone, self.name, entries[ends.index(known["batch"]) + 1 :])
        told = replace(told, files=len(opened), reasons=tuple(reasons))
        with staging(self.spark, self.state, "verified", tidies=True) as stage:
            sides, left = self._sides(stage, opened, entries, version, told.since)
            told = told.compared(sides, left, show_values=self.show_values)
        if told.state == "equal" and self.sample == 1:
            try:
                write_word(self.state, path, {**right, "how": "verified"})
            except StoreError as exc:  # whoever may only read has been told the truth all the same
                told = replace(told, reasons=(*told.reasons, f"which is not remembered: {exc}"))
        return told

    def _settled(self, journal: Journal) -> tuple[int, list[str]]:
        """Return the version to look at, of whose batches it is known how they ended, and what to say of it."""
        newest = self.table.commits.newest  # first, as what is planned after that is not in it
        entry = journal.newest_of(journal.lives())
        if entry is None or entry.done is not None:
            return newest, []
        before = (entry.plan.previous or {}).get("version", -1)
        return before, [f"batch {entry.plan.batch} is under way, and this is the table before it"]

    def _sides(
        self,
        stage: Stage,
        opened: Sequence[Landed],
        entries: Sequence[Entry],
        version: int,
        since: int | None,
    ) -> tuple[Sides, list[str]]:
        """Read both sides, and name the columns that are left out; *opened* are the files of the last batches."""
        conditional = {one.source.policies.conditional or "" for one in opened} or {""}
        if len(conditional) > 1:
            msg = "updates were conditional in some batches only: no one rule gives the table"
            step = f"Rebuild it by one rule: mirrorlib rebuild TARGET {self.name}"
            raise JournalError(msg, table=self.name.shown, next_step=step)
        rows = read_rows(self.spark, self.table, version)
        start = None if since is None else read_rows(self.spark, self.table, since)
        every = to_columns(rows.dtypes)
        last = entries[-1]
        had = last.done.columns if last.done else ()
        if gone := [name for name, _ in had if not find_column(every, name)]:
            msg = "the table lacks a column that it had after its last batch"
            step = f"Compute it anew: mirrorlib rebuild TARGET {self.name}"
            raise ForeignWriteError(msg, table=self.name.shown, column=gone[0], next_step=step)
        # What was rescued names files by where they lay when they were applied.
        columns = tuple(column for column in every if column.name != RESCUED)
        by = find_column(columns, conditional.pop())
        held = [_held(one, columns) for one in entries for _ in one.plan.files]
        files = [*zip(opened, held[len(held) - len(opened) :], strict=True)]
        begun, rest, count = read_files(stage, files, columns, start)
        sides = Sides(
            begun=begun,
            rows=rest,
            few=count <= _FEW,
            found=as_found(rows),
            columns=tuple(column.name for column in columns),
            keys=spelled_keys(columns, last.plan.policies.keys),
            conditional=by.name if by else None,
            sample=self.sample,
        )
        return sides, [name for name in rows.columns if name not in sides.columns]


def _held(entry: Entry, columns: Columns) -> Columns:
    """Return the columns by which a batch's rows were taken: what was rescued then may fit the *columns* of now."""
    if entry.done is None or not entry.plan.policies.rescues:
        return columns
    return tuple(one for one in to_columns(entry.done.columns) if one.name != RESCUED)


def read_files(
    stage: Stage, files: Sequence[Taken], columns: Columns, start: DataFrame | None
) -> tuple[DataFrame | None, DataFrame | None, int]:
    """Read all rows in a table's *columns*: those of *start* and what else stays as it began, and the rest.

    The rest, which comes with how many it is, has what `replay_rows` needs: `MARKER`, `ORDER` over all files and, where
    updates of some files are partial, `SET`.
    """
    first = len([*takewhile(lambda one: not _folds(one[0]), files)])
    if start is None:
        first = max(first, _count_lone([one for one, _ in files]))
    begun: list[DataFrame] = [] if start is None else [_as_now(start, columns)]
    rest: list[DataFrame] = []
    runs = groupby(enumerate(files), lambda one: (one[0] < first, one[1][0].source, one[1][1]))
    for (is_first, source, taken), some in runs:
        run = [*some]
        seen, landed = run[0][0], tuple(one for _, (one, _) in run)
        prepared = Prepared(source=source, landed=landed, growth=Growth(columns=taken), fault=None)
        part = replace(stage, folder=f"{stage.folder}/{seen}")
        rows = read_frame(part, prepared, ordered=not is_first)
        if is_first:
            begun.append(_as_now(rows, columns))
        else:
            rest.append(rows.withColumn(ORDER, f.col(ORDER) + seen * ROWS_PER_FILE))
    united = [unite(some) if some else None for some in (begun, rest)]
    return united[0], united[1], sum(one.schema.rows for one, _ in files[first:])


def _as_now(rows: DataFrame, columns: Columns) -> DataFrame:
    """Give rows that were taken by other columns those of now; what they lack is NULL."""
    had = [find_name(rows.columns, column.name) for column in columns]
    values = [f.col(quote(name)) if name else f.lit(None) for name in had]
    typed = [v.cast(c.sql_type).alias(c.name) for v, c in zip(values, columns, strict=True)]
    return rows.select(*typed)


def _folds(landed: Landed) -> bool:
    """Say whether a file has more than plain inserts."""
    plain, policies = landed.counts[INSERT] == landed.schema.rows, landed.source.policies
    return bool(policies.keys) and (policies.insert_policy == "upsert" or not plain)


def _count_lone(files: Sequence[Landed]) -> int:
    """Count the first files none of whose rows meets another, as keys grow from row to row; each puts its row in."""
    each = (
        None if one.counts[DELETE] or one.source.policies.partial else one.key_span for one in files
    )
    joined = accumulate(each, lambda span, further: join_spans([span, further]))
    return len([*takewhile(lambda span: span is not None, joined)])

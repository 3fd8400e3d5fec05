"""Say what `apply` would do, and write nothing.

In: the same zone, target and options. Out: `PlanReport`. Files are opened and checked as apply
opens them, batch after batch, so what is promised here is what happens, as long as nobody publishes
in between.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from typing import Unpack

from pyspark.sql import SparkSession

from mirrorlib.delta.columns import to_pairs
from mirrorlib.delta.ddl import check_vacant
from mirrorlib.delta.sessions import lend_session
from mirrorlib.delta.table import find_table
from mirrorlib.delta.trouble import as_mirror_error
from mirrorlib.errors import MirrorError, StoreError, first_few
from mirrorlib.events import pick
from mirrorlib.identifiers import fold_name
from mirrorlib.ingest.advance import Course, advance_table
from mirrorlib.ingest.batch.commit import end_pending
from mirrorlib.ingest.batch.evolve_table import heed_readers, refuse_table
from mirrorlib.ingest.batch.foreign_writes import Standing, read_verified, stand
from mirrorlib.ingest.batch.open_batch import Prepared
from mirrorlib.ingest.batch.snapshot import tell_difference, tell_snapshot
from mirrorlib.ingest.files.history import History
from mirrorlib.ingest.files.plan import position_after
from mirrorlib.ingest.files.table_folder import FolderView
from mirrorlib.ingest.job import Job, find_tables, open_job, open_work
from mirrorlib.ingest.lifecycle import end_life, lives_of
from mirrorlib.ingest.next_batch import Next, warnings_of
from mirrorlib.ingest.options import Asked, Options, show_options
from mirrorlib.ingest.report import PlannedTable, PlanReport, State
from mirrorlib.ingest.work import Work
from mirrorlib.journal.disk import Journal, check_owner
from mirrorlib.journal.entries import REBUILD, Entry
from mirrorlib.journal.registry import registries
from mirrorlib.landing.listing import Tables
from mirrorlib.names import TableName, parse_name
from mirrorlib.store import PathOrUrl
from mirrorlib.store.target import Target

REPLACES = "replaces the table"
# What is approved of a planned table.
_APPROVED = ("state", "batches", "differences", "contents", "schema_changes", "policies")
# Options that change nothing of a plan.
_HOW = frozenset({"backfill_interval", "listing", "parallelism"})


@show_options
def plan_zone(
    spark: SparkSession,
    landing_zone: PathOrUrl,
    target: PathOrUrl,
    *,
    catalog: str | None = None,
    state: PathOrUrl | None = None,
    **asked: Unpack[Asked],
) -> PlanReport:
    """Say what `apply` with these options would do now: batches, files, rows, schema changes, what is blocked and why.

    Arguments mean the same as for `apply`, see `Options`. Nothing is written. *quiet*, *cleanup* and
    *retention* change nothing that is told but the hash; *parallelism*, *listing* and *backfill_interval* nothing at
    all, as every folder is listed in full.

    Raises:
        ValueError: an option's value is not what it may be.
        LandingZoneError: there is no landing zone, it lies inside its target, or the reverse; a pattern fits no table.

    """
    options = Options(**asked)
    place = Target.of(target, catalog=catalog, state=state)
    return plan_job(open_job(spark, landing_zone, place, options))


def plan_job(job: Job, *, compares: bool = True) -> PlanReport:
    """Say what a job would do to its tables, and write nothing; what a rebuild changes, if it *compares* rows."""
    check_owner(job.state, job.target.owner)
    tables, gone, warnings = find_tables(job)
    planned, approval = _foresee_all(job, tables, gone, compares=compares)
    return PlanReport(
        landing_zone=job.zone.url,
        target=job.target.shown,
        tables=planned,
        warnings=warnings,
        hash="" if job.rebuilds else approval,  # which `apply` takes, and no rebuild
    )


def approve_tables(
    job: Job, tables: Tables, gone: Sequence[TableName], approved: str
) -> Mapping[str, PlannedTable]:
    """Foresee again what was approved, and return it by table: what has come since is not to be applied.

    Raises `MirrorError`: it is not what was approved; nothing has been written.
    """
    planned, approval = _foresee_all(job, tables, gone)
    if approval != approved:
        files = [f"{t.table} {t.files} up to {t.last_file}" for t in planned if t.files]
        msg = "this is no longer the plan that was approved, and nothing was written"
        found = f"files now: {first_few(files) or 'none'}"
        step = "Look at it again, with the same options, and approve that: mirrorlib plan"
        raise MirrorError(msg, found=found, next_step=step)
    return {table.table: table for table in planned}


def _foresee_all(
    job: Job, tables: Tables, gone: Sequence[TableName], *, compares: bool = True
) -> tuple[tuple[PlannedTable, ...], str]:
    """Foresee every table, and digest tables, files, columns and rules."""
    ended = [_plan_end(job, name) for name in gone]
    shown = [_plan_table(job, *one, compares=compares) for one in tables.items()]
    planned = tuple(_with_receivers(job, shown + ended))
    approved = [pick(table, "table", *_APPROVED) for table in planned]
    rules = {k: v for k, v in asdict(job.options).items() if k not in _HOW}
    told = [approved, rules, job.zone.url, asdict(job.target)]
    text = json.dumps(told, sort_keys=True, default=str)
    return planned, sha256(text.encode()).hexdigest()[:24]


def _with_receivers(job: Job, planned: Iterable[PlannedTable]) -> Iterator[PlannedTable]:
    """Say of each table what its consumers will see."""
    found = defaultdict(list)
    catalog, unknown = job.target.catalog is not None, ""
    try:
        for one in registries(job.state):
            found[fold_name(one.table) if catalog else one.table].append(one.consumer)
    except StoreError as exc:
        unknown = f"who receives it cannot be told: {exc}"
    for table in planned:
        anew = any(change.startswith(REPLACES) for change in table.schema_changes)
        seen = "all rows go and come" if anew else f"what {table.rows:,} change rows come to"
        seen = "what differs" if job.rebuilds and not anew else seen
        called = fold_name(parse_name(table.table).table) if catalog else table.table
        told = [f"the consumer {n} will see {seen}" for n in sorted(found[called])]
        told += [unknown] if unknown else []
        yield replace(table, receivers=tuple(told if table.batches else ()))


def _failed(planned: PlannedTable, name: TableName, exc: Exception) -> PlannedTable:
    """Tell one table's trouble, which is not its neighbours', behind what comes before it."""
    error = as_mirror_error(exc, name.shown)
    return replace(planned, state="failed", reason=str(error), file=error.file)


def _plan_end(job: Job, name: TableName) -> PlannedTable:
    planned = PlannedTable(table=name.shown, state="gone")
    try:
        return replace(planned, reason=end_life(job, name, write=False) or "")
    except Exception as exc:  # noqa: BLE001  # one table's trouble is not its neighbours'
        return _failed(planned, name, exc)


def _plan_table(
    job: Job, name: TableName, refusal: MirrorError | None, *, compares: bool
) -> PlannedTable:
    journal = Journal(job.state, name)
    history = History(journal, job.zone.url, moved_from=job.options.moved_from, planned=True)
    told = PlannedTable(table=name.shown, state="waiting")
    if refusal is not None:
        return _failed(told, name, refusal)
    course = _Foreseeing(told=told, compares=compares)
    course.view = FolderView(zone=job.zone, name=name, history=history, options=job.options)
    if job.rebuilds:  # which is one batch
        job = replace(job, stop=lambda: bool(course.told.batches))
    try:
        return _foresee(job, name, course)
    except Exception as exc:  # noqa: BLE001  # one table's trouble is not its neighbours'
        return _failed(course.told, name, exc)


def _foresee(job: Job, name: TableName, course: _Foreseeing) -> PlannedTable:
    opened = course.view.open()
    if not opened.waits_for:
        journal = Journal(job.state, name)
        lives = lives_of(job, journal, opened, journal.lives(), write=False)
        if not (lives[-1].uuid or lives[-1].include_existing):
            # Its files are those that were there when the table was first seen.
            none = replace(opened.listing, partitions={})
            passed = opened.passed + opened.listing.count
            opened = replace(opened, listing=none, passed=passed, warnings=())
    course.warn(*opened.warnings)
    if opened.waits_for:
        return replace(course.told, reason=opened.waits_for)
    course.opened = opened
    with lend_session(job.spark) as spark:
        return advance_table(open_work(job, spark, name, opened, lives), course)


@dataclass(kw_only=True)
class _Foreseeing(Course[PlannedTable]):
    """Go through the batches that apply would make, each on the columns that the one before would leave."""

    compares: bool
    _standing: Standing | None = None  # as the batches that were foreseen leave it
    _position: Mapping[str, int] = field(default_factory=dict)

    def begin(self, work: Work, entry: Entry | None) -> None:
        self.entry, self._standing, prepared = end_pending(work, entry)
        if self._standing is not None and prepared is not None:
            self.warn(*warnings_of(prepared, work.source.policies))
            self._add(work, self._standing, prepared, entry.position if entry else {})
        elif self._standing is not None:  # it is voided: its files have yet to come
            self.view = replace(self.view, history=replace(self.view.history, planned=False))
            self.opened = self.view.open()
        self._position = self.entry.position if self.entry else {}

    def stand(self, work: Work) -> tuple[Work, Standing, Mapping[str, int]]:
        if self._standing is None:
            self._standing = stand(work, self.entry, read_verified(work.journal.read_status()))
        work = heed_readers(work, self._standing, write=False)
        return work, self._standing, self._position

    def take(self, work: Work, standing: Standing, coming: Next) -> None:
        if coming.prepared is not None:
            self._add(work, standing, coming.prepared, self._position)
            by_time = work.source.policies.by_time
            self._position = position_after(coming.position, coming.files, by_time=by_time)

    def end(self, coming: Next) -> PlannedTable:
        behind = coming.state == "current" and self.told.batches
        state: State = "behind" if behind else coming.state
        return replace(self.told, state=state, reason=coming.reason, file=coming.file)

    def _add(
        self, work: Work, standing: Standing, prepared: Prepared, position: Mapping[str, int]
    ) -> None:
        """Add a batch; see that the first finds a place that is free, or ours, and say of snapshots what it changes."""
        planned, before, columns = self.told, standing.columns, prepared.growth.columns
        differences, found = planned.differences, None
        if not planned.batches and not before:
            found = find_table(work.spark, work.ref)
            if found is None:
                check_vacant(work.ref, work.table)
            else:
                refuse_table(work, found)
        elif not planned.batches and position and work.source.policies.snapshots:
            differences = tell_snapshot(work, prepared, before)
        verb = "creates the table" if len(work.lives) == 1 else REPLACES
        created = (f"{verb} with {len(columns)} columns",)
        if work.life.why == REBUILD and found and to_pairs(found.columns) == to_pairs(columns):
            created = ("computes the table anew, and changes what differs",)
            differences = tell_difference(work, prepared) if self.compares else ""
        contents = tuple(
            (one.file.name, one.file.size, one.file.etag, one.fingerprint)
            for one in prepared.landed
        )
        changes = prepared.growth.changes(before) if before else created
        if prepared.growth.rewritten:
            most = f"of {work.options.rewrite_limit:,} that --rewrite-limit allows"
            changes = (*changes, f"writes {standing.bytes:,} bytes of the table again, {most}")
        self._standing = replace(standing, columns=columns)
        self.told = replace(
            planned,
            batches=planned.batches + 1,
            files=planned.files + len(contents),
            rows=planned.rows + prepared.rows,
            first_file=planned.first_file or contents[0][0],
            last_file=contents[-1][0],
            schema_changes=(*planned.schema_changes, *changes),
            contents=planned.contents + contents,
            policies=asdict(work.source.policies),
            differences=differences,
        )

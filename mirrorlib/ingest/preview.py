"""Say what `apply` would do, and write nothing.

In: the same zone, target and options. Out: `PlanReport`. Files are opened and checked as apply
opens them, batch after batch, so what is promised here is what happens, as long as nobody publishes
in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from mirrorlib.delta.columns import spelled_keys
from mirrorlib.delta.ddl import check_vacant
from mirrorlib.delta.properties import REWRITE_LIMIT
from mirrorlib.delta.sessions import lend_session
from mirrorlib.delta.table import find_table
from mirrorlib.delta.trouble import as_mirror_error
from mirrorlib.errors import SnapshotError, StoreError
from mirrorlib.ingest.batch.evolve_table import check_readers, planned_for, refuse_others_table
from mirrorlib.ingest.batch.foreign_writes import Standing, read_verified, stand
from mirrorlib.ingest.batch.open_batch import Prepared
from mirrorlib.ingest.batch.protocol import end_pending
from mirrorlib.ingest.batch.snapshot import tell_snapshot
from mirrorlib.ingest.files.history import History
from mirrorlib.ingest.files.kept import newest_entry
from mirrorlib.ingest.files.plan import position_after
from mirrorlib.ingest.files.source import refuse_doubt
from mirrorlib.ingest.files.source_identity import (
    changed_since,
    check_policies,
    check_zone,
    judge_changes,
)
from mirrorlib.ingest.files.table_folder import FolderView, OpenedFolder
from mirrorlib.ingest.job import Job, find_tables, open_job, open_work
from mirrorlib.ingest.lifecycle import end_life, lives_of
from mirrorlib.ingest.next_batch import bars_of, check_emptiness, open_next
from mirrorlib.ingest.options import (
    MAX_LOSS,
    SETTLE,
    Cleanup,
    Evolution,
    InsertPolicy,
    Ntz,
    OnGone,
    Options,
    PlainEvolution,
    PlainFolders,
)
from mirrorlib.ingest.report import PlannedTable, PlanReport
from mirrorlib.ingest.warn import warnings_of
from mirrorlib.ingest.work import Work
from mirrorlib.journal.disk import STATE_FILE, Journal, check_owner
from mirrorlib.journal.entries import Entry, Readers
from mirrorlib.landing.listing import TableFolder
from mirrorlib.names import TableName
from mirrorlib.store import PathOrUrl
from mirrorlib.store.target import Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def plan_zone(
    spark: SparkSession,
    landing_zone: PathOrUrl,
    target: PathOrUrl,
    *,
    tables: Sequence[str] = (),
    insert_policy: InsertPolicy = "append",
    evolution: Evolution = "widen",
    ntz: Ntz = "utc",
    conditional_updates: bool = False,
    max_files: int | None = None,
    max_bytes: int | None = None,
    catalog: str | None = None,
    state: PathOrUrl | None = None,
    retry: bool = False,
    allow_foreign_writes: bool = False,
    moved_from: str | None = None,
    rewrite_limit: int = REWRITE_LIMIT,
    settle: float = SETTLE,
    start_at: int | None = None,
    plain_folders: PlainFolders = "wait",
    plain_evolution: PlainEvolution = "add",
    include_existing: bool = True,
    allow_overwrites: bool = False,
    allow_empty: bool = False,
    quiet: bool = False,
    on_gone: OnGone = "keep",
    cleanup: Cleanup | None = None,
    retention: int | None = None,
    readers: Readers | None = None,
    partial_updates: str | None = None,
    snapshots: bool = False,
    max_loss: float = MAX_LOSS,
) -> PlanReport:
    """Say what `apply` with these options would do now: batches, files, rows, schema changes, what is blocked and why.

    Arguments mean the same as for `apply`, see `Options`. Nothing is written. *quiet*, *cleanup* and *retention*
    change nothing that is told: they decide what a commit holds, and what becomes of files behind it.

    Raises:
        LandingZoneError: there is no landing zone, it lies inside its target, or the reverse.

    """
    options = Options.given(locals())
    job = open_job(spark, landing_zone, Target.of(target, catalog=catalog, state=state), options)
    if (written := job.state.read(STATE_FILE)) is not None:
        check_owner(job.state, written, job.target.owner)
    folders, gone, warnings = find_tables(job)
    planned = [_plan(folder.name, partial(_plan_table, job, folder)) for folder in folders]
    planned += [_plan(name, partial(_plan_end, job, name)) for name in gone]
    return PlanReport(
        landing_zone=job.zone.url,
        target=job.target.shown,
        tables=tuple(planned),
        warnings=warnings,
    )


def _plan(name: TableName, look: Callable[[], PlannedTable]) -> PlannedTable:
    try:
        return look()
    except Exception as exc:  # noqa: BLE001  # one table's trouble is not its neighbours'
        error = as_mirror_error(exc, name.shown)
        return PlannedTable(table=name.shown, state="failed", reason=str(error), file=error.file)


def _plan_end(job: Job, name: TableName) -> PlannedTable:
    return PlannedTable(
        table=name.shown, state="gone", reason=end_life(job, name, write=False) or ""
    )


def _plan_table(job: Job, folder: TableFolder) -> PlannedTable:
    if folder.refusal is not None:
        raise folder.refusal
    journal = Journal(job.state, folder.name)
    history = History(journal, job.zone.url, moved_from=job.options.moved_from, planned=True)
    view = FolderView(zone=job.zone, folder=folder, history=history, options=job.options)
    opened = view.open()
    planned = PlannedTable(table=folder.name.shown, state="waiting", warnings=opened.warnings)
    if opened.waits_for:
        return replace(planned, reason=opened.waits_for)
    lives = lives_of(job, folder.name, opened, write=False)
    if not (lives[-1].uuid or lives[-1].include_existing):
        # Its files are those that were there when the table was first seen.
        none = replace(opened.listing, partitions={})
        passed = replace(opened, listing=none, passed=opened.passed + opened.listing.count)
        return replace(planned, reason=passed.waits_for, warnings=())
    with lend_session(job.spark) as spark:
        work = open_work(job, spark, folder, opened, lives)
        return _look_ahead(work, view, opened, replace(planned, state="current"))


def _look_ahead(
    work: Work, view: FolderView, opened: OpenedFolder, planned: PlannedTable
) -> PlannedTable:
    """Go through the batches that apply would make, each on the columns that the one before would leave."""
    lives = work.lives if work.life.uuid else ()
    newest = newest_entry(work.journal, lives, opened.metadata)
    # Else a plan's files would not be found.
    planned = replace(planned, warnings=_joined(planned, check_zone(work, view, newest)))
    carried = end_pending(work, newest)
    entry = carried.entry
    refuse_doubt(work.table, entry)
    check_policies(work, opened, entry)
    standing = carried.standing or stand(work, entry, read_verified(work.journal.read_status()))
    check_readers(work, standing, work.options.readers)
    work = planned_for(work, standing, work.options.readers)
    if carried.prepared is not None:
        before = newest.position if newest else {}
        told = warnings_of(carried.prepared, work.source.policies)
        planned = replace(planned, warnings=_joined(planned, told))
        planned = _with_batch(work, planned, standing, carried.prepared, before)
        standing = replace(standing, columns=carried.prepared.growth.columns)
    evidence = judge_changes(work, opened, entry, changed_since(work, opened, entry))
    if evidence:
        return replace(planned, state="blocked", reason=evidence)
    return _go_on(work, opened, entry, standing, planned)


def _go_on(
    work: Work, opened: OpenedFolder, entry: Entry | None, standing: Standing, planned: PlannedTable
) -> PlannedTable:
    """Go on to the batches that nobody has planned yet."""
    position = entry.position if entry else {}
    bars = {} if work.options.retry else bars_of(entry)
    while planned.state != "failed":
        try:
            coming = open_next(work, entry, standing, opened, position, bars, {})
        except StoreError as exc:
            return replace(planned, state="failed", reason=str(exc), file=exc.file)
        prepared = coming.prepared
        planned = replace(planned, warnings=_joined(planned, coming.warnings))
        if prepared is None:
            behind = coming.state == "current" and planned.batches
            state = "behind" if behind else coming.state
            return replace(planned, state=state, reason=coming.reason, file=coming.file)
        check_emptiness(work, coming, prepared)
        planned = _with_batch(work, planned, standing, prepared, position)
        standing = replace(standing, columns=prepared.growth.columns)
        taken = coming.files[: len(prepared.landed)]
        position = position_after(coming.position, taken, by_time=work.source.policies.by_time)
    return planned


def _with_batch(
    work: Work,
    planned: PlannedTable,
    standing: Standing,
    prepared: Prepared,
    position: Mapping[str, int],
) -> PlannedTable:
    """Add a batch; see that the first finds a place that is free, or ours, and say of snapshots what it changes."""
    before, columns, differences = standing.columns, prepared.growth.columns, planned.differences
    if not planned.batches and not before:
        found = find_table(work.spark, work.ref)
        if found is None:
            check_vacant(work.ref, work.table)
        else:
            foreign = work.options.allow_foreign_writes
            refuse_others_table(work.table, work.lives, found, allow_forgetting=foreign)
    elif not planned.batches and position and work.source.policies.snapshots:
        keys = spelled_keys(columns, work.source.policies.keys)
        try:
            differences = tell_snapshot(work, prepared, before, keys)
        except SnapshotError as refused:
            return replace(planned, state="failed", reason=str(refused), file=refused.file)
    verb = "creates the table" if len(work.lives) == 1 else "replaces the table"
    created = (f"{verb} with {len(columns)} columns",)
    names = [landed.file.name for landed in prepared.landed]
    return replace(
        planned,
        batches=planned.batches + 1,
        files=planned.files + len(names),
        rows=planned.rows + prepared.rows,
        first_file=planned.first_file or names[0],
        last_file=names[-1],
        schema_changes=(
            *planned.schema_changes,
            *(prepared.growth.changes(before) if before else created),
        ),
        differences=differences,
    )


def _joined(planned: PlannedTable, more: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*planned.warnings, *more)))

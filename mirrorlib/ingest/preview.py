"""Say what `apply` would do, and write nothing.

In: the same zone, target and options. Out: `PlanReport`. Files are opened and checked as apply
opens them, batch after batch, so what is promised here is what happens, as long as nobody publishes
in between.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from mirrorlib.delta.columns import spelled_keys
from mirrorlib.delta.ddl import check_vacant
from mirrorlib.delta.properties import REWRITE_LIMIT
from mirrorlib.delta.sessions import lend_session
from mirrorlib.delta.table import find_table
from mirrorlib.delta.trouble import as_mirror_error
from mirrorlib.errors import SnapshotError, StoreError
from mirrorlib.ingest.ahead import check_emptiness, open_next
from mirrorlib.ingest.batch.evolve_table import check_readers, planned_for, refuse_others_table
from mirrorlib.ingest.batch.foreign_writes import read_verified, stand
from mirrorlib.ingest.batch.protocol import end_pending
from mirrorlib.ingest.batch.snapshot import tell_snapshot
from mirrorlib.ingest.files.changed_source import check_changed_source
from mirrorlib.ingest.files.history import History
from mirrorlib.ingest.files.kept import newest_entry
from mirrorlib.ingest.files.next_batch import (
    bars_of,
    idle_state,
    position_of,
)
from mirrorlib.ingest.files.plan import position_after
from mirrorlib.ingest.files.source_identity import (
    began_again,
    changed_since,
    check_detection,
    check_keys,
    check_zone,
    refuse_changed,
)
from mirrorlib.ingest.files.table_folder import FolderView, pass_over
from mirrorlib.ingest.job import Job, choose_tables, open_job, open_work, refuse_in_catalog
from mirrorlib.ingest.lifecycle import (
    absent_tables,
    coming_end,
    coming_lives,
    known_tables,
    list_shown,
    warn_of_absence,
)
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
from mirrorlib.journal.disk import STATE_FILE, Journal, check_owner
from mirrorlib.journal.entries import Life, Readers
from mirrorlib.store.target import Target

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from mirrorlib.ingest.batch.foreign_writes import Standing
    from mirrorlib.ingest.batch.open_batch import Prepared
    from mirrorlib.ingest.files.next_batch import Bar, Next
    from mirrorlib.ingest.files.table_folder import Folder
    from mirrorlib.ingest.work import Work
    from mirrorlib.journal.entries import Entry
    from mirrorlib.landing.listing import TableFolder
    from mirrorlib.names import TableName
    from mirrorlib.store import PathOrUrl

_LOG = logging.getLogger(__name__)
_UNBORN = Life(ordinal=1, uuid="", why="first seen", zone="", started_at="")


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

    Arguments have the same meaning as for `apply`. Nothing is written. *quiet*, *cleanup* and *retention* change
    nothing that is told: they decide what a commit holds, and what becomes of files behind it.

    Raises:
        LandingZoneError: there is no landing zone, it lies inside its target, or the reverse.

    """
    options = Options.given(locals())
    job = open_job(spark, landing_zone, Target.of(target, catalog=catalog, state=state), options)
    if (written := job.state.read(STATE_FILE)) is not None:
        check_owner(job.state, written, job.target.owner)
    known = known_tables(job)
    listed = list_shown(job, known)
    folders = refuse_in_catalog(choose_tables(listed, options, known), job.target)
    planned = tuple(_plan_table(job, folder) for folder in folders)
    planned += tuple(_plan_end(job, name) for name in absent_tables(job, listed, known))
    warnings = warn_of_absence(job, listed, known)
    return PlanReport(
        landing_zone=job.zone.url, target=job.target.shown, tables=planned, warnings=warnings
    )


def _plan_end(job: Job, name: TableName) -> PlannedTable:
    try:
        return PlannedTable(table=name.shown, state="gone", reason=coming_end(job, name))
    except Exception as exc:  # noqa: BLE001  # one table's trouble is not its neighbours'
        return _failed(exc, name)


def _plan_table(job: Job, folder: TableFolder) -> PlannedTable:
    table = folder.name.shown
    if folder.refusal is not None:
        return PlannedTable(table=table, state="failed", reason=str(folder.refusal))
    try:
        journal = Journal(job.state, folder.name)
        history = History(journal, job.zone.url, moved_from=job.options.moved_from, planned=True)
        view = FolderView(zone=job.zone, folder=folder, history=history, options=job.options)
        opened = view.open()
        if opened.waits_for:
            return PlannedTable(
                table=table,
                state="waiting",
                reason=opened.waits_for,
                warnings=opened.warnings_under(job.options),
            )
        lives = coming_lives(job, folder.name, opened, _UNBORN)
        if not (lives[-1].uuid or lives[-1].include_existing):
            reason = pass_over(opened).waits_for
            return PlannedTable(table=table, state="waiting", reason=reason)
        with lend_session(job.spark) as spark:
            work = open_work(job, spark, folder, opened, lives)
            return _look_ahead(work, view, opened)
    except Exception as exc:  # noqa: BLE001  # one table's trouble is not its neighbours'
        return _failed(exc, folder.name)


def _failed(exc: Exception, name: TableName) -> PlannedTable:
    error = as_mirror_error(exc, name.shown)
    return PlannedTable(table=name.shown, state="failed", reason=str(error), file=error.file)


def _look_ahead(work: Work, view: FolderView, opened: Folder) -> PlannedTable:
    """Go through the batches that apply would make, each on the columns that the one before would leave."""
    options = view.options
    lives = work.lives if work.life.uuid else ()
    newest = newest_entry(work.journal, lives, opened.metadata)
    # Else a plan's files would not be found.
    unproven = check_zone(work, view, newest)
    planned = PlannedTable(
        table=work.table, state="current", warnings=(*opened.warnings_under(options), *unproven)
    )
    carried = end_pending(work, newest)
    entry = carried.entry
    check_changed_source(work.table, entry)
    check_keys(work, entry)
    check_detection(work, opened, entry)
    standing = carried.standing or stand(work, entry, read_verified(work.journal.read_status()))
    check_readers(work, standing, options.readers)
    work = planned_for(work, standing, options.readers)
    if carried.prepared is not None:
        _check_place(work, standing)
        planned = _with_differences(work, planned, standing, carried.prepared, position_of(newest))
        planned = _with_warnings(planned, warnings_of(carried.prepared, work.source.policies))
        planned = _with_prepared(work, planned, standing, carried.prepared)
        standing = replace(standing, columns=carried.prepared.growth.columns)
    changed = changed_since(work, opened, entry)
    evidence = began_again(work, opened, entry, changed)
    if evidence:
        return replace(planned, state="blocked", reason=evidence)
    refuse_changed(work, entry, changed)
    return _go_on(work, opened, options, entry, standing, planned)


def _go_on(
    work: Work,
    opened: Folder,
    options: Options,
    entry: Entry | None,
    standing: Standing,
    planned: PlannedTable,
) -> PlannedTable:
    """Go on to the batches that nobody has planned yet."""
    position = position_of(entry)
    bars = {} if options.retry else bars_of(entry)
    while True:
        try:
            ahead = open_next(work, entry, standing, opened, position, bars, options, {})
        except StoreError as exc:
            return replace(planned, state="failed", reason=str(exc), file=exc.file)
        coming, prepared = ahead.coming, ahead.prepared
        planned = _with_warnings(planned, ahead.warnings)
        if ahead.untyped:
            file = coming.files[0][1].name
            return replace(planned, state="waiting", reason=ahead.untyped, file=file)
        if prepared is None:
            return _with_end(planned, coming, bars, options)
        if not planned.batches:
            check_emptiness(work, prepared, options, replaces=coming.replaces)
            _check_place(work, standing)
            planned = _with_differences(work, planned, standing, prepared, position)
            if planned.state == "failed":
                return planned
        planned = _with_prepared(work, planned, standing, prepared)
        standing = replace(standing, columns=prepared.growth.columns)
        taken = coming.files[: len(prepared.landed)]
        position = position_after(coming.position, taken, by_time=work.source.policies.by_time)


def _with_differences(
    work: Work,
    planned: PlannedTable,
    standing: Standing,
    prepared: Prepared,
    position: Mapping[str, int],
) -> PlannedTable:
    """Say what the first batch of snapshots changes in a table that is not filled from nothing."""
    if not (work.source.policies.snapshots and position and standing.columns):
        return planned
    keys = spelled_keys(prepared.growth.columns, work.source.policies.keys)
    try:
        return replace(planned, differences=tell_snapshot(work, prepared, standing.columns, keys))
    except SnapshotError as refused:
        return replace(planned, state="failed", reason=str(refused), file=refused.file)


def _check_place(work: Work, standing: Standing) -> None:
    """See that the table may be filled, where it is from nothing.

    Raises:
        ForeignWriteError: the table is another's.
        LandingZoneError: the table's folder holds something else.

    """
    if standing.columns:
        return
    found = find_table(work.spark, work.ref)
    if found is None:
        check_vacant(work.ref, work.table)
    else:
        refuse_others_table(
            work.table, work.lives, found, allow_forgetting=work.allow_foreign_writes
        )


def _with_end(
    planned: PlannedTable, coming: Next, bars: Mapping[str, Bar], options: Options
) -> PlannedTable:
    state, reason, file = idle_state(coming, bars, options)
    state = "behind" if state == "current" and planned.batches else state
    return replace(planned, state=state, reason=reason, file=file)


def _with_prepared(
    work: Work, planned: PlannedTable, standing: Standing, prepared: Prepared
) -> PlannedTable:
    names = [landed.file.name for landed in prepared.landed]
    changes = (
        prepared.growth.changes(standing.columns)
        if standing.columns
        else _creation(work, prepared.growth.columns)
    )
    return replace(
        _with_batch(planned, names, prepared.rows),
        schema_changes=(*planned.schema_changes, *changes),
    )


def _with_warnings(planned: PlannedTable, more: Iterable[str]) -> PlannedTable:
    return replace(planned, warnings=tuple(dict.fromkeys((*planned.warnings, *more))))


def _with_batch(planned: PlannedTable, names: Sequence[str], rows: int) -> PlannedTable:
    return replace(
        planned,
        batches=planned.batches + 1,
        files=planned.files + len(names),
        rows=planned.rows + rows,
        first_file=planned.first_file or names[0],
        last_file=names[-1],
    )


def _creation(work: Work, columns: Sequence[object]) -> tuple[str, ...]:
    verb = "creates the table" if len(work.lives) == 1 else "replaces the table"
    return (f"{verb} with {len(columns)} columns",)

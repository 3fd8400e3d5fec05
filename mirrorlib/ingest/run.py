"""Run: bring every table of a landing zone up to date, side by side, each for itself.

In: a session, a zone, a target, options. Out: `ApplyReport`. Promise: exactly once per change file
(`commit/protocol.py`); a table that cannot go on says why and stops alone; batches that were committed
before it stopped stay.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Unpack

from pyspark.sql import SparkSession

from mirrorlib.delta.lock import lock_table
from mirrorlib.delta.sessions import carries_marks, lend_session, side_by_side
from mirrorlib.delta.trouble import as_mirror_error
from mirrorlib.errors import MirrorError, TableBusyError
from mirrorlib.events import STOPPED, Event, Observer, emit_state, pick
from mirrorlib.ingest.advance import advance_table
from mirrorlib.ingest.applying import Applying
from mirrorlib.ingest.batch.foreign_writes import read_verified
from mirrorlib.ingest.files.cleanup import clean_folder
from mirrorlib.ingest.files.history import History
from mirrorlib.ingest.files.incremental_listing import IncrementalListing, read_listed
from mirrorlib.ingest.files.table_folder import FolderView, OpenedFolder
from mirrorlib.ingest.job import Job, find_tables, open_job, open_work
from mirrorlib.ingest.lifecycle import end_life, lives_of, take_over
from mirrorlib.ingest.options import Asked, Options, show_options
from mirrorlib.ingest.preview import approve_tables
from mirrorlib.ingest.report import ApplyReport, TableReport
from mirrorlib.journal.disk import Journal, open_state
from mirrorlib.journal.entries import now
from mirrorlib.journal.leases import Lease, hold
from mirrorlib.landing.listing import is_unlisted
from mirrorlib.names import TableName
from mirrorlib.store import LocalStore, PathOrUrl
from mirrorlib.store.target import Target

_LOG = logging.getLogger(__name__)


@show_options
def apply_zone(
    spark: SparkSession,
    landing_zone: PathOrUrl,
    target: PathOrUrl,
    *,
    catalog: str | None = None,
    state: PathOrUrl | None = None,
    approve: str | None = None,
    observe: Observer | None = None,
    stop: Callable[[], bool] | None = None,
    **asked: Unpack[Asked],
) -> ApplyReport:
    """Bring every table of a landing zone up to date. Exactly once per change file, whatever crashes or runs beside.

    Every other argument is an option: `Options` says what it means.

    Args:
        spark: the session; each table in flight gets a session of its own from it.
        landing_zone: path or URL of the folder that holds the table folders.
        target: root path or URL of the tables; with *catalog*, the schema's name.
        catalog: a Spark catalog; tables are then `catalog.target.table`.
        state: where the journal lives; by default `target/_mirrorlib`.
        approve: the hash of a plan that was looked at: only that is carried out. It is made again, with these options;
            where it is another one by now, nothing is written. What comes after that look waits for the next run.
        observe: told before and after each step, from several threads.
        stop: asked between batches; True ends the run after the commits in flight.

    Returns:
        what became of every table; a table that is blocked or failed raises nothing.

    Raises:
        ValueError: an option's value is not what it may be.
        LandingZoneError: there is no landing zone, it lies inside its target, or the reverse; a pattern fits no table.
        JournalError: the state folder cannot be used.
        MirrorError: the plan is not the one that was approved.

    """
    options, place = Options(**asked), Target.of(target, catalog=catalog, state=state)
    return apply_job(open_job(spark, landing_zone, place, options, observe, stop), approve)


def apply_job(job: Job, approve: str | None = None) -> ApplyReport:
    """Bring the tables of a job up to date, as `apply` does."""
    began = time.perf_counter()
    tables, gone, warnings = find_tables(job)
    if approve is not None:
        job = replace(job, approved=approve_tables(job, tables, gone, approve))
    open_state(job.state, job.target.owner)
    in_flight: list[TableName] = []
    job = replace(job, others_wait=lambda: len(in_flight) < len(tables))

    def apply_next(name: TableName) -> TableReport:
        in_flight.append(name)
        act = partial(_advance, job, name, tables[name])
        report = _report(job, name, act, known=not is_unlisted(name, tables[name]))
        in_flight.remove(name)
        return report

    reports = side_by_side(apply_next, list(tables), job.options.parallelism)
    ended = [_report(job, name, partial(_end_gone, job, name)) for name in gone]
    return ApplyReport(
        landing_zone=job.zone.url,
        target=job.target.shown,
        tables=(*reports, *ended),
        seconds=round(time.perf_counter() - began, 3),
        warnings=warnings,
    )


def _report(
    job: Job,
    name: TableName,
    act: Callable[[Journal, Applying], TableReport],
    *,
    known: bool = True,
) -> TableReport:
    """Do something to one table; whatever goes wrong with it is its report, not its neighbours' trouble.

    One that is not *known* leaves nothing in the journal: no table is called so.
    """
    journal = Journal(job.state, name)
    told = TableReport(table=name.shown, state="waiting")
    course = Applying(told=told, zone=job.zone.url, others_wait=job.others_wait)
    try:
        report = act(journal, course)
    except Exception as exc:  # noqa: BLE001  # one table's trouble is not its neighbours'
        error = as_mirror_error(exc, name.shown)
        report = course.report("failed", str(error), file=error.file, error=type(error).__name__)
        if isinstance(error, TableBusyError) and job.stop():  # whoever is at it tells how it ends
            report, known = course.report("behind", str(error)), False
    before, since = "" if known else str(report.state), now()  # nobody remembers what is not known
    if known:
        try:
            before, since = course.record(journal, report)
        except MirrorError as exc:  # losing the last word must not hide what happened
            _LOG.warning("%s: its status could not be written: %s", report.table, exc)
    if report.state not in STOPPED:
        level = logging.WARNING if report.state == "waiting" else logging.INFO
        _LOG.log(level, "%s: %s %s", report.table, report.state, report.reason)
    said = pick(report, "table", "state", "reason", "file", "error")
    emit_state(before, **said, zone=job.zone.url)
    return replace(report, since=since)


def _end_gone(job: Job, name: TableName, journal: Journal, course: Applying) -> TableReport:
    course.entry = journal.newest(journal.lives()[-1])
    course.proven = journal.read_status().get("proven")  # by which the next run knows its zone
    done = end_life(job, name)
    return course.report("gone", done) if done else course.report("behind", "Its folder is back.")


def _advance(
    job: Job,
    name: TableName,
    refusal: MirrorError | None,
    journal: Journal,
    course: Applying,
) -> TableReport:
    if refusal is not None:
        raise refusal
    lease = Lease(job.state, f"leases/{name.segment}", name.shown, "applies to the table")
    with (
        lock_table(job.spark, job.target, job.state, name, job.stop),
        lend_session(job.spark) as spark,
        # Else each of two runners would take away the other's claim, again and again.
        nullcontext() if carries_marks(spark) else hold(lease),
    ):
        word = journal.read_status()
        course.proven = word.get("proven")
        opened = _open(job, name, journal, word, course)
        # A plain folder whose first files do not count has been seen only once its life has begun.
        if opened.waits_for and not (opened.plain and not job.options.include_existing):
            return course.report("waiting", opened.waits_for)
        if isinstance(job.state, LocalStore):
            # What a killed runner left; the lock says it is gone.
            job.state.delete_folder(f"staged/tables/{name.segment}")
        course.verified = read_verified(word)
        before = journal.lives()
        lives = lives_of(job, journal, opened, before)
        work = open_work(job, spark, name, opened, lives)
        if take_over(work) or lives != before:  # what has been applied is another thing now
            opened = _open(job, name, journal, word, course)
            if opened.waits_for:
                return course.report("waiting", opened.waits_for)
            work = open_work(job, spark, name, opened, lives)
        report = advance_table(work, course)
        if course.view.incremental is not None:
            course.listed = course.view.incremental.result(course.entry)
        clean_folder(work, course.view, course.entry)
        return report


def _open(
    job: Job, name: TableName, journal: Journal, word: Mapping[str, Any], course: Applying
) -> OpenedFolder:
    table = str(name)
    job.observe(Event(table=table, step="list", when="before"))
    history = History(journal, job.zone.url, moved_from=job.options.moved_from)
    course.view = FolderView(
        zone=job.zone,
        name=name,
        history=history,
        options=job.options,
        incremental=IncrementalListing(history, job.options, read_listed(word)),
    )
    course.opened = opened = course.view.open()
    job.observe(Event(table=table, step="list", when="after", files=opened.listing.count))
    listing, warnings = "incremental" if opened.partial else "full", dict.fromkeys(opened.warnings)
    course.told = replace(course.told, listing=listing, warnings=tuple(warnings))
    return opened

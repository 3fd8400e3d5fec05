"""Run: bring every table of a landing zone up to date, side by side, each for itself.

In: a session, a zone, a target, options. Out: `ApplyReport`. Promise: exactly once per change file
(see `protocol.py`); a table that cannot go on says why and stops alone; batches that were committed
before it stopped stay.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from mirrorlib.apply.advance import advance_table
from mirrorlib.apply.history import History
from mirrorlib.apply.journal import Journal, now, open_state
from mirrorlib.apply.lock import hold_table
from mirrorlib.apply.onboard import open_folder, policies_of
from mirrorlib.apply.options import REWRITE_LIMIT, SETTLE, Evolution, InsertPolicy, Ntz, Options
from mirrorlib.apply.read import Source
from mirrorlib.apply.report import ApplyReport, Event, Observer, TableReport
from mirrorlib.apply.sessions import lend_session
from mirrorlib.apply.table import find_location, open_log, refer
from mirrorlib.apply.tally import Tally, record_status
from mirrorlib.apply.target import Target
from mirrorlib.apply.work import Work
from mirrorlib.errors import JournalError, LandingZoneError, MirrorError, TableNameError
from mirrorlib.landing.listing import list_tables
from mirrorlib.landing.names import matches, parse_name
from mirrorlib.store import LocalStore, open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from mirrorlib.apply.journal import Life
    from mirrorlib.apply.onboard import Folder
    from mirrorlib.landing.listing import TableFolder
    from mirrorlib.store import Store

_LOG = logging.getLogger(__name__)
_MOST_TABLES_AT_ONCE = 8
_STRICT_CATALOGS = frozenset({"spark_catalog", "hive_metastore"})  # Spark's own session catalog
_PROCESSES: WeakKeyDictionary[SparkSession, int] = WeakKeyDictionary()  # asking takes 20 ms
_STRICT_NAME = re.compile(r"[A-Za-z0-9_]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One call of `apply`, for all its tables."""

    spark: SparkSession
    zone: Store
    target: Target
    state: Store
    options: Options
    observe: Observer
    stop: Callable[[], bool]
    jvm: int


def apply_zone(
    spark: SparkSession,
    landing_zone: str,
    target: str,
    *,
    tables: Sequence[str] = (),
    insert_policy: InsertPolicy = "append",
    evolution: Evolution = "widen",
    ntz: Ntz = "utc",
    max_files: int | None = None,
    max_bytes: int | None = None,
    parallelism: int | None = None,
    catalog: str | None = None,
    state: str | None = None,
    retry: bool = False,
    allow_foreign_writes: bool = False,
    allow_empty: bool = False,
    quiet: bool = False,
    moved_from: str | None = None,
    rewrite_limit: int = REWRITE_LIMIT,
    settle: float = SETTLE,
    observe: Observer | None = None,
    stop: Callable[[], bool] | None = None,
) -> ApplyReport:
    """Bring every table of a landing zone up to date. Exactly once per change file, whatever crashes or runs beside.

    Args:
        spark: the session; each table in flight gets a session of its own from it.
        landing_zone: path or URL of the folder that holds the table folders.
        target: root path or URL of the tables; with *catalog*, the schema's name.
        tables: names or globs of the tables to apply; empty is all of them.
        insert_policy: what marker 0 means: "append" inserts without a look (the format's word),
            "upsert" is marker 4.
        evolution: how columns may change: "widen", "add" (new columns only) or "strict".
        ntz: timestamps without zone become instants in UTC ("utc") or `timestamp_ntz` ("keep").
        max_files: change files a batch.
        max_bytes: bytes of change files a batch; a batch holds at least one file.
        parallelism: tables at once; by default as many as there are cores, at most eight.
        catalog: a Spark catalog; tables are then `catalog.target.table`.
        state: where the journal lives; by default `target/_mirrorlib`.
        retry: try files again that have not changed since they damaged a plan.
        allow_foreign_writes: go on although somebody else wrote to a table.
        allow_empty: let a reset table be replaced by no rows.
        quiet: leave rows alone that an update would not change; the change feed shrinks.
        moved_from: the zone's former URL, when the same zone is now elsewhere.
        rewrite_limit: bytes up to which a table is rewritten for a type that Delta does not widen
            to.
        settle: seconds that delimited text has to lie still before it is read.
        observe: told before and after each step, from several threads.
        stop: asked between batches; True ends the run after the commits in flight.

    Returns:
        what became of every table; a table that is blocked or failed raises nothing.

    Raises:
        LandingZoneError: there is no landing zone, it lies inside its target, or the reverse.
        JournalError: the state folder cannot be used.

    """
    began = time.perf_counter()
    options = Options(
        tables=tables,
        insert_policy=insert_policy,
        evolution=evolution,
        ntz=ntz,
        max_files=max_files,
        max_bytes=max_bytes,
        parallelism=parallelism,
        retry=retry,
        allow_foreign_writes=allow_foreign_writes,
        allow_empty=allow_empty,
        quiet=quiet,
        moved_from=moved_from,
        rewrite_limit=rewrite_limit,
        settle=settle,
    )
    job = open_job(
        spark, landing_zone, Target.of(target, catalog=catalog, state=state), options, observe, stop
    )
    folders = refuse_in_catalog(choose_tables(list_tables(job.zone), options), job.target)
    open_state(job.state)
    reports = _apply_all(job, folders)
    seconds = round(time.perf_counter() - began, 3)
    return ApplyReport(
        landing_zone=job.zone.url, target=job.target.shown, tables=reports, seconds=seconds
    )


def reset_table(
    spark: SparkSession,
    target: str,
    table: str,
    *,
    catalog: str | None = None,
    state: str | None = None,
) -> Life:
    """Begin a new life of a table: the next apply replaces its content, in one commit, by what the zone shows then.

    Nothing is deleted, and readers see the old content until that commit.

    Args:
        spark: not used for the reset itself; the table's lock needs to know its process.
        target: as for `apply`.
        table: its name, "dbo/orders" or "orders".
        catalog: as for `apply`.
        state: as for `apply`.

    Returns:
        the new life.

    Raises:
        JournalError: the target has no such table.

    """
    places = Target.of(target, catalog=catalog, state=state)
    store = open_store(places.state)
    journal = Journal(store, parse_name(table))
    lives = journal.lives()
    if not lives:
        msg = "the target has no such table"
        raise JournalError(
            msg, table=table, next_step="See its tables with: mirrorlib status TARGET"
        )
    with _locked(store, parse_name(table).segment, table, jvm_process(spark), lambda: False):
        life = journal.begin_life("reset", lives[-1].zone, lives[-1].ordinal + 1)
        word = {
            **journal.read_status(),
            "state": "behind",
            "reason": "The table was reset; the next apply replaces its content.",
        }
        journal.write_status(
            {**word, "since": life.started_at, "position": None, "error": None, "file": None}
        )
    return life


def open_job(
    spark: SparkSession,
    landing_zone: str,
    target: Target,
    options: Options,
    observe: Observer | None = None,
    stop: Callable[[], bool] | None = None,
) -> Job:
    """Gather what all tables of one call share.

    Raises:
        LandingZoneError: the zone lies inside its target, or the reverse.

    """
    zone = open_store(landing_zone)
    refuse_overlap(zone.url, target)
    return Job(
        spark=spark,
        zone=zone,
        target=target,
        state=open_store(target.state),
        options=options,
        observe=observe or (_unobserved),
        stop=stop or (lambda: False),
        jvm=jvm_process(spark),
    )


def choose_tables(folders: Sequence[TableFolder], options: Options) -> tuple[TableFolder, ...]:
    """Keep the tables that were asked for.

    Raises:
        LandingZoneError: a pattern names no table.

    """
    for pattern in options.tables:
        if not any(matches(folder.name, [pattern]) for folder in folders):
            msg = "no table of the landing zone matches"
            known = ", ".join(str(folder.name) for folder in folders[:10]) or "none"
            raise LandingZoneError(
                msg, table=pattern, found=f"tables {known}", next_step="Correct --table."
            )
    return tuple(folder for folder in folders if matches(folder.name, options.tables))


def unexpected_error(exc: Exception, folder: TableFolder) -> MirrorError:
    """Name what nobody foresaw: its class and the first line that it says."""
    told = next((line.strip() for line in str(exc).splitlines() if line.strip()), "no text")
    msg = f"an unexpected {type(exc).__name__}"
    step = "The log has the whole story; the table is tried again on the next run."
    return MirrorError(msg, table=folder.name.shown, found=told[:300], next_step=step)


def refuse_in_catalog(folders: Sequence[TableFolder], target: Target) -> tuple[TableFolder, ...]:
    """Refuse by name the tables that a catalog's schema has no room for."""
    if target.catalog is None:
        return tuple(folders)
    seen = Counter(folder.name.table.lower() for folder in folders)
    refused = []
    for folder in folders:
        table = folder.name.table
        error = folder.refusal
        if target.catalog in _STRICT_CATALOGS and not _STRICT_NAME.fullmatch(table):
            msg = f"the catalog {target.catalog} takes letters, digits and _ in a table's name, nothing else"
            step = "Rename it at the publisher, or use a path as the target."
            error = TableNameError(msg, table=str(folder.name), next_step=step)
        elif seen[table.lower()] > 1:
            msg = f"another table of the landing zone is called so too, and {target.shown} has room for one"
            step = "Apply one of them, with --table, or rename one at its publisher."
            error = TableNameError(msg, table=str(folder.name), next_step=step)
        refused.append(replace(folder, refusal=error))
    return tuple(refused)


def refuse_overlap(zone: str, target: Target) -> None:
    """Refuse a zone inside its target or state, and the reverse.

    Raises:
        LandingZoneError: one lies inside the other.

    """
    for place in [target.state] + ([target.place] if target.catalog is None else []):
        outer, inner = sorted((f"{zone.rstrip('/')}/", f"{place.rstrip('/')}/"), key=len)
        if inner.startswith(outer):
            msg = "the landing zone and the target lie one inside the other"
            raise LandingZoneError(
                msg, found=f"{zone} and {place}", next_step="Keep them in two folders."
            )


def jvm_process(spark: SparkSession) -> int:
    """Return the process id of the JVM that commits, without reaching into it."""
    if spark not in _PROCESSES:
        call = "SELECT java_method('java.lang.ProcessHandle', 'current') AS pid"
        _PROCESSES[spark] = int(spark.sql(call).collect()[0]["pid"])
    return _PROCESSES[spark]


def open_work(
    job: Job, spark: SparkSession, folder: TableFolder, opened: Folder, lives: tuple[Life, ...]
) -> Work:
    """Gather what one table's batches need; *spark* is a session that is lent to it alone."""
    ref = refer(job.target, folder.name)
    if opened.metadata is None:  # callers ask `waits_for` first
        msg = "the table has no metadata"
        raise JournalError(msg, table=str(folder.name))
    source = Source(
        zone=job.zone,
        table=str(folder.name),
        folder=folder.path,
        policies=policies_of(opened.metadata, opened.dialect, job.options),
    )
    return Work(
        spark=spark,
        ref=ref,
        log=open_log(spark, ref, find_location(spark, ref)),
        source=source,
        journal=Journal(job.state, folder.name),
        lives=lives,
        state=job.state,
        observe=job.observe,
        allow_foreign_writes=job.options.allow_foreign_writes,
        allow_empty=job.options.allow_empty,
    )


def _unobserved(event: Event) -> None:
    del event


def _apply_all(job: Job, folders: Sequence[TableFolder]) -> tuple[TableReport, ...]:
    at_once = job.options.parallelism or min(os.cpu_count() or 1, _MOST_TABLES_AT_ONCE)
    if at_once == 1 or len(folders) <= 1:
        return tuple(_apply_one(job, folder) for folder in folders)
    with ThreadPoolExecutor(max_workers=at_once, thread_name_prefix="mirrorlib") as pool:
        return tuple(pool.map(lambda folder: _apply_one(job, folder), folders))


def _apply_one(job: Job, folder: TableFolder) -> TableReport:
    """Apply one table; whatever goes wrong with it is its report, not its neighbours' trouble."""
    tally = Tally(table=folder.name.shown, zone=job.zone.url)
    try:
        report = _advance(job, folder, tally)
    except MirrorError as exc:
        report = tally.fail(exc)
    except Exception as exc:  # noqa: BLE001  # one table's trouble is not its neighbours'
        _LOG.exception("%s: failed unexpectedly", folder.name)
        report = tally.fail(unexpected_error(exc, folder))
    _LOG.log(
        logging.INFO if report.state == "current" else logging.WARNING,
        "%s: %s %s",
        report.table,
        report.state,
        report.reason,
    )
    try:
        since = record_status(Journal(job.state, folder.name), tally, report)
    except MirrorError as exc:  # the last word is for people; losing it must not hide what happened
        _LOG.warning("%s: its status could not be written: %s", report.table, exc)
        since = now()
    return replace(report, since=since)


def _advance(job: Job, folder: TableFolder, tally: Tally) -> TableReport:
    if folder.refusal is not None:
        raise folder.refusal
    table = str(folder.name)
    job.observe(Event(table=table, step="list", when="before"))
    journal = Journal(job.state, folder.name)
    history = History(journal)
    opened = open_folder(job.zone, folder, history)
    job.observe(Event(table=table, step="list", when="after", files=opened.listing.count))
    tally.warn(*opened.warnings)
    if opened.waits_for:
        return tally.end("waiting", opened.waits_for)
    with (
        _locked(job.state, folder.name.segment, table, job.jvm, job.stop),
        lend_session(job.spark) as spark,
    ):
        lives = journal.lives() or (journal.begin_life("first seen", job.zone.url, 1),)
        if isinstance(job.state, LocalStore):
            job.state.delete_folder(
                f"staged/{folder.name.segment}"
            )  # what a killed runner left; the lock says it is gone
        opened = open_folder(job.zone, folder, history)
        work = open_work(job, spark, folder, opened, lives)
        return advance_table(work, folder, opened, history, job.options, tally, job.stop)


@contextlib.contextmanager
def _locked(
    state: Store, segment: str, table: str, jvm: int, stop: Callable[[], bool]
) -> Iterator[None]:
    """Lock a table where the state is on a local file system, which is where Delta needs it."""
    if not isinstance(state, LocalStore):
        yield
        return
    with hold_table(Path(state.url) / "locks" / f"{segment}.lock", table, jvm, stop):
        yield

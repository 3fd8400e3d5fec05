"""Follow a table folder through its lives: first seen, gone, re-created, begun in the middle.

In: a job and what the zone shows. Out: the lives that a runner works with, and reports on tables
whose folders are gone. A folder counts as re-created when a run has seen it absent; a re-upload
beside a cleaner looks the same as any other sign, so nothing else is taken for one (landing-zone
format, table lifecycle; design §4, Lives).
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from mirrorlib.delta.lock import lock_table
from mirrorlib.delta.sessions import lend_session
from mirrorlib.delta.table import drop_table, find_table, refer
from mirrorlib.errors import JournalError, MirrorError, TableNameError
from mirrorlib.ingest.batch.evolve_table import refuse_others_table
from mirrorlib.ingest.files.history import passed_files
from mirrorlib.ingest.report import GONE, SHOWS_NOTHING
from mirrorlib.journal.disk import Journal
from mirrorlib.landing.listing import TableFolder, list_tables
from mirrorlib.names import TableName, find_conflicts, matches
from mirrorlib.store import open_store

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from pyspark.sql import SparkSession

    from mirrorlib.ingest.files.table_folder import Folder
    from mirrorlib.ingest.job import Job
    from mirrorlib.journal.entries import Life
    from mirrorlib.landing.listing import FolderListing

_LOG = logging.getLogger(__name__)
_STILL_THERE = "one of them is no longer in the landing zone, and its Delta table is still there"
_MAKE_WAY = "Rename the other at its publisher, or remove that table if nobody needs it, with --on-gone drop."
KEPT = f"{GONE} The Delta table is kept as it is."
DROPPED = f"{GONE} The Delta table was dropped, as --on-gone asks."
TO_BE_DROPPED = f"{GONE} The Delta table will be dropped, as --on-gone asks."


def known_tables(job: Job) -> tuple[TableName, ...]:
    """Name the tables that the journal knows."""
    listed = job.state.list_folder("journal")
    names = []
    for segment in listed.folders if listed else ():
        with contextlib.suppress(TableNameError):  # somebody else's folder
            names.append(TableName.from_segment(segment))
    return tuple(names)


def list_shown(job: Job, known: Collection[TableName]) -> tuple[TableFolder, ...]:
    """List the zone's tables; in the place of a schema folder that cannot be listed, those that it has filled.

    A table whose place in the target would be that of one which the zone shows no longer is refused by name.

    Raises:
        LandingZoneError: there is no landing zone.
        StoreError: the zone itself cannot be listed.

    """
    found: list[TableFolder] = []
    for folder in list_tables(job.zone):
        mine = _filled_from(job, folder, known) if folder.unlisted else ()
        found += mine or (folder,)
    conflicts = _conflicts_with_kept(job, found, known)
    return tuple(
        replace(folder, refusal=folder.refusal or conflicts.get(folder.name)) for folder in found
    )


def _conflicts_with_kept(
    job: Job, folders: Collection[TableFolder], known: Iterable[TableName]
) -> Mapping[TableName, TableNameError]:
    """Find the tables that cannot lie in the target together with those that are kept there."""
    shown = {folder.name for folder in folders if not folder.unlisted}
    others = {name for name in known if name not in shown}
    if job.target.catalog is not None or not others & find_conflicts([*shown, *others]).keys():
        return {}
    kept = [name for name in others if _has_table(job, name)]
    return {
        name: TableNameError(
            error.reason, table=error.table, found=_STILL_THERE, next_step=_MAKE_WAY
        )
        for name, error in find_conflicts([*shown, *kept]).items()
        if name in shown
    }


def _has_table(job: Job, name: TableName) -> bool:
    """Say whether the target has a Delta table in a table's place."""
    return open_store(job.target.place).list_folder(f"{name.path}/_delta_log") is not None


def _filled_from(
    job: Job, folder: TableFolder, known: Iterable[TableName]
) -> tuple[TableFolder, ...]:
    names = (name for name in known if name.schema == folder.name.schema)
    return tuple(
        TableFolder(name=name, path=name.folder, refusal=folder.refusal)
        for name in sorted(names, key=str)
        if _is_of(job, Journal(job.state, name))
    )


def absent_tables(
    job: Job, folders: Collection[TableFolder], known: Iterable[TableName]
) -> tuple[TableName, ...]:
    """Name the *known* tables that this zone has filled and no longer shows, of those that were asked for.

    A zone without any table looks like one that is not mounted: nothing is gone from it.
    """
    return _not_among(job, folders, known) if folders else ()


def warn_of_absence(
    job: Job, folders: Collection[TableFolder], known: Iterable[TableName]
) -> tuple[str, ...]:
    """Say so when a zone shows none of the tables that it has filled, nor any other."""
    return () if folders or not _not_among(job, folders, known) else (SHOWS_NOTHING,)


def _not_among(
    job: Job, folders: Collection[TableFolder], known: Iterable[TableName]
) -> tuple[TableName, ...]:
    present = {folder.name for folder in folders}
    asked = (n for n in known if n not in present and matches(n, job.options.tables))
    return tuple(name for name in asked if _is_of(job, Journal(job.state, name)))


def _is_of(job: Job, journal: Journal) -> bool:
    try:
        lives = journal.lives()
        entry = journal.newest(lives[-1]) if lives else None
    except MirrorError as exc:
        _LOG.warning("a table that is not in the zone: %s", exc)
        return False
    zone = entry.plan.zone if entry else lives[-1].zone if lives else None
    return zone == job.zone.url


def end_life(job: Job, name: TableName) -> str | None:
    """Write down that a table's folder was seen absent; drop the table when that is asked for.

    Returns:
        what was done; None when the folder is back.

    Raises:
        ForeignWriteError: the table to be dropped is not this mirror's.
        MirrorError: another table lies inside the one to be dropped.

    """
    journal = Journal(job.state, name)
    with lock_table(job.spark, job.target, job.state, name, job.stop):
        if job.zone.list_folder(name.folder) is not None:
            return None
        lives = journal.lives()
        journal.write_gone(lives[-1])
        if job.options.on_gone == "keep":
            return KEPT
        with lend_session(job.spark) as spark:
            if _find_droppable(job, name, lives, spark):
                drop_table(spark, refer(job.target, name))
    return DROPPED


def coming_end(job: Job, name: TableName) -> str:
    """Say what `end_life` would do, and write nothing.

    Raises:
        ForeignWriteError: the table to be dropped is not this mirror's.
        MirrorError: another table lies inside the one to be dropped.

    """
    if job.options.on_gone == "keep":
        return KEPT
    with lend_session(job.spark) as spark:
        there = _find_droppable(job, name, Journal(job.state, name).lives(), spark)
    return TO_BE_DROPPED if there else DROPPED


def _find_droppable(
    job: Job, name: TableName, lives: tuple[Life, ...], spark: SparkSession
) -> bool:
    """Say whether there is a table to drop."""
    inner = [
        other
        for other in known_tables(job)
        if other.path.startswith(f"{name.path}/") and Journal(job.state, other).lives()
    ]
    if inner and job.target.catalog is None:
        msg = "the table cannot be dropped: another one lies inside its folder"
        step = "Move or remove it by hand, or leave out --on-gone drop."
        raise MirrorError(msg, table=str(name), found=str(inner[0]), next_step=step)
    found = find_table(spark, refer(job.target, name))
    if found is not None:
        refuse_others_table(str(name), lives, found, allow_forgetting=True)
    return found is not None


def lives_of(job: Job, name: TableName, opened: Folder) -> tuple[Life, ...]:
    """Return a table's lives for a runner; begin the first, or the one after its folder was gone."""
    journal = Journal(job.state, name)
    lives = journal.lives()
    coming = _next_life(job, journal, lives, opened.listing)
    if coming is None:
        return lives
    why, start = coming
    ordinal, existing = len(lives) + 1, _includes_existing(job, lives, opened)
    if not existing:  # first of all: what comes from here on must not be taken for what was there
        files = (
            file for partition in opened.listing.partitions.values() for file in partition.values()
        )
        journal.write_passed(ordinal, passed_files(files))
    life = journal.begin_life(why, job.zone.url, ordinal, start, include_existing=existing)
    return (*lives, life)


def coming_lives(job: Job, name: TableName, opened: Folder, unborn: Life) -> tuple[Life, ...]:
    """Return the lives that `lives_of` would, and write nothing."""
    journal = Journal(job.state, name)
    lives = journal.lives()
    coming = _next_life(job, journal, lives, opened.listing)
    if coming is None:
        return lives
    existing = _includes_existing(job, lives, opened)
    return (*lives, replace(unborn, start_at=coming[1], include_existing=existing))


def _includes_existing(job: Job, lives: tuple[Life, ...], opened: Folder) -> bool:
    """Say whether a life begins with what is there; what a table that starts over shows has come since."""
    return bool(lives) or not opened.plain or job.options.include_existing


def _next_life(
    job: Job, journal: Journal, lives: tuple[Life, ...], listing: FolderListing
) -> tuple[str, int] | None:
    """Say why a life has to begin, and with which number; None when none has to.

    A number that is not there yet is not begun with: whatever comes first would be passed over.
    """
    asked = job.options.start_at
    visible = asked is not None and any(asked in files for files in listing.partitions.values())
    start = asked if asked is not None and visible and not listing.by_time else 1
    if not lives:
        return "first seen", start
    last = lives[-1]
    if journal.is_gone(last):
        return "re-created", start
    if start in {1, last.start_at}:
        return None
    newest = journal.newest(last)
    begun = newest is not None and (newest.done is None or bool(newest.position))
    return None if begun or last.keeps else ("start at", start)


def check_first(numbers: Iterable[tuple[int, int]], start_at: int, table: str) -> None:
    """See that a new life can begin.

    Args:
        numbers: the smallest and the largest number of each partition folder.
        start_at: the number that it is to begin with.
        table: for the error.

    Raises:
        JournalError: its first change file is gone, and later ones would wait for it for ever; or
            it is not there by far.

    """
    ends = list(numbers)
    if not ends:
        return
    lows, highs = zip(*ends, strict=True)
    if start_at == 1 < max(lows):  # of the folder that has lost most
        first = max(lows)
        msg = "the table cannot start over: its first change files are gone from the landing zone"
        step = f"Publish them again, or begin with what is there: mirrorlib reset TARGET {table} --start-at {first}"
        raise JournalError(msg, table=table, found=f"number {first} as the first", next_step=step)
    if not min(lows) <= start_at <= max(highs) + 1:
        msg = "the table cannot start at a number that is not there"
        step = f"Choose one from {min(lows)} to {max(highs)}."
        raise JournalError(msg, table=table, found=f"number {start_at}", next_step=step)

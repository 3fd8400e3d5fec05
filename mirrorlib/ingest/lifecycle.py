"""Follow a table folder through its lives: first seen, gone, re-created, begun in the middle, or behind another.

In: a job and what the zone shows. Out: the lives that a runner works with, and what became of tables whose folders are
gone (docs/bad-input.md, "Folders that go and come back"). A life that keeps the table takes it over from the one
before, by steps that are repeated until the first plan of the new life is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace

from mirrorlib.delta.columns import Columns, find_key_column
from mirrorlib.delta.lock import lock_table
from mirrorlib.delta.sessions import lend_session
from mirrorlib.delta.table import drop_table, find_table, refer
from mirrorlib.errors import JournalError, MirrorError, first_few
from mirrorlib.ingest.batch.evolve_table import fence_lives, refuse_others_table, refuse_table
from mirrorlib.ingest.batch.foreign_writes import find_outcome
from mirrorlib.ingest.batch.outcome import outcome_of
from mirrorlib.ingest.files.cleanup import PLACES
from mirrorlib.ingest.files.continued_life import lost_files
from mirrorlib.ingest.files.history import passed_files
from mirrorlib.ingest.files.plan import first_position, passed_over
from mirrorlib.ingest.files.table_folder import OpenedFolder
from mirrorlib.ingest.job import Job, is_kept
from mirrorlib.ingest.report import GONE
from mirrorlib.ingest.work import Attempt, Work
from mirrorlib.journal.disk import Journal, find_journals
from mirrorlib.journal.entries import REBUILD, Life
from mirrorlib.landing.listing import FolderListing
from mirrorlib.names import TableName

_DROPPED = f"{GONE} The Delta table was dropped, as --on-gone asks."
_PLAIN_KEPT = f"{GONE} The Delta table of a plain folder is kept, whatever --on-gone says, and goes on with new files."
_LEFT_OUT = (
    "change files that are left out: {left}. The table begins with number {first}. "
    "If they count: mirrorlib reset TARGET TABLE --start-at 1"
)
_NOT_LEFT_OUT = (
    "--start-at {asked} counts for nothing: the table has begun otherwise. To leave earlier change files out: "
    "mirrorlib reset TARGET TABLE --start-at {asked}"
)
_UNBORN = Life(ordinal=1, uuid="", why="first seen", zone="", started_at="")


def end_life(job: Job, name: TableName, *, write: bool = True) -> str | None:
    """Write down that a table's folder was seen absent; drop the table when that is asked for and it is this mirror's.

    A plain folder's life goes on: a file is its whole path, so whatever comes is appended once.
    Returns what was done, or would be without *write*; None when the folder is back.
    """
    journal = Journal(job.state, name)
    locked = lock_table(job.spark, job.target, job.state, name, job.stop)
    with locked if write else nullcontext():
        lives = journal.lives()
        if write and job.zone.list_folder(name.folder) is not None:
            return None
        newest = journal.newest_of(lives) or (lives[-1].keeps and journal.newest(lives[-2]))
        # What one passes over stays passed over, too.
        if not lives[-1].include_existing or (newest and newest.plan.policies.plain is not None):
            return _PLAIN_KEPT
        if write:
            journal.write_gone(lives[-1])
        if job.options.on_gone == "keep":
            return f"{GONE} The Delta table is kept as it is."
        with lend_session(job.spark) as spark:
            ref = refer(job.target, name)
            found = find_table(spark, ref)
            if found is None:
                return _DROPPED
            known = find_journals(job.state) if ref.path is not None else ()
            within = [one for one in known if str(one).startswith(f"{name}/")]
            if inner := next((one for one in within if is_kept(job, one)), None):
                msg = "the table cannot be dropped: another one lies inside its folder"
                step = "Move or remove it by hand, or leave out --on-gone drop."
                raise MirrorError(msg, table=str(name), found=str(inner), next_step=step)
            refuse_others_table(str(name), lives, found)
            if not write:
                return f"{GONE} The Delta table will be dropped, as --on-gone asks."
            drop_table(spark, ref)
    return _DROPPED


def lives_of(
    job: Job, journal: Journal, opened: OpenedFolder, lives: tuple[Life, ...], *, write: bool = True
) -> tuple[Life, ...]:
    """Return a table's lives for a runner; begin behind those in its journal the first, or one after it was gone.

    Without *write*, a life that would begin has no uuid.
    """
    coming = _next_life(job, journal, lives, opened.listing)
    if coming is None:
        return lives
    why, start = coming
    ordinal, zone = (lives[-1].ordinal if lives else 0) + 1, job.zone.url
    # What a table that starts over shows has come since.
    existing = bool(lives) or not opened.plain or job.options.include_existing
    if not write:
        coming_life = replace(_UNBORN, why=why, start_at=start, include_existing=existing)
        return (*lives, coming_life)
    if not existing:  # first of all: what comes from here on must not be taken for what was there
        files = (file for files in opened.listing.partitions.values() for file in files.values())
        journal.write_passed(ordinal, passed_files(files))
    return (*lives, journal.begin_life(why, zone, ordinal, start, include_existing=existing))


def _next_life(
    job: Job, journal: Journal, lives: tuple[Life, ...], listing: FolderListing
) -> tuple[str, int] | None:
    """Say why a life has to begin, and with which number; None when none has to.

    A number that is not there yet is not begun with: whatever comes first would be passed over. And where the table
    had a life, none that leaves out what is there: the option may be what that one was begun with.
    """
    asked = job.options.start_at
    visible = asked is not None and any(asked in files for files in listing.partitions.values())
    start = asked if asked is not None and visible and not listing.by_time else 1
    if lives and any(passed_over(listing, first_position(listing, start))):
        start = 1
    if not lives:
        return "first seen", start
    last = lives[-1]
    if journal.is_gone(last):
        return "re-created", start
    if job.rebuilds:  # where its first file is not there, that is told
        return REBUILD, asked or 1
    # Who has reset the table with a number has meant that one, whatever stands in the job since its first life.
    if start in {1, last.start_at} or (last.why == "reset" and last.start_at > 1):
        return None
    newest = journal.newest(last)
    begun = newest is not None and (newest.done is None or bool(newest.position))
    # A rebuild begins as the life did whose files it takes.
    return None if begun or last.keeps or last.why == REBUILD else ("start at", start)


def take_over(work: Work) -> bool:
    """See that the life before can commit nothing more, and write down how its last batch ended.

    Returns whether the life has yet to begin; what the life before has appended is known for certain only now.

    Raises `JournalError`: the table lacks a key column; `ForeignWriteError`: it is not this mirror's, or somebody else
    wrote to it; `OutcomeUnknownError`: nobody can tell any more what became of the last batch.
    """
    if not work.life.keeps or work.journal.newest(work.life) is not None:
        return False
    found = find_table(work.spark, work.ref)
    if found is None:
        return True  # the guard says so
    refuse_table(work, found)
    check_key_columns(work.table, found.columns, work.source.policies.keys)
    with work.step("fence", {}):
        fence_lives(work, found)
    before = work.lives[-2]
    entry = work.journal.newest(before)
    if entry is not None and entry.done is None:
        attempt = Attempt(work=work, plan=entry.plan)
        _, ended = find_outcome(attempt)
        if ended is not None:  # else it never will be
            done = outcome_of(attempt, ended)
            work.journal.write_done(before, entry.plan.batch, done)
    return True


def check_key_columns(table: str, columns: Columns, keys: Sequence[str]) -> None:
    """See that a table that is kept has the columns of its new keys.

    Raises `JournalError`: it lacks one, so that no change could find the rows that were appended.
    """
    missing = next((key for key in keys if find_key_column(columns, key) is None), None)
    if missing is not None:
        msg = "the table cannot be kept: it lacks a key column that _metadata.json names"
        step = f"Correct keyColumns, or let the table start over: mirrorlib reset TARGET {table}"
        raise JournalError(msg, table=table, column=missing, next_step=step)


def tell_left_out(work: Work, opened: OpenedFolder, position: Mapping[str, int]) -> Iterator[str]:
    """Say what a life leaves out, and where it leaves out nothing although that is asked for."""
    listing, first, asked = opened.listing, work.life.start_at, work.options.start_at
    left = sum(1 for _ in passed_over(listing, position))
    if left:
        yield _LEFT_OUT.format(left=left, first=first)
    visible = any(asked in files for files in listing.partitions.values())
    if visible and (asked or 0) > first and not listing.by_time:
        yield _NOT_LEFT_OUT.format(asked=asked)


def tell_lost(work: Work, opened: OpenedFolder) -> Iterator[str]:
    """Say what a table loses as it starts over; refuse that unasked where its folder is not one made anew."""
    source = work.source
    try:
        lost, left = lost_files(work.journal, work.lives[:-1], source, opened.listing)
    except JournalError as exc:
        if work.life.why != "reset":  # which is how it ends
            raise
        yield f"nobody can tell which files that were applied before are gone: {exc.file} is damaged or lost"
        return
    if not lost:
        return
    places = [f"{source.folder}/{place}" for place in PLACES.values()]
    left = left or any(source.zone.list_folder(place) is not None for place in places)
    if left and work.life.why == "re-created":
        msg = "the folder has come back without files that were applied before, and their rows would go"
        anew = f"mirrorlib reset TARGET {work.table}"
        step = f"Put them back, as from _ProcessedFiles, or begin with what is there: {anew}"
        raise JournalError(msg, table=work.table, found=first_few(lost), next_step=step)
    yield f"files that were applied before are gone, and their rows with them: {first_few(lost)} ({len(lost):,} in all)"

"""Follow a table folder through its lives: first seen, gone, re-created, begun in the middle.

In: a job and what the zone shows. Out: the lives that a runner works with, and reports on tables
whose folders are gone. A folder counts as re-created when a run has seen it absent; a re-upload
beside a cleaner looks the same as any other sign, so nothing else is taken for one (landing-zone
format, table lifecycle; design §4, Lives).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.apply.journal import Journal
from mirrorlib.apply.lock import lock_table
from mirrorlib.apply.ready import refuse_others_table
from mirrorlib.apply.report import GONE
from mirrorlib.apply.sessions import lend_session
from mirrorlib.apply.table import drop_table, find_table, refer
from mirrorlib.errors import JournalError
from mirrorlib.landing.names import TableName, matches

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mirrorlib.apply.job import Job
    from mirrorlib.apply.journal import Life
    from mirrorlib.landing.listing import TableFolder

KEPT = f"{GONE} The Delta table is kept as it is."
DROPPED = f"{GONE} The Delta table was dropped, as --on-gone asks."


def absent_tables(job: Job, folders: Iterable[TableFolder]) -> tuple[TableName, ...]:
    """Name the tables that this zone has filled and no longer shows, of those that were asked for."""
    present = {folder.name for folder in folders}
    listed = job.state.list_folder("journal")
    names = (TableName.from_segment(segment) for segment in (listed.folders if listed else ()))
    asked = (name for name in names if name not in present and matches(name, job.options.tables))
    return tuple(name for name in asked if _is_of(job, Journal(job.state, name)))


def _is_of(job: Job, journal: Journal) -> bool:
    lives = journal.lives()
    entry = journal.newest(lives[-1]) if lives else None
    zone = entry.plan.zone if entry else lives[-1].zone if lives else None
    return zone == job.zone.url


def end_life(job: Job, name: TableName) -> str:
    """Write down that a table's folder was seen absent; drop the table when that is asked for; say what was done.

    Raises:
        ForeignWriteError: the table to be dropped is not this mirror's.

    """
    journal = Journal(job.state, name)
    with lock_table(job.state, name.segment, str(name), job.jvm, job.stop):
        lives = journal.lives()
        journal.write_gone(lives[-1])
        if job.options.on_gone == "keep":
            return KEPT
        with lend_session(job.spark) as spark:
            ref = refer(job.target, name)
            found = find_table(spark, ref)
            if found is not None:
                refuse_others_table(str(name), lives, found, allow_forgetting=True)
                drop_table(spark, ref)
    return DROPPED


def lives_of(job: Job, name: TableName) -> tuple[Life, ...]:
    """Return a table's lives for a runner; begin the first, or the one after its folder was gone."""
    journal = Journal(job.state, name)
    lives = journal.lives()
    start = job.options.start_at or 1
    if not lives:
        return (journal.begin_life("first seen", job.zone.url, 1, start),)
    last = lives[-1]
    if journal.is_gone(last):
        return (*lives, journal.begin_life("re-created", job.zone.url, last.ordinal + 1, start))
    unbegun = journal.newest(last) is None
    if job.options.start_at is not None and unbegun and last.start_at != start:
        return (*lives, journal.begin_life("start at", job.zone.url, last.ordinal + 1, start))
    return lives


def coming_lives(job: Job, name: TableName, unborn: Life) -> tuple[Life, ...]:
    """Return the lives that `lives_of` would, and write nothing."""
    journal = Journal(job.state, name)
    lives: Sequence[Life] = journal.lives()
    if lives and not journal.is_gone(lives[-1]):
        return tuple(lives)
    return (*lives, unborn)


def check_first(numbers: Iterable[int], start_at: int, table: str) -> None:
    """See that a new life can begin.

    Raises:
        JournalError: its first change file is gone, and later ones would wait for it for ever.

    """
    first = max(numbers, default=start_at)  # of the folder that has lost most
    if first > start_at:
        msg = "the table cannot start over: its first change files are gone from the landing zone"
        step = f"Publish them again, or begin with what is there: mirrorlib reset TARGET {table} --start-at {first}"
        raise JournalError(msg, table=table, found=f"number {first} as the first", next_step=step)

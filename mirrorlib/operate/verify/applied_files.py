"""Find the landing files that a table was made of: where they were, or where applied files are moved to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from mirrorlib.delta.sessions import side_by_side
from mirrorlib.errors import FileChangedError, JournalError
from mirrorlib.ingest.files.cleanup import PLACES
from mirrorlib.ingest.files.continued_life import applied_entries
from mirrorlib.ingest.files.source import Source
from mirrorlib.ingest.rows.read import Landed, read_landed
from mirrorlib.journal.disk import Journal
from mirrorlib.journal.entries import Entry, Plan, PlannedFile
from mirrorlib.names import TableName
from mirrorlib.store import Store

AT_ONCE = 8  # files: most of it is waiting for a store


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


def open_files(zone: Store, name: TableName, entries: Sequence[Entry]) -> list[Landed]:
    """Open the files of batches where they were, or where applied files are moved to.

    Raises:
        FileChangedError: one is gone, or is not what was applied.

    """
    places = [*list_places(zone, name)]
    planned = [(entry.plan, file) for entry in entries for file in entry.plan.files]
    return [*side_by_side(lambda one: open_planned(zone, name, *one, places), planned, AT_ONCE)]


def list_places(zone: Store, name: TableName) -> Iterator[str]:
    """Name the folders in which a table's applied files may lie, their own first."""
    yield name.folder
    for place in PLACES.values():
        listed = zone.list_folder(f"{name.folder}/{place}")
        days = ("", *(f"/{day}" for day in listed.folders)) if listed else ()
        yield from (f"{name.folder}/{place}{day}" for day in days)


def open_in(places: Iterable[str], source: Source, name: str) -> Iterator[Landed]:
    """Open a file in each of some places that has it."""
    for place in places:
        if (file := source.zone.stat(f"{place}/{name}")) is not None:
            yield read_landed(source, replace(file, below=name), decode=False)


def open_planned(
    zone: Store, name: TableName, plan: Plan, planned: PlannedFile, places: Iterable[str] = ()
) -> Landed:
    """Open a file of a plan in the first of some places, or of all, that has it; `FileChangedError` where none has."""
    source = Source(zone=zone, table=name.shown, folder=name.folder, policies=plan.policies)
    msg = "the change file is gone"
    for landed in open_in(places or list_places(zone, name), source, planned.name):
        if landed.fingerprint == planned.fingerprint:
            return landed
        msg = "the change file is not what was applied"
    step = "Bring it back, or verify only what comes from now on: --mark"
    raise FileChangedError(msg, table=source.table, file=planned.name, next_step=step)

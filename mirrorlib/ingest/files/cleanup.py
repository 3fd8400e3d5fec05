"""Clean up a table folder after its files were applied, where that is asked for.

In: a table whose batches are done. Out: their files in a folder of the day on which they were moved, or
removed once that is long ago. The newest numbered file of each partition folder stays, as publishers count
on from it. Source: landing-zone format, best practices 2026-09-18 (`_ProcessedFiles`, seven days).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta

from mirrorlib.delta.sessions import side_by_side
from mirrorlib.errors import MirrorError
from mirrorlib.ingest.files.history import History
from mirrorlib.ingest.files.plan import changed_files
from mirrorlib.ingest.files.source_identity import goes_on
from mirrorlib.ingest.files.table_folder import FolderView, OpenedFolder
from mirrorlib.ingest.options import RETENTION, Cleanup
from mirrorlib.ingest.work import Work
from mirrorlib.journal.entries import Entry
from mirrorlib.names import WHOLE_FOLDER
from mirrorlib.store import Store, StoredFile, contents

PLACES: dict[Cleanup, str] = {"move": "_ProcessedFiles", "delete": "_FilesReadyToDelete"}
_TRIES = 3  # files that cannot be moved, before the first that can
_LOG = logging.getLogger(__name__)


def clean_folder(work: Work, view: FolderView, entry: Entry | None) -> None:
    """Move what was applied out of the way, and remove what was moved long ago.

    A trouble with that is told, and is none of the table's; what was moved so far is moved.
    """
    zone, name, options = view.zone, view.name, work.options
    if options.cleanup is None or entry is None or entry.plan.zone != zone.url:
        return
    if work.journal.lives()[-1] != work.life:
        return
    place = f"{name.folder}/{PLACES[options.cleanup]}"
    today = datetime.now(UTC).date()
    moved, troubles = list[StoredFile](), list[MirrorError]()
    try:
        opened = view.open(full=True)
        if not goes_on(work, opened):
            return
        overwritten = opened.plain and options.allow_overwrites  # and then appended again
        life = work.life
        before = History(work.journal, life.zone, until=life.ordinal - 1) if life.keeps else None
        unread = before.passed() if before else {}

        def move(file: StoredFile) -> None:
            # Moving takes a while: what is there by now may be another file, which nobody has read.
            if overwritten and ((there := zone.stat(file.path)) is None or there.etag != file.etag):
                return
            zone.move(file.path, f"{place}/{today.isoformat()}/{file.name}")
            moved.append(file)

        # What was passed counts as applied, so that nobody ever applies it.
        done = (one for one in _finished(opened, entry, life.start_at) if one.name not in unread)
        troubles += _move_all(move, done, zone.at_once)
        _remove_old(zone, place, today, options.retention or RETENTION)
    except MirrorError as exc:
        troubles.append(exc)
    if troubles:
        _LOG.warning("%s: its folder could not be cleaned up: %s", name, troubles[0])
    if moved:
        _LOG.info("%s: %d applied files were moved to %s", name, len(moved), place)


def _move_all(
    move: Callable[[StoredFile], None], files: Iterator[StoredFile], at_once: int
) -> list[MirrorError]:
    """Move what can be, and return what came of the others; where nothing may be removed, few are copied in vain."""
    troubles = list[MirrorError]()

    def has_moved(file: StoredFile) -> bool:
        try:
            move(file)
        except MirrorError as exc:
            troubles.append(exc)
            return False
        return True

    for file in files:
        if has_moved(file):
            break
        if len(troubles) == _TRIES:
            return troubles
    side_by_side(has_moved, [*files], at_once)
    return troubles


def _finished(opened: OpenedFolder, entry: Entry, start_at: int) -> Iterator[StoredFile]:
    """Give the applied files, but for those that have changed since and the newest of each partition folder.

    What lies before the number that the life begins with was never applied.
    """
    listing, position = opened.listing, entry.position
    changed, placed = changed_files(listing, entry.plan, position)
    left = {*changed, *(file.name for file in placed)}
    for partition, files in listing.partitions.items():
        kept = None if listing.by_time else max(files, default=None)
        first = start_at if partition == WHOLE_FOLDER and not listing.by_time else 1
        for number, file in files.items():
            applied = first <= number <= position.get(partition, 0)
            if applied and number != kept and file.name not in left:
                yield file


def _remove_old(zone: Store, place: str, today: date, days: int) -> None:
    for name in contents(zone, place).folders:
        with contextlib.suppress(ValueError):  # another name is not ours
            day = date.fromisoformat(name)
            if day.isoformat() == name and today - day > timedelta(days=days):
                zone.delete_folder(f"{place}/{name}")

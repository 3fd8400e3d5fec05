"""Look into a table's folder only for what has come since the last look, where that is enough.

In: a table's journal, and what an earlier full listing has left in the table's last word (`Listed`).
Out: `FolderContent` for `open_folder`, or None: then the folder is listed in full. A short look is taken only
while nothing is odd: the table was current, its zone, metadata and newest applied files are as they
were. Nothing rests on what is remembered; where it is lost or does not fit, the listing is full.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from mirrorlib.ingest.files.history import History
from mirrorlib.ingest.files.plan import next_run
from mirrorlib.ingest.options import Options
from mirrorlib.journal.entries import Entry
from mirrorlib.landing.listing import FolderContent, FolderListing
from mirrorlib.landing.metadata.declared import (
    METADATA_BYTES,
    METADATA_NAME,
    TableMetadata,
    as_published,
)
from mirrorlib.landing.metadata.reading import parse_metadata
from mirrorlib.landing.poll import see_after, see_next
from mirrorlib.names import WHOLE_FOLDER, TableName
from mirrorlib.store import Store

PAGE = 1000  # names in one page of a listing: a folder of no more costs one request to list in full
MOST_SHORT = 7  # looks in a row from a name on, where names have no numbers; Auto Loader's count


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """What the last full listing of a folder, *at* a moment in UTC, leaves to the next looks."""

    zone: str
    at: str
    # The newest one then, or after the short looks since; another one means that a run has ended without a word.
    batch: int
    metadata: str  # a digest of `_metadata.json`
    short: int  # short looks since then, where names have no numbers


def read_listed(word: Mapping[str, Any]) -> Listed | None:
    """Read what an earlier run has left in a table's last word; None unless the table was current then."""
    said = word.get("listing")
    if word.get("state") != "current" or not isinstance(said, dict):
        return None
    try:
        listed = Listed(**{**said, "short": int(said["short"])})
        aware = datetime.fromisoformat(listed.at).tzinfo is not None
    except (KeyError, TypeError, ValueError):
        return None  # nothing rests on it
    return listed if aware else None


class IncrementalListing:
    """How one run looks into one table's folder; it keeps what it has seen for the run after it."""

    def __init__(
        self, history: History, options: Options, left: Listed | None, *, due: bool = True
    ) -> None:
        """Begin with what the last run has *left*; *due* False never lists in full only because it is time to."""
        self._history = history
        self._options = options
        self._due = due
        # Cleaning up needs to see all, and keeps folders short.
        self._wanted = options.listing != "full" and options.cleanup is None
        self._listed = left if self._wanted else None
        self._proven = False
        self._full = False
        self._after: str | None = None

    def see(self, zone: Store, table: TableName) -> tuple[FolderContent, bytes] | None:
        """Look for what has come; give that and the metadata's bytes, or None where only a full listing will do."""
        listed = self._listed
        if listed is None or listed.zone != zone.url or (self._due and self._is_due(listed)):
            return None
        _, entry = self._history.newest()
        # What the last run has left is about the newest batch; one that was killed leaves nothing.
        self._proven |= entry is not None and entry.plan.batch == listed.batch
        if entry is None or not self._proven:
            self._listed = None
            return None
        if entry.done is None or entry.done.outcome != "applied":
            return None
        data = zone.read(f"{table.folder}/{METADATA_NAME}", most=METADATA_BYTES)
        if data is None or _digest(data) != listed.metadata:
            return None
        newest, seen = entry.plan.files[-1], None
        metadata = as_published(parse_metadata(data, str(table)), [newest.name])
        if metadata.detection != "sequential":
            # A run that has listed in full goes by that: it may have seen what a short look passes over.
            if not self._full:
                self._after = self._after or max(self._history.applied().etags, default=None)
                seen = see_after(zone, table, self._after) if self._after else None
        # What identified a file in another zone says nothing here.
        elif not entry.plan.policies.by_time and entry.plan.zone == zone.url:
            endings = [one for one in metadata.extensions if one.isascii() and one.isalnum()]
            known = (newest.name, newest.etag)
            seen = see_next(zone, table, known, endings, most=self._options.max_files)
        return None if seen is None else (seen, data)

    def remember(
        self, data: bytes, metadata: TableMetadata, listing: FolderListing, listed_at: str
    ) -> None:
        """Keep what a full listing has shown, if the next looks may be short."""
        self._full = self._proven = True
        self._listed = None
        if metadata.partitioned:  # a look into each partition folder costs what listing them does
            return
        # Short looks cost less than a listing only where that is long.
        files = listing.partitions.get(WHOLE_FOLDER, {})
        long = self._options.listing == "incremental" or len(files) + len(listing.foreign) > PAGE
        if not (self._wanted and long and files):  # that it is empty, only this one tells
            return
        _, entry = self._history.newest()
        position = entry.position if entry else {}
        if listing.by_time:
            sees_all = self._history.in_order(files.values())
        else:
            begun = {WHOLE_FOLDER: min(files) - 1, **position}
            endings = {file.name.rpartition(".")[2] for file in files.values()}  # it asks for one
            whole = not (next_run(listing, begun).gap or listing.doubled)
            sees_all = whole and len(endings) == 1
        if sees_all:  # else a short look would not
            zone, batch = self._history.zone, entry.plan.batch if entry else 0
            self._listed = Listed(
                zone=zone, at=listed_at, batch=batch, metadata=_digest(data), short=0
            )

    def result(self, entry: Entry | None) -> Listed | None:
        """Return what the next run needs for a short look; None when it has to list in full."""
        if self._listed is None or entry is None:
            return None
        shortly = entry.plan.policies.by_time and not self._full
        short = self._listed.short + 1 if shortly else 0
        return replace(self._listed, batch=entry.plan.batch, short=short)

    def _is_due(self, listed: Listed) -> bool:
        age = (datetime.now(UTC) - datetime.fromisoformat(listed.at)).total_seconds()
        return listed.short >= MOST_SHORT or not 0 <= age < self._options.backfill_interval


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()

"""Open one table folder: its listing, its metadata, and the policies that follow from both.

In: a table folder. Out: `OpenedFolder`, or the reason why the table waits. Metadata is read leniently;
what was repaired is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import chain

from mirrorlib.errors import first_few
from mirrorlib.ingest.files.history import History
from mirrorlib.ingest.files.incremental_listing import IncrementalListing
from mirrorlib.ingest.files.plan import Watched
from mirrorlib.ingest.options import Options
from mirrorlib.journal.entries import Policies, now
from mirrorlib.landing.delimited.dialect import Dialect, dialect_of
from mirrorlib.landing.listing import (
    NOTHING_APPLIED,
    FolderContent,
    FolderListing,
    order_by_number,
    order_by_time,
    see_below,
    see_folder,
)
from mirrorlib.landing.metadata.declared import (
    METADATA_BYTES,
    TableMetadata,
    as_published,
)
from mirrorlib.landing.metadata.reading import parse_metadata
from mirrorlib.landing.plain import PLAIN_DIALECT, PLAIN_METADATA, kind_of, order_plain
from mirrorlib.names import TableName
from mirrorlib.store import Store

EMPTIED = "Its applied files have been removed, and the folder is empty."
_SEE_WHY = ". See why with: mirrorlib check LANDING_ZONE"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedFolder:
    """A table folder at one moment."""

    listing: FolderListing
    # What its publisher states; None while `_metadata.json` is absent.
    metadata: TableMetadata | None
    dialect: Dialect | None = None  # how its text is written; None when its files are Parquet
    warnings: tuple[str, ...]
    listed_at: str  # a moment just before it was listed, ISO 8601, UTC
    metadata_written: datetime | None = None  # when `_metadata.json` was written last
    # A file that an earlier run has left because it may have been an upload under way.
    watched: Watched | None = None
    partial: bool = False  # only what has come since the last look was looked for
    # How many files are passed over, as they were there when the table was first seen.
    passed: int = 0
    emptied: bool = False  # there is no file, and some were applied: its publisher has cleaned up

    @property
    def plain(self) -> bool:
        """Say whether the folder is read without metadata."""
        return self.metadata is not None and self.metadata.plain

    def is_text(self, name: str) -> bool:
        """Say whether a file has no footer, so that half of it looks whole."""
        return kind_of(name) != "parquet" if self.plain else self.dialect is not None

    @property
    def waits_for(self) -> str:
        """Say what has to come before anything can be applied, "" when nothing has to."""
        if self.metadata is None:
            return "_metadata.json is missing. The table waits until its publisher writes it."
        if self.passed and not self.listing.count and not self.emptied:
            return f"{self.passed} files were there when the table was first seen; none has come since."
        if self.listing.count or self.partial or self.emptied:
            return ""
        return "No change file has been published yet."


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderView:
    """How one run looks into a table folder, again and again; without *incremental*, always in full."""

    zone: Store
    name: TableName
    history: History
    options: Options
    incremental: IncrementalListing | None = None

    def open(self, *, full: bool = False) -> OpenedFolder:
        """Open it as it is now, by a *full* listing where that is asked for; see `open_folder`."""
        incremental = None if full else self.incremental
        return open_folder(
            self.zone, self.name, self.history, incremental=incremental, options=self.options
        )


def open_folder(
    zone: Store,
    name: TableName,
    history: History | None = None,
    *,
    incremental: IncrementalListing | None = None,
    options: Options | None = None,
) -> OpenedFolder:
    """List a table folder and read its metadata.

    Without *history*, files without numbers are all new; without *incremental*, the listing is full; without
    *options*, a folder without metadata is read as it was until now.
    """
    table = str(name)
    listed_at = now()
    short = incremental.see(zone, name) if incremental is not None else None
    seen, data = short or _see_in_full(zone, name)
    if data is None:
        if history is not None and _takes_plain(history, options):
            overwrites = options is not None and options.allow_overwrites
            seen = see_below(zone, name, seen, plain=True)
            return _open_plain(seen, history, listed_at, overwrites=overwrites)
        listing = order_by_number(seen, table)
        return OpenedFolder(listing=listing, metadata=None, warnings=(), listed_at=listed_at)
    metadata = parse_metadata(data, table)
    if metadata.partitioned and short is None:
        seen = see_below(zone, name, seen, plain=False)
    by_time = metadata.detection != "sequential"
    applied = history.applied() if by_time and history is not None else NOTHING_APPLIED
    # What a short listing leaves out has told the format, too.
    metadata = as_published(metadata, chain(applied.etags, (file.name for file in seen.files)))
    if by_time:
        listing = order_by_time(seen, metadata.endings, applied)
    else:
        listing = order_by_number(seen, table, metadata.numbered)
    if incremental is not None and short is None:
        incremental.remember(data, metadata, listing, listed_at)
    text = metadata.is_text
    return OpenedFolder(
        listing=listing,
        metadata=metadata,
        dialect=dialect_of(metadata, table=table) if text else None,
        warnings=(*_completed(metadata, options), *_late(listing), *_shown(listing, _SEE_WHY)),
        listed_at=listed_at,
        metadata_written=seen.metadata.modified if seen.metadata else None,
        watched=history.watched() if text and history is not None else None,
        partial=short is not None,
        emptied=short is None
        and not listing.count
        and history is not None
        and history.has_applied(),
    )


def _see_in_full(zone: Store, name: TableName) -> tuple[FolderContent, bytes | None]:
    """List a table folder in full; comes with its metadata, unread."""
    seen = see_folder(zone, name)
    data = zone.read(seen.metadata.path, most=METADATA_BYTES) if seen.metadata else None
    return seen, data


def _takes_plain(history: History, options: Options | None) -> bool:
    """Say whether a folder without metadata is read all the same.

    One whose files were applied by metadata has lost it for a moment, or for good (Q25): it waits.
    """
    if options is None:
        return history.is_plain() is True
    return options.plain_folders == "append" and history.is_plain() is not False


def _open_plain(
    seen: FolderContent, history: History, listed_at: str, *, overwrites: bool
) -> OpenedFolder:
    listing, left = order_plain(seen, history.applied(), history.passed(), overwrites=overwrites)
    return OpenedFolder(
        listing=listing,
        metadata=PLAIN_METADATA,
        dialect=PLAIN_DIALECT,
        warnings=(*_late(listing), *_shown(listing)),
        listed_at=listed_at,
        watched=history.watched(),
        passed=len(left),
        emptied=not listing.count and history.has_applied(),
    )


def policies_of(metadata: TableMetadata, dialect: Dialect | None, options: Options) -> Policies:
    """Join what the publisher states with what the caller asks for; where files are whole tables, none updates."""
    snapshots = options.snapshots
    partial = options.partial_updates or metadata.partial_updates
    evolution = options.evolution
    if metadata.plain and options.plain_evolution != "add":
        evolution = "strict"
    elif metadata.plain and evolution == "strict":
        evolution = "add"  # there, types may change where columns are added
    conditional = metadata.conditional_update if options.conditional_updates else None
    return Policies(
        keys=metadata.stated_keys,
        upsert_default=metadata.upsert_default and not snapshots,
        insert_policy=options.insert_policy,
        evolution=evolution,
        ntz=options.ntz,
        quiet=options.quiet,
        dialect=dialect,
        detection=metadata.detection,
        conditional=None if snapshots else conditional,
        plain=options.plain_evolution if metadata.plain else None,
        readers=options.readers,
        partial=None if snapshots or partial == "never" else partial,
        snapshots=snapshots,
    )


def _completed(metadata: TableMetadata, options: Options | None) -> Iterator[str]:
    """Warn of what of the metadata was not taken as it stands."""
    yield from (f"_metadata.json was repaired: {repair}" for repair in metadata.repairs)
    yield from (f"_metadata.json was completed: {assumed}" for assumed in metadata.assumed)
    yield from (f"_metadata.json has an unknown property: {name}" for name in metadata.unknown)
    if metadata.conditional_update and options and not options.conditional_updates:
        yield "ConditionalUpdateColumn is not honoured: changes apply in file order, without --conditional-updates."


def _late(listing: FolderListing) -> tuple[str, ...]:
    late = f"{listing.late} files came late: they were written before files that have been applied already"
    return (late,) if listing.late else ()


def _shown(listing: FolderListing, why: str = "") -> Iterator[str]:
    """Warn of what is left alone: it may be meant as change files."""
    said = "files are no change files and were left alone"
    for what, names in {said: listing.foreign, "folders are not read": listing.unread}.items():
        if names:
            yield f"{len(names)} {what}: {first_few(names)}{why}"

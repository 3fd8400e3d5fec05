"""Open one table folder: its listing, its metadata, and the policies that follow from both.

In: a table folder. Out: `Folder`, or the reason why the table waits. Metadata is read leniently;
what was repaired is told.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from mirrorlib.errors import first_few
from mirrorlib.journal.entries import Policies, now
from mirrorlib.landing.delimited import Dialect, dialect_of
from mirrorlib.landing.listing import (
    NOTHING_APPLIED,
    order_by_number,
    order_by_time,
    see_folder,
    see_partitions,
)
from mirrorlib.landing.metadata.declared import (
    METADATA_BYTES,
    TEXT_ENDINGS,
    TableMetadata,
    as_published,
)
from mirrorlib.landing.metadata.reading import parse_metadata
from mirrorlib.landing.plain import (
    PLAIN_DIALECT,
    PLAIN_METADATA,
    kind_of,
    order_plain,
    see_below,
)
from mirrorlib.names import extension_of, plain_name, sequence_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirrorlib.ingest.files.history import History
    from mirrorlib.ingest.files.incremental_listing import IncrementalListing
    from mirrorlib.ingest.files.plan import Watched
    from mirrorlib.ingest.options import Evolution, Options
    from mirrorlib.landing.listing import FolderContent, FolderListing, TableFolder
    from mirrorlib.store import Store


_UNHEEDED = (
    "ConditionalUpdateColumn is not honoured: changes apply in file order. "
    "Ask for it with --conditional-updates."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """A table folder at one moment.

    Attributes:
        listing: its files in the order in which they count.
        metadata: what its publisher states; None while `_metadata.json` is absent.
        dialect: how its text is written; None when its files are Parquet.
        warnings: what was repaired, what is ignored.
        listed_at: a moment just before it was listed, ISO 8601, UTC.
        metadata_written: when `_metadata.json` was written last.
        watched: a file that an earlier run has left because it may have been an upload under way.
        passed: how many files are passed over, as they were there when the table was first seen.
        emptied: there is no file, and some were applied: its publisher has cleaned up.
        partial: only what has come since the last look was looked for.

    """

    listing: FolderListing
    metadata: TableMetadata | None
    dialect: Dialect | None = None
    warnings: tuple[str, ...]
    listed_at: str
    metadata_written: datetime | None = None
    watched: Watched | None = None
    partial: bool = False
    passed: int = 0
    emptied: bool = False

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
        if self.passed and not self.listing.count:
            return f"{self.passed} files were there when the table was first seen; none has come since."
        if self.listing.count or self.partial or self.emptied:
            return ""
        unread = self.listing.unread
        others = f"; folders that are not read: {first_few(unread)}" if unread else ""
        return f"No change file has been published yet{others}."

    def warnings_under(self, options: Options) -> tuple[str, ...]:
        """Add to the warnings what these options leave unheeded."""
        stated = self.metadata.conditional_update if self.metadata else None
        if stated is None or options.conditional_updates:
            return self.warnings
        return (*self.warnings, _UNHEEDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderView:
    """How one run looks into a table folder, again and again.

    Attributes:
        zone: the landing zone.
        folder: the table's folder.
        history: what has been applied.
        options: how it is to be read.
        incremental: lets it be looked at for what has come alone; None lists it in full.

    """

    zone: Store
    folder: TableFolder
    history: History
    options: Options
    incremental: IncrementalListing | None = None

    def open(self, *, full: bool = False) -> Folder:
        """Open it as it is now, by a *full* listing where that is asked for; see `open_folder`."""
        incremental = None if full else self.incremental
        return open_folder(
            self.zone, self.folder, self.history, incremental=incremental, options=self.options
        )


def open_folder(
    zone: Store,
    folder: TableFolder,
    history: History | None = None,
    *,
    incremental: IncrementalListing | None = None,
    options: Options | None = None,
) -> Folder:
    """List a table folder and read its metadata.

    Args:
        zone: the landing zone.
        folder: the table's folder.
        history: what has been applied; files without numbers are all new without it.
        incremental: lets the folder be looked at for what has come alone; without it the listing is full.
        options: whether and how a folder without metadata is read; without them, as it was until now.

    Raises:
        MetadataError: the metadata cannot be understood.
        JournalError: what has been applied cannot be read.

    """
    table = str(folder.name)
    listed_at = now()
    short = incremental.see(zone, folder, history) if incremental is not None else None
    seen, data = short or _see_all(zone, folder)
    if data is None and history is not None and _takes_plain(history, options):
        return _open_plain(zone, folder, seen, history, listed_at, options)
    if data is None:
        listing = order_by_number(seen, table)
        return Folder(listing=listing, metadata=None, warnings=(), listed_at=listed_at)
    metadata = parse_metadata(data, table)
    if metadata.partitioned and short is None:
        seen = see_partitions(zone, folder, seen)
    metadata = as_published(metadata, (file.name for file in seen.files))
    listing = _ordered(seen, metadata, history, table)
    shown = (*_shown(listing), *_overlooked(listing, metadata))
    if incremental is not None and short is None:
        incremental.remember(zone, data, metadata, listing, listed_at, shown, history)
    elif incremental is not None:
        shown = tuple(dict.fromkeys((*incremental.warnings, *shown)))
    text = metadata.file_format == "delimited"
    return Folder(
        listing=listing,
        metadata=metadata,
        dialect=dialect_of(metadata, table=table) if text else None,
        warnings=(*_repairs(metadata), *_late(listing), *shown),
        listed_at=listed_at,
        metadata_written=seen.metadata.modified if seen.metadata else None,
        watched=history.watched() if text and history is not None else None,
        partial=short is not None,
        emptied=_is_emptied(listing, history),
    )


def _see_all(zone: Store, folder: TableFolder) -> tuple[FolderContent, bytes | None]:
    seen = see_folder(zone, folder)
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
    zone: Store,
    folder: TableFolder,
    seen: FolderContent,
    history: History,
    listed_at: str,
    options: Options | None,
) -> Folder:
    overwrites = options is not None and options.allow_overwrites
    listing, left = order_plain(
        see_below(zone, folder, seen), history.applied(), history.passed(), overwrites=overwrites
    )
    return Folder(
        listing=listing,
        metadata=PLAIN_METADATA,
        dialect=PLAIN_DIALECT,
        warnings=(*_late(listing), *_shown(listing)),
        listed_at=listed_at,
        watched=history.watched(),
        passed=len(left),
        emptied=_is_emptied(listing, history),
    )


def _is_emptied(listing: FolderListing, history: History | None) -> bool:
    return not listing.count and history is not None and history.has_applied()


def pass_over(opened: Folder) -> Folder:
    """Take a folder's files for those that were there when its table was first seen."""
    listing = replace(opened.listing, partitions={})
    return replace(opened, listing=listing, passed=opened.passed + opened.listing.count)


def _ordered(
    seen: FolderContent, metadata: TableMetadata, history: History | None, table: str
) -> FolderListing:
    if metadata.detection == "sequential":
        return order_by_number(seen, table, metadata.numbered)
    applied = history.applied() if history is not None else NOTHING_APPLIED
    return order_by_time(seen, metadata.endings, applied)


def policies_of(metadata: TableMetadata, dialect: Dialect | None, options: Options) -> Policies:
    """Join what the publisher states with what the caller asks for."""
    return Policies(
        keys=metadata.stated_keys,
        upsert_default=metadata.upsert_default and not options.snapshots,
        insert_policy=options.insert_policy,
        evolution=_evolution(metadata, options),
        ntz=options.ntz,
        quiet=options.quiet,
        dialect=dialect,
        detection=metadata.detection,
        conditional=metadata.conditional_update
        if options.conditional_updates and not options.snapshots
        else None,
        plain=options.plain_evolution if metadata.plain else None,
        readers=options.readers,
        partial=_partial(metadata, options),
        snapshots=options.snapshots,
    )


def _partial(metadata: TableMetadata, options: Options) -> str | None:
    """Say what updates set; where files are whole tables there are none."""
    asked = options.partial_updates or metadata.partial_updates
    return None if asked == "never" or options.snapshots else asked


def _evolution(metadata: TableMetadata, options: Options) -> Evolution:
    """Say how types may change; in a plain folder they do where new columns are added."""
    if metadata.plain and options.plain_evolution != "add":
        return "strict"
    if metadata.plain and options.evolution == "strict":
        return "add"
    return options.evolution


def _repairs(metadata: TableMetadata) -> tuple[str, ...]:
    return (
        *(f"_metadata.json was repaired: {repair}" for repair in metadata.repairs),
        *(f"_metadata.json was completed: {assumed}" for assumed in metadata.assumed),
        *(f"_metadata.json has an unknown property: {name}" for name in metadata.unknown),
    )


def _late(listing: FolderListing) -> tuple[str, ...]:
    if not listing.late:
        return ()
    return (
        f"{listing.late} files came late: they were written before files that have been applied already",
    )


def _shown(listing: FolderListing) -> tuple[str, ...]:
    """Warn of what stays as it is from listing to listing."""
    count = len(listing.foreign)
    foreign = f"{count} files are no change files and were left alone: {first_few(listing.foreign)}"
    return (*((foreign,) if count else ()), *_unread(listing))


def _unread(listing: FolderListing) -> Iterator[str]:
    """Warn of folders that are passed over: what lies in them may be meant as change files."""
    undeclared = [path for path in listing.unread if "=" in path.rpartition("/")[2]]
    others = [path for path in listing.unread if path not in undeclared]
    if undeclared:
        folders = (
            "1 partition folder is"
            if len(undeclared) == 1
            else f"{len(undeclared)} partition folders are"
        )
        step = 'If their files count, declare "isPartitionEnabled": true in _metadata.json'
        yield f"{folders} not read: {first_few(undeclared)}. {step}"
    if others:
        folders = "1 folder is" if len(others) == 1 else f"{len(others)} folders are"
        step = "A table's files lie in its own folder, or in partition folders"
        yield f"{folders} not read: {first_few(others)}. {step}"


def _overlooked(listing: FolderListing, metadata: TableMetadata) -> tuple[str, ...]:
    """Say of files that were left alone what would have them read."""
    if listing.by_time:
        text = [name for name in listing.foreign if name.lower().endswith(TEXT_ENDINGS)]
        if not text or metadata.file_format is not None:
            return ()
        return (f"{first_few(text)}: Parquet alone is read while _metadata.json has no FileFormat",)
    names = [(name, name.rpartition("/")[2]) for name in listing.foreign]
    bare = [(name, plain_name(last)) for name, last in names]
    other = [
        name
        for name, last in names
        if sequence_number(last) and extension_of(last) not in metadata.numbered
    ]
    endings = ", ".join(f".{extension}" for extension in metadata.extensions)
    warning = f"{first_few(other)}: the numbered files of this table end in {endings}"
    return (
        *((warning,) if other else ()),
        *(
            f"{name} has two extensions, and so is no numbered file: publish it as {number}; "
            "gzip and zstd are told by content"
            for name, number in [pair for pair in bare if pair[1]][:1]
        ),
    )


def emptied_since(since: str) -> str:
    """Say that every applied file is gone, and since when that is known."""
    moment = datetime.fromisoformat(since)
    return f"Its applied files have been removed; the folder is empty since {moment:%Y-%m-%d %H:%M:%S} UTC."


def changed_warning(name: str) -> str:
    """Say that a file is no longer what was applied."""
    return f"{name} was applied and has been changed since; it is not read again"

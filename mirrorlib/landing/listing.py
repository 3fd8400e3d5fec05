"""List a landing zone: which table folders there are, and which change files a folder shows.

In: a `Store` over the zone. Out: tables' names, and for each a `FolderListing` with its
change files in order: by the numbers that their names are, or by the time at which they were
written. Nothing is opened.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeAlias

from mirrorlib.errors import ChangeFileError, LandingZoneError, MirrorError, StoreError
from mirrorlib.landing.metadata.declared import METADATA_NAME
from mirrorlib.names import (
    SCHEMA_SUFFIX,
    WHOLE_FOLDER,
    TableName,
    extension_of,
    find_conflicts,
    is_ignored,
    partition_of,
    sequence_number,
    uncarriable,
)
from mirrorlib.store import Store, StoredFile, contents

# Tables by name, each with why it cannot be mirrored at all.
Tables: TypeAlias = Mapping[TableName, MirrorError | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderContent:
    """What a table folder shows at one moment, in no order yet."""

    metadata: StoredFile | None  # `_metadata.json`, None when it is absent
    files: tuple[StoredFile, ...]  # everything else that the format does not ignore
    folders: tuple[str, ...] = ()  # the folders in it that were not looked into
    # The folders in it that are links; behind `see_below`, at every level.
    links: tuple[str, ...] = ()

    @property
    def unread(self) -> tuple[str, ...]:
        """Name the folders whose files do not count, but for those that the format ignores."""
        return tuple(path for path in self.folders if not is_ignored(path.rpartition("/")[2]))

    @property
    def links_passed(self) -> tuple[str, ...]:
        """Name the links that would have been entered, were they folders."""
        return tuple(path for path in self.links if path not in self.folders)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedFiles:
    """What has been applied of a table whose files have no numbers."""

    # What identified each file's content when it was applied, by name; "" where nobody can tell.
    etags: Mapping[str, str]
    newest: datetime | None
    count: int  # how many there are, files that are gone included


NOTHING_APPLIED = AppliedFiles(etags={}, newest=None, count=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderListing:
    """A table folder's change files in the order in which they count."""

    # Change files by partition folder (`WHOLE_FOLDER` for a table without), then by number, ascending. Files without
    # numbers are in one partition and are given some: those that have been applied up to `Applied.count`, the others
    # from there on.
    partitions: Mapping[str, Mapping[int, StoredFile]]
    foreign: tuple[str, ...]  # names that are neither ignored nor change files
    # The numbers that two files carry, by the name of the one that was written first; the others are foreign.
    doubled: Mapping[str, ChangeFileError] = field(default_factory=dict)
    # Files without numbers whose content is no longer what was applied.
    changed: tuple[str, ...] = ()
    # The folders whose files do not count, but for those that the format ignores.
    unread: tuple[str, ...] = ()
    late: int = 0  # how many files without numbers were written before one that has been applied
    by_time: bool = False  # the numbers are given, so that none can be missing

    @property
    def count(self) -> int:
        """Return how many change files are visible."""
        return sum(len(files) for files in self.partitions.values())


def list_tables(zone: Store) -> Tables:
    """Find the table folders, `<schema>.schema/<table>` and `<table>`, by name; each with why it cannot be mirrored.

    A schema folder that cannot be listed is one table, `<schema>/*`, with a `StoreError`, which no other has.
    """
    top = zone.list_folder("")
    if top is None:
        msg = f"there is no landing zone at {zone.url}"
        raise LandingZoneError(msg, next_step="Give the folder that holds the table folders")
    names: list[TableName] = []
    unlisted: dict[TableName, StoreError] = {}
    for folder in top.folders:
        if is_ignored(folder):
            continue
        if folder.endswith(SCHEMA_SUFFIX) and folder != SCHEMA_SUFFIX:
            schema = folder.removesuffix(SCHEMA_SUFFIX)
            try:
                inner = contents(zone, folder).folders
                names += [TableName(schema, table) for table in inner if not is_ignored(table)]
            except StoreError as exc:
                names.append(TableName(schema, "*"))
                unlisted[names[-1]] = exc
        else:
            names.append(TableName(None, folder))
    # A table whose place in the target would be another's too is refused by name.
    conflicts = find_conflicts([name for name in names if name not in unlisted])
    return {name: unlisted.get(name) or conflicts.get(name) or uncarriable(name) for name in names}


def is_unlisted(name: TableName, refusal: MirrorError | None) -> bool:
    """Say whether a name stands for all tables of a schema folder that cannot be listed: no table is called so."""
    return name.table == "*" and isinstance(refusal, StoreError)


def see_folder(zone: Store, name: TableName) -> FolderContent:
    """List one table folder."""
    listed = contents(zone, name.folder)
    return FolderContent(
        metadata=next((file for file in listed.files if file.name == METADATA_NAME), None),
        files=tuple(file for file in listed.files if not is_ignored(file.name)),
        folders=listed.folders,
        links=listed.links,
    )


def see_below(zone: Store, table: TableName, seen: FolderContent, *, plain: bool) -> FolderContent:
    """Add what lies in a table's partition folders, `column=value`, at every level; of a *plain* folder, in all.

    Links are named, not followed: what one leads to may be in the table already, under its own path or under many, as
    in a circle. Ignored folders are never looked into. Files are known by their paths below the table's folder; the
    folders are those that were not entered.
    """
    files, links = list(seen.files), [name for name in seen.links if not is_ignored(name)]
    waiting, left = list(reversed(seen.folders)), []
    while waiting:
        inner = waiting.pop()
        name = inner.rpartition("/")[2]
        if not plain and "=" not in name:
            left.append(inner)
            continue
        if is_ignored(name) or inner in links:
            continue
        listed = contents(zone, f"{table.folder}/{inner}")
        shown = (file for file in listed.files if not is_ignored(file.name))
        files += [replace(file, below=f"{inner}/{file.name}") for file in shown]
        links += [f"{inner}/{name}" for name in listed.links if not is_ignored(name)]
        waiting += [f"{inner}/{name}" for name in reversed(listed.folders)]
    return replace(seen, files=tuple(files), links=tuple(links), folders=tuple(left))


def order_by_number(
    seen: FolderContent, table: str, extensions: Collection[str] | None = None
) -> FolderListing:
    """Order files by the numbers that their names are; *extensions* are those of change files, None while not known."""
    partitions: dict[str, dict[int, StoredFile]] = {}
    foreign: list[str] = []
    twins: dict[tuple[str, int], list[StoredFile]] = {}
    for file in seen.files:
        number = sequence_number(file.name)
        if number is None or not (extensions is None or extension_of(file.name) in extensions):
            foreign.append(file.name)
            continue
        partition = partition_of(file.name)
        first = partitions.setdefault(partition, {}).setdefault(number, file)
        if first is not file:
            twins.setdefault((partition, number), [first]).append(file)
    doubled: dict[str, ChangeFileError] = {}
    for (partition, number), files in twins.items():
        # What came first under a number may have been applied by the time at which the next one came.
        first, *others = sorted(files, key=lambda file: (file.modified, file.name))
        partitions[partition][number] = first
        foreign += [file.name for file in others]
        msg = f"two change files carry the sequence number {number}"
        step = "Remove the one that is not meant; nothing from this number on is applied before."
        both = f"{first.name} and {others[-1].name}"
        doubled[first.name] = ChangeFileError(msg, table=table, file=both, next_step=step)
    foreign += seen.links_passed
    ordered = {name: dict(sorted(files.items())) for name, files in sorted(partitions.items())}
    return FolderListing(
        partitions=ordered, foreign=tuple(sorted(foreign)), doubled=doubled, unread=seen.unread
    )


def order_by_time(
    seen: FolderContent, endings: tuple[str, ...], applied: AppliedFiles
) -> FolderListing:
    """Order files by when they were written, ties by name (LastUpdateTimeFileDetection).

    What has been applied stays so under its name, whatever is there now; what was written earlier
    and comes to light late is as new as the rest.
    """
    data = [file for file in seen.files if file.name.lower().endswith(endings)]
    data.sort(key=lambda file: (file.modified, file.name))
    old = [file for file in data if file.name in applied.etags]
    new = [file for file in data if file.name not in applied.etags]
    newest, known = applied.newest, {file.name for file in data}
    foreign = tuple(file.name for file in seen.files if file.name not in known)
    numbered = dict(enumerate(old, start=1)) | dict(enumerate(new, start=applied.count + 1))
    return FolderListing(
        partitions={WHOLE_FOLDER: numbered},
        foreign=foreign + seen.links_passed,
        changed=tuple(file.name for file in old if applied.etags[file.name] not in {"", file.etag}),
        unread=seen.unread,
        late=sum(1 for file in new if newest is not None and file.modified < newest),
        by_time=True,
    )

"""List a landing zone: which table folders there are, and which change files a folder shows.

In: a `Store` over the zone. Out: `TableFolder` values, and for each a `FolderListing` with its
numbered change files in order. Nothing is opened. Names beginning with `_` or `.` are never data
(landing-zone format, best practices 2026-09-18).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirrorlib.errors import ChangeFileError, LandingZoneError, MirrorError, TableNameError
from mirrorlib.landing.metadata import METADATA_NAME
from mirrorlib.landing.names import (
    SCHEMA_SUFFIX,
    TableName,
    find_conflicts,
    is_ignored,
    refuse_uncarriable,
    sequence_number,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mirrorlib.store import Store, StoredFile

DATA_SUFFIX = ".parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFolder:
    """One source table of the zone.

    Attributes:
        name: the table.
        path: its folder, relative to the zone.
        refusal: why this table cannot be mirrored at all, None when it can.

    """

    name: TableName
    path: str
    refusal: MirrorError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderListing:
    """What a table folder shows at one moment.

    Attributes:
        metadata: `_metadata.json`, None when it is absent.
        files: change files by sequence number, ascending.
        foreign: names that are neither ignored nor change files.

    """

    metadata: StoredFile | None
    files: Mapping[int, StoredFile]
    foreign: tuple[str, ...]


def list_tables(zone: Store) -> tuple[TableFolder, ...]:
    """Find the table folders: `<schema>.schema/<table>` and `<table>`, sorted by name.

    Raises:
        LandingZoneError: there is no such folder.

    """
    top = zone.list_folder("")
    if top is None:
        msg = f"there is no landing zone at {zone.url}"
        raise LandingZoneError(msg, next_step="give the folder that holds the table folders")
    found: list[TableFolder] = []
    for folder in top.folders:
        if is_ignored(folder):
            continue
        if folder.endswith(SCHEMA_SUFFIX) and folder != SCHEMA_SUFFIX:
            schema = folder.removesuffix(SCHEMA_SUFFIX)
            inner = zone.list_folder(folder)
            tables = inner.folders if inner else ()
            found += [
                _folder(TableName(schema, table)) for table in tables if not is_ignored(table)
            ]
        else:
            found.append(_folder(TableName(None, folder)))
    return tuple(_without_conflicts(found))


def list_files(zone: Store, folder: TableFolder) -> FolderListing:
    """List one table folder.

    Raises:
        ChangeFileError: two files carry one sequence number.

    """
    listed = zone.list_folder(folder.path)
    files: dict[int, StoredFile] = {}
    foreign: list[str] = []
    metadata = None
    for file in listed.files if listed else ():
        # Numbers begin at 1: a file 0 would count as applied before anything is.
        number = None if is_ignored(file.name) else sequence_number(file.name) or None
        if file.name == METADATA_NAME:
            metadata = file
        elif number is not None and number in files:
            msg = f"two change files carry the sequence number {number}"
            raise ChangeFileError(
                msg,
                table=str(folder.name),
                file=f"{files[number].name} and {file.name}",
                next_step="Remove the one that is not meant; nothing from this number on is applied until then.",
            )
        elif number is not None:
            files[number] = file
        elif not is_ignored(file.name):
            foreign.append(file.name)
    return FolderListing(
        metadata=metadata, files=dict(sorted(files.items())), foreign=tuple(foreign)
    )


def _folder(name: TableName) -> TableFolder:
    try:
        refuse_uncarriable(name)
    except TableNameError as exc:
        return TableFolder(name=name, path=name.folder, refusal=exc)
    return TableFolder(name=name, path=name.folder)


def _without_conflicts(folders: list[TableFolder]) -> Iterator[TableFolder]:
    """Refuse by name every table whose place in the target would be another's too."""
    conflicts = find_conflicts([folder.name for folder in folders])
    for folder in folders:
        error = conflicts.get(folder.name)
        yield (
            folder
            if error is None
            else TableFolder(name=folder.name, path=folder.path, refusal=error)
        )

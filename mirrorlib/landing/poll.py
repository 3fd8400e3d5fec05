"""Look only for what has come to a table folder since the last look, at the cost of what has come.

In: a `Store`, and what was applied last. Out: `FolderContent`, which shows that and what follows it; or None
where only a full listing can tell: the newest applied file is not there as it was, a number is
missing before one that is there, the store does not list in order. Promise: None of the next files
is passed over. What lies *before* the newest applied file is not looked at.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import PurePosixPath

from mirrorlib.landing.listing import FolderContent, TableFolder
from mirrorlib.names import (
    LARGEST_NUMBER,
    WHOLE_FOLDER,
    extension_of,
    inner_partitions,
    is_ignored,
    sequence_name,
    sequence_number,
)
from mirrorlib.store import Store, StoredFile, contents

MOST_PROBES = 1000  # numbers that are looked at one by one; beyond that a listing is cheaper
# The character behind "9": numbered names end before it, ignored ones begin behind.
_AFTER_NUMBERS = ":"
_SPARE = 8  # foreign names that may lie among the numbers before a short listing is made again


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """The newest applied file of a partition folder, from which its next files are counted, as it was last listed."""

    number: int
    name: str
    etag: str

    def is_in(self, files: Collection[StoredFile]) -> bool:
        """Say whether the file is there as it was."""
        return any((file.name, file.etag) == (self.name, self.etag) for file in files)


@dataclass(frozen=True, slots=True, kw_only=True)
class Onward:
    """What is looked for in a table folder."""

    anchors: Mapping[str, Anchor]  # the newest applied file of each partition folder
    extensions: Sequence[str]  # what a change file's name may end in
    partitioned: bool = False  # whether there may be partition folders
    most: int | None = None  # how many files are enough; None is all that have come


class _Unclear(Exception):  # noqa: N818  # no error: a full listing tells
    """Only a full listing can tell."""


def see_next(zone: Store, folder: TableFolder, onward: Onward) -> FolderContent | None:
    """Look for the next numbers of every partition folder; None where only a full listing can tell.

    A partition folder that is known is asked for its next numbers alone. A new one is found where its
    parent holds no change files of its own; else the next full listing finds it.
    """
    walk = _walk if onward.partitioned else partial(_next, partition=WHOLE_FOLDER)
    try:
        files = tuple(walk(zone, folder.path, onward))
    except _Unclear:
        return None
    return FolderContent(metadata=None, files=files) if files else None


def see_after(zone: Store, folder: TableFolder, name: str) -> FolderContent | None:
    """Look for the files whose names sort after *name*; None where the store cannot list so."""
    files = zone.files_after(folder.path, name)
    if files is None:
        return None
    shown = tuple(file for file in files if not is_ignored(file.name))
    return FolderContent(metadata=None, files=shown)


def _walk(zone: Store, table: str, onward: Onward) -> Iterator[StoredFile]:
    """Go through partition folders: list those that hold others, ask the rest for what is next."""
    waiting = [WHOLE_FOLDER]
    paths = map(PurePosixPath, onward.anchors)
    holders = {WHOLE_FOLDER, *(str(holder) for path in paths for holder in path.parents)}
    while waiting:
        partition = waiting.pop()
        if partition in onward.anchors and partition not in holders:
            yield from _next(zone, table, onward, partition)
            continue
        listed = contents(zone, f"{table}/{partition}".rstrip("/"))
        files = [file for file in listed.files if not is_ignored(file.name)]
        anchor = onward.anchors.get(partition)
        if anchor is not None and not anchor.is_in(files):
            raise _Unclear
        yield from (_named(file, partition) for file in files)
        waiting += inner_partitions(partition, listed.folders, listed.links)


def _next(zone: Store, table: str, onward: Onward, partition: str) -> Iterator[StoredFile]:
    """Give a partition folder's newest applied file and what follows it."""
    anchor = onward.anchors.get(partition)
    if anchor is None:
        raise _Unclear
    place = f"{table}/{partition}".rstrip("/")
    files = _listed(zone, place, anchor, onward) if zone.seeks else None
    if files is None:
        files = _probed(zone, place, anchor, onward)
    if not anchor.is_in(files):
        raise _Unclear
    return (_named(file, partition) for file in files)


def _listed(
    zone: Store, place: str, anchor: Anchor, onward: Onward
) -> tuple[StoredFile, ...] | None:
    begin, most = f"{anchor.number:020d}", onward.most
    if most is not None:
        count = most + 1 + _SPARE
        files = zone.files_after(place, begin, before=_AFTER_NUMBERS, count=count)
        if files is None or len(files) < count:
            return files
        # Surely change files: what else has a number may lie beside each of them.
        numbered = (file.name for file in files if sequence_number(file.name))
        if sum(1 for name in numbered if extension_of(name) in onward.extensions) > most:
            return files
    return zone.files_after(place, begin, before=_AFTER_NUMBERS)


def _probed(zone: Store, place: str, anchor: Anchor, onward: Onward) -> tuple[StoredFile, ...]:
    """Look at one number after the other, until one is not there; the one behind that must not be there either."""
    newest = zone.stat(f"{place}/{anchor.name}")
    files = [] if newest is None else [newest]
    last = min(anchor.number + MOST_PROBES, LARGEST_NUMBER)
    for number in range(anchor.number + 1, last + 1):
        if onward.most is not None and number > anchor.number + onward.most:
            return tuple(files)
        found = _of_number(zone, place, number, anchor, onward)
        if not found:
            if number < LARGEST_NUMBER and _of_number(zone, place, number + 1, anchor, onward):
                raise _Unclear
            return tuple(files)
        files += found
    raise _Unclear


def _of_number(
    zone: Store, place: str, number: int, anchor: Anchor, onward: Onward
) -> list[StoredFile]:
    """Look at a number's file, whichever of the possible extensions it has."""
    endings = dict.fromkeys((anchor.name.rpartition(".")[2], *onward.extensions))
    paths = (f"{place}/{sequence_name(number, ending)}" for ending in endings)
    found = [file for path in paths if (file := zone.stat(path)) is not None]
    if any(file.size == 0 for file in found):  # so looks a folder of a hierarchical account too
        raise _Unclear
    return found


def _named(file: StoredFile, partition: str) -> StoredFile:
    return replace(file, below=f"{partition}/{file.name}") if partition else file

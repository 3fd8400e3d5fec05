"""Look only for what has come to a table folder since the last look, at the cost of what has come.

In: a `Store`, and what was applied last. Out: `FolderContent`, which shows that and what follows it; or None
where only a full listing can tell: the newest applied file is not there as it was, a number is
missing before one that is there, the store does not list in order. Promise: None of the next files
is passed over. What lies *before* the newest applied file is not looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mirrorlib.landing.listing import FolderContent, TableFolder
from mirrorlib.names import LARGEST_NUMBER, is_ignored, sequence_name, sequence_number
from mirrorlib.store import Store, StoredFile

MOST_PROBES = 1000  # numbers that are looked at one by one; beyond that a listing is cheaper
# The character behind "9": numbered names end before it, ignored ones begin behind.
AFTER_NUMBERS = ":"
_SPARE = 1000  # foreign names that may lie among the numbers; behind more of them, a full listing shows what is next


@dataclass(frozen=True, slots=True, kw_only=True)
class Onward:
    """What is looked for in a table folder: what follows the newest applied file, if that is there as it was listed."""

    name: str  # that file's, below the table's folder
    etag: str
    extensions: Sequence[str]  # what a change file's name may end in
    most: int | None = None  # how many files are enough; None is all that have come

    @property
    def number(self) -> int:
        """Return the newest applied number."""
        return sequence_number(self.name) or 0


def see_next(zone: Store, folder: TableFolder, onward: Onward) -> FolderContent | None:
    """Look for the newest applied file and the next numbers; None where only a full listing can tell."""
    files = _listed(zone, folder.path, onward) if zone.seeks else None
    if files is None:
        files = _probed(zone, folder.path, onward)
    if files is None or (onward.name, onward.etag) not in {(one.name, one.etag) for one in files}:
        return None
    return FolderContent(metadata=None, files=files)


def see_after(zone: Store, folder: TableFolder, name: str) -> FolderContent | None:
    """Look for the files whose names sort after *name*; None where the store cannot list so."""
    files = zone.files_after(folder.path, name)
    if files is None:
        return None
    shown = tuple(file for file in files if not is_ignored(file.name))
    return FolderContent(metadata=None, files=shown)


def _listed(zone: Store, place: str, onward: Onward) -> tuple[StoredFile, ...] | None:
    begin = f"{onward.number:020d}"
    count = None if onward.most is None else onward.most + _SPARE
    return zone.files_after(place, begin, before=AFTER_NUMBERS, count=count)


def _probed(zone: Store, place: str, onward: Onward) -> tuple[StoredFile, ...] | None:
    """Look at one number after the other, until one is not there; the one behind that must not be there either."""
    newest, applied = zone.stat(f"{place}/{onward.name}"), onward.number
    files = [] if newest is None else [newest]
    last = min(applied + MOST_PROBES, LARGEST_NUMBER)
    for number in range(applied + 1, last + 1):
        if onward.most is not None and number > applied + onward.most:
            return tuple(files)
        found = _of_number(zone, place, number, onward)
        if not found:
            is_gap = number < LARGEST_NUMBER and _of_number(zone, place, number + 1, onward)
            return None if is_gap else tuple(files)
        if any(file.size == 0 for file in found):  # so looks a folder of a hierarchical account too
            return None
        files += found
    return None


def _of_number(zone: Store, place: str, number: int, onward: Onward) -> list[StoredFile]:
    """Look at a number's file, whichever of the possible extensions it has."""
    extension = onward.name.rpartition(".")[2]
    endings = dict.fromkeys((extension, *onward.extensions))
    paths = (f"{place}/{sequence_name(number, ending)}" for ending in endings)
    return [file for path in paths if (file := zone.stat(path)) is not None]

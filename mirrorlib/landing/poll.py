"""Look only for what has come to a table folder since the last look, at the cost of what has come.

In: a `Store`, and what was applied last. Out: `FolderContent`, which shows that and what follows it; or None
where only a full listing can tell: the newest applied file is not there as it was, a number is
missing before one that is there, the store does not list in order. Promise: None of the next files
is passed over. What lies *before* the newest applied file is not looked at.
"""

from __future__ import annotations

from collections.abc import Sequence

from mirrorlib.landing.listing import FolderContent
from mirrorlib.names import LARGEST_NUMBER, TableName, is_ignored, sequence_name, sequence_number
from mirrorlib.store import Store, StoredFile

MOST_PROBES = 1000  # numbers that are looked at one by one; beyond that a listing is cheaper
# The character behind "9": numbered names end before it, ignored ones begin behind.
AFTER_NUMBERS = ":"
_SPARE = 1000  # foreign names that may lie among the numbers; behind more of them, a full listing shows what is next


def see_next(
    zone: Store,
    table: TableName,
    newest: tuple[str, str],
    extensions: Sequence[str],
    *,
    most: int | None = None,
) -> FolderContent | None:
    """Look for the newest applied file and the next numbers; None where only a full listing can tell.

    *newest* is that file's name below the table's folder, and what identified it then; *extensions* is what a change
    file's name may end in; *most* says how many files are enough, None that all are that have come.
    """
    files = None
    if zone.seeks:
        begin = f"{sequence_number(newest[0]) or 0:020d}"
        count = None if most is None else most + _SPARE
        files = zone.files_after(table.folder, begin, before=AFTER_NUMBERS, count=count)
    if files is None:
        files = _probed(zone, table.folder, newest[0], extensions, most)
    # A folder of a hierarchical account looks like an empty file, as does an object that stands for a folder.
    if files is None or any(not one.size and sequence_number(one.name) for one in files):
        return None
    if newest not in {(one.name, one.etag) for one in files}:
        return None
    return FolderContent(metadata=None, files=files)


def see_after(zone: Store, table: TableName, name: str) -> FolderContent | None:
    """Look for the files whose names sort after *name*; None where the store cannot list so."""
    files = zone.files_after(table.folder, name)
    if files is None:
        return None
    shown = tuple(file for file in files if not is_ignored(file.name))
    return FolderContent(metadata=None, files=shown)


def _probed(
    zone: Store, place: str, name: str, extensions: Sequence[str], most: int | None
) -> tuple[StoredFile, ...] | None:
    """Look at one number after the other, until one is not there; the one behind that must not be there either."""
    newest, applied = zone.stat(f"{place}/{name}"), sequence_number(name) or 0
    endings = dict.fromkeys((name.rpartition(".")[2], *extensions))

    def of_number(number: int) -> list[StoredFile]:
        paths = (f"{place}/{sequence_name(number, ending)}" for ending in endings)
        return [file for path in paths if (file := zone.stat(path)) is not None]

    files = [] if newest is None else [newest]
    last = min(applied + MOST_PROBES, LARGEST_NUMBER)
    for number in range(applied + 1, last + 1):
        if most is not None and number > applied + most:
            return tuple(files)
        found = of_number(number)
        if not found:
            is_gap = number < LARGEST_NUMBER and of_number(number + 1)
            return None if is_gap else tuple(files)
        files += found
    return None

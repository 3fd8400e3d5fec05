"""Review a table folder by its listing alone: names, numbers, gaps, sizes, times. Nothing is opened.

In: one listing, and one for each partition folder. Out: `ChangeFile` values in the order in which
they apply.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

from mirrorlib.landing.metadata.declared import TEXT_ENDINGS, TEXT_EXTENSIONS
from mirrorlib.landing.metadata.partner import PARTNER_FILE
from mirrorlib.names import (
    WHOLE_FOLDER,
    extension_of,
    is_ignored,
    plain_name,
    sequence_name,
    sequence_number,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mirrorlib.landing.check.findings import Findings
    from mirrorlib.landing.metadata.declared import TableMetadata
    from mirrorlib.store import Folder, Store, StoredFile


MANY_FILES = 50  # from here on, their average size is worth a note
SMALL_FILE = 64 << 10  # bytes: a file of hundred rows and its footer
LARGE_FILE = 1 << 30
_CLEANED = frozenset({"_ProcessedFiles", "_FilesReadyToDelete"})
_DATA = frozenset({"parquet", "csv", "tsv", "psv", "gz", "zst", "snappy"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeFile:
    """A file that will be applied.

    Attributes:
        name: relative to its table's folder.
        number: its sequence number, None where times order the files.
        partition: the partition folder it lies in, "" for the table's own.
        text: it is delimited text, not Parquet.
        stored: its listing.

    """

    name: str
    number: int | None
    partition: str
    text: bool
    stored: StoredFile

    @property
    def sequence(self) -> str:
        """Return the folder within which files have an order; those ordered by time have one altogether."""
        return WHOLE_FOLDER if self.number is None else self.partition


def review_folder(
    zone: Store, listed: Folder, path: str, metadata: TableMetadata | None, found: Findings
) -> tuple[ChangeFile, ...]:
    """Look at the names in a table folder and its partition folders.

    Raises:
        StoreError: a partition folder cannot be listed.

    """
    room = _Room(zone=zone, path=path, metadata=metadata, found=found)
    levels = list(_levels(room, listed, ""))
    files = [file for partition, level in levels for file in _review_level(room, level, partition)]
    if not files and not any(
        _is_data(room, file.name) for _, level in levels for file in level.files
    ):
        found.add("no-files", "no change file")
    _review_sizes(files, found)
    if room.by_time:
        _review_ties(files, found)
        files.sort(key=lambda file: (file.stored.modified, file.name))
    return tuple(files)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Room:
    """What every step here needs."""

    zone: Store
    path: str
    metadata: TableMetadata | None
    found: Findings

    @property
    def by_time(self) -> bool:
        return self.metadata is not None and self.metadata.detection == "last_update_time"

    @property
    def endings(self) -> tuple[str, ...]:
        """Return how the names of the table's files may end, in lower case."""
        return self.metadata.endings if self.metadata else (".parquet", *TEXT_ENDINGS)

    @property
    def numbered(self) -> tuple[str, ...]:
        """Return the extensions of the table's numbered files, in lower case."""
        return self.metadata.numbered if self.metadata else ("parquet", *TEXT_EXTENSIONS)

    def is_text(self, name: str) -> bool:
        """Say how a file is read: by the metadata, and by its name only where there is none."""
        if self.metadata is not None:
            return self.metadata.file_format == "delimited"
        return extension_of(name) != "parquet"


def _levels(room: _Room, listed: Folder, partition: str) -> Iterator[tuple[str, Folder]]:
    """Give a folder and the partition folders below it, each with its path below the table's."""
    yield partition, listed
    for name in listed.folders:
        inner = f"{partition}/{name}".lstrip("/")
        if is_ignored(name):
            continue
        if "=" not in name:
            room.found.add("foreign-folder", "a folder that is no partition", file=inner)
            continue
        if not partition and room.metadata is not None and not room.metadata.partitioned:
            room.found.add("partition-undeclared", "a partition folder", file=inner)
        below = room.zone.list_folder(f"{room.path}/{inner}")
        if below is not None:
            yield from _levels(room, below, inner)


def _review_level(room: _Room, listed: Folder, partition: str) -> list[ChangeFile]:
    files: list[ChangeFile] = []
    numbers: list[int] = []
    for stored in listed.files:
        name = f"{partition}/{stored.name}".lstrip("/")
        if stored.name.casefold() == PARTNER_FILE.casefold():
            room.found.add("partner-events-place", "it lies in a table folder", file=name)
        if is_ignored(stored.name):
            continue
        number = sequence_number(stored.name)
        if _is_change_file(room, stored.name, name):
            numbers += [] if number is None else [number]
            kept = None if room.by_time else number
            text = room.is_text(stored.name)
            files.append(
                ChangeFile(name=name, number=kept, partition=partition, text=text, stored=stored)
            )
    if not room.by_time:
        files.sort(key=lambda file: file.number or 0)
        _review_numbers(room, listed, partition, numbers)
        _review_times(files, room.found)
    return files


def _is_change_file(room: _Room, name: str, shown: str) -> bool:
    """Tell change files, as the reader does, from files that nobody will read, and say why nobody will."""
    what = f"the extension {ascii(extension_of(name))[:20]}"
    if not room.by_time and sequence_number(name) is not None:
        expected = extension_of(name) in room.numbered
        if not expected:
            room.found.add("other-extension", what, file=shown)
        return expected
    if room.by_time and name.lower().endswith(room.endings):
        return True
    if not _is_data(room, name):
        room.found.add("foreign-file", "no data file", file=shown)
    elif room.by_time:
        room.found.add("wrong-extension", what, file=shown)
    else:
        _tell_name(room, name, shown)
    return False


def _tell_name(room: _Room, name: str, shown: str) -> None:
    bare = plain_name(name)
    step = None if bare is None else f"Name it {bare}: compression is told by content."
    room.found.add("wrong-name", _misnamed(name), file=shown, fix=step)


def _is_data(room: _Room, name: str) -> bool:
    """Say whether a name, ignored ones apart, looks as if a publisher meant data by it."""
    declared = room.metadata.file_extension if room.metadata else None
    return not is_ignored(name) and (
        extension_of(name) in _DATA
        or extension_of(name) == (declared or "parquet").lower()
        or _stem(name).isdecimal()
    )


def _misnamed(name: str) -> str:
    stem = _stem(name)
    if not stem.isdecimal():
        return "a name that is no number"
    if len(stem) != len(_stem(sequence_name(1))):
        return f"a number of {len(stem)} digits"
    return "the number 0" if not int(stem) else "a number with more than one extension"


def _stem(name: str) -> str:
    return name.partition(".")[0]


def _review_numbers(room: _Room, listed: Folder, partition: str, numbers: Sequence[int]) -> None:
    ordered = sorted(set(numbers))
    for number, count in sorted(Counter(numbers).items()):
        if count > 1:
            what = f"{count} files of the number {number}"
            room.found.add("duplicate-number", what, file=_numbered(partition, number))
    if ordered and ordered[0] > 1:
        cleaned = bool(_CLEANED & set(listed.folders))
        rule = "cleaned-up" if cleaned else "first-number"
        what = f"the first number is {ordered[0]}"
        room.found.add(rule, what, file=_numbered(partition, 1))
    for before, after in pairwise(ordered):
        if after - before > 1:
            what = (
                f"the number {before + 1} is missing"
                if after - before == 2  # one number lies between  # noqa: PLR2004
                else f"the numbers {before + 1} to {after - 1} are missing"
            )
            room.found.add("gap", what, file=_numbered(partition, before + 1))


def _numbered(partition: str, number: int) -> str:
    """Name a number's place without an extension, which the missing file has not chosen yet."""
    return f"{partition}/{_stem(sequence_name(number))}".lstrip("/")


def _review_times(files: Sequence[ChangeFile], found: Findings) -> None:
    for file, after in pairwise(files):
        if file.stored.modified > after.stored.modified and file.number != after.number:
            found.add("modified-out-of-order", "a later time than the next file's", file=file.name)


def _review_ties(files: Sequence[ChangeFile], found: Findings) -> None:
    ordered = sorted(files, key=lambda file: (file.stored.modified, file.name))
    for _, group in groupby(ordered, key=lambda file: file.stored.modified):
        tied = list(group)
        if len(tied) > 1:
            found.add("time-ties", f"{len(tied)} files have this one's time", file=tied[0].name)


def _review_sizes(files: Sequence[ChangeFile], found: Findings) -> None:
    for file in files:
        if not file.stored.size:
            found.add("zero-byte", "0 bytes", file=file.name)
        elif file.stored.size > LARGE_FILE:
            found.add("large-file", f"{file.stored.size / (1 << 30):.1f} GiB", file=file.name)
    total = sum(file.stored.size for file in files)
    if len(files) >= MANY_FILES and total < SMALL_FILE * len(files):
        average = total // len(files)
        found.add("small-files", f"{len(files):,} files of {average:,} bytes on average")

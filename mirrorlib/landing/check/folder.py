"""Review a table folder by its listing alone: names, numbers, gaps, sizes, times. Nothing is opened.

In: one listing, and one for each partition folder. Out: the files that will be applied, in that order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from typing import TypeAlias

from mirrorlib.landing.check.facts import Policy
from mirrorlib.landing.check.report import Findings
from mirrorlib.names import (
    extension_of,
    is_ignored,
    sequence_name,
    sequence_number,
)
from mirrorlib.store import Folder, Store, StoredFile, contents

Level: TypeAlias = tuple[str, Folder]  # a folder's path below the table's, and what it shows

MANY_FILES = 50  # from here on, their average size is worth a note
SMALL_FILE = 64 << 10  # bytes: a file of hundred rows and its footer
LARGE_FILE = 1 << 30
_CLEANED = frozenset({"_ProcessedFiles", "_FilesReadyToDelete"})
_DATA = frozenset({"parquet", "csv", "tsv", "psv", "gz", "zst", "snappy"})


def iter_levels(zone: Store, path: str) -> Iterator[Level]:
    """Give a table's folder and the partition folders below it; one that has gone meanwhile is empty."""
    waiting = [""]
    while waiting:
        partition = waiting.pop()
        listed = contents(zone, f"{path}/{partition}".rstrip("/"))
        yield partition, listed
        # The last first, as the last is gone on with. What a link leads to would count under two paths.
        inner = (name for name in reversed(listed.folders) if "=" in name and not is_ignored(name))
        waiting += [f"{partition}/{name}".lstrip("/") for name in inner if name not in listed.links]


def review_folder(
    levels: Sequence[Level], policy: Policy, found: Findings
) -> tuple[StoredFile, ...]:
    """Look at the names in a table folder and its partition folders."""
    for partition, listed in levels:
        for name in listed.folders:
            inner = f"{partition}/{name}".lstrip("/")
            if is_ignored(name):
                continue
            if "=" not in name or name in listed.links:
                what = "a link" if name in listed.links else "a folder that is no partition"
                found.add("foreign-folder", what, file=inner)
            elif not partition and not policy.metadata.partitioned:
                found.add("partition-undeclared", "a partition folder", file=inner)
    # What was applied is moved to the table's folder, from its partition folders too.
    cleaned = any(_CLEANED & set(listed.folders) for _, listed in levels)
    files = [
        file for level in levels for file in _review_level(level, policy, found, cleaned=cleaned)
    ]
    names = [file.name for _, listed in levels for file in listed.files]
    if not files and not any(_is_data(policy, name) for name in names):
        found.add("no-files", "no change file")
    _review_sizes(files, found)
    if policy.by_time:
        files.sort(key=lambda file: (file.modified, file.name))
        for _, group in groupby(files, key=lambda file: file.modified):
            tied = list(group)
            if len(tied) > 1:
                found.add("time-ties", f"{len(tied)} files have this one's time", file=tied[0].name)
    return tuple(files)


def _review_level(
    level: Level, policy: Policy, found: Findings, *, cleaned: bool
) -> list[StoredFile]:
    partition, listed = level
    files: list[StoredFile] = []
    for stored in listed.files:
        name = f"{partition}/{stored.name}".lstrip("/")
        if not is_ignored(stored.name) and _is_change_file(policy, stored.name, name, found):
            files.append(replace(stored, below=name))
    if not policy.by_time:
        files.sort(key=_number)
        rule = "cleaned-up" if cleaned else "first-number"
        _review_numbers(partition, [_number(file) for file in files], rule, found)
    return files


def _number(file: StoredFile) -> int:
    return sequence_number(file.name) or 0


def _is_change_file(policy: Policy, name: str, shown: str, found: Findings) -> bool:
    """Tell change files, as the reader does, from files that nobody will read, and say why nobody will."""
    what = f"the extension {ascii(extension_of(name))[:20]}"
    if not policy.by_time and sequence_number(name) is not None:
        expected = extension_of(name) in policy.metadata.numbered
        if not expected:
            found.add("other-extension", what, file=shown)
        return expected
    if policy.by_time and name.lower().endswith(policy.metadata.endings):
        return True
    if not _is_data(policy, name):
        found.add("foreign-file", "no data file", file=shown)
    elif policy.by_time:
        found.add("wrong-extension", what, file=shown)
    else:
        found.add("wrong-name", "no number in 20 digits with one extension", file=shown)
    return False


def _is_data(policy: Policy, name: str) -> bool:
    """Say whether a name, ignored ones apart, looks as if a publisher meant data by it."""
    return not is_ignored(name) and (
        extension_of(name) in _DATA
        or extension_of(name) == (policy.metadata.file_extension or "parquet").lower()
        or _stem(name).isdecimal()
    )


def _stem(name: str) -> str:
    return name.partition(".")[0]


def _review_numbers(
    partition: str, numbers: Sequence[int], begins_late: str, found: Findings
) -> None:
    """Look at a partition folder's numbers; *begins_late* is the rule for a first one above 1."""

    def place(number: int) -> str:
        """Name it without an extension, which a missing file has not chosen yet."""
        return f"{partition}/{_stem(sequence_name(number))}".lstrip("/")

    counted = Counter(numbers)
    for number, count in sorted(counted.items()):
        if count > 1:
            what = f"{count} files of the number {number}"
            found.add("duplicate-number", what, file=place(number))
    first = min(counted, default=1)
    if first > 1:
        found.add(begins_late, f"the first number is {first}", file=place(1))
    for before, after in pairwise(sorted(counted)):
        if after - before > 1:
            what = f"the numbers {before + 1} to {after - 1} are missing"
            if after - before == 2:  # one number lies between  # noqa: PLR2004
                what = f"the number {before + 1} is missing"
            found.add("gap", what, file=place(before + 1))


def _review_sizes(files: Sequence[StoredFile], found: Findings) -> None:
    for file in files:
        if not file.size:
            found.add("zero-byte", "0 bytes", file=file.name)
        elif file.size > LARGE_FILE:
            found.add("large-file", f"{file.size / (1 << 30):.1f} GiB", file=file.name)
    total = sum(file.size for file in files)
    if len(files) >= MANY_FILES and total < SMALL_FILE * len(files):
        average = total // len(files)
        found.add("small-files", f"{len(files):,} files of {average:,} bytes on average")

"""Review a table folder by its listing alone: names, numbers, gaps, sizes. Nothing is opened.

In: what a table's folder and its partition folders show. Out: the files that will be applied, in that order.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from mirrorlib.landing.check.facts import Policy
from mirrorlib.landing.check.report import Findings
from mirrorlib.landing.listing import (
    NOTHING_APPLIED,
    FolderContent,
    order_by_number,
    order_by_time,
)
from mirrorlib.names import extension_of, sequence_name, sequence_number
from mirrorlib.store import StoredFile

MANY_FILES = 50  # from here on, their average size is worth a note
SMALL_FILE = 64 << 10  # bytes: a file of hundred rows and its footer
LARGE_FILE = 1 << 30
_CLEANED = frozenset({"_ProcessedFiles", "_FilesReadyToDelete"})
_DATA = frozenset({"parquet", "csv", "tsv", "psv", "gz", "zst", "snappy"})


def review_folder(seen: FolderContent, policy: Policy, found: Findings) -> tuple[StoredFile, ...]:
    """Look at the names in a table folder and its partition folders."""
    for path in (*seen.unread, *seen.links_passed):
        what = "a link" if path in seen.links else "a folder that is no partition"
        found.add("foreign-folder", what, file=path)
    tops = dict.fromkeys(file.name.partition("/")[0] for file in seen.files if "/" in file.name)
    for top in () if policy.metadata.partitioned else tops:
        found.add("partition-undeclared", "a partition folder", file=top)
    if policy.by_time:
        listing = order_by_time(seen, policy.metadata.endings, NOTHING_APPLIED)
    else:
        listing = order_by_number(seen, policy.table, policy.metadata.numbered)
    files = [file for numbered in listing.partitions.values() for file in numbered.values()]
    known = {file.name for file in files}
    for file in seen.files:
        if file.name not in known:
            _tell_stray(policy, file.name, found)
    if not files and not any(_is_data(policy, file.name) for file in seen.files):
        found.add("no-files", "no change file")
    for name, doubled in listing.doubled.items():
        found.add("duplicate-number", doubled.file or name, file=name)
    # What was applied is moved to the table's folder, from its partition folders too.
    cleaned = any(path.rpartition("/")[2] in _CLEANED for path in seen.folders)
    rule = "cleaned-up" if cleaned else "first-number"
    for partition, numbers in () if policy.by_time else listing.partitions.items():
        _review_numbers(partition, list(numbers), rule, found)
    _review_sizes(files, found)
    return tuple(files)


def _tell_stray(policy: Policy, name: str, found: Findings) -> None:
    """Say why nobody will read a file; of two that have one number, that is said once."""
    what = f"the extension {ascii(extension_of(name))[:20]}"
    if not policy.by_time and sequence_number(name) is not None:
        if extension_of(name) not in policy.metadata.numbered:
            found.add("other-extension", what, file=name)
    elif not _is_data(policy, name):
        found.add("foreign-file", "no data file", file=name)
    elif policy.by_time:
        found.add("wrong-extension", what, file=name)
    else:
        found.add("wrong-name", "no number in 20 digits with one extension", file=name)


def _is_data(policy: Policy, name: str) -> bool:
    """Say whether a name looks as if a publisher meant data by it."""
    return (
        extension_of(name) in _DATA
        or extension_of(name) == (policy.metadata.file_extension or "parquet").lower()
        or _stem(name).isdecimal()
    )


def _stem(name: str) -> str:
    return name.rpartition("/")[2].partition(".")[0]


def _review_numbers(
    partition: str, numbers: Sequence[int], begins_late: str, found: Findings
) -> None:
    """Look at a partition folder's numbers, ascending; *begins_late* is the rule for a first one above 1."""

    def place(number: int) -> str:
        """Name it without an extension, which a missing file has not chosen yet."""
        return f"{partition}/{_stem(sequence_name(number))}".lstrip("/")

    if numbers[0] > 1:
        found.add(begins_late, f"the first number is {numbers[0]}", file=place(1))
    for before, after in pairwise(numbers):
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

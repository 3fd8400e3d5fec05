"""Review a table folder by its listing alone: names, numbers, gaps, sizes, times. Nothing is opened.

In: what a table's folder and its partition folders show. Out: the files that will be applied, in that order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby, pairwise

from mirrorlib.landing.check.facts import Policy
from mirrorlib.landing.check.report import Findings
from mirrorlib.landing.listing import FolderContent
from mirrorlib.names import extension_of, partition_of, sequence_name, sequence_number
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
    files = [file for file in seen.files if _is_change_file(policy, file.name, found)]
    if not files and not any(_is_data(policy, file.name) for file in seen.files):
        found.add("no-files", "no change file")
    if policy.by_time:
        files.sort(key=lambda file: (file.modified, file.name))
        for _, group in groupby(files, key=lambda file: file.modified):
            tied = list(group)
            if len(tied) > 1:
                found.add("time-ties", f"{len(tied)} files have this one's time", file=tied[0].name)
    else:
        # What was applied is moved to the table's folder, from its partition folders too.
        cleaned = any(path.rpartition("/")[2] in _CLEANED for path in seen.folders)
        rule = "cleaned-up" if cleaned else "first-number"
        places = groupby(files, key=lambda file: partition_of(file.name))
        partitions = {partition: sorted(group, key=_number) for partition, group in places}
        for partition, numbered in partitions.items():
            _review_numbers(partition, [_number(file) for file in numbered], rule, found)
        files = [file for numbered in partitions.values() for file in numbered]
    _review_sizes(files, found)
    return tuple(files)


def _number(file: StoredFile) -> int:
    return sequence_number(file.name) or 0


def _is_change_file(policy: Policy, name: str, found: Findings) -> bool:
    """Tell change files, as the reader does, from files that nobody will read, and say why nobody will."""
    what = f"the extension {ascii(extension_of(name))[:20]}"
    if not policy.by_time and sequence_number(name) is not None:
        expected = extension_of(name) in policy.metadata.numbered
        if not expected:
            found.add("other-extension", what, file=name)
        return expected
    if policy.by_time and name.lower().endswith(policy.metadata.endings):
        return True
    if not _is_data(policy, name):
        found.add("foreign-file", "no data file", file=name)
    elif policy.by_time:
        found.add("wrong-extension", what, file=name)
    else:
        found.add("wrong-name", "no number in 20 digits with one extension", file=name)
    return False


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

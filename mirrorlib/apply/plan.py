"""Choose the next batch: the longest run of consecutive change files that have not been applied.

In: a folder's listing, the position, the size limits. Out: `Run`, which also says what it waits
for. Pure: nothing is opened. Rules: landing-zone best practices 2026-09-18 (a gap blocks every
later file), design §4 step 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from mirrorlib.landing.names import sequence_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirrorlib.apply.journal import Plan
    from mirrorlib.landing.listing import FolderListing
    from mirrorlib.store import StoredFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much one batch may hold; None is no limit. A batch holds at least one file."""

    max_files: int | None = None
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        """Refuse limits under which nothing would ever be applied.

        Raises:
            ValueError: a limit is less than 1.

        """
        for name, limit in (("max_files", self.max_files), ("max_bytes", self.max_bytes)):
            if limit is not None and limit < 1:
                msg = f"{name} is {limit}; it has to be 1 or more"
                raise ValueError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A missing sequence number with later ones present.

    Attributes:
        awaited: the file name that is missing.
        since: when the oldest of the files behind it was written.
        behind: how many files wait.

    """

    awaited: str
    since: datetime
    behind: int

    def __str__(self) -> str:
        """Say what is awaited and since when."""
        files = "1 later file waits" if self.behind == 1 else f"{self.behind} later files wait"
        return (
            f"{self.awaited} is missing and {files} behind it since {self.since:%Y-%m-%d %H:%M:%S} UTC. "
            f"Publish {self.awaited}; the next run goes on from there."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The files to be applied next, in order.

    Attributes:
        files: consecutive unapplied files within the limits.
        unapplied: all unapplied files that a gap does not hold back, with or without the limits.
        gap: what the files behind wait for, None when nothing is missing.

    """

    files: tuple[tuple[int, StoredFile], ...]
    unapplied: int
    gap: Gap | None


def next_run(listing: FolderListing, position: int, limits: Limits) -> Run:
    """Find the consecutive files after *position* (exclusive; 0 while nothing is applied)."""
    later = [number for number in listing.files if number > position]
    consecutive = [
        number
        for place, number in enumerate(later, start=1)
        if listing.by_time or number == position + place
    ]
    behind = later[len(consecutive) :]
    gap = None
    if behind:
        extension = listing.files[behind[0]].name.rpartition(".")[2]
        gap = Gap(
            awaited=sequence_name(position + len(consecutive) + 1, extension),
            since=min(listing.files[number].modified for number in behind),
            behind=len(behind),
        )
    files = tuple((number, listing.files[number]) for number in consecutive)
    return Run(files=_within(files, limits), unapplied=len(files), gap=gap)


def settled(files: Sequence[tuple[int, StoredFile]], listed_at: str, seconds: float) -> int:
    """Count the files, from the first on, that had lain still for that long when they were listed."""
    moment = datetime.fromisoformat(listed_at)
    ages = [(moment - file.modified).total_seconds() for _, file in files]
    return next((place for place, age in enumerate(ages) if age < seconds), len(files))


def changed_files(listing: FolderListing, newest: Plan, position: int) -> tuple[str, ...]:
    """Name the applied files whose content has changed since; the format forbids it and they are not read again.

    Files of the newest plan are compared by identity, older ones by whether they were written after
    that plan's listing.
    """
    if listing.by_time:
        return ()  # what was applied is known by name, and compared where it is listed
    planned = {file.name: file.etag for file in newest.files}
    listed_at = datetime.fromisoformat(newest.listed_at)
    applied = (file for number, file in listing.files.items() if number <= position)
    return tuple(
        file.name
        for file in applied
        if (file.etag != planned[file.name] if file.name in planned else file.modified > listed_at)
    )


def position_after(before: Mapping[str, int], folder: str, number: int) -> dict[str, int]:
    """Return the position once file *number* of a partition folder is applied."""
    return {**before, folder: number}


def _within(
    files: tuple[tuple[int, StoredFile], ...], limits: Limits
) -> tuple[tuple[int, StoredFile], ...]:
    taken, size = 0, 0
    for _, file in files[: limits.max_files]:
        size += file.size
        if taken and limits.max_bytes is not None and size > limits.max_bytes:
            break
        taken += 1
    return files[:taken]

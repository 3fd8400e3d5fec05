"""Choose the next batch: the longest run of consecutive change files that have not been applied.

In: a folder's listing, the position. Out: `Run`, which also says what it waits for. Pure: nothing is
opened. Rules: landing-zone best practices 2026-09-18 (a gap blocks every later file).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate, takewhile
from typing import TypeAlias

from mirrorlib.journal.entries import Plan
from mirrorlib.landing.listing import FolderListing
from mirrorlib.names import WHOLE_FOLDER, partition_of, sequence_name
from mirrorlib.store import StoredFile

Files: TypeAlias = "tuple[tuple[int, StoredFile], ...]"  # by their numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The consecutive unapplied files, in order; *gap* says what waits for the file that is *awaited*, and how long."""

    files: Files
    awaited: str | None = None
    gap: str = ""


def next_run(listing: FolderListing, position: Mapping[str, int]) -> Run:
    """Find the consecutive files after *position* (exclusive) of every partition folder, one folder after the other."""
    files: list[tuple[int, StoredFile]] = []
    gaps: list[tuple[str, list[StoredFile]]] = []
    for partition, known in listing.partitions.items():
        last = position.get(partition, 0)
        later = [number for number in known if number > last]
        consecutive = [
            number
            for place, number in enumerate(later, start=1)
            if listing.by_time or number == last + place
        ]
        files += [(number, known[number]) for number in consecutive]
        behind = [known[number] for number in later[len(consecutive) :]]
        if behind:
            extension = behind[0].name.rpartition(".")[2]
            name = sequence_name(last + len(consecutive) + 1, extension)
            gaps.append((f"{partition}/{name}" if partition else name, behind))
    if not gaps:
        return Run(files=tuple(files))
    awaited, behind = gaps[0]
    waiting = "1 later file waits" if len(behind) == 1 else f"{len(behind)} later files wait"
    since = min(file.modified for file in behind)
    gap = f"{awaited} is missing and {waiting} behind it since {since:%Y-%m-%d %H:%M:%S} UTC. Publish it."
    if len(gaps) > 1:
        gap += f" {len(gaps) - 1} other partition folders lack a file too."
    if not (position or files):
        # Each folder begins with its own first file, where that is below.
        first = max(min(known) for known in listing.partitions.values() if known)
        gap += f" If it is gone for good and number {first} is a full load: --start-at {first}, for this table alone."
    return Run(files=tuple(files), awaited=awaited, gap=gap)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A file that might have been an upload under way when a run first saw it: in a listing at *seen_at*, UTC."""

    file: str
    etag: str
    seen_at: str


def is_young(file: StoredFile, listed_at: str, seconds: float, watched: Watched | None) -> bool:
    """Say whether a file had not lain still for that long when it was listed.

    Its own time tells, or, where the store's clock is ahead of ours, an earlier listing.
    """
    moment = datetime.fromisoformat(listed_at)
    if watched is not None and (watched.file, watched.etag) == (file.name, file.etag):
        seen = datetime.fromisoformat(watched.seen_at)
        if (moment - seen).total_seconds() >= seconds:
            return False
    return (moment - file.modified).total_seconds() < seconds


def within(files: Files, max_files: int | None, max_bytes: int | None) -> Files:
    """Return the first files that fit into one batch; at least one, whatever its size."""
    sizes = accumulate(file.size for _, file in files[:max_files])
    fitting = takewhile(lambda size: max_bytes is None or size <= max_bytes, sizes)
    return files[: max(1, sum(1 for _ in fitting))]


def changed_files(
    listing: FolderListing, newest: Plan, position: Mapping[str, int]
) -> tuple[tuple[str, ...], tuple[StoredFile, ...]]:
    """Name the applied files that are no longer what was listed; the format forbids it and they are not read again.

    Files of the newest plan are compared by identity, older ones by whether they were written after
    that plan's listing; those without numbers by identity where they are listed. Comes with the files that came to
    their places later than they were seen, with a time before the newest plan's: their content may have changed,
    which only the plan that has applied them can tell.
    """
    if listing.by_time:
        return listing.changed, ()
    planned = {file.name: file.etag for file in newest.files}
    known_at = seen_until(newest)
    seen_at = datetime.fromisoformat(newest.unseen_since) if newest.unseen_since else known_at
    changed: list[str] = []
    placed: list[StoredFile] = []
    for file in passed_over(listing, position):
        known = planned.get(file.name)
        if file.modified > known_at if known is None else file.etag != known:
            changed.append(file.name)
        elif known is None and max(file.modified, file.placed or file.modified) > seen_at:
            placed.append(file)
    return tuple(changed), tuple(placed)


def passed_over(listing: FolderListing, position: Mapping[str, int]) -> Iterator[StoredFile]:
    """Give the files that are there and count as applied."""
    for partition, files in listing.partitions.items():
        for number, file in files.items():
            if number <= position.get(partition, 0):
                yield file


def seen_until(plan: Plan) -> datetime:
    """Return the moment up to which a plan's listing has seen the folder, by the store's clock or by ours."""
    times = (plan.listed_at, plan.seen_until, *(file.modified for file in plan.files))
    return max(datetime.fromisoformat(time) for time in times if time)


def position_after(
    before: Mapping[str, int], files: Iterable[tuple[int, StoredFile]], *, by_time: bool
) -> dict[str, int]:
    """Return the position once numbered files are applied."""
    last = {WHOLE_FOLDER if by_time else partition_of(file.name): n for n, file in files}
    return {**before, **last}


def first_position(listing: FolderListing, start_at: int) -> dict[str, int]:
    """Return the position of a life that begins with another number than 1.

    Partition folders lose their first files each for itself: one that shows less begins with that.
    """
    if start_at == 1 or listing.by_time:
        return {}
    lowest = {partition: min(files) for partition, files in listing.partitions.items() if files}
    if lowest.keys() <= {WHOLE_FOLDER}:
        return {WHOLE_FOLDER: start_at - 1}
    return {partition: min(start_at, number) - 1 for partition, number in lowest.items()}

"""Go on behind what a plain folder has appended, in a life that keeps its table.

In: the journal, the life, what `_metadata.json` states. Out: the batch that the life's first one follows
on. Where it begins is not written down but follows from the plans of the life before: those change no
more once that life can commit nothing more, and the first plan of the new one holds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from mirrorlib.errors import FileChangedError
from mirrorlib.ingest.files.history import History
from mirrorlib.ingest.files.source import Source
from mirrorlib.journal.disk import Journal
from mirrorlib.journal.entries import REBUILD, Entry, Life
from mirrorlib.landing.listing import FolderListing
from mirrorlib.landing.metadata.declared import TableMetadata
from mirrorlib.names import WHOLE_FOLDER, extension_of, partition_of, sequence_number


def newest_entry(
    journal: Journal, lives: Sequence[Life], metadata: TableMetadata | None
) -> Entry | None:
    """Return the newest batch of the present life; before its first, the one that it follows on."""
    entry = journal.newest_of(lives)
    if entry is not None or metadata is None or not lives or not lives[-1].keeps:
        return entry
    before = lives[-2]
    last = next(applied_entries(journal, before, journal.newest(before)), None)
    if last is None:
        return None
    known = History(journal, lives[-1].zone).applied()
    position = position_behind(known.etags, known.count, metadata)
    policies = replace(last.plan.policies, keys=(), plain=None, detection=metadata.detection)
    plan = replace(
        last.plan, life=lives[-1].uuid, batch=0, before=position, after=position, policies=policies
    )
    return Entry(plan=plan, done=last.done)


def applied_entries(journal: Journal, life: Life, newest: Entry | None) -> Iterator[Entry]:
    """Give the batches of a life that were applied, from the newest on, without what was voided or never ended."""
    for batch in range(newest.plan.batch if newest else 0, 0, -1):
        one = newest if newest and batch == newest.plan.batch else journal.entry(life, batch)
        if one.done is not None and one.done.outcome == "applied":
            yield one


def find_rebuilt(journal: Journal, lives: Sequence[Life]) -> tuple[Life, Entry] | None:
    """Return the life that a rebuild computes anew, the newest one that has applied anything, and its newest batch."""
    for life in reversed(lives):
        entry = journal.newest(life)
        if entry is not None and entry.position:
            return life, entry
    return None


def lost_files(
    journal: Journal, lives: Sequence[Life], source: Source, listing: FolderListing
) -> tuple[list[str], bool]:
    """Name the files without numbers that the newest of *lives* has applied and that are gone; say whether one is left.

    Numbers tell by themselves that something is missing.
    """
    found = find_rebuilt(journal, lives) if listing.by_time else None
    if found is None:
        return [], False
    etags = History(journal, source.zone.url, until=found[0].ordinal).applied().etags
    there = {
        file.name: file.etag for files in listing.partitions.values() for file in files.values()
    }
    lost = [name for name in etags if name not in there]
    left = any(etags.get(name) == etag for name, etag in there.items())
    if (
        lost and not left
    ):  # a folder that was copied back has files of other identities: what they hold tells
        last = next(applied_entries(journal, *found), None)
        left = last is not None and any(map(source.has, last.plan.files))
    return lost, left


def rebuilt_position(journal: Journal, lives: Sequence[Life]) -> Mapping[str, int] | None:
    """Return up to where a life that rebuilds its table has to go at once; None for a life that does not.

    It is as far as its files were applied before, or its first file, where that comes later.
    """
    if not lives or lives[-1].why != REBUILD:
        return None
    found = find_rebuilt(journal, lives[:-1])
    position = found[1].position if found else {}
    if position.keys() <= {WHOLE_FOLDER}:
        return {at: max(number, lives[-1].start_at) for at, number in position.items()}
    return position


def refuse_replaced(
    journal: Journal, lives: Sequence[Life], fingerprints: Mapping[str, str], table: str
) -> None:
    """See that files, by what they hold, are those that the life before a rebuild has applied under their names."""
    found = find_rebuilt(journal, lives[:-1])
    for one in applied_entries(journal, *found) if found else ():
        for planned in one.plan.files:
            if fingerprints.get(planned.name, planned.fingerprint) != planned.fingerprint:
                msg = f"it is not what batch {one.plan.batch} has applied under its name"
                step = "Put it back as it was, and rebuild then; or start over by what is there: mirrorlib reset"
                raise FileChangedError(msg, table=table, file=planned.name, next_step=step)


def position_behind(names: Iterable[str], count: int, metadata: TableMetadata) -> dict[str, int]:
    """Return the position behind *count* files that were known by name; never an empty one, as before a table."""
    if metadata.detection != "sequential":
        return {WHOLE_FOLDER: count}
    partitions = numbers_of(names, metadata) or {WHOLE_FOLDER: {0}}
    return {partition: max(numbers) for partition, numbers in partitions.items()}


def numbers_of(names: Iterable[str], metadata: TableMetadata) -> Mapping[str, set[int]]:
    """Return the numbers that files carry, by partition folder."""
    partitions: dict[str, set[int]] = {}
    for name in names:
        partition, number = partition_of(name), sequence_number(name)
        if number is None or extension_of(name) not in metadata.numbered:
            continue
        if not partition or (
            metadata.partitioned and all("=" in step for step in partition.split("/"))
        ):
            partitions.setdefault(partition, set()).add(number)
    return partitions

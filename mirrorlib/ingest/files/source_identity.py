"""See that a table goes on where it stopped: the same zone, keys and order, and applied files as they were.

In: a `Work` and the newest batch. Out: nothing, or the error that says what has changed and what to
do. Whether a file is the one that was applied is told by what it holds: name, size and time prove nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from mirrorlib.delta.sessions import side_by_side
from mirrorlib.errors import FileChangedError, JournalError, MetadataError
from mirrorlib.identifiers import fold_name
from mirrorlib.ingest.files.continued_life import applied_entries
from mirrorlib.ingest.files.plan import changed_files, passed_over, seen_until
from mirrorlib.ingest.files.table_folder import FolderView, OpenedFolder, policies_of
from mirrorlib.ingest.work import Work
from mirrorlib.journal.entries import REBUILD, Entry, Plan, proof_of
from mirrorlib.landing.metadata.declared import DETECTION_NAMES, TableMetadata
from mirrorlib.names import WHOLE_FOLDER, partition_of
from mirrorlib.store import StoredFile
from mirrorlib.store.target import settled

_LOOKED_BACK = 1_000  # plans, for files that were moved in: each is a read
_MOVED_IN = 100  # files; more at once are a folder that was touched, and each poll would read the plans again


def check_same_zone(work: Work, view: FolderView, entry: Entry | None, proven: str | None) -> None:
    """Take another zone than recorded only if every file that would be passed over is what was applied.

    Where none of the newest batch is there to prove it, the caller has to say that the zone has moved. A plain
    folder's files are other ones under another root, unless he says so. *proven* is what `proof_of` has told a
    run before: nothing is read again.
    """
    zone, history = work.source.zone.url, view.history
    if entry is None and work.life.why == REBUILD and work.life.zone not in {zone, ""}:
        _refuse_zone(work, view, work.life.zone)  # it computes what that one has, and was killed
    if entry is None or not entry.position or (entry.plan.zone == zone and not history.moves()):
        return
    plain = work.source.policies.plain is not None
    if not history.moves() if plain else proven == proof_of(zone, entry):
        return
    if plain and work.options.allow_overwrites:
        msg = "the landing zone was moved, and nobody can tell a file that was moved from one that was overwritten"
        step = f"Apply without --allow-overwrites, or start the table over: mirrorlib reset TARGET {work.table}"
        found = f"{zone} instead of {work.options.moved_from}"
        raise JournalError(msg, table=work.table, found=found, next_step=step)
    known = replace(view, options=replace(work.options, allow_overwrites=False)).open(full=True)
    files = passed_over(known.listing, entry.position)
    newest = _prove_passed(work, entry, files, history.roots() if plain else ())
    if not (plain or newest):
        _refuse_zone(work, view, entry.plan.zone)


def _refuse_zone(work: Work, view: FolderView, before: str) -> None:
    """Refuse another zone than the table had *before*, unless the caller has said that it was moved."""
    if view.history.moved_from == settled(before):
        return
    msg = "the table was filled from another landing zone"
    step = f"Use that zone, or say that this is the same one, moved: --moved-from {before}"
    found = f"{work.source.zone.url} instead of {before}"
    raise JournalError(msg, table=work.table, found=found, next_step=step)


def _prove_passed(
    work: Work, entry: Entry, files: Iterable[StoredFile], roots: Collection[str]
) -> bool:
    """Compare files with the plans that have applied what was there under their names, the newest first.

    *roots* is where a plain folder's plans have found them; empty where names alone tell files. Returns whether some
    file of the newest applied batch is there.
    """
    waiting, zone = {file.name: file for file in files}, work.source.zone
    newest: bool | None = None
    for plan in _applied_plans(work, entry):
        if not waiting:
            break
        if roots and plan.zone not in roots:
            continue
        there = [(waiting.pop(one.name), one) for one in plan.files if one.name in waiting]
        same = side_by_side(lambda pair: work.source.holds_same(*pair), there, zone.at_once)
        for (file, _), good in zip(there, same, strict=True):
            if not good:
                msg = f"the file holds something else than what batch {plan.batch} has applied under its name"
                found = f"{zone.url} instead of {plan.zone}"
                anew = f"to fill the table from this zone: mirrorlib reset TARGET {work.table}"
                step = (
                    f"Use {plan.zone}, or put the file back as it was there, or remove it; {anew}"
                )
                raise FileChangedError(
                    msg, table=work.table, file=file.name, found=found, next_step=step
                )
        if newest is None:
            newest = bool(there)
    return bool(newest)


def _applied_plans(work: Work, entry: Entry) -> Iterator[Plan]:
    for one in applied_entries(work.journal, work.life, entry):
        yield one.plan
    if work.life.keeps:
        before = work.lives[-2]
        for one in applied_entries(work.journal, before, work.journal.newest(before)):
            if one.plan.zone == work.life.zone:  # under another root, plain files are other ones
                yield one.plan


def goes_on(work: Work, opened: OpenedFolder) -> bool:
    """Say whether a folder's metadata still means what the run has begun with."""
    if opened.metadata is None:
        return False
    # Whom the table is for, it may know itself.
    mine = replace(work.source.policies, readers=work.options.readers)
    return policies_of(opened.metadata, opened.dialect, work.options) == mine


def check_policies(work: Work, opened: OpenedFolder, entry: Entry | None) -> None:
    """See that what was applied means the same under the policies of now.

    Keys cannot change once declared, but for their order; they may be declared later (landing-zone format). A
    position means nothing in another order, nor one in partition folders without them.
    """
    if entry is None or not entry.position:
        return
    applied, asked = entry.plan.policies, work.source.policies
    if entry.done is not None and entry.done.outcome == "void":
        last = next(applied_entries(work.journal, work.life, entry), None)
        # What the life begins behind was applied without keys, or not at all.
        applied = last.plan.policies if last else replace(applied, keys=())
    start_over = f"or start the table over: mirrorlib reset TARGET {work.table}"
    msg, found, metadata = "", None, opened.metadata
    file: str | None = "_metadata.json"
    places = {partition_of(one.name) for one in entry.plan.files}  # by time, a position names none
    folders = (entry.position.keys() | places) - {WHOLE_FOLDER}
    step = f"Put the old one back, {start_over}"
    old, new = ({fold_name(key.strip()) for key in one.keys} for one in (applied, asked))
    if applied.keys and old != new:
        msg = "the key columns changed, and the rows already there were applied by the old ones"
        found = f"{', '.join(asked.keys) or 'none'} instead of {', '.join(applied.keys)}"
        step = f"Put the old keyColumns back, {start_over}"
    elif (applied.plain is None) != (asked.plain is None):
        msg = "_metadata.json has come to a plain folder, and what is there was appended without it"
        step = f"Go on by it: mirrorlib reset TARGET {work.table} --keep, without --keep from the start; or remove it."
    elif applied.snapshots != asked.snapshots:
        was, now, how = "changes", "snapshots", "without"
        if applied.snapshots:
            was, now, how = "snapshots", "changes", "with"
        msg = f"the table was filled from {was}, and its files are now to be read as {now}"
        step, file = f"Apply it {how} --snapshots, {start_over}", None
    elif applied.plain is None and folders and not (metadata and metadata.partitioned):
        msg = "isPartitionEnabled was taken back, and what was applied lies in partition folders"
        step = f"Put it back, {start_over}"
    elif applied.detection != asked.detection:
        msg = "fileDetectionStrategy changed, and what was applied is known by the old one"
        found = (
            f"{DETECTION_NAMES[asked.detection]} instead of {DETECTION_NAMES[applied.detection]}"
        )
    if msg:
        raise JournalError(msg, table=work.table, file=file, found=found, next_step=step)


def check_snapshots(metadata: TableMetadata, table: str) -> None:
    """See that a table's files have one order, in which the newest is the whole table."""
    if metadata.plain or metadata.detection != "sequential" or metadata.partitioned:
        msg = "snapshots need numbers and one folder: of others nobody can say which is newest, or makes a whole"
        step = "Publish each as one numbered file, or apply the table without --snapshots."
        raise MetadataError(msg, table=table, next_step=step)


def changed_since(work: Work, opened: OpenedFolder, entry: Entry | None) -> tuple[str, ...]:
    """Name the files that are no longer what was applied; of the newest batch by what they hold.

    Until a batch comes from where the zone was moved to, that batch alone is looked at, as times and identities are the
    copies'; or the first batch, where nothing of the newest is there: a source that starts over writes that again.
    Text, which would be read to its end by each run, is told by its size.
    """
    if entry is None or not entry.position:
        return ()
    changed, placed = changed_files(opened.listing, entry.plan, entry.position)
    known = {one.name: one for one in entry.plan.files}
    there = {file.name: file for file in passed_over(opened.listing, entry.position)}
    if entry.plan.zone != work.source.zone.url:
        if entry.plan.policies.plain is not None or not entry.plan.batch:
            return ()  # under another root, plain files are other ones
        if known.keys().isdisjoint(there):
            first = work.journal.entry(work.life, 1)
            applied = applied_entries(work.journal, work.life, first)
            known = {file.name: file for one in applied for file in one.plan.files}
        kind_of = work.source.policies.kind_of
        pairs = [(there[name], one) for name, one in known.items() if name in there]
        pairs = [(f, one) for f, one in pairs if kind_of(f.name) == "parquet" or f.size != one.size]
        placed, changed = (), tuple(f.name for f, one in pairs if f.etag != one.etag)
    differing = (
        name
        for name in changed
        if name not in known or not work.source.holds_same(there[name], known[name])
    )
    few = placed if len(placed) <= _MOVED_IN else ()
    return (*differing, *_replaced(work, few, entry.plan.batch))


def _replaced(work: Work, placed: Iterable[StoredFile], batch: int) -> Iterator[str]:
    """Name the files that came to their places later, and are not what the plan that has applied them says."""
    waiting = {file.name: file for file in placed}
    for earlier in range(batch - 1, max(batch - _LOOKED_BACK, 0), -1):
        if not waiting:
            return
        for planned in work.journal.entry(work.life, earlier).plan.files:
            file = waiting.pop(planned.name, None)
            if file is None:
                continue
            # One that was restored with its time is the same.
            written = file.modified.isoformat(timespec="microseconds")
            if (file.size, written) != (planned.size, planned.modified):
                yield planned.name


def judge_changes(
    work: Work, opened: OpenedFolder, entry: Entry | None, changed: Collection[str]
) -> str:
    """Show what looks as if the source had started over, given the files that have changed; "" when nothing does.

    A re-upload beside a cleaner looks the same, so the owner decides. A file of the newest batch that holds something
    else now is refused, as its rows would be passed over; in a plain folder it was overwritten, which is told.
    """
    if entry is None or not changed:
        return ""
    partitions = opened.listing.partitions
    firsts = [
        files[1].name for files in partitions.values() if 1 in files and files[1].name in changed
    ]
    applied = entry.done is not None and entry.done.outcome == "applied"
    known = {one.name for one in entry.plan.files}
    if opened.listing.by_time:  # where what is there is numbered anew
        every = [file.name for files in partitions.values() for file in files.values()]
        newest = [name for name in every if applied and name in known]
    else:
        last = (files.get(entry.position.get(name, 0)) for name, files in partitions.items())
        newest = [file.name for file in last if file is not None]
    continued = any(name not in changed for name in newest)
    written = opened.metadata_written
    if firsts and not continued and written is not None and written > seen_until(entry.plan):
        seen = f"{firsts[0]} and _metadata.json were written again ({written:%Y-%m-%d %H:%M} UTC)"
        told = f"{seen}, and the newest applied file is not there as it was: the source may have started over"
        return f"{told}. If it has: mirrorlib reset TARGET {work.table}"
    name = next((name for name in changed if name in known), None)
    if applied and name is not None and work.source.policies.plain is None:
        msg = f"the change file holds something else than what batch {entry.plan.batch} has applied under its name"
        over = f"if the source has started over: mirrorlib reset TARGET {work.table}"
        step = f"Put it back, or remove it and publish its rows under the next name; {over}"
        raise FileChangedError(msg, table=work.table, file=name, next_step=step)
    return ""

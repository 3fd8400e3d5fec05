"""Choose the files of a table's next batch, and say what holds the others back.

In: a listed folder, the position, the files that are barred. Out: `Next`. A file stands in the way
of those behind it in its partition folder; the other folders go on.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mirrorlib.ingest.files.plan import Limits, first_position, is_young, next_run
from mirrorlib.journal.entries import every_cause

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirrorlib.errors import MirrorError
    from mirrorlib.ingest.batch.foreign_writes import Standing
    from mirrorlib.ingest.batch.open_batch import Prepared
    from mirrorlib.ingest.files.plan import Run
    from mirrorlib.ingest.files.table_folder import Folder
    from mirrorlib.ingest.options import Options
    from mirrorlib.ingest.report import State
    from mirrorlib.ingest.work import Work
    from mirrorlib.journal.entries import Entry
    from mirrorlib.landing.listing import FolderListing
    from mirrorlib.store import StoredFile

UNTYPED = "No published file has a column with a type yet."
UNTYPED_KEY = (
    "The key column {key} has no type in any published file yet: all its values are NULL. "
    "The table waits for a file that has one."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Next:
    """What comes next for a table: files to apply, and what stands before those that are not among them.

    Attributes:
        run: the consecutive files that are visible and not held back.
        position: what they follow on.
        files: those of them to apply.
        barred: the first file that holds its partition folder back.
        doubled: why those do whose numbers other files carry too, by name.
        young: the first file that may still be an upload under way.
        replaces: they replace a table that is there.

    """

    run: Run
    position: Mapping[str, int]
    files: tuple[tuple[int, StoredFile], ...]
    barred: StoredFile | None = None
    doubled: Mapping[str, Bar] = field(default_factory=dict)
    young: StoredFile | None = None
    replaces: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """Why a file stands in the way of its partition folder until it changes.

    Attributes:
        etag: the content that it is about.
        reason: for people.
        error: the class of the error.

    """

    etag: str
    reason: str
    error: str


def causes_of(entry: Entry | None) -> tuple[Mapping[str, str], ...]:
    """Return what voided earlier plans and still lies ahead: file, etag and reason of each, the newest first."""
    return every_cause(entry.done.cause if entry and entry.done else None)


def bars_of(entry: Entry | None) -> dict[str, Bar]:
    """Hold back the files that voided earlier plans and still lie ahead."""
    return {
        cause["file"]: Bar(etag=cause["etag"], reason=cause["reason"], error=cause["error"])
        for cause in causes_of(entry)
        if cause.get("etag")  # a file that was replaced is read as it is then
    }


def bars_of_void(entry: Entry) -> dict[str, Bar]:
    """Hold back the file that has just voided a plan, and those that did before."""
    void = entry.done is not None and entry.done.outcome == "void"
    return bars_of(entry) if void else {}


def bar_of(coming: Next, prepared: Prepared, fault: MirrorError) -> dict[str, Bar]:
    """Hold back the file at which the opening of files has stopped."""
    file = coming.files[len(prepared.landed)][1]
    return {file.name: Bar(etag=file.etag, reason=str(fault), error=type(fault).__name__)}


def position_of(entry: Entry | None) -> Mapping[str, int]:
    """Return the last applied number per partition folder; empty while there is none."""
    return entry.position if entry else {}


def coming_files(
    work: Work,
    standing: Standing,
    opened: Folder,
    position: Mapping[str, int],
    bars: Mapping[str, Bar],
    options: Options,
) -> Next:
    """Choose the next batch's files.

    A new life replaces the table in one commit, so that nobody reads it half: it takes everything
    that is visible, and nothing as long as something stands in the way.
    """
    anew = len(work.lives) > 1 and not position
    position = position or first_position(opened.listing, work.life.start_at)
    limits = Limits() if anew else options.limits
    coming = next_files(opened, position, limits, bars, options)
    if not anew or standing.version is None:
        return coming
    whole = coming.barred is None and coming.young is None and coming.run.gap is None
    return replace(coming, files=coming.files if whole else (), replaces=True)


def next_files(
    opened: Folder,
    position: Mapping[str, int],
    limits: Limits,
    bars: Mapping[str, Bar],
    options: Options,
) -> Next:
    """Choose files; a partition folder ends before a file that is barred, and the others go on.

    It ends before text that was written a moment ago too: without a footer, half a file
    looks whole.
    """
    partitions: dict[str, dict[int, StoredFile]] = {}
    barred: list[StoredFile] = []
    young: list[StoredFile] = []
    doubled = _bars_of_doubled(opened.listing)
    for partition, files in opened.listing.partitions.items():
        kept = partitions[partition] = {}
        for number, file in files.items():
            bar = doubled.get(file.name) or bars.get(file.name)
            ahead = number > position.get(partition, 0)
            if ahead and bar is not None and bar.etag == file.etag:
                barred.append(file)
                break
            text = opened.is_text(file.name)
            if ahead and text and is_young(file, opened.listed_at, options.settle, opened.watched):
                young.append(file)
                break
            kept[number] = file
    run = next_run(replace(opened.listing, partitions=partitions), position, limits)
    return Next(
        run=run,
        position=position,
        files=run.files,
        barred=barred[0] if barred else None,
        doubled=doubled,
        young=young[0] if young else None,
    )


def _bars_of_doubled(listing: FolderListing) -> dict[str, Bar]:
    """Hold back the files whose numbers others carry too: nobody can say which one is meant."""
    return {
        file.name: Bar(etag=file.etag, reason=str(error), error=type(error).__name__)
        for partition in (listing.partitions.values() if listing.doubled else ())
        for file in partition.values()
        if (error := listing.doubled.get(file.name)) is not None
    }


def bar_before(coming: Next, bars: Mapping[str, Bar]) -> Bar | None:
    """Return why the first barred file is; None when none is."""
    if coming.barred is None:
        return None
    return coming.doubled.get(coming.barred.name) or bars[coming.barred.name]


def is_batch(coming: Next, prepared: Prepared) -> bool:
    """Say whether the opened files make a batch, be it one that ends before a fault."""
    if prepared.fault is not None and coming.replaces:
        return False
    return bool(prepared.landed and prepared.growth.columns)


def idle_state(
    coming: Next, bars: Mapping[str, Bar], options: Options
) -> tuple[State, str, str | None]:
    """Say why there is nothing to apply: the state, the reason and the file that it is about."""
    bar = bar_before(coming, bars)
    if coming.barred is not None and bar is not None:
        return "failed", bar.reason, coming.barred.name
    if coming.young is not None:
        name = coming.young.name
        reason = f"{name} was written less than {options.settle:g} s ago, and may still be an upload under way."
        return "behind", f"{reason} The next run takes it.", name
    if coming.run.gap is not None:
        return "blocked", str(coming.run.gap), coming.run.gap.awaited
    return "current", "", None

"""Open the next batch of a table: which files it takes, what they hold, and what holds the others back.

In: a folder's listing, where the table stands, the files that are barred. Out: `Next`. `apply` and `plan` go by
it alike, so that what the one says is what the other does. A file stands in the way of those behind it in its
partition folder; the other folders go on. What a publisher may not have meant is told, and stops nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from mirrorlib.delta.columns import Columns, find_column, find_key_column, needs_mapping
from mirrorlib.errors import MirrorError, first_few
from mirrorlib.events import STOPPED
from mirrorlib.identifiers import by_name
from mirrorlib.ingest.batch.foreign_writes import Standing
from mirrorlib.ingest.batch.open_batch import Prepared, prepare_files
from mirrorlib.ingest.batch.outcome import cause_of
from mirrorlib.ingest.files.continued_life import rebuilt_position, refuse_replaced
from mirrorlib.ingest.files.plan import (
    Files,
    first_position,
    is_young,
    next_run,
    position_after,
    within,
)
from mirrorlib.ingest.files.table_folder import OpenedFolder
from mirrorlib.ingest.lifecycle import tell_left_out, tell_lost
from mirrorlib.ingest.report import State
from mirrorlib.ingest.rows.marks import count_updates
from mirrorlib.ingest.rows.partial import check_list_column
from mirrorlib.ingest.rows.read import Landed
from mirrorlib.ingest.rows.rescue import RESCUED_COLUMN
from mirrorlib.ingest.work import Work
from mirrorlib.journal.entries import Entry, Policies, every_cause
from mirrorlib.landing.columns import UPDATE, UPSERT
from mirrorlib.names import WHOLE_FOLDER, partition_of, sequence_name
from mirrorlib.store import StoredFile

UNTYPED = "No published file has a column with a type yet."
_UNTYPED_COLUMN = "The {column} has no type in any published file yet; the table waits."
_GONE = (
    "{file} is not in the landing zone. Bring it back, or publish a snapshot of the source as file N, and begin with "
    "that: mirrorlib {how}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Next:
    """What comes next for a table: files to apply, and what stands before those that are not among them."""

    position: Mapping[str, int] = field(default_factory=dict)  # what they follow on
    files: Files = ()  # consecutive files that are visible and not held back, by their numbers
    # The batch that they make, opened; None where nothing can be applied now.
    prepared: Prepared | None = None
    # What the table is in once they are applied, or now, where nothing can be.
    state: State = "current"
    # Why it is not current; *file* is what it is about, *error* the class of what is wrong with that.
    reason: str = ""
    file: str | None = None
    error: str | None = None
    young: StoredFile | None = None  # the first file that may still be an upload under way
    seconds: Mapping[str, float] = field(default_factory=dict)  # that this took, by step


def bars_of(entry: Entry | None, keys: tuple[str, ...]) -> dict[str, Mapping[str, str]]:
    """Hold back the files that voided earlier plans and still lie ahead, each by its cause; none under other *keys*."""
    if entry is not None and entry.plan.policies.keys != keys:
        return {}  # of a snapshot, they may have been the fault
    # A file that was replaced is read as it is then.
    return {cause["file"]: cause for cause in _causes(entry) if cause.get("etag")}


def open_next(
    work: Work,
    entry: Entry | None,
    standing: Standing,
    opened: OpenedFolder,
    position: Mapping[str, int],
    bars: dict[str, Mapping[str, str]],
    warn: Callable[..., None],
) -> Next:
    """Open the next batch; files that cannot be applied are added to *bars*, and what is before them is taken.

    A new life replaces the table in one commit, so that nobody reads it half: it takes everything
    that is visible, and nothing as long as something stands in the way. A rebuild takes what was applied before.
    What a publisher may not have meant *warn* is told. Raises as `_check_batch` does.
    """
    options = work.options
    anew = len(work.lives) > 1 and not position
    goal = rebuilt_position(work.journal, work.lives) if anew else None
    replaces = goal is not None or (anew and standing.version is not None)
    suspects = {cause["file"] for cause in _causes(entry)}
    if not position:
        position = first_position(opened.listing, work.life.start_at)
        warn(*(tell_left_out(work, opened, position) if goal is None else ()))
    warn(*(tell_lost(work, opened) if replaces and goal is None else ()))
    clock: dict[str, float] = {}
    while True:
        coming = choose_files(opened, position, bars, options.settle)
        coming, every = _up_to(goal, coming, work.allow(coming.files), opened)
        files = every if anew else within(every, options.max_files, options.max_bytes)
        # A young file is like one that has not been published yet; a rebuild lacks it.
        bad = coming.state in STOPPED if goal is None else coming.state != "current"
        if not coming.files or (bad and replaces):
            return coming
        known = work.approved
        if not files and known is not None and known.state in STOPPED:  # as the plan has said
            return replace(coming, state=known.state, reason=known.reason, file=known.file)
        if work.stop() or not files:
            count = len(coming.files)
            waiting = "1 file waits" if count == 1 else f"{count:,} files wait"
            reason = f"{waiting} for the next run."
            return replace(coming, state="behind", reason=reason, file=None, error=None)
        with work.step("read", clock, files=len(files), waits=len(every)):
            files, prepared, untyped = _prepare(
                work, standing, files, every, suspects, divisible=not replaces
            )
        warn(*warnings_of(prepared, work.source.policies))
        if prepared.fault is not None:
            file = files[len(prepared.landed)][1]
            bars[file.name] = cause_of(file, prepared.fault)
            if untyped or replaces or not prepared.landed:
                continue
        if not untyped:
            _check_batch(work, prepared, replaces=replaces, rebuilds=goal is not None)
            taken = files[: len(prepared.landed)]
            return replace(coming, files=taken, prepared=prepared, seconds=clock)
        if coming.state == "failed":
            return coming
        name = files[0][1].name
        return replace(coming, state="waiting", reason=untyped, file=name)


def _up_to(
    goal: Mapping[str, int] | None, coming: Next, every: Files, opened: OpenedFolder
) -> tuple[Next, Files]:
    """Take no file behind the *goal* of a rebuild, nor what stands in its way; a goal that is not reached does."""
    if goal is None:
        return coming, every
    every = tuple(one for one in every if one[0] <= goal.get(partition_of(one[1].name), 0))
    # A folder that a --start-at has passed over has no file that was applied.
    if goal.items() <= position_after(coming.position, every, by_time=False).items():
        return replace(coming, state="current", reason="", file=None, error=None), every
    if coming.state in {"current", "blocked"}:  # no file, as status would tell it as a missing one
        kind = opened.metadata.extensions[0] if opened.metadata else "parquet"
        shown = opened.listing.partitions
        missing = (
            f"{partition}/{sequence_name(number, kind)}".removeprefix("/")
            for partition, last in goal.items()
            for number in range(coming.position.get(partition, 0) + 1, last + 1)
            if number not in shown.get(partition, {})
        )
        how = "rebuild TARGET TABLE --start-at N"  # which partition folders do not take
        how = how if goal.keys() <= {WHOLE_FOLDER} else "reset TARGET TABLE --start-at N"
        reason = _GONE.format(file=next(missing, "A file that was applied"), how=how)
        coming = replace(coming, state="blocked", reason=reason, file=None)
    return coming, every


def choose_files(
    opened: OpenedFolder,
    position: Mapping[str, int],
    bars: Mapping[str, Mapping[str, str]],
    settle: float,
) -> Next:
    """Choose all files that may be applied; a partition folder ends before a file that is barred.

    It ends before text that was written less than *settle* seconds ago too: without a footer, half a file looks
    whole. And before a file whose number others carry too: nobody can say which one is meant.
    """
    partitions: dict[str, dict[int, StoredFile]] = {}
    barred: list[Mapping[str, str]] = []
    young: list[StoredFile] = []
    for partition, files in opened.listing.partitions.items():
        kept = partitions[partition] = {}
        for number, file in files.items():
            ahead = number > position.get(partition, 0)
            doubled = opened.listing.doubled.get(file.name)
            bar = bars.get(file.name) if doubled is None else cause_of(file, doubled)
            if ahead and bar is not None and bar["etag"] == file.etag:
                barred.append(bar)
                break
            text = opened.is_text(file.name)
            if ahead and text and is_young(file, opened.listed_at, settle, opened.watched):
                young.append(file)
                break
            kept[number] = file
    run = next_run(replace(opened.listing, partitions=partitions), position)
    coming = Next(position=position, files=run.files, young=young[0] if young else None)
    if barred:
        name, reason, error = (barred[0][part] for part in ("file", "reason", "error"))
        return replace(coming, state="failed", reason=reason, file=name, error=error)
    if run.gap:
        return replace(coming, state="blocked", reason=run.gap, file=run.awaited)
    if young:
        name = young[0].name
        reason = (
            f"{name} was written less than {settle:g} s ago: it may still be an upload under way."
        )
        return replace(coming, state="behind", reason=f"{reason} The next run takes it.", file=name)
    return coming


def _check_batch(work: Work, prepared: Prepared, *, replaces: bool, rebuilds: bool) -> None:
    """See that a table is not replaced by nothing, where nobody has said that it may; nor rebuilt from other files.

    And that its updates can say what they set; a rebuild has taken them as they are.
    """
    if rebuilds:
        landed = {one.file.name: one.fingerprint for one in prepared.landed}
        refuse_replaced(work.journal, work.lives, landed, work.table)
        return
    check_list_column(work.source, prepared.landed, prepared.growth.columns)
    rows = prepared.newest.rows if work.options.snapshots else prepared.rows
    if replaces and rows == 0 and not work.options.allow_empty:
        msg = "the first batch of the new life holds no rows, and would empty the table"
        step = "Publish its rows, or accept an empty table with --allow-empty."
        raise MirrorError(msg, table=work.table, file=prepared.landed[0].file.name, next_step=step)


def _causes(entry: Entry | None) -> tuple[Mapping[str, str], ...]:
    """Return what voided earlier plans and still lies ahead: file, etag and reason of each, the newest first."""
    return every_cause(entry.done.cause if entry and entry.done else None)


def _prepare(
    work: Work,
    standing: Standing,
    files: Files,
    every: Files,
    suspects: Collection[str],
    *,
    divisible: bool,
) -> tuple[Files, Prepared, str]:
    """Open the next files, and more than the limits allow while these leave a type open; return those too.

    And what is left open even so, as `_untyped_part` says it.
    """
    while True:
        prepared = prepare_files(
            work.source,
            [file for _, file in files],
            standing.columns,
            rewritable=standing.bytes <= work.options.rewrite_limit,
            suspects=suspects,
            divisible=divisible,
        )
        untyped = _untyped_part(work, prepared)
        if prepared.fault is not None or not untyped or len(prepared.landed) == len(every):
            return files, prepared, untyped
        # Twice as many: to open all again for each one more would take time by their square.
        files, divisible = every[: 2 * len(files)], False


def _untyped_part(work: Work, prepared: Prepared) -> str:
    """Say what a table cannot be without and no file has a type for, "" when there is nothing (Q10, Q11)."""
    columns, policies = prepared.growth.columns, work.source.policies
    if not columns:
        return UNTYPED
    keys = policies.keys if prepared.rows else ()
    untyped = [f"key column {key}" for key in keys if find_key_column(columns, key) is None]
    decides, updates = policies.conditional, count_updates(prepared.counts, policies)
    # Without its column, each update would count.
    if decides and updates and not find_column(columns, decides):
        untyped.append(f"ConditionalUpdateColumn {decides}")
    return _UNTYPED_COLUMN.format(column=untyped[0]) if untyped else ""


def warnings_of(prepared: Prepared, policies: Policies) -> tuple[str, ...]:
    """Look at the key columns that a batch has, as *policies* name them, and at the columns of its updates."""
    growth, found = prepared.growth, []
    # Blanks around them are told of the metadata.
    for key in policies.keys if prepared.landed else ():
        column = prepared.landed[0].schema.key(key)
        if column is not None and column.name.strip() != key.strip():
            repaired = f"the key column {key.strip()!r} is {column.name!r} in the files"
            found.append(f"_metadata.json was repaired: {repaired}")
    nulls = {one.file.name: one.null_keys for one in prepared.landed if one.null_keys}
    if nulls:
        shown = f"{first_few(nulls)} ({len(nulls):,} in all)"
        found.append(
            f"{sum(nulls.values()):,} NULL key values; NULL is a key like any other here: {shown}"
        )
    for landed in prepared.landed:
        found += _warnings_of_file(landed, growth.columns, policies)
    new = [column.name for column in growth.added]
    kept = {column.name for column in growth.columns} - {*new}
    mapped = [] if any(map(needs_mapping, kept)) else list(filter(needs_mapping, new))
    if mapped and (kept or policies.readers == "plain"):  # of a new table, only plain readers ask
        found.append(
            f"column mapping is turned on for {first_few(mapped)}; readers without it cannot read the table then"
        )
    return tuple(dict.fromkeys(found))


def _warnings_of_file(landed: Landed, columns: Columns, policies: Policies) -> Iterator[str]:
    if landed.schema.undeclared:
        undeclared = first_few(landed.schema.undeclared)
        yield f"columns that SchemaDefinition does not declare are strings: {undeclared}"
    here, its = by_name(columns), by_name(landed.schema.columns)
    extra = [c.name for n, c in its.items() if n not in here and not pa.types.is_null(c.type)]
    if extra:
        what = "are rescued" if RESCUED_COLUMN.name in here else "are left out"
        yield f"columns that the table lacks {what}: {first_few(extra)}"
    missing = [column.name for name, column in here.items() if name not in its]
    if missing and landed.counts[UPDATE] + landed.counts[UPSERT] and policies.partial is None:
        lacking = "updates lack columns of the table, which become NULL in the updated rows"
        yield f"{lacking}: {first_few(missing)}"

"""Advance one table: batch after batch until nothing is left to apply or something stands in the way.

In: a `Work` and options. Out: a `TableReport`. The loop is: list, prepare, plan, carry out; every
round starts from the journal.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mirrorlib.apply.columns import find_column
from mirrorlib.apply.guard import stand
from mirrorlib.apply.journal import Entry, Plan, PlannedFile, new_attempt
from mirrorlib.apply.onboard import open_folder, told_changed
from mirrorlib.apply.plan import Limits, changed_files, is_young, next_run, position_after
from mirrorlib.apply.prepare import Prepared, prepare_files
from mirrorlib.apply.protocol import carry_out
from mirrorlib.apply.read import count_rows
from mirrorlib.apply.warn import warnings_of
from mirrorlib.errors import JournalError, MirrorError, SchemaError
from mirrorlib.landing.metadata import DETECTION_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mirrorlib.apply.guard import Standing
    from mirrorlib.apply.history import History
    from mirrorlib.apply.onboard import Folder
    from mirrorlib.apply.options import Options
    from mirrorlib.apply.plan import Run
    from mirrorlib.apply.report import State, TableReport
    from mirrorlib.apply.tally import Tally
    from mirrorlib.apply.work import Work
    from mirrorlib.landing.listing import TableFolder
    from mirrorlib.store import StoredFile


UNTYPED = "No published file has a column with a type yet."


@dataclass(frozen=True, slots=True, kw_only=True)
class Next:
    """What comes next for a table: files to apply, and what stands before those that are not among them.

    Attributes:
        run: the consecutive files that are visible and not held back.
        position: what they follow on.
        files: those of them to apply.
        barred: the first file that holds its partition folder back.
        young: the first file that may still be an upload under way.
        replaces: they replace a table that is there.

    """

    run: Run
    position: Mapping[str, int]
    files: tuple[tuple[int, StoredFile], ...]
    barred: StoredFile | None = None
    young: StoredFile | None = None
    replaces: bool = False


def advance_table(
    work: Work,
    folder: TableFolder,
    opened: Folder,
    history: History,
    options: Options,
    tally: Tally,
    stop: Callable[[], bool],
) -> TableReport:
    """Apply what the folder shows, as far as it goes.

    Raises:
        MirrorError: the table cannot go on; what was applied before stays, and *tally* knows it.

    """
    clock: dict[str, float] = {}
    entry = tally.entry = work.journal.newest(work.life)
    if entry is not None and entry.done is None:
        check_zone(work, options, entry)  # else another zone's files would void its plan
        entry = tally.entry = _end_plan(work, tally, entry.plan, None, clock, 0)
        opened = open_folder(work.source.zone, folder, history)
    check_zone(work, options, entry)
    check_keys(work, entry)
    check_detection(work, entry)
    tally.warn(*_changed(work, opened, entry))
    bars: dict[str, Bar] = {} if options.retry else bars_of(entry)
    while True:
        clock = {}
        standing = stand(work, entry)
        coming = coming_files(work, standing, opened, position_of(entry), bars, options)
        if not coming.files:
            return _end_idle(tally, coming, bars, options)
        if stop():
            return tally.end("behind", f"{coming.run.unapplied} files wait; the run was stopped.")
        with work.step("read", clock, files=len(coming.files)):
            prepared = prepare_typed(work, entry, standing, opened, coming, bars, options)
        tally.warn(*warnings_of(prepared))
        if prepared.fault is not None:
            bars |= bar_of(coming, prepared, prepared.fault)
            if not is_batch(coming, prepared):
                continue
        if not prepared.growth.columns:
            return tally.end("waiting", UNTYPED, file=coming.files[0][1].name)
        _check_emptiness(work, entry, prepared, options)
        plan = _write_plan(work, entry, standing, prepared, opened.listed_at, clock)
        mine = plan.files == _planned_files(prepared) and plan.policies == work.source.policies
        entry = tally.entry = _end_plan(
            work, tally, plan, prepared if mine else None, clock, standing.bytes
        )
        if entry.done is not None and entry.done.outcome == "void":
            bars |= bars_of(entry)
        opened = open_folder(work.source.zone, folder, history)
        if work.source.policies.by_time:
            history.compact()


def bar_of(coming: Next, prepared: Prepared, fault: MirrorError) -> dict[str, Bar]:
    """Hold back the file at which the opening of files has stopped."""
    file = coming.files[len(prepared.landed)][1]
    return {file.name: Bar(etag=file.etag, reason=str(fault), error=type(fault).__name__)}


def _end_idle(tally: Tally, coming: Next, bars: Mapping[str, Bar], options: Options) -> TableReport:
    state, reason, file = idle_state(coming, bars, options)
    error = bars[coming.barred.name].error if coming.barred else None
    return tally.end(state, reason, file=file, error=error)


def _changed(work: Work, opened: Folder, entry: Entry | None) -> list[str]:
    """Tell which numbered files are no longer what was applied."""
    if entry is None or not entry.position or entry.plan.zone != work.source.zone.url:
        return []
    changed = changed_files(opened.listing, entry.plan, entry.position)
    return [told_changed(name) for name in changed]


def position_of(entry: Entry | None) -> Mapping[str, int]:
    """Return the last applied number per partition folder; empty while there is none."""
    return entry.position if entry else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """Why a file stands in the way of its partition folder until it changes.

    Attributes:
        etag: the content that it is about; None for any.
        reason: for people.
        error: the class of the error.

    """

    etag: str | None
    reason: str
    error: str


def cause_of(entry: Entry | None) -> Mapping[str, str]:
    """Return what voided an earlier plan and still lies ahead: file, etag and reason; empty when nothing did."""
    return (entry.done.cause if entry and entry.done else None) or {}


def bars_of(entry: Entry | None) -> dict[str, Bar]:
    """Hold back the file that voided an earlier plan and still lies ahead, if there is one."""
    cause = cause_of(entry)
    if not cause.get("etag"):  # a file that was replaced is read as it is then
        return {}
    bar = Bar(etag=cause["etag"], reason=cause["reason"], error=cause["error"])
    return {cause["file"]: bar}


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
    limits = Limits() if anew else options.limits
    coming = next_files(opened, position, limits, bars, options)
    if not anew or standing.version is None:
        return coming
    whole = coming.barred is None and coming.young is None and coming.run.gap is None
    return replace(coming, files=coming.files if whole else (), replaces=True)


def is_batch(coming: Next, prepared: Prepared) -> bool:
    """Say whether the opened files make a batch, be it one that ends before a fault."""
    if prepared.fault is not None and coming.replaces:
        return False
    return bool(prepared.landed and prepared.growth.columns)


def next_files(
    opened: Folder,
    position: Mapping[str, int],
    limits: Limits,
    bars: Mapping[str, Bar],
    options: Options,
) -> Next:
    """Choose files; a partition folder ends before a file that is barred, and the others go on.

    It ends before delimited text that was written a moment ago too: without a footer, half a file
    looks whole.
    """
    lanes: dict[str, dict[int, StoredFile]] = {}
    barred: list[StoredFile] = []
    young: list[StoredFile] = []
    for lane, files in opened.listing.lanes.items():
        kept = lanes[lane] = {}
        for number, file in files.items():
            bar = bars.get(file.name)
            ahead = number > position.get(lane, 0)
            if ahead and bar is not None and bar.etag in (None, file.etag):
                barred.append(file)
                break
            text = opened.dialect is not None
            if ahead and text and is_young(file, opened.listed_at, options.settle):
                young.append(file)
                break
            kept[number] = file
    run = next_run(replace(opened.listing, lanes=lanes), position, limits)
    return Next(
        run=run,
        position=position,
        files=run.files,
        barred=barred[0] if barred else None,
        young=young[0] if young else None,
    )


def prepare_next(
    work: Work, entry: Entry | None, standing: Standing, coming: Next, options: Options
) -> Prepared:
    """Open the next files and see that the table can have the columns that they need.

    Raises:
        SchemaError: no file has the key columns.

    """
    prepared = prepare_files(
        work.source,
        coming.files,
        standing.columns,
        rewritable=standing.bytes <= options.rewrite_limit,
        suspect=cause_of(entry).get("file"),
    )
    untyped = [
        key
        for key in work.source.policies.keys
        if find_column(prepared.growth.columns, key) is None
    ]
    if prepared.rows and untyped:
        msg = "a key column has no type in any file yet"
        file = prepared.landed[0].file.name
        raise SchemaError(
            msg,
            table=work.table,
            file=file,
            column=untyped[0],
            next_step="Publish it with a type, under the same name.",
        )
    return prepared


def prepare_typed(
    work: Work,
    entry: Entry | None,
    standing: Standing,
    opened: Folder,
    coming: Next,
    bars: Mapping[str, Bar],
    options: Options,
) -> Prepared:
    """Open the next files, and more of them while none has a column with a type (Q11)."""
    prepared = prepare_next(work, entry, standing, coming, options)
    every = next_files(opened, coming.position, Limits(), bars, options).files
    for count in range(len(coming.files) + 1, len(every) + 1):
        if prepared.growth.columns or prepared.fault is not None:
            break
        more = replace(coming, files=every[:count])
        prepared = prepare_next(work, entry, standing, more, options)
    return prepared


def idle_state(
    coming: Next, bars: Mapping[str, Bar], options: Options
) -> tuple[State, str, str | None]:
    """Say why there is nothing to apply: the state, the reason and the file that it is about."""
    if coming.barred is not None:
        return "failed", bars[coming.barred.name].reason, coming.barred.name
    if coming.young is not None:
        name = coming.young.name
        reason = f"{name} was written less than {options.settle:g} s ago, and may still be an upload under way."
        return "behind", f"{reason} The next run takes it.", name
    if coming.run.gap is not None:
        return "blocked", str(coming.run.gap), coming.run.gap.awaited
    return "current", "", None


def _write_plan(
    work: Work,
    entry: Entry | None,
    standing: Standing,
    prepared: Prepared,
    listed_at: str,
    clock: dict[str, float],
) -> Plan:
    before = dict(position_of(entry))
    landed = [(one.number, one.file.name) for one in prepared.landed]
    plan = Plan(
        life=work.life.uuid,
        batch=entry.plan.batch + 1 if entry else 1,
        attempt=new_attempt(),
        zone=work.source.zone.url,
        files=_planned_files(prepared),
        before=before,
        after=position_after(before, landed, by_time=work.source.policies.by_time),
        policies=work.source.policies,
        table_version=standing.version,
        previous=_outcome(entry, standing),
        listed_at=listed_at,
    )
    with work.step("plan", clock, plan, len(plan.files), plan.rows):
        return work.journal.write_plan(work.life, plan)


def _planned_files(prepared: Prepared) -> tuple[PlannedFile, ...]:
    return tuple(
        PlannedFile(
            name=one.file.name,
            size=one.file.size,
            etag=one.file.etag,
            rows=one.schema.rows,
            modified=one.file.modified.isoformat(timespec="microseconds"),
        )
        for one in prepared.landed
    )


def _outcome(entry: Entry | None, standing: Standing) -> Mapping[str, object] | None:
    if entry is None or entry.done is None:
        return None
    done = entry.done
    table_id = standing.table_id or done.table_id
    return {
        "batch": entry.plan.batch,
        "outcome": done.outcome,
        "version": done.version,
        "table_id": table_id,
        "cause": done.cause,
    }


def _end_plan(
    work: Work,
    tally: Tally,
    plan: Plan,
    prepared: Prepared | None,
    clock: dict[str, float],
    table_bytes: int,
) -> Entry:
    done = carry_out(work, plan, prepared, clock, table_bytes)
    tally.add(plan, done)
    return Entry(plan=plan, done=done)


def _check_emptiness(work: Work, entry: Entry | None, prepared: Prepared, options: Options) -> None:
    replaces = len(work.lives) > 1 and not (entry and entry.position)
    if replaces and prepared.rows == 0 and not options.allow_empty:
        msg = "the first batch of the new life holds no rows, and would empty the table"
        step = "Publish its rows, or accept an empty table with --allow-empty."
        raise MirrorError(msg, table=work.table, file=prepared.landed[0].file.name, next_step=step)


def check_keys(work: Work, entry: Entry | None) -> None:
    """Keys cannot change once declared; they may be declared later (landing-zone format, keyColumns)."""
    if entry is None or not entry.position:
        return
    old = tuple(key.lower() for key in entry.plan.policies.keys)
    new = tuple(key.lower() for key in work.source.policies.keys)
    if old and old != new:
        msg = "the key columns changed, and the rows already there were applied by the old ones"
        found = f"{', '.join(new) or 'none'} instead of {', '.join(old)}"
        step = f"Put the old keyColumns back, or start the table over: mirrorlib reset TARGET {work.table}"
        raise JournalError(
            msg, table=work.table, file="_metadata.json", found=found, next_step=step
        )


def check_detection(work: Work, entry: Entry | None) -> None:
    """A position in numbers means nothing among times, nor the reverse."""
    if entry is None or not entry.position:
        return
    old, new = entry.plan.policies.detection, work.source.policies.detection
    if old != new:
        msg = "fileDetectionStrategy changed, and what was applied is known by the old one"
        step = f"Put the old one back, or start the table over: mirrorlib reset TARGET {work.table}"
        found = f"{DETECTION_NAMES[new]} instead of {DETECTION_NAMES[old]}"
        raise JournalError(
            msg, table=work.table, file="_metadata.json", found=found, next_step=step
        )


def check_zone(work: Work, options: Options, entry: Entry | None) -> None:
    """Take another zone than recorded only if it proves to be the same one, or is said to be."""
    zone = work.source.zone
    if entry is None or not entry.position or entry.plan.zone in (zone.url, options.moved_from):
        return
    newest = entry.plan.files[-1]
    stored = zone.stat(f"{work.source.folder}/{newest.name}")
    voided = entry.done is not None and entry.done.outcome == "void"
    same_size = not voided and stored is not None and stored.size == newest.size
    if stored is not None and same_size and count_rows(work.source, stored) == newest.rows:
        return
    msg = "the table was filled from another landing zone"
    step = f"Use that zone, or say that this is the same one, moved: --moved-from {entry.plan.zone}"
    raise JournalError(
        msg, table=work.table, found=f"{zone.url} instead of {entry.plan.zone}", next_step=step
    )

"""Advance one table: batch after batch until nothing is left to apply or something stands in the way.

In: a `Work` and options. Out: a `TableReport`. The loop is: list, prepare, plan, carry out; every
round starts from the journal.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mirrorlib.delta.columns import find_key_column
from mirrorlib.delta.key_property import CLAIMED
from mirrorlib.errors import MirrorError
from mirrorlib.ingest.batch.foreign_writes import stand
from mirrorlib.ingest.batch.open_batch import Prepared, prepare_files
from mirrorlib.ingest.batch.protocol import carry_out
from mirrorlib.ingest.files.changed_source import check_doubt
from mirrorlib.ingest.files.kept import newest_entry
from mirrorlib.ingest.files.next_batch import (
    UNTYPED,
    UNTYPED_KEY,
    Bar,
    bar_before,
    bar_of,
    bars_of,
    bars_of_void,
    causes_of,
    coming_files,
    idle_state,
    is_batch,
    next_files,
    position_of,
)
from mirrorlib.ingest.files.plan import Limits, Watched, position_after, seen_until
from mirrorlib.ingest.files.source_identity import (
    began_again,
    changed_since,
    check_detection,
    check_keys,
    check_zone,
    goes_on,
    proof_of,
    refuse_changed,
)
from mirrorlib.ingest.files.table_folder import open_folder, told_changed, told_emptied
from mirrorlib.ingest.readers import heed_readers
from mirrorlib.ingest.warn import warnings_of
from mirrorlib.journal.entries import Entry, Plan, PlannedFile, new_attempt

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from mirrorlib.ingest.batch.foreign_writes import Standing
    from mirrorlib.ingest.files.history import History
    from mirrorlib.ingest.files.incremental_listing import Look
    from mirrorlib.ingest.files.next_batch import Next
    from mirrorlib.ingest.files.table_folder import Folder
    from mirrorlib.ingest.options import Options
    from mirrorlib.ingest.progress import Tally
    from mirrorlib.ingest.report import TableReport
    from mirrorlib.ingest.work import Work
    from mirrorlib.landing.listing import TableFolder
    from mirrorlib.store import StoredFile

CHANGED = "_metadata.json has changed while the table was applied. The next run goes by it."


def advance_table(
    work: Work,
    folder: TableFolder,
    opened: Folder,
    history: History,
    look: Look,
    options: Options,
    tally: Tally,
    stop: Callable[[], bool],
) -> TableReport:
    """Apply what the folder shows, as far as it goes.

    Raises:
        MirrorError: the table cannot go on; what was applied before stays, and *tally* knows it.

    """
    clock: dict[str, float] = {}
    entry = tally.entry = newest_entry(work.journal, work.lives, opened.metadata)
    pending = entry is not None and entry.done is None
    if entry is not None and pending:
        # Else another zone's files would void its plan.
        tally.warn(*check_zone(work, folder, history, options, entry, tally.proven))
        entry = tally.entry = _end_plan(work, tally, entry.plan, None, clock, 0)
    check_doubt(work.table, entry)
    if pending or work.source.policies.by_time:
        # What was listed before the journal was read may be applied by now.
        opened = open_folder(
            work.source.zone, folder, history, look=None if pending else look, options=options
        )
        if not goes_on(work, opened, options):
            return tally.end("behind", CHANGED)
    tally.warn(*check_zone(work, folder, history, options, entry, tally.proven))
    if history.moves():
        history.keep_move()
    tally.proven = proof_of(work, entry)
    check_keys(work, entry)
    check_detection(work, opened, entry)
    return _apply_batches(work, folder, opened, history, look, options, tally, stop)


def _apply_batches(
    work: Work,
    folder: TableFolder,
    opened: Folder,
    history: History,
    look: Look,
    options: Options,
    tally: Tally,
    stop: Callable[[], bool],
) -> TableReport:
    """Apply batch after batch, from where the table stands."""
    entry = tally.entry
    bars: dict[str, Bar] = {} if options.retry else bars_of(entry)
    while True:
        clock: dict[str, float] = {}
        stopped = _see_changes(work, opened, look, options, tally)
        if stopped is not None:
            return stopped
        standing = stand(work, entry, tally.verified)
        tally.verified = standing.verified
        work = heed_readers(work, standing, options.readers)
        coming = coming_files(work, standing, opened, position_of(entry), bars, options)
        if not coming.files:
            return _end_idle(tally, opened, coming, bars, options)
        if stop():
            return tally.end("behind", f"{coming.run.unapplied} files wait; the run was stopped.")
        with work.step("read", clock, files=len(coming.files)):
            coming, prepared = prepare_typed(work, entry, standing, opened, coming, bars, options)
        tally.warn(*warnings_of(prepared, work.source.policies))
        untyped = untyped_part(work, prepared)
        if prepared.fault is not None:
            bars |= bar_of(coming, prepared, prepared.fault)
            if untyped or not is_batch(coming, prepared):
                continue
        if untyped:
            if coming.barred is not None:
                return _end_idle(tally, opened, coming, bars, options)
            return tally.end("waiting", untyped, file=coming.files[0][1].name)
        check_emptiness(work, prepared, options, replaces=coming.replaces)
        plan = _write_plan(work, entry, standing, coming, prepared, opened, clock)
        mine = plan.files == _planned_files(prepared) and plan.policies == work.source.policies
        entry = tally.entry = _end_plan(
            work, tally, plan, prepared if mine else None, clock, standing.bytes
        )
        check_doubt(work.table, entry)
        bars |= bars_of_void(entry)
        if work.source.policies.by_time:
            history.compact()
        opened = open_folder(work.source.zone, folder, history, look=look, options=options)


def _see_changes(
    work: Work, opened: Folder, look: Look, options: Options, tally: Tally
) -> TableReport | None:
    """Look in a listing for what the format forbids; end where nobody can tell any more what the next files mean.

    Every listing is looked at before the next plan: from then on, what it has shown counts as known.
    """
    if not goes_on(work, opened, options):
        return tally.end("behind", CHANGED)
    changed = changed_since(work, opened, tally.entry)
    told = [told_changed(name) for name in changed]
    tally.warn(*told)
    look.keep(*told)
    evidence = began_again(work, opened, tally.entry, changed)
    if evidence:
        return tally.end("blocked", evidence)
    refuse_changed(work, tally.entry, changed)
    return None


def _end_idle(
    tally: Tally, opened: Folder, coming: Next, bars: Mapping[str, Bar], options: Options
) -> TableReport:
    state, reason, file = idle_state(coming, bars, options)
    bar = bar_before(coming, bars)
    tally.watched = _watch(opened, coming.young)
    if state == "current" and opened.emptied:
        tally.emptied = tally.emptied or opened.listed_at
        reason = told_emptied(tally.emptied)
    else:
        tally.emptied = None
    return tally.end(state, reason, file=file, error=bar.error if bar else None)


def _watch(opened: Folder, young: StoredFile | None) -> Watched | None:
    """Remember since when a young file has been as it is."""
    if young is None:
        return None
    watched = opened.watched
    if watched is not None and (watched.file, watched.etag) == (young.name, young.etag):
        return watched
    return Watched(file=young.name, etag=young.etag, seen_at=opened.listed_at)


def prepare_next(
    work: Work,
    entry: Entry | None,
    standing: Standing,
    coming: Next,
    options: Options,
    *,
    divisible: bool,
) -> Prepared:
    """Open the next files, and see how the columns of the table have to change for them."""
    return prepare_files(
        work.source,
        [file for _, file in coming.files],
        standing.columns,
        rewritable=standing.bytes <= options.rewrite_limit,
        suspects={cause["file"] for cause in causes_of(entry)},
        divisible=divisible,
    )


def untyped_part(work: Work, prepared: Prepared) -> str:
    """Say what a table cannot be without and no file has a type for, "" when there is nothing (Q10, Q11)."""
    columns = prepared.growth.columns
    if not columns:
        return UNTYPED
    keys = work.source.policies.keys if prepared.rows else ()
    untyped = next((key for key in keys if find_key_column(columns, key) is None), None)
    return "" if untyped is None else UNTYPED_KEY.format(key=untyped)


def prepare_typed(
    work: Work,
    entry: Entry | None,
    standing: Standing,
    opened: Folder,
    coming: Next,
    bars: Mapping[str, Bar],
    options: Options,
) -> tuple[Next, Prepared]:
    """Open the next files, and more than the limits allow while these leave a type open; return those too."""
    divisible = not coming.replaces
    prepared = prepare_next(work, entry, standing, coming, options, divisible=divisible)
    every = next_files(opened, coming.position, Limits(), bars, options).files
    for count in range(len(prepared.landed) + 1, len(every) + 1):
        if prepared.fault is not None or not untyped_part(work, prepared):
            break
        coming = replace(coming, files=every[:count])
        prepared = prepare_next(work, entry, standing, coming, options, divisible=False)
    return coming, prepared


def _write_plan(
    work: Work,
    entry: Entry | None,
    standing: Standing,
    coming: Next,
    prepared: Prepared,
    opened: Folder,
    clock: dict[str, float],
) -> Plan:
    before = dict(position_of(entry))
    known = _moment(seen_until(entry.plan)) if entry else ""
    taken = coming.files[: len(prepared.landed)]
    plan = Plan(
        life=work.life.uuid,
        batch=entry.plan.batch + 1 if entry else 1,
        attempt=new_attempt(),
        zone=work.source.zone.url,
        files=_planned_files(prepared),
        before=before,
        after=position_after(coming.position, taken, by_time=work.source.policies.by_time),
        policies=work.source.policies,
        table_version=standing.version,
        previous=_outcome(entry, standing),
        listed_at=opened.listed_at,
        seen_until=known,
        unseen_since=(entry.plan.unseen_since or known) if entry and opened.partial else "",
    )
    with work.step("plan", clock, plan, len(plan.files), plan.rows):
        return work.journal.write_plan(work.life, plan)


def _moment(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds")


def _planned_files(prepared: Prepared) -> tuple[PlannedFile, ...]:
    return tuple(
        PlannedFile(
            name=one.file.name,
            size=one.file.size,
            etag=one.file.etag,
            rows=one.schema.rows,
            modified=_moment(one.file.modified),
            fingerprint=one.fingerprint,
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
        CLAIMED: done.keys,
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


def check_emptiness(work: Work, prepared: Prepared, options: Options, *, replaces: bool) -> None:
    """See that a table is not replaced by nothing.

    Raises:
        MirrorError: it would empty its table, and nobody has said that it may.

    """
    rows = prepared.newest.rows if options.snapshots else prepared.rows
    if replaces and rows == 0 and not options.allow_empty:
        msg = "the first batch of the new life holds no rows, and would empty the table"
        step = "Publish its rows, or accept an empty table with --allow-empty."
        raise MirrorError(msg, table=work.table, file=prepared.landed[0].file.name, next_step=step)

"""Advance one table: batch after batch until nothing is left to apply or something stands in the way.

In: a `Work` and options. Out: a `TableReport`. The loop is: list, prepare, plan, carry out; every
round starts from the journal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.delta.key_property import CLAIMED
from mirrorlib.ingest.ahead import check_emptiness, open_next
from mirrorlib.ingest.batch.evolve_table import heed_readers
from mirrorlib.ingest.batch.foreign_writes import stand
from mirrorlib.ingest.batch.open_batch import Prepared
from mirrorlib.ingest.batch.protocol import carry_out
from mirrorlib.ingest.files.changed_source import check_changed_source
from mirrorlib.ingest.files.kept import newest_entry
from mirrorlib.ingest.files.next_batch import (
    Bar,
    bar_before,
    bars_of,
    bars_of_void,
    idle_state,
    position_of,
)
from mirrorlib.ingest.files.plan import Watched, position_after, seen_until
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
from mirrorlib.ingest.files.table_folder import changed_warning, emptied_since
from mirrorlib.journal.entries import Entry, Plan, PlannedFile, new_attempt

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from mirrorlib.ingest.batch.foreign_writes import Standing
    from mirrorlib.ingest.files.next_batch import Next
    from mirrorlib.ingest.files.table_folder import Folder, FolderView
    from mirrorlib.ingest.options import Options
    from mirrorlib.ingest.progress import Progress
    from mirrorlib.ingest.report import TableReport
    from mirrorlib.ingest.work import Work
    from mirrorlib.store import StoredFile

CHANGED = "_metadata.json has changed while the table was applied. The next run goes by it."


def advance_table(
    work: Work, view: FolderView, opened: Folder, progress: Progress, stop: Callable[[], bool]
) -> TableReport:
    """Apply what the folder shows, as far as it goes.

    Raises:
        MirrorError: the table cannot go on; what was applied before stays, and *progress* knows it.

    """
    clock: dict[str, float] = {}
    entry = progress.entry = newest_entry(work.journal, work.lives, opened.metadata)
    pending = entry is not None and entry.done is None
    if entry is not None and pending:
        # Else another zone's files would void its plan.
        progress.warn(*check_zone(work, view, entry, progress.proven))
        entry = progress.entry = _end_plan(work, progress, entry.plan, None, clock, 0)
    check_changed_source(work.table, entry)
    if pending or work.source.policies.by_time:
        # What was listed before the journal was read may be applied by now.
        opened = view.open(full=pending)
        if not goes_on(work, opened, view.options):
            return progress.end("behind", CHANGED)
    progress.warn(*check_zone(work, view, entry, progress.proven))
    if view.history.moves():
        view.history.keep_move()
    progress.proven = proof_of(work, entry)
    check_keys(work, entry)
    check_detection(work, opened, entry)
    return _apply_batches(work, view, opened, progress, stop)


def _apply_batches(
    work: Work, view: FolderView, opened: Folder, progress: Progress, stop: Callable[[], bool]
) -> TableReport:
    """Apply batch after batch, from where the table stands."""
    entry, options = progress.entry, view.options
    bars: dict[str, Bar] = {} if options.retry else bars_of(entry)
    while True:
        clock: dict[str, float] = {}
        stopped = _see_changes(work, view, opened, progress)
        if stopped is not None:
            return stopped
        standing = stand(work, entry, progress.verified)
        progress.verified = standing.verified
        work = heed_readers(work, standing, options.readers)
        ahead = open_next(
            work, entry, standing, opened, position_of(entry), bars, options, clock, stop
        )
        coming, prepared = ahead.coming, ahead.prepared
        progress.warn(*ahead.warnings)
        if ahead.stopped:
            return progress.end(
                "behind", f"{coming.run.unapplied} files wait; the run was stopped."
            )
        if ahead.untyped:
            return progress.end("waiting", ahead.untyped, file=coming.files[0][1].name)
        if prepared is None:
            return _end_idle(progress, opened, coming, bars, options)
        check_emptiness(work, prepared, options, replaces=coming.replaces)
        plan = _write_plan(work, entry, standing, coming, prepared, opened, clock)
        mine = plan.files == _planned_files(prepared) and plan.policies == work.source.policies
        entry = progress.entry = _end_plan(
            work, progress, plan, prepared if mine else None, clock, standing.bytes
        )
        check_changed_source(work.table, entry)
        bars |= bars_of_void(entry)
        if work.source.policies.by_time:
            view.history.compact()
        opened = view.open()


def _see_changes(
    work: Work, view: FolderView, opened: Folder, progress: Progress
) -> TableReport | None:
    """Look in a listing for what the format forbids; end where nobody can tell any more what the next files mean.

    Every listing is looked at before the next plan: from then on, what it has shown counts as known.
    """
    if not goes_on(work, opened, view.options):
        return progress.end("behind", CHANGED)
    changed = changed_since(work, opened, progress.entry)
    warnings = [changed_warning(name) for name in changed]
    progress.warn(*warnings)
    if view.incremental is not None:
        view.incremental.keep(*warnings)
    evidence = began_again(work, opened, progress.entry, changed)
    if evidence:
        return progress.end("blocked", evidence)
    refuse_changed(work, progress.entry, changed)
    return None


def _end_idle(
    progress: Progress, opened: Folder, coming: Next, bars: Mapping[str, Bar], options: Options
) -> TableReport:
    state, reason, file = idle_state(coming, bars, options)
    bar = bar_before(coming, bars)
    progress.watched = _watch(opened, coming.young)
    if state == "current" and opened.emptied:
        progress.emptied = progress.emptied or opened.listed_at
        reason = emptied_since(progress.emptied)
    else:
        progress.emptied = None
    return progress.end(state, reason, file=file, error=bar.error if bar else None)


def _watch(opened: Folder, young: StoredFile | None) -> Watched | None:
    """Remember since when a young file has been as it is."""
    if young is None:
        return None
    watched = opened.watched
    if watched is not None and (watched.file, watched.etag) == (young.name, young.etag):
        return watched
    return Watched(file=young.name, etag=young.etag, seen_at=opened.listed_at)


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
    progress: Progress,
    plan: Plan,
    prepared: Prepared | None,
    clock: dict[str, float],
    table_bytes: int,
) -> Entry:
    done = carry_out(work, plan, prepared, clock, table_bytes)
    progress.add(plan, done)
    return Entry(plan=plan, done=done)

"""Advance one table: batch after batch until nothing is left to apply or something stands in the way.

In: a `Work` and its folder. Out: a `TableReport`. The loop is: list, open, plan, carry out; every
round starts from the journal.
"""

from __future__ import annotations

from datetime import datetime

from mirrorlib.delta.key_property import CLAIMED
from mirrorlib.ingest.batch.commit import carry_out
from mirrorlib.ingest.batch.evolve_table import heed_readers
from mirrorlib.ingest.batch.foreign_writes import Standing, stand
from mirrorlib.ingest.files.kept import newest_entry
from mirrorlib.ingest.files.plan import Watched, position_after, seen_until
from mirrorlib.ingest.files.source import refuse_doubt
from mirrorlib.ingest.files.source_identity import (
    changed_since,
    check_policies,
    check_zone,
    goes_on,
    judge_changes,
    proof_of,
)
from mirrorlib.ingest.files.table_folder import FolderView, OpenedFolder, emptied_since
from mirrorlib.ingest.next_batch import Next, bars_of, check_emptiness, open_next
from mirrorlib.ingest.progress import Progress
from mirrorlib.ingest.report import TableReport
from mirrorlib.ingest.work import Work
from mirrorlib.journal.entries import Entry, Plan, PlannedFile, new_attempt

CHANGED = "_metadata.json has changed while the table was applied. The next run goes by it."


def advance_table(
    work: Work, view: FolderView, opened: OpenedFolder, progress: Progress
) -> TableReport:
    """Apply what the folder shows, as far as it goes.

    Raises:
        MirrorError: the table cannot go on; what was applied before stays, and *progress* knows it.

    """
    entry = progress.entry = newest_entry(work.journal, work.lives, opened.metadata)
    pending = entry is not None and entry.done is None
    if entry is not None and pending:
        # Else another zone's files would void its plan.
        progress.warn(*check_zone(work, view, entry, progress.proven))
        entry = progress.add(entry.plan, carry_out(work, entry.plan, None, {}))
    refuse_doubt(work.table, entry)
    if pending or work.source.policies.by_time:
        # What was listed before the journal was read may be applied by now.
        opened = view.open(full=pending)
        if not goes_on(work, opened):
            return progress.end("behind", CHANGED)
    progress.warn(*check_zone(work, view, entry, progress.proven))
    if view.history.moves():
        view.history.keep_move()
    progress.proven = proof_of(work, entry)
    check_policies(work, opened, entry)
    return _apply_batches(work, view, opened, progress)


def _apply_batches(
    work: Work, view: FolderView, opened: OpenedFolder, progress: Progress
) -> TableReport:
    entry = progress.entry
    bars = {} if work.options.retry else bars_of(entry)
    while True:
        # Every listing is looked at before the next plan: from then on, what it has shown counts as known.
        if not goes_on(work, opened):
            return progress.end("behind", CHANGED)
        changed = changed_since(work, opened, entry)
        told = [
            f"{n} was applied and has been changed since; it is not read again" for n in changed
        ]
        progress.warn(*told)
        if view.incremental is not None:
            view.incremental.keep(*told)
        evidence = judge_changes(work, opened, entry, changed)
        if evidence:
            return progress.end("blocked", evidence)
        standing = stand(work, entry, progress.verified)
        progress.verified = standing.verified
        work = heed_readers(work, standing, work.options.readers)
        clock: dict[str, float] = {}
        coming = open_next(work, entry, standing, opened, progress.applied, bars, clock)
        progress.warn(*coming.warnings)
        if coming.prepared is None:
            return _end_idle(progress, opened, coming)
        check_emptiness(work, coming, coming.prepared)
        drafted = _draft_plan(work, entry, standing, opened, coming)
        with work.step("plan", clock, drafted, len(drafted.files), drafted.rows):
            plan = work.journal.write_plan(work.life, drafted)
        # Of a plan that another runner has written first, the files are opened again.
        prepared = coming.prepared if plan.attempt == drafted.attempt else None
        entry = progress.add(plan, carry_out(work, plan, prepared, clock, standing.bytes))
        refuse_doubt(work.table, entry)
        if entry.done is not None and entry.done.outcome == "void":
            bars |= bars_of(entry)
        if work.source.policies.by_time:
            view.history.compact()
        opened = view.open()


def _end_idle(progress: Progress, opened: OpenedFolder, coming: Next) -> TableReport:
    """End where nothing can be applied now; remember since when a young file, and an empty folder, are as they are."""
    young, watched, reason = coming.young, opened.watched, coming.reason
    if young is None:
        watched = None
    elif watched is None or (watched.file, watched.etag) != (young.name, young.etag):
        watched = Watched(file=young.name, etag=young.etag, seen_at=opened.listed_at)
    progress.watched = watched
    if coming.state == "current" and opened.emptied:
        progress.emptied = progress.emptied or opened.listed_at
        reason = emptied_since(progress.emptied)
    else:
        progress.emptied = None
    return progress.end(coming.state, reason, file=coming.file, error=coming.error)


def _draft_plan(
    work: Work, entry: Entry | None, standing: Standing, opened: OpenedFolder, coming: Next
) -> Plan:
    known = _moment(seen_until(entry.plan)) if entry else ""
    previous: dict[str, object] | None = None
    if entry is not None and entry.done is not None:
        previous = {
            "batch": entry.plan.batch,
            "outcome": entry.done.outcome,
            "version": entry.done.version,
            "table_id": standing.table_id or entry.done.table_id,
            "cause": entry.done.cause,
            CLAIMED: entry.done.keys,
        }
    files = tuple(
        PlannedFile(
            name=one.file.name,
            size=one.file.size,
            etag=one.file.etag,
            rows=one.schema.rows,
            modified=_moment(one.file.modified),
            fingerprint=one.fingerprint,
        )
        for one in (coming.prepared.landed if coming.prepared else ())
    )
    policies = work.source.policies
    return Plan(
        life=work.life.uuid,
        batch=entry.plan.batch + 1 if entry else 1,
        attempt=new_attempt(),
        zone=work.source.zone.url,
        files=files,
        before=dict(entry.position) if entry else {},
        after=position_after(coming.position, coming.files[: len(files)], by_time=policies.by_time),
        policies=policies,
        table_version=standing.version,
        previous=previous,
        listed_at=opened.listed_at,
        seen_until=known,
        unseen_since=(entry.plan.unseen_since or known) if entry and opened.partial else "",
    )


def _moment(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds")

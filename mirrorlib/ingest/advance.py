"""Advance one table: batch after batch until nothing is left to apply or something stands in the way.

In: a `Work`, its folder, and a `Course`: `apply` carries batches out, `plan` foresees them. Out: what the course tells.
The loop is one for both, so what is foreseen is what happens: list, judge, stand, open, take.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Generic, TypeVar

from mirrorlib.delta.key_property import CLAIMED
from mirrorlib.events import pick
from mirrorlib.ingest.batch.commit import carry_out
from mirrorlib.ingest.batch.evolve_table import heed_readers
from mirrorlib.ingest.batch.foreign_writes import Standing, stand
from mirrorlib.ingest.files.continued_life import newest_entry
from mirrorlib.ingest.files.plan import Watched, position_after, seen_until
from mirrorlib.ingest.files.source import refuse_changed_source
from mirrorlib.ingest.files.source_identity import (
    changed_since,
    check_policies,
    check_same_zone,
    goes_on,
    judge_changes,
    proof_of,
)
from mirrorlib.ingest.files.table_folder import FolderView, OpenedFolder, emptied_since
from mirrorlib.ingest.next_batch import Next, bars_of, check_batch, open_next
from mirrorlib.ingest.progress import Progress
from mirrorlib.ingest.report import TableReport
from mirrorlib.ingest.work import Work
from mirrorlib.journal.entries import Entry, Plan, PlannedFile, new_attempt

CHANGED = "_metadata.json has changed while the table was applied. The next run goes by it."
Reported = TypeVar("Reported")


class Course(ABC, Generic[Reported]):
    """What becomes of one table's batches."""

    view: FolderView  # how its folder is read
    opened: OpenedFolder  # the folder, as it was read last

    @property
    @abstractmethod
    def entry(self) -> Entry | None:
        """Return the newest batch, once the course has begun."""

    @abstractmethod
    def warn(self, *warnings: str) -> None:
        """Note warnings, each once."""

    @abstractmethod
    def begin(self, work: Work, entry: Entry | None) -> None:
        """End the plan of a runner that was stopped in the middle, and read the folder as it is then."""

    def keep_zone(self, work: Work) -> None:
        """Remember that the zone has proven to be the one that the table was filled from."""
        del work

    @abstractmethod
    def stand(self, work: Work) -> tuple[Work, Standing, Mapping[str, int]]:
        """See what the next batch stands on, behind which files, and whom the table is for from now on."""

    @abstractmethod
    def take(self, work: Work, standing: Standing, coming: Next) -> None:
        """Let a batch that was opened come, and read the folder as it is then."""

    @abstractmethod
    def end(self, coming: Next) -> Reported:
        """End where nothing can be applied now."""


def advance_table(work: Work, course: Course[Reported], proven: str | None = None) -> Reported:
    """Go from batch to batch, as far as the folder goes; what fails leaves what came before, which the course knows.

    *proven* is what `proof_of` has told a run before.
    """
    lives = work.lives if work.life.uuid else ()
    newest = newest_entry(work.journal, lives, course.opened.metadata)
    # Else a pending plan's files would not be found, or another zone's would void it.
    check_same_zone(work, course.view, newest, proven)
    course.begin(work, newest)
    refuse_changed_source(work.table, course.entry)
    if newest is not None and newest.done is None:  # its own files count as applied only now
        check_same_zone(work, course.view, course.entry, proven)
    course.keep_zone(work)
    bars = {} if work.options.retry else bars_of(course.entry)
    judged: OpenedFolder | None = None
    while goes_on(work, course.opened):
        before, opened = course.entry, course.opened
        check_policies(work, opened, before)
        evidence = "" if opened is judged else _judge(work, course)
        if evidence:
            return course.end(Next(state="blocked", reason=evidence))
        judged = opened
        work, standing, position = course.stand(work)
        coming = open_next(work, before, standing, opened, position, bars)
        course.warn(*coming.warnings)
        if coming.prepared is None:
            return course.end(coming)
        check_batch(work, coming, coming.prepared)
        course.take(work, standing, coming)
        after = course.entry
        refuse_changed_source(work.table, after)
        if after is not before and after and after.done and after.done.outcome == "void":
            bars |= bars_of(after)
    return course.end(Next(state="behind", reason=CHANGED))


def _judge(work: Work, course: Course[Reported]) -> str:
    """Judge a listing before the next plan: from then on, what it has shown counts as known."""
    changed = changed_since(work, course.opened, course.entry)
    warnings = [
        f"{n} was applied and has been changed since; it is not read again" for n in changed
    ]
    course.warn(*warnings)
    if course.view.incremental is not None:
        course.view.incremental.keep(*warnings)
    return judge_changes(work, course.opened, course.entry, changed)


@dataclass
class Applying(Course[TableReport]):
    """Carry batches out, and keep count of them."""

    view: FolderView
    opened: OpenedFolder
    progress: Progress
    others_wait: Callable[[], bool]  # whether other tables wait for their turn
    _turn: Mapping[str, int] = field(default_factory=dict)  # each folder's last file when it began

    @property
    def entry(self) -> Entry | None:
        """Return the newest batch."""
        return self.progress.entry

    def warn(self, *warnings: str) -> None:
        """Tell them in the report."""
        self.progress.warn(*warnings)

    def begin(self, work: Work, entry: Entry | None) -> None:
        """Carry a pending plan out; list again what was listed before the journal was read, and may be applied now."""
        self.progress.entry = entry
        pending = entry is not None and entry.done is None
        if entry is not None and pending:
            self.progress.add(entry.plan, carry_out(work, entry.plan, None, {}))
        if pending or work.source.policies.by_time:
            self.opened = self.view.open(full=pending)
        shown = self.opened.listing.partitions
        self._turn = {name: max(files) for name, files in shown.items() if files}

    def keep_zone(self, work: Work) -> None:
        """Write a move of plain files down, and what later runs need not prove again."""
        self.view.history.keep_move()
        self.progress.proven = proof_of(work, self.entry)

    def stand(self, work: Work) -> tuple[Work, Standing, Mapping[str, int]]:
        """See that nobody else has written, and let the table remember whom it is for.

        What has come since the run began is left to the next run where other tables wait for their turn, in this run or
        that one: else a table whose files come as fast as they are applied would let none of them have it.
        """
        standing = stand(work, self.entry, self.progress.verified)
        self.progress.verified = standing.verified
        work = heed_readers(work, standing)
        applied = self.progress.applied
        ended = all(applied.get(name, 0) >= last for name, last in self._turn.items())
        if ended and self.others_wait():
            work = replace(work, stop=lambda: True)
        return work, standing, applied

    def take(self, work: Work, standing: Standing, coming: Next) -> None:
        """Plan it and carry it out."""
        drafted = _draft_plan(work, self.entry, standing, self.opened, coming)
        clock = dict(coming.seconds)
        counts = {"files": len(drafted.files), "rows": drafted.rows}
        with work.step("plan", clock, batch=drafted.batch, **counts):
            plan = work.journal.write_plan(work.life, drafted)
        # Of a plan that another runner has written first, the files are opened again.
        prepared = coming.prepared if plan.attempt == drafted.attempt else None
        self.progress.add(plan, carry_out(work, plan, prepared, clock, standing.bytes))
        if work.source.policies.by_time:
            self.view.history.compact()
        self.opened = self.view.open()

    def end(self, coming: Next) -> TableReport:
        """Remember since when a young file, and an empty folder, are as they are."""
        progress, opened, young = self.progress, self.opened, coming.young
        watched = opened.watched
        if young is None:
            watched = None
        elif (
            watched is None
            or (watched.file, watched.etag) != (young.name, young.etag)
            or watched.seen_at > opened.listed_at  # our clock was set back since
        ):
            watched = Watched(file=young.name, etag=young.etag, seen_at=opened.listed_at)
        progress.watched = watched
        progress.emptied = (progress.emptied or opened.listed_at) if opened.emptied else None
        reason = coming.reason
        if coming.state == "current" and progress.emptied:
            reason = emptied_since(progress.emptied)
        return progress.end(coming.state, reason, file=coming.file, error=coming.error)


def _draft_plan(
    work: Work, entry: Entry | None, standing: Standing, opened: OpenedFolder, coming: Next
) -> Plan:
    known = _moment(seen_until(entry.plan)) if entry else ""
    previous: dict[str, object] | None = None
    if entry is not None and entry.done is not None:
        previous = {
            "batch": entry.plan.batch,
            **pick(entry.done, "outcome", "version", "cause", CLAIMED),
            "table_id": standing.table_id or entry.done.table_id,
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
        after=position_after(coming.position, coming.files, by_time=policies.by_time),
        policies=policies,
        table_version=standing.version,
        previous=previous,
        listed_at=opened.listed_at,
        seen_until=known,
        unseen_since=(entry.plan.unseen_since or known) if entry and opened.partial else "",
    )


def _moment(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds")

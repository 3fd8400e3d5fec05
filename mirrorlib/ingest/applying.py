"""Carry one table's batches out, and keep count of them: the batches it applied, and the state it ends in.

In: a table's `Work`, batch by batch. Out: a `TableReport`, and the same word in the journal for `status` to read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from mirrorlib.delta.key_property import CLAIMED
from mirrorlib.events import is_unsettled, pick
from mirrorlib.ingest.advance import Course
from mirrorlib.ingest.batch.commit import carry_out
from mirrorlib.ingest.batch.evolve_table import heed_readers
from mirrorlib.ingest.batch.foreign_writes import Standing, Verified, stand
from mirrorlib.ingest.batch.open_batch import Prepared
from mirrorlib.ingest.files.incremental_listing import Listed
from mirrorlib.ingest.files.plan import Watched, next_run, position_after, seen_until
from mirrorlib.ingest.files.table_folder import EMPTIED, OpenedFolder
from mirrorlib.ingest.next_batch import Next
from mirrorlib.ingest.report import BatchReport, State, TableReport, shown_position
from mirrorlib.ingest.work import Attempt, Work
from mirrorlib.journal.disk import Journal
from mirrorlib.journal.entries import Entry, Plan, PlannedFile, new_attempt, now, proof_of


@dataclass(kw_only=True)
class Applying(Course[TableReport]):
    """Carry batches out, and know what the next run is told of the table."""

    zone: str
    others_wait: Callable[[], bool]  # whether other tables wait for their turn
    watched: Watched | None = None
    listed: Listed | None = None
    verified: Verified | None = None
    _turn: int = 0  # so many files are its own before others have theirs
    _began: str = ""  # when the folder was listed for that

    def begin(self, work: Work, entry: Entry | None) -> None:
        """End a pending plan; list again what was listed before the journal was read, and may be applied now."""
        self.entry = entry
        pending = entry is not None and entry.done is None
        if entry is not None and pending:
            self._end_batch(Attempt(work=work, plan=entry.plan, resumed=True), None)
        if pending or work.source.policies.by_time:
            self.opened = self.view.open(full=pending)
        shown, applied = self.opened.listing.partitions, self.applied
        ahead = (n > applied.get(name, 0) for name, files in shown.items() for n in files)
        self._turn = self.told.total("files") + sum(ahead)
        self._began = self.opened.listed_at

    def keep_zone(self, work: Work) -> None:
        """Write a move of plain files down, and what later runs need not prove again."""
        self.view.history.keep_move()
        self.proven = proof_of(work.source.zone.url, self.entry)

    def stand(self, work: Work) -> tuple[Work, Standing, Mapping[str, int]]:
        """See that nobody else has written, and let the table remember whom it is for.

        After as many files as there were when the run began, the others are left to the next run where other tables
        wait for their turn, in this run or that one: else a table whose files come as fast as they are applied would
        let none of them have it. A short look shows only so many of them as a batch takes: what was written before it
        was there, too.
        """
        standing = stand(work, self.entry, self.verified)
        self.verified = standing.verified
        work = heed_readers(work, standing)
        if self.told.total("files") >= self._turn and self.others_wait():
            coming = self.opened.partial and next_run(self.opened.listing, self.applied).files
            if not coming or coming[0][1].modified > datetime.fromisoformat(self._began):
                work = replace(work, stop=lambda: True)
        return work, standing, self.applied

    def take(self, work: Work, standing: Standing, coming: Next) -> None:
        """Plan it and carry it out."""
        plan = _draft_plan(work, self.entry, standing, self.opened, coming)
        clock, size = dict(coming.seconds), standing.bytes
        drafted = Attempt(work=work, plan=plan, clock=clock, table_bytes=size)
        with drafted.step("plan", counted=True):
            plan = work.journal.write_plan(work.life, drafted.plan)
        # Of a plan that another runner has written first, the files are opened again.
        prepared = coming.prepared if plan.attempt == drafted.plan.attempt else None
        self._end_batch(replace(drafted, plan=plan), prepared)
        if work.source.policies.by_time:
            self.view.history.compact()
        self.opened = self.view.open()
        self.warn(*self.opened.warnings)  # it may be the only one in full

    def _end_batch(self, attempt: Attempt, prepared: Prepared | None) -> None:
        """Bring a plan to its end, and count its batch; a void one applied nothing."""
        plan, done = attempt.plan, carry_out(attempt, prepared)
        self.entry = Entry(plan=plan, done=done)
        if done.outcome == "applied":
            self.told = replace(self.told, batches=(*self.told.batches, BatchReport.of(plan, done)))

    def end(self, coming: Next) -> TableReport:
        """Remember since when a young file is as it is."""
        opened, young, known = self.opened, coming.young, self.opened.watched
        self.watched, seen_at = None, opened.listed_at
        if young is not None:
            if known is not None and (known.file, known.etag) == (young.name, young.etag):
                seen_at = min(known.seen_at, seen_at)  # our clock may have been set back since
            self.watched = Watched(file=young.name, etag=young.etag, seen_at=seen_at)
        reason = EMPTIED if coming.state == "current" and opened.emptied else coming.reason
        return self.report(coming.state, reason, file=coming.file, error=coming.error)

    def report(
        self, state: State, reason: str = "", *, file: str | None = None, error: str | None = None
    ) -> TableReport:
        """Report that the run ends in a state."""
        return replace(
            self.told,
            state=state,
            reason=reason,
            file=file,
            error=error,
            position=shown_position(self.applied),
            version=self.entry.done.version if self.entry and self.entry.done else None,
        )

    @property
    def applied(self) -> Mapping[str, int]:
        """Return the last applied number per partition folder; empty while there is none."""
        return self.entry.position if self.entry else {}

    def record(self, journal: Journal, report: TableReport) -> tuple[str, str]:
        """Write the table's last word into the journal, unless it stands there; return the state before, since when."""
        old = journal.read_status()
        before = str(old.get("before") or old.get("state", ""))
        # A reason may count what waits, but for one that names no file.
        parts = ("state", "file", "error") if report.file else ("state", "reason")
        same = all(old.get(part) == getattr(report, part) for part in parts)
        since = old["since"] if same and "since" in old else now()
        done = self.entry.done if self.entry else None
        # Where nothing was looked at, as somebody else was at it, what was known stays so.
        proven = self.proven or (None if self.entry else old.get("proven"))
        word: dict[str, Any] = {
            **pick(report, "table", "state", "reason", "file", "error", "position", "version"),
            "since": since,
            "zone": self.zone,
            "last_commit": done.finished_at if done else None,
            "warnings": list(report.warnings),
            "watched": asdict(self.watched) if self.watched else None,
            "listing": asdict(self.listed) if self.listed else None,
            "verified": asdict(self.verified) if self.verified else old.get("verified"),
            **({"proven": proven} if proven else {}),
            **({"before": before} if is_unsettled(report.state, report.file) else {}),
        }
        if old != word:
            journal.write_status(word)
        return before, str(since)


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

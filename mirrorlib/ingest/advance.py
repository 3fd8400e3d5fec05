"""Advance one table: batch after batch until nothing is left to apply or something stands in the way.

In: a `Work`, its folder, and a `Course`: `apply` carries batches out, `plan` foresees them. Out: what the course tells.
The loop is one for both, so what is foreseen is what happens: list, judge, stand, open, take.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from mirrorlib.errors import first_few
from mirrorlib.ingest.batch.foreign_writes import Standing
from mirrorlib.ingest.files.continued_life import newest_entry
from mirrorlib.ingest.files.source import refuse_changed_source
from mirrorlib.ingest.files.source_identity import (
    changed_since,
    check_policies,
    check_same_zone,
    goes_on,
    judge_changes,
)
from mirrorlib.ingest.files.table_folder import FolderView, OpenedFolder
from mirrorlib.ingest.next_batch import Next, bars_of, open_next
from mirrorlib.ingest.report import PlannedTable, TableReport
from mirrorlib.ingest.work import Work
from mirrorlib.journal.entries import Entry

CHANGED = "_metadata.json has changed while the table was applied. The next run goes by it."
Reported = TypeVar("Reported", TableReport, PlannedTable)


@dataclass(kw_only=True)
class Course(ABC, Generic[Reported]):
    """What becomes of one table's batches."""

    told: Reported  # what is to be said of the table, as far as that is known
    entry: Entry | None = None  # the newest batch, once the course has begun
    proven: str | None = None  # what `proof_of` has told a run before
    view: FolderView = field(init=False, repr=False)  # how the table's folder is read
    opened: OpenedFolder = field(init=False, repr=False)  # the folder, as it was read last

    def warn(self, *warnings: str) -> None:
        """Note warnings, each once."""
        told = dict.fromkeys((*self.told.warnings, *warnings))
        self.told = replace(self.told, warnings=tuple(told))

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


def advance_table(work: Work, course: Course[Reported]) -> Reported:
    """Go from batch to batch, as far as the folder goes; what fails leaves what came before, which the course knows."""
    lives = work.lives if work.life.uuid else ()
    newest = newest_entry(work.journal, lives, course.opened.metadata)
    # Else a pending plan's files would not be found, or another zone's would void it.
    check_same_zone(work, course.view, newest, course.proven)
    course.begin(work, newest)
    refuse_changed_source(work.table, course.entry)
    if newest is not None and newest.done is None:  # its own files count as applied only now
        check_same_zone(work, course.view, course.entry, course.proven)
    course.keep_zone(work)
    keys = work.source.policies.keys
    bars = {} if work.options.retry else bars_of(course.entry, keys)
    judged: OpenedFolder | None = None
    while goes_on(work, course.opened):
        before, opened = course.entry, course.opened
        check_policies(work, opened, before)
        evidence = "" if opened is judged else _judge(work, course)
        if evidence:
            return course.end(Next(state="blocked", reason=evidence))
        judged = opened
        work, standing, position = course.stand(work)
        coming = open_next(work, before, standing, opened, position, bars, course.warn)
        if coming.prepared is None:
            return course.end(coming)
        course.take(work, standing, coming)
        after = course.entry
        refuse_changed_source(work.table, after)
        if after is not before and after and after.done and after.done.outcome == "void":
            bars |= bars_of(after, keys)
    return course.end(Next(state="behind", reason=CHANGED))


def _judge(work: Work, course: Course[Reported]) -> str:
    """Judge a listing before the next plan: from then on, what it has shown counts as known."""
    changed = changed_since(work, course.opened, course.entry)
    if changed:
        shown = f"{first_few(changed)} ({len(changed):,} in all)"
        course.warn(f"what was applied and has been changed since is not read again: {shown}")
    return judge_changes(work, course.opened, course.entry, changed)

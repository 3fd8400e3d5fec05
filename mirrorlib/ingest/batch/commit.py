"""Carry out a batch: its table made ready, one commit, and what became of it written down; void where a file is broken.

In: a plan of the journal. Out: `Done`. Promise: each batch takes effect exactly once, whoever runs, whatever dies when
(`commit/protocol.py`, docs/architecture.md, "The commit protocol"). The chain of plans is the truth.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Any

from mirrorlib.commit.claim import was_overtaken
from mirrorlib.commit.mark import mark_nothing, overwrite_columns, overwrite_rows, resume_feed
from mirrorlib.commit.merge import commit_staged
from mirrorlib.commit.protocol import Committer, came_late, commit_plan
from mirrorlib.commit.stage import ADD, CHANGE, DROP, Stage, Staged, staging
from mirrorlib.delta.columns import to_columns
from mirrorlib.delta.ddl import create_mirror
from mirrorlib.delta.log import Commit
from mirrorlib.delta.sessions import SMALL_COMMIT, configured, is_small
from mirrorlib.delta.table import find_table
from mirrorlib.delta.trouble import spark_error, tell_trouble
from mirrorlib.errors import MirrorError, OutcomeUnknownError
from mirrorlib.events import emit, pick
from mirrorlib.ingest.batch.adopt import adopt_batch
from mirrorlib.ingest.batch.evolve_table import evolve_table, readers_property, refuse_table
from mirrorlib.ingest.batch.foreign_writes import (
    Standing,
    find_outcome,
    life_is_over,
    refuse_set_back,
)
from mirrorlib.ingest.batch.open_batch import FAULTS, Prepared, prepare_again
from mirrorlib.ingest.batch.outcome import (
    DIRECT,
    cause_of_void,
    find_damage,
    outcome_of,
    standing_cause,
)
from mirrorlib.ingest.batch.snapshot import stage_difference, stage_snapshot
from mirrorlib.ingest.batch.stage import stage_batch
from mirrorlib.ingest.files.source import start_over
from mirrorlib.ingest.report import Kind
from mirrorlib.ingest.work import Attempt, Work
from mirrorlib.journal.entries import REBUILD, Done, Entry, Plan
from mirrorlib.landing.columns import MARKER_NAMES

_LOG = logging.getLogger(__name__)


def carry_out(attempt: Attempt, prepared: Prepared | None) -> Done:
    """Bring a plan to its end, applied or void, whoever else is carrying it out; or applied in doubt, as `Done` says.

    A runner that is killed before the end is written down only costs the next one a look. *prepared* is the batch as
    it was opened for this very plan, None to open it again.

    Raises `OutcomeUnknownError`: nobody can tell any more what became of it; `ForeignWriteError`: somebody else wrote
    to the table; `MirrorError`: Spark failed although every file is sound.
    """
    work, plan = attempt.work, attempt.plan
    committer = _BatchCommitter(attempt, prepared)
    small = prepared is not None and prepared.small and is_small(plan.rows, attempt.table_bytes)
    with configured(work.spark, {}, SMALL_COMMIT if small else {}):
        ended = commit_plan(committer, f"batch {plan.batch}", work.table)
        # A batch that replaced the columns may have ended with the feed off; none after it looks.
        found = None if plan.before else find_table(work.spark, work.ref)
        resume_feed(work.spark, work.ref, found)
        done = outcome_of(committer.attempt, ended, committer.prepared, found)
        with attempt.step("done", counted=True):
            counted = work.journal.write_done(work.life, plan.batch, done)
    if counted.finished_at == done.finished_at:  # else another runner has told it
        _tell(work, plan, done)
    return counted


def _tell(work: Work, plan: Plan, done: Done) -> None:
    what = {"table": work.table, "batch": plan.batch, "address": work.ref.path or work.ref.sql}
    text = "%(table)s: batch %(batch)d %(outcome)s as version %(version)d, %(files)d files, "
    emit(
        "batch",
        f"{text}{plan.rows} rows",
        well=done.outcome == "applied",
        **{**what, **pick(done, "outcome", "version", "kind", "rows"), **pick(plan, "bytes")},
        files=len(plan.files),
        names=[file.name for file in plan.files],
        seconds=round(sum(done.seconds.values()), 3),
        columns=dict(done.columns),
        zone=f"{work.source.zone.url}/{work.source.folder}",
        error=(done.cause or {}).get("error") if done.outcome == "void" else None,
    )


@dataclass
class _BatchCommitter(Committer[int | None, Commit]):
    """A batch on its way; *prepared* for the table as it is, unless that has moved since the plan."""

    attempt: Attempt
    prepared: Prepared | None

    def read_state(self) -> tuple[int | None, Commit | None]:
        with self.attempt.step("guard"):
            version, ended = find_outcome(self.attempt)
        if version != self.attempt.plan.table_version:
            self.prepared = None
        return version, ended

    def write(self, before: int | None) -> None:
        try:
            prepared = self.prepared or self._take_up()
            _commit(self.attempt, prepared)
        except Exception as exc:
            if came_late(self, before, exc):
                raise
            self._void(exc)

    def _take_up(self) -> Prepared:
        """Open a plan that some runner may have left in the middle of a rewrite, with the table's feed off."""
        work, plan = self.attempt.work, self.attempt.plan
        refuse_set_back(work, plan)
        found = find_table(work.spark, work.ref) if plan.before else None
        resume_feed(work.spark, work.ref, found)
        if found is not None:
            self.attempt = replace(self.attempt, table_bytes=found.bytes)
        return prepare_again(self.attempt, found)

    def is_overtaken(self, before: int | None, failure: Exception) -> bool:
        if isinstance(failure, MirrorError):  # a broken file is one, whoever commits
            return False
        return was_overtaken(self.attempt.work.log, before)

    def _void(self, failure: Exception) -> None:
        """Let an empty commit take the plan's place: from then on no slow runner can carry it out."""
        work, plan = self.attempt.work, self.attempt.plan
        if isinstance(failure, MirrorError) and not isinstance(failure, FAULTS):
            raise failure
        fault: MirrorError | None = None
        if isinstance(failure, FAULTS):
            fault = failure
        elif not tell_trouble(failure, "").outside:
            fault = find_damage(self.attempt.source, plan)
        if fault is None:
            _LOG.debug("%s: batch %d failed", work.table, plan.batch, exc_info=failure)
            alone = plan.files[0].name if len(plan.files) == 1 else None
            error = spark_error(failure, f"commit batch {plan.batch}", work.table)
            raise error.but(file=alone) from failure
        if work.journal.entry(work.life, plan.batch).done is None:
            with self.attempt.step("void"):
                _commit_void(self.attempt, fault)

    def prove(self, before: int | None) -> Commit:
        """Find the commit, ours or another runner's; Delta skips ours where it has a later mark."""
        del before
        work, plan = self.attempt.work, self.attempt.plan
        _, ended = find_outcome(self.attempt)
        if ended is None and not plan.before:
            _, ended = find_outcome(self.attempt, anew=True)
        if ended is not None:
            return ended
        if work.journal.lives()[-1].uuid != work.life.uuid:
            raise life_is_over(work)
        msg = f"Delta skipped batch {plan.batch} as already recorded, but no commit names it"
        raise OutcomeUnknownError(msg, table=work.table, next_step=start_over(work.table))


def _commit(attempt: Attempt, prepared: Prepared) -> None:
    work, plan = attempt.work, attempt.plan
    columns, replaces_columns = evolve_table(attempt, prepared)
    prepared = replace(prepared, growth=replace(prepared.growth, columns=columns))
    if not replaces_columns and adopt_batch(attempt, prepared):
        return
    place = f"staged/tables/{work.ref.name.segment}"
    with staging(work.spark, work.state, place, tidies=True) as stage:
        with attempt.step("stage", counted=True):
            staged, kind = _stage(attempt, stage, prepared, replaces_columns=replaces_columns)
        named = {f"{MARKER_NAMES[marker]}s": count for marker, count in prepared.counts.items()}
        facts: dict[str, Any] = {
            "outcome": "applied",
            "kind": kind,
            "rows": named if staged.counts is None else dict(staged.counts),
            "bytes": staged.bytes,
        }
        if not staged.private:
            facts |= {DIRECT: True, "bytes": plan.bytes}
        mark = attempt.mark(facts)
        with attempt.step("commit", counted=True):
            if replaces_columns:
                overwrite_columns(work.spark, work.ref, staged.frame, mark, attempt.step)
            elif kind == "overwrite":
                overwrite_rows(work.ref, staged.frame, mark, schema=False)
            else:
                commit_staged(
                    work.spark,
                    work.ref,
                    staged,
                    mark,
                    table_bytes=attempt.table_bytes,
                    quiet=plan.policies.quiet,
                )


def _stage(
    attempt: Attempt, stage: Stage, prepared: Prepared, *, replaces_columns: bool
) -> tuple[Staged, Kind]:
    """Stage what changes the table, or what replaces it; a rebuild compares the two. Comes with the commit's road."""
    work, plan, replaces = attempt.work, attempt.plan, not attempt.plan.before
    if plan.policies.snapshots:
        staged = stage_snapshot(work, stage, prepared, replaces=replaces)
    else:
        staged = stage_batch(stage, prepared, replaces=replaces)
    if not replaces:
        return staged, _kind(staged.ops)
    if replaces_columns or work.life.why != REBUILD:
        return staged, "overwrite"
    staged = stage_difference(stage, work.ref, staged.frame, prepared.keys)
    prepared.check_files()
    return staged, "difference"


def _kind(ops: frozenset[int]) -> Kind:
    if not ops:
        return "empty"
    if ops == {ADD}:
        return "append"
    return "matched-only" if ops <= {DROP, CHANGE} else "merge"


def _commit_void(attempt: Attempt, fault: MirrorError) -> None:
    work, plan = attempt.work, attempt.plan
    found = find_table(work.spark, work.ref)
    if found is not None:
        refuse_table(work, found)
        resume_feed(work.spark, work.ref, found)
    else:
        columns = to_columns([("_mirror_void", "boolean")])  # it is made only to hold the void
        more = readers_property(plan.policies.readers)
        create_mirror(work.spark, work.ref, columns, (), work.life.uuid, more)
    facts = {"outcome": "void", "cause": cause_of_void(plan, fault)}
    mark_nothing(work.spark, work.ref, attempt.mark(facts))


def end_pending(
    work: Work, newest: Entry | None
) -> tuple[Entry | None, Standing | None, Prepared | None]:
    """See what becomes of the plan of a runner that was stopped in the middle, and write nothing.

    Where it has made no commit, its files are opened as apply will, which carries it out before anything else.

    Returns the newest batch, as it has ended or will; what it stands on, None when it has ended, so that the table
    itself shows it; and the batch's files, when it will be applied.

    Raises `ForeignWriteError`: somebody else wrote to the table since; `OutcomeUnknownError`: nobody can tell any more
    what became of it.
    """
    if newest is None or newest.done is not None:
        return newest, None, None
    plan = newest.plan
    attempt = Attempt(work=work, plan=plan, resumed=True)
    version, ended = find_outcome(attempt)
    if ended is not None:
        return Entry(plan=plan, done=outcome_of(attempt, ended)), None, None
    refuse_set_back(work, plan)
    found = find_table(work.spark, work.ref) if plan.before else None
    standing = Standing(version=version, readers=plan.policies.readers)
    if found is not None:
        standing = replace(standing, columns=found.columns, table_id=found.id, bytes=found.bytes)
    prepared, voided = None, None
    try:
        prepared = prepare_again(attempt, found)
    except FAULTS as fault:
        voided = cause_of_void(plan, fault)
    done = Done(
        outcome="applied" if voided is None else "void",
        version=version or 0,
        table_id=standing.table_id,
        columns=(),
        table_bytes=standing.bytes,
        kind="",
        finished_at="",  # it is never stored
        cause=standing_cause(plan, voided),
    )
    return Entry(plan=plan, done=done), standing, prepared

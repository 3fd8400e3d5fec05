"""Carry out a round: one commit that says which it is, the keys that hold then, and its last word.

In: a `DeriveJob` and a round. Out: `DeriveReport`. Promise: the commit is there once or not at all
(`commit/protocol.py`); keys that it makes untrue are taken back before it, and the others told behind it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from logging import INFO
from typing import Any, Final

from pyspark.errors import AnalysisException

from mirrorlib.commit.claim import was_overtaken
from mirrorlib.commit.difference import difference
from mirrorlib.commit.mark import Mark, mark_nothing
from mirrorlib.commit.protocol import Committer, commit_plan
from mirrorlib.delta.ddl import add_columns
from mirrorlib.delta.key_property import KEYS_PROPERTY, ON, keep_keys, keys_property, stored_keys
from mirrorlib.delta.sessions import WRITES_DATES, active, configured
from mirrorlib.delta.table import Found
from mirrorlib.delta.trouble import as_mirror_error, is_sparks
from mirrorlib.derived.compute import MOVES, Computed, compute
from mirrorlib.derived.job import (
    DerivedTarget,
    DeriveJob,
    make_derived,
    open_target,
    replace_rows,
    write_difference,
)
from mirrorlib.derived.report import DeriveReport, SourceReport, write_record
from mirrorlib.derived.sources import Round, end_round, forget_others
from mirrorlib.derived.strategy.origins import origins_of
from mirrorlib.errors import MirrorError, TableBusyError
from mirrorlib.events import LOG, emit, pick
from mirrorlib.journal.streams import Outcome
from mirrorlib.keys.value import Keys
from mirrorlib.store import open_store

_KEYS = "keys"  # in what a commit says: the property that belongs to it
_VOID: Final = "void"  # its outcome: it has a round's mark, and holds what the one before it does


def commit_round(job: DeriveJob, planned: Round, target: DerivedTarget) -> DeriveReport:
    """Compute a round for a target as it was found, commit it, and write down that it is done."""
    committer = _RoundCommitter(job, planned, target)
    try:
        report = commit_plan(committer, f"round {planned.number}", job.place.shown)
    except Exception as exc:
        # What the transformation says wrong is told as it is, where it says so.
        if isinstance(exc, AnalysisException) or not is_sparks(exc):
            raise
        raise as_mirror_error(exc, job.name) from exc
    job.tell("done", "before", planned)
    write_record(job.place, report)
    end_round(job.sources, planned, "delivered", report.added + report.removed, report.seconds)
    forget_others(job.sources, planned)
    job.tell("done", "after", planned)
    _tell(job, report, committer.computed)
    return report


def _tell(job: DeriveJob, report: DeriveReport, computed: Computed) -> None:
    if changes := " ".join(report.changes):
        emit("schema", "%(table)s: %(changes)s", table=job.name, changes=changes)
    emit(
        "derive",
        "%(table)s: %(kind)s, version %(version)d",
        table=job.name,
        address=job.place.ref.address,
        kind=report.how,
        **pick(report, "version", "seconds"),
        rows=pick(report, "added", "removed"),
        columns=dict(computed.result.dtypes),
        sources=[(one.address, one.until) for one in report.sources],
        origins=origins_of(computed.result, computed.framed) if LOG.isEnabledFor(INFO) else {},
    )


class _RoundCommitter(Committer[DerivedTarget, DeriveReport]):
    def __init__(self, job: DeriveJob, planned: Round, target: DerivedTarget) -> None:
        self.job = job
        self.planned = planned
        self.target: DerivedTarget | None = target  # as it was found, for the first look

    def read_state(self) -> tuple[DerivedTarget, None]:
        target, self.target = self.target or open_target(self.job), None
        if target.last.window_of(self.planned.streams[0].uuid) >= self.planned.number:
            raise self._busy()
        return target, None

    def _busy(self) -> TableBusyError:
        msg = "another runner has gone on with the derived table"
        return TableBusyError(msg, table=self.job.place.shown, next_step="Run again.")

    def write(self, before: DerivedTarget) -> None:
        job = self.job
        self.ready = before.last.newest  # the version that is made ready for the round
        with active(job.spark, job.spark):  # as the transformation is the caller's
            self.computed = computed = compute(job, self.planned, before)
        keys = computed.keys.keys
        job.lease.check()
        job.tell("commit", "before", self.planned)
        table = before.found or make_derived(job, computed.result.schema, keys)
        self.differ = table.properties.get(KEYS_PROPERTY) != keys_property(keys).get(KEYS_PROPERTY)
        if self.differ:  # until the commit it would not be true
            keep_keys(job.session, job.place.ref.sql, table.properties, Keys())
        self.ready = before.last.log.newest(self.ready) or 0
        # Rows are written by the session that computes them; where it cannot be configured, as Spark does.
        with configured(job.spark, {}, WRITES_DATES):
            self.written = self._write(before, table)

    def _write(self, before: DerivedTarget, table: Found) -> tuple[int, int] | None:
        """Write one commit; return how many rows came and went, None where the commit itself tells."""
        job, ref, computed = self.job, self.job.place.ref, self.computed
        mark = self._mark(before)
        if computed.how == "nothing new":
            mark_nothing(job.session, ref, mark)
            return 0, 0
        if computed.old is None:
            replace_rows(job, before, computed.new, mark)
            return None
        if computed.added:
            fields = [computed.result.schema[name] for name in computed.added]
            add_columns(job.session, ref, fields, table)
        keys, kept = computed.keys.keys, stored_keys(table.properties)
        same = kept is not None and kept.unique and kept.primary == keys.primary
        # What was said of its keys is true as long as nobody else has written rows to it, as far as its log goes back.
        pure = same and before.last.foreign is None and before.held is not None
        by = keys.primary if keys.unique and pure else ()
        return write_difference(job, table, difference(computed.old, computed.new, by), by, mark)

    def _mark(self, before: DerivedTarget) -> Mark:
        """Say in the commit what it has made of which versions."""
        job, planned, computed = self.job, self.planned, self.computed
        facts: dict[str, Any] = {
            "derived": job.name,
            ON: before.last.newest,
            "how": computed.how,
            "plan": computed.shape.fingerprint,
            MOVES: computed.shape.moves,
            _KEYS: keys_property(computed.keys.keys).get(KEYS_PROPERTY, ""),
            "sources": [pick(plan, "stream", "until", "table_id") for plan in planned.plans],
        }
        return _next_mark(job, planned, before, facts)

    def is_overtaken(self, before: DerivedTarget, failure: Exception) -> bool:
        return not isinstance(failure, MirrorError) and was_overtaken(before.last.log, self.ready)

    def prove(self, before: DerivedTarget) -> DeriveReport:
        job, planned = self.job, self.planned
        uuid, number, table = planned.streams[0].uuid, planned.number, job.place.shown
        what, step = f"round {number}", "Remove the table; the next run makes it anew."
        last = before.last.prove_next(uuid, number, what, table=table, next_step=step)
        if last is None:
            raise self._busy()
        added, removed = self.written or (last.rows, 0)
        job.tell("commit", "after", planned, added + removed)
        computed, keys = self.computed, self.computed.keys
        if self.differ:
            keep_keys(job.session, job.place.ref.sql, {}, keys.keys)
        windows = [(plan.after, plan.until) for plan in planned.plans]
        return replace(
            _report(job, windows, last.version, keys.keys),
            how=computed.how,
            why=computed.why,
            added=added,
            removed=removed,
            losses=keys.steps,
            changes=tuple(f"The column {name} was added." for name in computed.added or ()),
        )


def _next_mark(
    job: DeriveJob, planned: Round, target: DerivedTarget, facts: Mapping[str, Any]
) -> Mark:
    """Say in a commit which round it is; the number grows from one beginning to the next."""
    state, app_id = open_store(job.place.root.state), f"mirrorlib:derive:{job.name}"
    last = target.last
    if not (last.facts or last.complete):
        # Delta knows a mark for longer than the log tells of it. Now is ahead of them; a round whose commit nobody can
        # see any more is compared with what is there, so it may come again.
        last = replace(last, facts={"epoch": int(time.time()) // 2})
    return last.next_mark(
        job.session, job.place.ref, state, app_id, planned.streams[0], planned.number, facts
    )


def close_round(job: DeriveJob, planned: Round, target: DerivedTarget) -> DerivedTarget:
    """End a round that an earlier run has left, unless its commit is there, by one without rows that has its mark.

    Who is still at it can carry it out no more. How it has ended is written down, and the keys that hold then, whose
    runner may have died before it did. Returns the table, given as it was found, as it is then.
    """
    stream, last, foreign = planned.streams[0].uuid, target.last, target.last.foreign
    if target.found is not None and last.window_of(stream) < planned.number:
        # It holds what it did; what others wrote since then stays seen.
        on = last.version if foreign is None else min(last.version, foreign.version - 1)
        void = {**last.facts, "outcome": _VOID, ON: on}
        mark_nothing(job.session, job.place.ref, _next_mark(job, planned, target, void))
        target = open_target(job)
    facts, there = target.last.facts, target.last.window_of(stream) >= planned.number
    if target.found is not None and facts:
        keys = stored_keys({KEYS_PROPERTY: facts.get(_KEYS) or ""}) or Keys()
        keep_keys(job.session, job.place.ref.sql, target.found.properties, keys)
    ended: Outcome = "delivered" if there and facts.get("outcome") != _VOID else _VOID
    end_round(job.sources, planned, ended, 0, 0.0)
    return open_target(job)


def nothing_new(job: DeriveJob, target: DerivedTarget) -> DeriveReport:
    """Tell that no source has a new version."""
    properties = target.found.properties if target.found is not None else {}
    versions = [source.table.commits.newest for source in job.sources]
    windows = [(version, version) for version in versions]
    return _report(job, windows, target.last.version, stored_keys(properties) or Keys())


def _report(
    job: DeriveJob, windows: Sequence[tuple[int, int]], version: int, keys: Keys
) -> DeriveReport:
    """Tell of a run that took in windows of its sources, of each from where on and up to where."""
    sources = []
    for source, (after, until) in zip(job.sources, windows, strict=True):
        stored = stored_keys(source.table.commits.metadata_at(until).properties) or Keys()
        sources.append(
            SourceReport(
                table=source.place.shown,
                address=source.place.ref.address,
                after=after,
                until=until,
                keys=stored.partition,
            )
        )
    return DeriveReport(
        name=job.name,
        target=job.place.shown,
        how="nothing new",
        sources=tuple(sources),
        version=version,
        keys=keys,
        seconds=round(time.perf_counter() - job.began, 3),
    )

"""Carry out a round: one commit that says which it is, the keys that hold then, and its last word.

In: a `DeriveJob` and a round. Out: `DeriveReport`. Promise: the commit is there once or not at all
(`commit/protocol.py`); keys that it makes untrue are taken back before it, and the others told behind it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from logging import INFO
from typing import Any

from pyspark.errors import AnalysisException

from mirrorlib.commit.claim import was_overtaken
from mirrorlib.commit.difference import difference
from mirrorlib.commit.mark import Mark, mark_nothing
from mirrorlib.commit.protocol import Committer, commit_plan
from mirrorlib.delta.ddl import add_columns
from mirrorlib.delta.key_property import KEYS_PROPERTY, ON, keep_keys, keys_property, stored_keys
from mirrorlib.delta.sessions import WRITES_DATES, active, configured
from mirrorlib.delta.table import Found, check_made
from mirrorlib.delta.trouble import as_mirror_error, is_sparks
from mirrorlib.derived.compute import MOVES, Computed, compute
from mirrorlib.derived.job import (
    MEANT,
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
from mirrorlib.keys.value import Keys
from mirrorlib.store import open_store

_KEYS = "keys"  # in what a commit says: the property that belongs to it
_ATTEMPT = "attempt"  # and who has made it: two runners may be at one round, of other windows


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
    end_round(job.sources, planned, report.added + report.removed, report.seconds)
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
        mark = self._mark(before, table)
        if computed.how == "nothing new":
            mark_nothing(job.session, ref, mark)
            return 0, 0
        if computed.old is None:
            # All rows go that are there by now.
            mark = replace(mark, facts={**mark.facts, ON: self.ready})
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

    def _mark(self, before: DerivedTarget, table: Found) -> Mark:
        """Say in the commit what it has made of which versions, and which round it is."""
        job, planned, computed = self.job, self.planned, self.computed
        facts: dict[str, Any] = {
            "derived": job.name,
            MEANT: table.id,
            _ATTEMPT: planned.plans[0].attempt,
            ON: before.last.newest,
            "how": computed.how,
            "plan": computed.shape.fingerprint,
            MOVES: computed.shape.moves,
            _KEYS: keys_property(computed.keys.keys).get(KEYS_PROPERTY, ""),
            "sources": [
                pick(plan, "stream", "until", "table_id", "until_hash") for plan in planned.plans
            ],
        }
        state, app_id = open_store(job.place.root.state), f"mirrorlib:derive:{job.name}"
        return before.last.next_mark(
            job.session, job.place.ref, state, app_id, planned.streams[0], planned.number, facts
        )

    def is_overtaken(self, before: DerivedTarget, failure: Exception) -> bool:
        return not isinstance(failure, MirrorError) and was_overtaken(before.last.log, self.ready)

    def prove(self, before: DerivedTarget) -> DeriveReport:
        job, planned = self.job, self.planned
        uuid, number, table = planned.streams[0].uuid, planned.number, job.place.shown
        what, step = f"round {number}", "Remove the table; the next run makes it anew."
        last = before.last.prove_next(uuid, number, what, table=table, next_step=step)
        if last is None or last.facts.get(_ATTEMPT) != planned.plans[0].attempt:
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


def nothing_new(job: DeriveJob, planned: Round, target: DerivedTarget) -> DeriveReport:
    """Tell that no source has a new version; and the keys, and how far the table is, where a run that died has not."""
    told = {KEYS_PROPERTY: (target.held or {}).get(_KEYS, "")}
    found, keys = check_made(target.found, job.place.shown), stored_keys(told) or Keys()
    keep_keys(job.session, job.place.ref.sql, found.properties, keys)
    if not planned.is_told:
        end_round(job.sources, replace(planned, number=planned.number - 1), None, 0.0)
    windows = [(plan.until, plan.until) for plan in planned.plans]
    return _report(job, windows, target.last.version, keys)


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

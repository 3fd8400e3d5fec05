"""Carry out a round: one commit that says which it is, the keys that hold then, and its last word.

In: a `Job` and a round. Out: `DeriveReport`. Promise: the commit is there once or not at all; keys that it makes
untrue are taken back before it, and the others told behind it.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from mirrorlib.commit.difference import difference
from mirrorlib.commit.last_commit import prove_window, read_last_commit
from mirrorlib.commit.mark import mark_nothing
from mirrorlib.delta.ddl import add_columns
from mirrorlib.delta.key_property import KEYS_PROPERTY, ON, keep_keys, keys_property, stored_keys
from mirrorlib.delta.table import find_target, open_log
from mirrorlib.derived.compute import MOVES, compute
from mirrorlib.derived.job import Job, Target, tell_step
from mirrorlib.derived.record import write_record
from mirrorlib.derived.report import DeriveReport, SourceReport
from mirrorlib.derived.sources import end_round
from mirrorlib.derived.write import (
    Written,
    added_columns,
    check_owner,
    make_derived,
    replace_rows,
    write_difference,
)
from mirrorlib.errors import (
    ForeignWriteError,
    MirrorError,
    TableBusyError,
)
from mirrorlib.keys.value import Keys

if TYPE_CHECKING:
    from mirrorlib.commit.mark import Mark
    from mirrorlib.delta.table import Found
    from mirrorlib.derived.compute import Computed
    from mirrorlib.derived.sources import Round, Source

_LOG = logging.getLogger(__name__)
_KEYS = "keys"  # in what a commit says: the property that belongs to it


def carry_out(job: Job, planned: Round, target: Target) -> DeriveReport:
    """Compute a round, commit it, and write down that it is done."""
    computed = compute(
        job.spark,
        job.sources,
        planned,
        job.transform,
        job.place,
        target.held(job.name),
        rebuild=job.rebuild,
    )
    keys = computed.keys.keys
    job.lease.check()
    tell_step(job, "commit", "before", planned)
    if target.found is None:
        make_derived(job.session, job.place, computed.result, job.name, keys)
        found = find_target(job.session, job.place.ref)
        if found is None:
            msg = "the table is gone as soon as it was made"
            raise ForeignWriteError(msg, table=job.place.shown, next_step="Try again.")
        check_owner(job.place, found[0], job.name)
        table, whole = found[0], True
    else:
        table, whole = target.found, computed.old is None
    stored = keys_property(keys).get(KEYS_PROPERTY)
    if table.properties.get(KEYS_PROPERTY) != stored:  # until the commit it would not be true
        keep_keys(job.session, job.place.ref.sql, table.properties, Keys())
    written = _write(job, planned, target, computed, table, whole=whole)
    version, rows = _proven(job, planned, target, table, written)
    tell_step(job, "commit", "after", planned, rows.added + rows.removed)
    if table.properties.get(KEYS_PROPERTY) != stored:
        keep_keys(job.session, job.place.ref.sql, {}, keys)
    report = report_of(job, planned, computed, rows, version)
    tell_step(job, "done", "before", planned)
    write_record(job.place, report)
    end_round(job.sources, planned, "delivered", rows.added + rows.removed, report.seconds)
    tell_step(job, "done", "after", planned)
    _LOG.info("%s: %s, version %d", job.name, computed.how, version)
    return report


def _write(
    job: Job,
    planned: Round,
    target: Target,
    computed: Computed,
    table: Found,
    *,
    whole: bool,
) -> Written | None:
    """Write a round by one commit; None where the commit itself tells how many rows came."""
    mark = _mark(job, planned, target, computed)
    try:
        if whole or computed.old is None:
            was = target.schema
            other = was is not None and added_columns(was, computed.new) != []
            replace_rows(job.session, job.place, computed.new, mark, schema=other)
            return None
        if computed.how == "nothing new":
            mark_nothing(job.session, job.place.ref, mark)
            return Written(added=0, removed=0)
        if computed.added:
            fields = [computed.result.schema[name] for name in computed.added]
            add_columns(job.session, job.place.ref, fields, table)
        keys = computed.keys.keys
        kept = stored_keys(table.properties)
        same = kept is not None and kept.unique and kept.primary == keys.primary
        by = keys if keys.unique and same and target.pure else Keys()
        changes = difference(computed.old, computed.new, by.primary)
        return write_difference(job.session, job.place, table, changes, by, mark)
    except MirrorError:
        raise
    except Exception as exc:
        now = read_last_commit(open_log(job.session, job.place.ref, table.location))
        if now.foreign is None and now.version == target.last.version:
            raise
        msg = "another commit came while the derived table was written"
        raise TableBusyError(msg, table=job.place.shown, next_step="Run again.") from exc


def _mark(job: Job, planned: Round, target: Target, computed: Computed) -> Mark:
    """Say in the commit which round it is; the number grows from one beginning to the next."""
    facts: dict[str, Any] = {
        "derived": job.name,
        ON: target.last.newest,
        "how": computed.how,
        "plan": computed.fingerprint,
        MOVES: computed.moves,
        _KEYS: keys_property(computed.keys.keys).get(KEYS_PROPERTY, ""),
        "sources": [
            {"stream": plan.stream, "until": plan.until, "table_id": plan.table_id}
            for plan in planned.plans
        ],
    }
    app_id = f"mirrorlib:derive:{job.name}"
    return target.last.next_mark(app_id, planned.lead, planned.number, facts)


def _proven(
    job: Job, planned: Round, target: Target, table: Found, written: Written | None
) -> tuple[int, Written]:
    """Find the commit of a round: Delta skips a mark that it knows without a word.

    Raises:
        TableBusyError: another runner has gone on.
        OutcomeUnknownError: Delta skipped it, and nobody has.

    """
    last = prove_window(
        open_log(job.session, job.place.ref, table.location),
        planned.lead.uuid,
        planned.number,
        target.last,
        what=f"round {planned.number}",
        table=job.place.shown,
        next_step="Remove the table; the next run makes it anew.",
    )
    if last is None:
        msg = "another runner has gone on with the derived table"
        raise TableBusyError(msg, table=job.place.shown, next_step="Run again.")
    return last.version, written or Written(added=last.rows, removed=0)


def settle_keys(job: Job, target: Target) -> None:
    """Write down the keys of the last round, whose runner may have died before it did."""
    if target.found is None or target.last.facts is None:
        return
    stored = target.last.facts.get(_KEYS)
    keys = stored_keys({KEYS_PROPERTY: stored}) if stored else None
    keep_keys(job.session, job.place.ref.sql, target.found.properties, keys or Keys())


def report_of(
    job: Job, planned: Round, computed: Computed, rows: Written, version: int
) -> DeriveReport:
    """Tell what a round came to."""
    return DeriveReport(
        name=job.name,
        target=job.place.shown,
        how=computed.how,
        why=computed.why,
        sources=tuple(
            _source_report(source, plan.after, plan.until, changed=changed)
            for source, plan, changed in zip(
                job.sources, planned.plans, computed.changed, strict=True
            )
        ),
        added=rows.added,
        removed=rows.removed,
        version=version,
        keys=computed.keys.keys,
        losses=computed.keys.steps,
        changes=tuple(f"The column {name} was added." for name in computed.added),
        seconds=round(time.perf_counter() - job.began, 3),
    )


def nothing_new(job: Job, target: Target) -> DeriveReport:
    """Tell that no source has a new version."""
    properties = target.found.properties if target.found is not None else {}
    versions = [source.table.commits.newest for source in job.sources]
    return DeriveReport(
        name=job.name,
        target=job.place.shown,
        how="nothing new",
        why="",
        sources=tuple(
            _source_report(source, version, version, changed=False)
            for source, version in zip(job.sources, versions, strict=True)
        ),
        added=0,
        removed=0,
        version=target.last.version,
        keys=stored_keys(properties) or Keys(),
        losses=(),
        seconds=round(time.perf_counter() - job.began, 3),
    )


def _source_report(source: Source, after: int, until: int, *, changed: bool | None) -> SourceReport:
    keys = stored_keys(source.table.commits.metadata_at(until).properties)
    return SourceReport(
        table=source.place.shown,
        address=source.place.address,
        after=after,
        until=until,
        changed=changed,
        keys=keys.partition if keys is not None else (),
    )

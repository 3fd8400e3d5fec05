"""See what becomes of the plan of a runner that was stopped in the middle, and write nothing.

In: a plan without an outcome. Out: `Carried`: the batch as it has ended, or as it will when apply carries
it out, which it does before anything else; and what the next batch stands on then.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mirrorlib.delta.table import find_table
from mirrorlib.ingest.batch.foreign_writes import Standing, find_outcome
from mirrorlib.ingest.batch.open_batch import FAULTS
from mirrorlib.ingest.batch.outcome import cause_of_void, outcome_of, standing_cause
from mirrorlib.ingest.batch.protocol import prepare_again
from mirrorlib.journal.entries import Done, Entry

if TYPE_CHECKING:
    from mirrorlib.ingest.batch.open_batch import Prepared
    from mirrorlib.ingest.work import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """A plan at its end.

    Attributes:
        entry: the newest batch, as it has ended or will; None before the first.
        standing: what it stands on; None when it has ended, so that the table itself shows it.
        prepared: the batch, when it will be applied.

    """

    entry: Entry | None
    standing: Standing | None = None
    prepared: Prepared | None = None


def end_pending(work: Work, newest: Entry | None) -> Carried:
    """Look for the commit that the newest plan has made; without one, open its files as apply will.

    Raises:
        ForeignWriteError: somebody else wrote to the table since.
        OutcomeUnknownError: nobody can tell any more what became of it.

    """
    if newest is None or newest.done is not None:
        return Carried(entry=newest)
    plan = newest.plan
    version, ended = find_outcome(work, plan)
    if ended is not None:
        return Carried(entry=Entry(plan=plan, done=outcome_of(work, plan, ended)))
    found = find_table(work.spark, work.ref) if plan.before else None
    standing = Standing(
        columns=found.columns if found else (),
        table_id=found.id if found else None,
        version=version,
        bytes=found.bytes if found else 0,
        readers=plan.policies.readers,
    )
    done = Done(
        outcome="applied",
        version=version or 0,
        table_id=standing.table_id,
        columns=(),
        table_bytes=standing.bytes,
        kind="",
        cause=standing_cause(plan),
    )
    try:
        prepared = prepare_again(work, plan)
    except FAULTS as fault:
        void = replace(done, outcome="void", cause=standing_cause(plan, cause_of_void(plan, fault)))
        return Carried(entry=Entry(plan=plan, done=void), standing=standing)
    return Carried(entry=Entry(plan=plan, done=done), standing=standing, prepared=prepared)

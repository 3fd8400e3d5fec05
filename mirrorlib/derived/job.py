"""One run of a derived table: what all of its steps share, and the table as it is found.

In: nothing. Out: `Job`, and `Target`, which says whether the table is as the last round has left it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from mirrorlib.commit.last_commit import LastCommit, read_last_commit
from mirrorlib.commit.pause import resume_feed
from mirrorlib.delta.table import find_target, open_log
from mirrorlib.derived.compute import Held
from mirrorlib.derived.write import check_owner
from mirrorlib.errors import ForeignWriteError
from mirrorlib.events import Event

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from mirrorlib.delta.table import Found
    from mirrorlib.derived.frames import Transform
    from mirrorlib.derived.place import Place
    from mirrorlib.derived.sources import Round, Source
    from mirrorlib.events import Observer
    from mirrorlib.journal.leases import Lease


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run.

    Attributes:
        spark: the caller's session, in which rows are computed.
        session: one of our own, which commits.
        name: of the derived table.
        place: the table.
        sources: what it is made of.
        transform: how.
        rebuild: compute all of it.
        lease: keeps other runners off.
        observe: told before and after each step.
        began: when, by a clock of no date.

    """

    spark: SparkSession
    session: SparkSession
    name: str
    place: Place
    sources: Sequence[Source]
    transform: Transform
    rebuild: bool
    lease: Lease
    observe: Observer
    began: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The table at this moment.

    Attributes:
        found: it; None while there is none.
        schema: its columns.
        last: what its log tells of our rounds.
        pure: nobody else has written rows to it, so what was said of its keys is true.

    """

    found: Found | None
    schema: StructType | None
    last: LastCommit
    pure: bool = True

    def held(self, name: str) -> Held | None:
        """Return what the table holds, when a round of ours was its last commit."""
        facts = self.last.facts
        if self.schema is None or facts is None or facts.get("derived") != name:
            return None
        return Held(schema=self.schema, version=self.last.newest, facts=facts)


def open_target(job: Job) -> Target:
    """Open the table as it is now.

    Raises:
        ForeignWriteError: it is not ours, or not as we have left it.

    """
    found = find_target(job.session, job.place.ref)
    if found is None:
        return Target(found=None, schema=None, last=LastCommit(newest=-1))
    check_owner(job.place, found[0], job.name)
    resume_feed(job.session, job.place.ref, found[0])
    log = open_log(job.session, job.place.ref, found[0].location)
    last = read_last_commit(log)
    foreign = last.foreign
    if foreign is not None and not job.rebuild:
        msg = "somebody else has written to the derived table"
        who = f"version {foreign.version}, {foreign.operation} by {foreign.user}"
        step = "Let it be computed anew, which undoes that: derive(…, rebuild=True)."
        raise ForeignWriteError(msg, table=job.place.shown, found=who, next_step=step)
    return Target(found=found[0], schema=found[1], last=last, pure=foreign is None)


def tell_step(
    job: Job,
    step: str,
    when: Literal["before", "after"],
    planned: Round | None = None,
    rows: int = 0,
) -> None:
    """Tell whoever watches the run that a step begins or has ended."""
    batch = planned.number if planned is not None else None
    job.observe(Event(table=job.name, step=step, when=when, batch=batch, rows=rows))

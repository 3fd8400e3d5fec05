"""What one table's batches need, gathered once: session, table, log, source, journal, lives.

Every later stage takes a `Work`; none keeps anything of its own between two batches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, groupby, takewhile
from typing import TYPE_CHECKING, Any

from mirrorlib.commit.claim import claim_table
from mirrorlib.commit.mark import Mark
from mirrorlib.delta.log import TableLog
from mirrorlib.delta.properties import LIFE_PROPERTY
from mirrorlib.delta.table import TableRef
from mirrorlib.events import Event, Observer
from mirrorlib.ingest.files.source import Source
from mirrorlib.names import partition_of
from mirrorlib.version import VERSION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorlib.ingest.files.plan import Files
    from mirrorlib.ingest.options import Options
    from mirrorlib.ingest.report import PlannedTable
    from mirrorlib.journal.disk import Journal
    from mirrorlib.journal.entries import Life, Plan
    from mirrorlib.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One table, everything that its batches need."""

    # A session of its own: transaction marks of MERGE are session configuration.
    spark: SparkSession
    ref: TableRef
    log: TableLog
    source: Source  # where its change files lie, with the policies of new plans
    journal: Journal
    state: Store  # the state folder, in which batches are staged
    lives: tuple[Life, ...]  # all lives, the present one last
    options: Options
    observe: Observer
    stop: Callable[[], bool]  # asked between batches; True ends the run
    approved: PlannedTable | None = None  # all that may be done to it; None for whatever there is

    @property
    def life(self) -> Life:
        """Return the present life."""
        return self.lives[-1]

    @property
    def table(self) -> str:
        """Return the table as its users name it."""
        return self.source.table

    def mark(
        self, life: Life, version: int, facts: Mapping[str, Any], since: int | None = None
    ) -> Mark:
        """Return a life's mark of a version, which no commit has until the table's version *since*."""
        writer = f"mirrorlib:apply:{self.ref.name}"
        claim = claim_table(self.spark, self.ref, self.log, self.state, since, writer)
        return Mark(app_id=life.app_id, version=version, facts=facts, claim=claim)

    def allow(self, files: Files) -> Files:
        """Return of each partition folder those before the first not approved; none by other policies."""
        known = self.approved
        if known is None:
            return files
        policies = self.source.policies
        same = known.policies == asdict(policies)
        names = {(name, etag) for name, _, etag, _ in known.contents if same}
        folders = groupby(files, lambda one: policies.by_time or partition_of(one[1].name))
        allowed = (
            takewhile(lambda one: (one[1].name, one[1].etag) in names, these)
            for _, these in folders
        )
        return tuple(chain.from_iterable(allowed))

    def owns(self, properties: Mapping[str, str]) -> bool:
        """Say whether a table's properties name a life of this mirror."""
        return properties.get(LIFE_PROPERTY) in {life.uuid for life in self.lives}

    @contextmanager
    def step(self, name: str, clock: dict[str, float], **facts: int) -> Iterator[None]:
        """Tell the observer about a step, with such *facts* as an `Event` has, and add its seconds to *clock*."""
        event = Event(table=self.table, step=name, when="before", **facts)
        self.observe(event)
        began = time.perf_counter()
        yield
        clock[name] = round(clock.get(name, 0.0) + time.perf_counter() - began, 4)
        self.observe(replace(event, when="after"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One runner's way with one plan."""

    work: Work
    plan: Plan  # as the journal holds it
    clock: dict[str, float] = field(default_factory=dict)  # seconds by step
    table_bytes: int = 0  # the table's size, roughly, once it was looked at
    resumed: bool = False  # an earlier run has made the plan, and may have asked for more

    @property
    def is_too_large(self) -> bool:
        """Say whether an earlier run's plan is to be made smaller; what replaces a table has no limit."""
        plan, options = self.plan, self.work.options
        if not (self.resumed and options.retry) or (len(self.work.lives) > 1 and not plan.before):
            return False
        count, size = len(plan.files), plan.bytes
        fits = count <= (options.max_files or count) and size <= (options.max_bytes or size)
        return count > 1 and not fits

    @property
    def source(self) -> Source:
        """Return where the plan's files lie, with the policies that it was made by."""
        return replace(self.work.source, policies=self.plan.policies)

    def step(self, name: str, *, counted: bool = False) -> AbstractContextManager[None]:
        """Tell the observer about a step, and how much the plan holds where that is *counted*."""
        counts = {"files": len(self.plan.files), "rows": self.plan.rows} if counted else {}
        return self.work.step(name, self.clock, batch=self.plan.batch, **counts)

    def mark(self, more: dict[str, Any]) -> Mark:
        """Return what makes the batch's one commit unrepeatable, and says what it belongs to."""
        work, plan = self.work, self.plan
        facts = {
            "life": work.life.uuid,
            "batch": plan.batch,
            "attempt": plan.attempt,
            "first": plan.files[0].name,
            "last": plan.files[-1].name,
            "files": len(plan.files),
            "mirrorlib": VERSION,
            **more,
        }
        return work.mark(work.life, 2 * plan.batch, facts, plan.table_version)

"""What delivers one stream: its table and keys, what is wished for, where it is registered, who receives.

In: nothing. Out: frozen values, and what a run counts.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from mirrorlib.errors import FeedExpiredError, JournalError
from mirrorlib.events import Event
from mirrorlib.feed.proof import first_readable
from mirrorlib.journal.streams import snapshot_command

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from mirrorlib.delivery.sink import Sink
    from mirrorlib.delta.address import FeedTable
    from mirrorlib.events import Observer
    from mirrorlib.journal.registry import Registry
    from mirrorlib.journal.streams import OnExpired, Plan, Start, Stream


class OtherWishesError(JournalError):
    """A run asks for something else than the consumer is registered with; that is no failure of the consumer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What a run asks for.

    Attributes:
        to: the receiver, without passwords.
        mode: what it makes of changes.
        net: fold windows to net changes.
        start: with what a new stream begins.
        on_expired: what happens when changes that were not read are gone.
        max_versions: versions a window; None is all there are.

    """

    to: str
    mode: str
    net: bool
    start: Start
    on_expired: OnExpired
    max_versions: int | None


@dataclass(slots=True, kw_only=True)
class Progress:
    """What has become of a stream so far."""

    table: str
    windows: int = 0
    rows: int = 0
    resets: int = 0
    position: int | None = None
    newest: int | None = None
    began: float = field(default_factory=time.perf_counter)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamJob:
    """What delivers one stream: its table and keys, where it is registered, who receives.

    Attributes:
        spark: whose sessions deliver.
        source: the table, and its log as it was when it was looked at last.
        goal: the newest version when the run began, which it delivers up to; what comes meanwhile is the next one's.
        keys: names the table's key columns as of its newest version.
        registry: where the stream is registered.
        sink: who receives.
        wishes: what the run asks for.
        observe: told of each step.
        stop: asked between windows.

    """

    spark: SparkSession
    source: FeedTable
    goal: int
    keys: Callable[[FeedTable], tuple[str, ...]]
    registry: Registry
    sink: Sink
    wishes: Wishes
    observe: Observer
    stop: Callable[[], bool]

    def refresh(self) -> StreamJob:
        """Look at the table's log anew; returns itself where nothing has come or gone.

        Raises:
            FeedError: the table is gone.

        """
        source = self.source.refresh()
        return self if source is self.source else replace(self, source=source)


def check_table(job: StreamJob, stream: Stream, table_id: str, position: int) -> None:
    """See that the table is still the one that was read.

    Raises:
        FeedExpiredError: it was made anew, so what came after the position is not known.

    """
    commits = job.source.commits
    if commits.metadata_at(commits.newest).id != table_id or position > commits.newest:
        msg = "the table was made anew since it was read"
        step = f"Begin anew: {snapshot_command(stream.consumer)}"
        found = f"its first version is {commits.made_at}"
        first = first_readable(commits, commits.made_at)
        raise FeedExpiredError(
            msg, table=stream.table, found=found, first_readable=first, next_step=step
        )


def tell_step(
    job: StreamJob, plan: Plan, step: str, when: Literal["before", "after"], rows: int = 0
) -> None:
    """Tell whoever watches the run that a step begins or has ended."""
    table = job.registry.table
    job.observe(Event(table=table, step=step, when=when, batch=plan.number, rows=rows))

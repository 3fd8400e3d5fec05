"""What delivers one stream: what all tables of a run share, its own table, where it is registered.

In: nothing. Out: frozen values, and what a run counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pyspark.sql import SparkSession

from mirrorlib.delivery.sink import Sink
from mirrorlib.delta.address import FeedTable
from mirrorlib.errors import JournalError
from mirrorlib.events import Event, Observer
from mirrorlib.journal.registry import Registry
from mirrorlib.journal.streams import OnExpired, Start, Stream, WindowPlan
from mirrorlib.store import Store
from mirrorlib.store.target import Target


class OtherWishesError(JournalError):
    """A run asks for something else than the consumer is registered with; that is no failure of the consumer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What all tables of a run share: see `export_tables`."""

    spark: SparkSession  # whose sessions deliver
    target: Target
    state: Store  # where consumers are registered
    consumer: str
    sink: Sink  # who receives
    to: str  # the receiver, without passwords
    mode: str  # what it makes of changes
    net: bool
    start: Start
    on_expired: OnExpired
    max_versions: int | None
    keys: Mapping[str, Sequence[str]] | Sequence[str] | None
    observe: Observer  # told of each step
    stop: Callable[[], bool]  # asked between windows


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamJob:
    """What delivers one stream."""

    run: Run  # what it shares with others
    spark: SparkSession  # the run's; while windows are delivered, one of the table's own
    source: FeedTable  # the table, and its log as it was when it was looked at last
    goal: int  # the newest version when the run began, which it delivers up to; what comes meanwhile is the next one's
    registry: Registry  # where the stream is registered
    stream: Stream

    def refresh(self) -> StreamJob:
        """Look at the table's log anew; returns itself where nothing has come or gone."""
        source = self.source.refresh()
        return self if source is self.source else replace(self, source=source)

    def tell(
        self, plan: WindowPlan, step: str, when: Literal["before", "after"], rows: int | None = None
    ) -> None:
        """Tell whoever watches the run that a step begins or has ended."""
        table = self.registry.table
        event = Event(table=table, step=step, when=when, batch=plan.number, rows=rows or 0)
        self.run.observe(event)

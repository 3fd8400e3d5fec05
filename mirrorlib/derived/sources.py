"""Open the tables that a derived table is made of, and settle together which versions it is made of next.

In: tables as a caller names them. Out: `SourceTable` values, and a `Round`: one window a source.
What the table is made of stands in its own last commit, from which the next round leads on. Each source has it for a
consumer, `derive:NAME`, so that everyone who asks for readers of its history sees it: it is told behind the commit.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from mirrorlib.delta.address import FeedTable, find_feed_table
from mirrorlib.delta.lock import TablePlace, find_place
from mirrorlib.errors import JournalError, LandingZoneError, MirrorError
from mirrorlib.feed.window import plan_window
from mirrorlib.identifiers import fold_name
from mirrorlib.journal.entries import now
from mirrorlib.journal.registry import Registry, registries
from mirrorlib.journal.streams import Stream, WindowDone, WindowPlan, last_seen
from mirrorlib.store import PathOrUrl, open_store
from mirrorlib.store.target import settled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONSUMER = "derive:"
MODE = "derive"
Sources: TypeAlias = PathOrUrl | Sequence[PathOrUrl] | Mapping[str, PathOrUrl]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTable:
    """A table that a derived table is made of."""

    name: str  # the transformation's parameter; "" where it takes sources by their places
    place: TablePlace
    table: FeedTable
    registry: Registry  # of the derived table as its consumer


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One window of every source, in the order of the sources; a round has the name of the first one's stream."""

    number: int  # 1 for the first
    streams: tuple[Stream, ...]
    plans: tuple[WindowPlan, ...]
    is_told: bool  # every source knows already that it has been taken in up to there

    @property
    def is_new(self) -> bool:
        """Say whether a source has a version that the table is not made of, or is another one by now."""
        return any(plan.after != plan.until for plan in self.plans)


def open_sources(
    spark: SparkSession, name: str, sources: Sources, target: TablePlace, state: PathOrUrl | None
) -> tuple[SourceTable, ...]:
    """Open the sources."""
    if isinstance(sources, Mapping):
        named = list(sources.items())
    elif isinstance(sources, (str, os.PathLike)):
        named = [("", sources)]
    else:
        named = [("", table) for table in sources]
    if not named:
        msg = "a derived table is made of at least one table"
        raise LandingZoneError(msg, next_step="Name its sources.")
    seen, opened = dict[str, str](), list[SourceTable]()
    for key, table in named:
        place = find_place_with_state(spark, table, state)
        is_own = _whereabouts(place) == _whereabouts(target)
        found = None if is_own else find_feed_table(spark, place.ref.address, shown=place.shown)
        # A catalog's table has a path, too.
        if found is None or settled(found.location) in seen:
            msg = "a source is named twice, or is the derived table itself"
            raise LandingZoneError(msg, table=place.shown, next_step="Name each table once.")
        if _whereabouts(target).startswith(f"{settled(found.location)}/"):
            msg = "the derived table lies in a source's folder, whose VACUUM would remove its files"
            step = "Derive it to a place outside of every table."
            raise LandingZoneError(msg, table=place.shown, found=target.shown, next_step=step)
        kept = f"{place.root.state} {place.ref.name}"
        if kept in seen:
            msg = f"in one state folder {seen[kept]} and this source have the same name"
            step = "Give one of them another name, or derive a table of another name from it first."
            raise LandingZoneError(
                msg, table=place.shown, found=str(place.ref.name), next_step=step
            )
        seen |= {settled(found.location): place.shown, kept: place.shown}
        registry = Registry(open_store(place.root.state), f"{CONSUMER}{name}", place.ref.name)
        opened.append(SourceTable(name=key, place=place, table=found, registry=registry))
    return tuple(opened)


def _whereabouts(place: TablePlace) -> str:
    """Name a table's folder, or what a catalog takes in any case of letters."""
    ref = place.ref
    return fold_name(ref.address) if ref.path is None else settled(ref.path)


def find_place_with_state(
    spark: SparkSession, table: PathOrUrl, state: PathOrUrl | None
) -> TablePlace:
    """Address a table; `LandingZoneError` where it cannot be, or has no folder to keep progress in, as a catalog's."""
    place = find_place(spark, table, state=state)
    if not place.root.state:
        msg = "a catalog's schema has no folder for the progress of derived tables"
        raise LandingZoneError(msg, table=place.shown, next_step="Say where it lives, with state.")
    return place


def begun_streams(sources: Sequence[SourceTable], target: str) -> tuple[Stream, ...]:
    """Return the ways through the sources; begin those that are not there."""
    streams = [source.registry.newest_stream() for source in sources]
    for stream in streams:
        fold = str if "/" in target else fold_name  # a catalog takes names in any case of letters
        if stream is not None and fold(stream.to) != fold(target):
            msg = "there is another derived table of this name"
            drop = f"mirrorlib consumers TARGET --drop {shlex.quote(stream.consumer)}"
            step = f"Choose another name, or drop that one: {drop}"
            raise JournalError(msg, table=stream.table, found=stream.to, next_step=step)
    wanted = {"to": target, "mode": MODE, "net": False, "start_at": None, "on_expired": "snapshot"}
    return tuple(
        stream or source.registry.begin({**wanted, "table_id": source.table.commits.metadata.id}, 1)
        for source, stream in zip(sources, streams, strict=True)
    )


def next_round(
    sources: Sequence[SourceTable],
    streams: Sequence[Stream],
    held: Sequence[Mapping[str, Any]],
    number: int,
) -> Round:
    """Return the round that leads from what the table is made of to the newest versions.

    *held* and *number* are what its last commit says: how far it is in each source, and which round of these ways it
    was, 0 for none. The next one's is above what either side knows: of what a backup has set back, runners may be late.
    """
    goes_on = [one["stream"] for one in held] == [stream.uuid for stream in streams]
    plans, is_told = list[WindowPlan](), True
    for at, (source, stream) in enumerate(zip(sources, streams, strict=True)):
        commits, entry, after = source.table.commits, source.registry.newest(stream), None
        if goes_on:
            known = held[at]["table_id"], held[at]["until"], held[at].get("until_hash", "")
            after = held[at]["until"] if commits.is_still(*known) else None
        plan = plan_window(commits, stream, None, after, commits.newest)
        plans.append(plan)
        number = max(number, 0 if entry is None else entry.plan.number)
        seen = last_seen(stream, entry)
        is_told = is_told and seen == (plan.table_id, plan.until, plan.until_hash)
    return Round(number=number + 1, streams=tuple(streams), plans=tuple(plans), is_told=is_told)


def end_round(
    sources: Sequence[SourceTable], planned: Round, rows: int | None, seconds: float
) -> None:
    """Write down of every source up to where the table has taken it in."""
    done = WindowDone(outcome="delivered", rows=rows, seconds=seconds, finished_at=now())
    for source, stream, plan in zip(sources, planned.streams, planned.plans, strict=True):
        told = replace(plan, number=planned.number, after_hash="")
        source.registry.write_plan(stream, told)
        source.registry.write_done(stream, planned.number, done)


def forget_others(sources: Sequence[SourceTable], planned: Round) -> None:
    """Let go of tables that were sources, and are none any more: nobody would ever read what is kept for it there."""
    used = {fold_name(source.registry.table) for source in sources}  # as some disks keep them
    for state in {source.place.root.state for source in sources}:
        with contextlib.suppress(MirrorError):  # the round has ended: the next one tries again
            for other in registries(open_store(state), sources[0].registry.consumer):
                unused = fold_name(other.table) not in used
                if unused and other.present_stream().to == planned.streams[0].to:
                    other.forget()

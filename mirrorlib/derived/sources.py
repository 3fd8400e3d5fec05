"""Open the tables that a derived table is made of, and settle together which versions it is made of next.

In: tables as a caller names them. Out: `SourceTable` values, and a `Round`: one window a source, all of one number.
Each source has the derived table for a consumer, `derive:NAME`, so that everyone who asks for readers of its
history sees it. A round has ended when each of its windows has.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from mirrorlib.delta.address import FeedTable, find_feed_table
from mirrorlib.delta.lock import TablePlace, find_place
from mirrorlib.errors import JournalError, LandingZoneError, MirrorError
from mirrorlib.feed.window import NOTHING, plan_window
from mirrorlib.identifiers import fold_name
from mirrorlib.journal.entries import now
from mirrorlib.journal.registry import Registry, registries
from mirrorlib.journal.streams import (
    Outcome,
    Stream,
    WindowDone,
    WindowEntry,
    WindowPlan,
    last_seen,
    position_of,
)
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

    streams: tuple[Stream, ...]
    plans: tuple[WindowPlan, ...]

    @property
    def number(self) -> int:
        """Return the number of the round, 1 for the first."""
        return self.plans[0].number


_Way: TypeAlias = tuple[SourceTable, Stream, WindowEntry | None]  # with its newest window


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


def begun_streams(
    sources: Sequence[SourceTable], target: str, held: Callable[[str], int]
) -> tuple[Stream, ...]:
    """Return the ways through the sources; begin all of them anew where they do not go together.

    Or where they lack the round that the table has *held* of theirs: a backup has set them back, and another round of
    its number would be taken for that one.
    """
    streams = [source.registry.newest_stream() for source in sources]
    for stream in streams:
        fold = str if "/" in target else fold_name  # a catalog takes names in any case of letters
        if stream is not None and fold(stream.to) != fold(target):
            msg = "there is another derived table of this name"
            drop = f"mirrorlib consumers TARGET --drop {shlex.quote(stream.consumer)}"
            step = f"Choose another name, or drop that one: {drop}"
            raise JournalError(msg, table=stream.table, found=stream.to, next_step=step)
    found = tuple(stream for stream in streams if stream is not None)
    if len(found) == len(streams):
        # They go apart where a run died between their plans.
        numbers = {entry.plan.number if entry else 0 for *_, entry in _ways(sources, found)}
        if len(numbers) == 1 and held(found[0].uuid) <= numbers.pop():
            return found
    wanted = {"to": target, "mode": MODE, "net": False, "start_at": None, "on_expired": "snapshot"}
    return tuple(
        source.registry.begin(
            {**wanted, "table_id": source.table.commits.metadata.id},
            1 if stream is None else stream.ordinal + 1,
        )
        for source, stream in zip(sources, streams, strict=True)
    )


def _ways(sources: Sequence[SourceTable], streams: Sequence[Stream]) -> list[_Way]:
    pairs = zip(sources, streams, strict=True)
    return [(source, stream, source.registry.newest(stream)) for source, stream in pairs]


def pending_round(sources: Sequence[SourceTable], streams: Sequence[Stream]) -> Round | None:
    """Return the round that was planned and has not ended; None when there is none."""
    entries = [entry for *_, entry in _ways(sources, streams) if entry is not None]
    if all(entry.done is not None for entry in entries):
        return None
    return Round(streams=tuple(streams), plans=tuple(entry.plan for entry in entries))


def next_round(
    sources: Sequence[SourceTable], streams: Sequence[Stream], held: int, *, wanted: bool
) -> Round | None:
    """Plan a round up to the newest versions; None when no source has one that is new, unless it is *wanted*.

    It is new, too, to a table that does not hold the last round, but an earlier one, number *held*: it was set back;
    and where no round has been planned since the ways were begun, or rewound, be it to the newest version.
    """
    ways = _ways(sources, streams)
    last = ways[0][-1]
    is_new = (
        last is None
        or held < last.plan.number
        or any(
            position_of(stream, entry) != source.table.commits.newest
            or not source.table.commits.is_still(*last_seen(stream, entry))
            for source, stream, entry in ways
        )
    )
    if not (is_new or wanted):
        return None
    return Round(streams=tuple(streams), plans=tuple(_planned(*way) for way in ways))


def _planned(source: SourceTable, stream: Stream, entry: WindowEntry | None) -> WindowPlan:
    commits, position = source.table.commits, position_of(stream, entry)
    is_there = position != NOTHING and commits.is_still(*last_seen(stream, entry))
    after = position if is_there else None
    plan = plan_window(commits, stream, entry, after, commits.newest)
    return source.registry.write_plan(stream, plan)


def end_round(
    sources: Sequence[SourceTable], planned: Round, outcome: Outcome, rows: int, seconds: float
) -> None:
    """Write down of every window that it has ended."""
    done = WindowDone(outcome=outcome, rows=rows, seconds=seconds, finished_at=now())
    for source, stream in zip(sources, planned.streams, strict=True):
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

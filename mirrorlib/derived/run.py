"""Run: bring a derived table up to date with its sources, once and for all of each change.

In: tables, a transformation, a target. Out: `DeriveReport`. Delivery: exactly once. The one commit that carries out
a round of windows, one a source, says which round it is and up to where it goes: there the next one goes on. What a
derived table holds is at every version the transformation of one version of each source.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from pyspark.sql import SparkSession

from mirrorlib.delta.sessions import lend_session
from mirrorlib.derived.commit import commit_round, nothing_new
from mirrorlib.derived.compute import MOVES
from mirrorlib.derived.frames import Transform
from mirrorlib.derived.job import DeriveJob, open_target
from mirrorlib.derived.report import DeriveReport
from mirrorlib.derived.sources import (
    CONSUMER,
    begun_streams,
    find_place_with_state,
    next_round,
    open_sources,
)
from mirrorlib.events import Observer, unobserved
from mirrorlib.journal.disk import open_state
from mirrorlib.journal.leases import hold
from mirrorlib.journal.registry import Registry, check_name
from mirrorlib.store import PathOrUrl, open_store

_DOES = "computes the derived table"  # as whoever finds it held is told


def derive_table(
    spark: SparkSession,
    name: str,
    sources: PathOrUrl | Sequence[PathOrUrl] | Mapping[str, PathOrUrl],
    transform: Transform,
    target: PathOrUrl,
    *,
    state: PathOrUrl | None = None,
    rebuild: bool = False,
    observe: Observer | None = None,
) -> DeriveReport:
    """Bring a table that is made of others up to date.

    Every call takes in what has changed in the sources since the last one: row by row where the transformation
    treats each row by itself, by the affected keys where rows of one key make rows of that key alone, else in
    full; the report says which, and why. The target has its own change feed, in which only rows are that are
    different, and the keys that have survived; so it can be a source itself, and be exported.

    Args:
        spark: any Spark with Delta.
        name: of the derived table; its consumer at the sources is `derive:NAME`.
        sources: tables whose feed is on, by path, URL or a catalog's name: one, several, or named ones.
        transform: a function of keyed DataFrames, one a source, in their order or by their names. It is called
            more than once and only builds a DataFrame.
        target: path or URL of the table, or a catalog's name; made when it is not there. Nobody else writes to it.
        state: where progress lives, for tables of a catalog; beside the tables otherwise.
        rebuild: compute all of it, as after a change of the transformation that no plan shows.
        observe: told before and after each step.

    Raises:
        LandingZoneError: the name or a table's address cannot be used.
        FeedError: a source is no Delta table.
        ForeignWriteError: the target is somebody else's, or somebody else has written to it.
        JournalError: the name is another derived table's.
        SchemaError: the result has columns that the target cannot take.
        TableBusyError: another runner is at it.

    """
    began = time.perf_counter()
    check_name(f"{CONSUMER}{name}" if name else "")
    place = find_place_with_state(spark, target, state)
    store = open_store(place.root.state)
    open_state(store)
    lock = hold(Registry(store, f"{CONSUMER}{name}", place.ref.name).lease(_DOES))
    with lock as lease, lend_session(spark) as session, place.hold(spark):
        opened = open_sources(spark, name, sources, place, state)  # as they are from here on
        for folder in dict.fromkeys(one.place.root.state for one in opened):
            open_state(open_store(folder))
        job = DeriveJob(
            spark=spark,
            session=session,
            name=name,
            place=place,
            sources=opened,
            transform=transform,
            rebuild=rebuild,
            lease=lease,
            observe=observe or unobserved,
            began=began,
        )
        return _bring_up_to_date(job)


def _bring_up_to_date(job: DeriveJob) -> DeriveReport:
    """Carry out the next round, where something may be new."""
    target = open_target(job)  # first: a target that is refused does not give the name away
    streams = begun_streams(job.sources, job.place.ref.address)
    job.tell("plan", "before")
    held, number = target.held or {}, target.last.window_of(streams[0].uuid)
    planned = next_round(job.sources, streams, held.get("sources", ()), number)
    # Where it does not say whether it moves, it may.
    if not (planned.is_new or job.rebuild or held.get(MOVES) != ""):
        return nothing_new(job, planned, target)
    job.tell("plan", "after", planned)
    return commit_round(job, planned, target)

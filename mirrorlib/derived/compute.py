"""Compute what a derived table has to become: as little as is certain to be enough.

In: a round, and the table as its last commit left it. Out: `Computed`: the rows that are there now and may have to
go, the rows that have to be there instead, and how and why. Nothing runs here; whatever is unclear is computed in
full, and what a part of the sources gives is taken only if the transformation did the same on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from mirrorlib.commit.difference import rows_like
from mirrorlib.delta.address import find_feed_table
from mirrorlib.derived import frames
from mirrorlib.derived.job import DerivedTarget, DeriveJob, added_columns, check_columns
from mirrorlib.derived.sources import Round
from mirrorlib.derived.strategy.choose import How, PlanShape, choose, fingerprint_of, shape_of
from mirrorlib.errors import FeedError
from mirrorlib.feed.read import read_rows, read_window
from mirrorlib.feed.schemas import in_its_order, keeps
from mirrorlib.feed.window import Window, open_window
from mirrorlib.identifiers import quote
from mirrorlib.keys.read import KeysReport, explain_keys

MOVES = "moves"  # in what a commit says: why it is to be followed by another without a new version
_AFRESH = "the transformation, Spark, or the session's time zone, ANSI mode or time parser is not that of the last run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """What a derived table has to become."""

    framed: Sequence[frames.Framed]
    shape: PlanShape
    result: DataFrame  # what that gives on all of them
    keys: KeysReport
    # Columns that the table lacks; None where it cannot become what the result is, or is new.
    added: tuple[str, ...] | None
    new: DataFrame  # rows that have to be there
    # Rows that are there in their place; None for all that are, columns too.
    old: DataFrame | None = None
    how: How = "full"
    why: str = ""
    # For each source whether rows have changed, where that was asked.
    changed: tuple[bool, ...] = ()


def compute(job: DeriveJob, planned: Round, target: DerivedTarget) -> Computed:
    """Compute a round."""
    full = _compute_in_full(job, planned, target)
    windows = _windows(job, planned, target, full)
    if isinstance(windows, str):
        return _in_full(job, target, replace(full, why=windows))
    full = replace(full, changed=tuple(window.changes for window in windows))
    if not any(full.changed):
        return replace(full, how="nothing new")
    if not frames.can_differ(full.result):
        return replace(full, why="a column of it is of a type that cannot be compared")
    places = [at for at, one in enumerate(full.changed) if one]
    how, why = choose(full.shape, full.framed, places)
    full = replace(full, how=how, why=why)
    if how == "full":
        return _in_full(job, target, full)
    return _in_part(job, planned, target, full, windows)


def _compute_in_full(job: DeriveJob, planned: Round, target: DerivedTarget) -> Computed:
    framed = [
        frames.frame_rows(source, plan, read_rows(job.spark, source.table, plan.until))
        for source, plan in zip(job.sources, planned.plans, strict=True)
    ]
    result = frames.transformed(job.transform, framed)
    check_columns(job.place, result)
    added = None if target.is_new else added_columns(target, result)
    return Computed(
        framed=framed,
        shape=shape_of(result, framed),
        result=result,
        keys=explain_keys(result),
        added=added,
        new=_in_order(target, added, result),
    )


def _in_order(target: DerivedTarget, added: Sequence[str] | None, rows: DataFrame) -> DataFrame:
    found = target.found
    return rows if added is None or found is None else in_its_order(rows, found.schema)


def _windows(
    job: DeriveJob, planned: Round, target: DerivedTarget, full: Computed
) -> tuple[Window, ...] | str:
    """Open the windows that lead on from what the table holds, or say why all has to be computed."""
    if target.is_new:
        return "it is made for the first time"
    if target.held is None:
        return "the table's log no longer tells what the last run has made"
    if job.rebuild:
        return "that was asked for"
    windows = _opened(job, planned, target.held.get("sources", ()))
    if isinstance(windows, str):
        return windows
    shape = full.shape
    if shape.why and (shape.moves or any(window.changes for window in windows)):
        return shape.why
    if shape.fingerprint != target.held.get("plan"):
        return _AFRESH
    if full.added != ():
        return "its columns change"
    return windows


def _opened(
    job: DeriveJob, planned: Round, records: Sequence[Mapping[str, object]]
) -> tuple[Window, ...] | str:
    """Open a proven window a source, where *records*, what the last commit says of each, lead on to them."""
    held = [(one.get("stream"), one.get("until"), one.get("table_id")) for one in records]
    wanted = [(plan.stream, plan.after, plan.table_id) for plan in planned.plans]
    if [stream for stream, *_ in held] != [stream for stream, *_ in wanted]:
        return "its sources are not those of the last run, or its progress was reset"
    if held != wanted:
        return "a source was made anew or put back since the last run"
    windows = []
    for source, plan in zip(job.sources, planned.plans, strict=True):
        commits, shown = source.table.commits, source.place.shown
        try:
            windows.append(open_window(commits, plan.after, plan.until))
            if not keeps(commits.metadata_at(plan.after), commits.metadata_at(plan.until)):
                return f"the columns of {shown} have become others"
        except FeedError as exc:
            return f"the changes of {shown} cannot be read: {exc.reason}"
    return tuple(windows)


def _in_full(job: DeriveJob, target: DerivedTarget, full: Computed) -> Computed:
    """Compute all rows; those that stay the same are left alone where rows can be compared."""
    if full.added is None or not frames.can_differ(full.result):
        return full
    return replace(full, old=_there(job, target, full))


def _there(job: DeriveJob, target: DerivedTarget, full: Computed) -> DataFrame:
    """Return the table's rows; NULL for columns that it lacks."""
    table = find_feed_table(job.spark, job.place.ref.address, shown=job.place.shown)
    rows, kinds = read_rows(job.spark, table, target.last.newest), full.result.schema
    lacks = {name: f.lit(None).cast(kinds[name].dataType) for name in full.added or ()}
    rows = rows.withColumns(lacks) if lacks else rows
    return rows.select(*map(quote, full.result.columns))


def _in_part(
    job: DeriveJob, planned: Round, target: DerivedTarget, full: Computed, windows: Sequence[Window]
) -> Computed:
    given, reaches = list(full.framed), full.shape.reaches
    places = [at for at, one in enumerate(full.changed) if one]
    at, how = places[0], full.how
    if how == "row-wise" and frames.can_differ(given[at].frame):
        values, rows = frames.changed_rows(job.spark, given[at], windows[at])
        keys = [(values, [reaches[at].columns[name] for name in given[at].key_columns])]
        given[at] = frames.frame_rows(given[at].source, planned.plans[at], rows)
    else:
        how = "affected keys"
        keys = []
        for one in places:
            came_or_went = read_window(job.spark, given[one].source.table, windows[one])
            values = came_or_went.select(*map(quote, reaches[one].columns)).distinct()
            keys.append((values, list(reaches[one].columns.values())))
        if len(keys) == 1:
            few = rows_like(given[at].frame, (keys[0][0], list(reaches[at].columns)))
            given[at] = frames.frame_rows(given[at].source, planned.plans[at], few)
    part = frames.transformed(job.transform, given)
    if fingerprint_of(part, given) != full.shape.fingerprint:
        # Anew: a temporary view that it has made means the part by now, for a Spark Connect client.
        again = _compute_in_full(job, planned, target)
        why = "the transformation looks at the rows to choose what it does"
        return _in_full(job, target, replace(again, why=why, changed=full.changed))
    if len(keys) > 1 or not reaches[at].own:
        part = rows_like(part, *keys)
    old = rows_like(_there(job, target, full), *keys)
    return replace(full, how=how, new=_in_order(target, full.added, part), old=old)

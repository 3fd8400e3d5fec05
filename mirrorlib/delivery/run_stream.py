"""Bring one stream up to date: plan a window, deliver it, write down that it was, and so on.

In: a table, a consumer's registry, a receiver. Out: `StreamReport`, one a step. Promise: windows follow each other
without a gap, each is planned once and repeated as it was planned until it is delivered; where
changes are gone, the stream stops, or a snapshot that resets the receiver takes their place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from mirrorlib.delivery.deliver_window import check_registry, end_window, refuse_void
from mirrorlib.delivery.report import StreamReport
from mirrorlib.delivery.sinks.open import is_same_url
from mirrorlib.delivery.stream_job import OtherWishesError, StreamJob
from mirrorlib.delta.sessions import lend_session
from mirrorlib.errors import FeedExpiredError, MirrorError, TableBusyError
from mirrorlib.feed.declared_keys import find_mirror
from mirrorlib.feed.owners import stored_columns
from mirrorlib.feed.read import spell_keys
from mirrorlib.feed.window import check_table, open_window, plan_window
from mirrorlib.journal.leases import hold
from mirrorlib.journal.streams import (
    WindowEntry,
    WindowPlan,
    advise_snapshot,
    last_seen,
    position_of,
    snapshot_command,
    version_given,
)
from mirrorlib.names import as_names


def bring_up_to_date(job: StreamJob, told: StreamReport) -> Iterator[StreamReport]:
    """Deliver what the table holds at this moment, window by window; tell what has come of it before and after each."""
    stream, registry = job.stream, job.registry
    entry = registry.newest(stream)
    _check_same(job, entry)
    yield (told := _moved(job, told, entry))
    if entry is not None and entry.done is not None and _is_current(job, entry):
        return
    with hold(registry.lease()) as lease, lend_session(job.run.spark) as spark:
        job = replace(job, spark=spark)
        if registry.newest_stream() != stream:
            msg = "the consumer was dropped or rewound a moment ago"
            raise TableBusyError(msg, table=stream.table, next_step="Run again.")
        entry = registry.newest(stream)
        if entry is not None and entry.plan.until > job.source.commits.newest:
            job = job.refresh()  # another runner has delivered what came since this one's look
        yield (told := _moved(job, told, entry))
        while not job.run.stop():
            plan = _planned(job, entry)
            if plan is None:
                return
            lease.check()
            try:
                done, job = end_window(job, plan)
            except MirrorError:
                lease.check()  # who comes late is told that, not what others have left behind
                raise
            entry, delivered = WindowEntry(plan=plan, done=done), done.outcome == "delivered"
            told = replace(
                told,
                windows=told.windows + delivered,
                resets=told.resets + (plan.reset and delivered),
                rows=told.rows + (done.rows or 0),
            )
            yield (told := _moved(job, told, entry))


def _moved(job: StreamJob, told: StreamReport, entry: WindowEntry | None) -> StreamReport:
    position = version_given(job.stream, entry)
    newest = max(_goal(job), -1 if position is None else position)
    return replace(told, position=position, newest=newest)


def _goal(job: StreamJob) -> int:
    """Return the version to deliver up to; a table that was made anew meanwhile may not have as many."""
    return min(job.goal, job.source.commits.newest)


def _check_same(job: StreamJob, entry: WindowEntry | None) -> None:
    """Refuse other wishes than the consumer is registered with: a receiver's position means that one receiver."""
    stream = job.stream
    for name in ("to", "mode", "net", "on_expired"):
        was, wanted = getattr(stream, name), getattr(job.run, name)
        if was != wanted and not (name == "to" and is_same_url(was, wanted)):
            msg = f"the consumer {stream.consumer} is registered with another `{name}`"
            step = "Ask for the same, use another name, or drop it: mirrorlib consumers TARGET --drop NAME"
            found = f"{wanted}, registered {was}"
            raise OtherWishesError(msg, table=stream.table, found=found, next_step=step)
    owner = job.run.target.owner
    # A target that was moved has its tables with it.
    if stream.target in {"", owner} or job.source.commits.is_still(*last_seen(stream, entry)):
        return
    msg = f"the consumer {stream.consumer} is registered for a table of this name in another target"
    anew = snapshot_command(stream.consumer, stream.table)
    step = f"Use another name or another state folder; where it is this one, moved: {anew}"
    raise OtherWishesError(msg, table=stream.table, found=stream.target, next_step=step)


def _is_current(job: StreamJob, entry: WindowEntry) -> bool:
    commits, plan = job.source.commits, entry.plan
    return (
        entry.position == plan.until == commits.newest
        and commits.written_at(plan.until).isoformat() == plan.until_at
    )


def _planned(job: StreamJob, entry: WindowEntry | None) -> WindowPlan | None:
    """Take up the window that is planned and not delivered, or plan the next; None when there is nothing more."""
    if entry is not None and entry.done is None:
        return entry.plan
    plan = _next(job, entry)
    if plan is None:
        return None
    check_registry(job, entry)
    job.tell(plan, "plan", "before")
    plan = job.registry.write_plan(job.stream, plan)
    job.tell(plan, "plan", "after")
    return plan


def _next(job: StreamJob, entry: WindowEntry | None) -> WindowPlan | None:
    stream, commits, goal = job.stream, job.source.commits, _goal(job)
    position = position_of(stream, entry)
    if entry is not None and entry.done is not None and entry.done.outcome == "void":
        refuse_void(stream, entry.plan)
        position = None
    if position is None:
        return _plan(job, entry, None, commits.newest)
    try:
        check_table(stream, commits, *last_seen(stream, entry))
        if position >= goal:
            return None
        until = min(goal, position + (job.run.max_versions or goal + 1))
        window = open_window(commits, position, until)
    except FeedExpiredError as exc:
        if stream.on_expired == "fail":
            raise advise_snapshot(exc, stream) from exc
        return _plan(job, entry, None, commits.newest)
    if window.rewritten:  # what came before is told in the types that it had
        until = max(window.rewritten[0] - 1, position + 1)
    return _plan(job, entry, position, until)


def _plan(job: StreamJob, entry: WindowEntry | None, after: int | None, until: int) -> WindowPlan:
    """Plan a window of what came after a version; or, after None, a snapshot."""
    stream, commits, keys = job.stream, job.source.commits, _keys(job)
    spell_keys(stream.table, commits.metadata_at(until), keys)  # a plan is never changed
    return plan_window(commits, stream, entry, after, until, keys)


def _keys(job: StreamJob) -> tuple[str, ...]:
    """Take a table's keys from the caller, else from its mirror's journal, else from the table's property."""
    chosen, name, place = job.run.keys, job.source.shown, job.run.target
    if isinstance(chosen, Mapping):
        chosen = chosen.get(name, chosen.get(name.rpartition("/")[2]))
    if chosen is not None:
        return as_names(chosen)
    _, keys = find_mirror(place.place, name, catalog=place.catalog, state=place.state)
    groups, commits = getattr(job.run.sink, "groups", False), job.source.commits
    return keys or stored_columns(commits, commits.newest, grouping=groups)

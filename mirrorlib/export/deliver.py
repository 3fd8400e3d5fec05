"""Bring one stream up to date: plan a window, deliver it, write down that it was, and so on.

In: a table, a consumer's registry, a receiver. Out: `Tally`. Promise: windows follow each other
without a gap, each is planned once and repeated as it was planned until it is delivered; where
changes are gone, the stream stops, or a snapshot that resets the receiver takes their place.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from mirrorlib.apply.record import new_attempt, now
from mirrorlib.apply.report import Event, Observer
from mirrorlib.apply.sessions import lend_session
from mirrorlib.errors import FeedExpiredError, JournalError
from mirrorlib.export.lease import hold_stream
from mirrorlib.export.record import Done, Entry, OnExpired, Outcome, Plan, Start, Stream
from mirrorlib.export.sink import Delivery, Sink
from mirrorlib.feed.read import read_snapshot, read_window, spell_keys, tell_changes
from mirrorlib.feed.window import NOTHING, open_window

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from mirrorlib.export.registry import Registry
    from mirrorlib.feed.place import FeedTable


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
class Tally:
    """What has become of a stream so far."""

    table: str
    windows: int = 0
    rows: int = 0
    resets: int = 0
    position: int | None = None
    newest: int | None = None
    began: float = field(default_factory=time.perf_counter)


@dataclass(frozen=True, slots=True, kw_only=True)
class Courier:
    """What delivers one stream: its table and keys, where it is registered, who receives."""

    spark: SparkSession
    source: FeedTable
    keys: Callable[[], tuple[str, ...]]
    registry: Registry
    sink: Sink
    wishes: Wishes
    observe: Observer
    stop: Callable[[], bool]


def bring_up_to_date(courier: Courier, tally: Tally) -> None:
    """Deliver what the table holds at this moment, window by window.

    Raises:
        FeedExpiredError: changes are gone, and the consumer is not to be given a snapshot.
        FeedError: the feed cannot be read.
        JournalError: the consumer is registered with other wishes.
        TableBusyError: another runner delivers the stream.

    """
    stream = courier.registry.newest_stream() or _register(courier)
    _check_same(stream, courier.wishes)
    entry = courier.registry.newest(stream)
    _note(courier, tally, stream, entry)
    if entry is not None and entry.done is not None and _is_current(courier, entry):
        return
    with hold_stream(courier.registry) as lease, lend_session(courier.spark) as spark:
        entry = courier.registry.newest(stream)
        while not courier.stop():
            plan = _planned(courier, stream, entry)
            if plan is None:
                return
            lease.check()
            done = _carry_out(courier, spark, stream, plan)
            entry = Entry(plan=plan, done=done)
            tally.windows += done.outcome == "delivered"
            tally.resets += plan.reset and done.outcome == "delivered"
            tally.rows += done.rows or 0
            _note(courier, tally, stream, entry)


def _note(courier: Courier, tally: Tally, stream: Stream, entry: Entry | None) -> None:
    tally.newest = courier.source.commits.newest
    tally.position = stream.start_at if entry is None else entry.position


def _register(courier: Courier) -> Stream:
    """Register the stream; a start of "now" is a version from here on."""
    wishes, commits = courier.wishes, courier.source.commits
    start = commits.newest if wishes.start == "now" else wishes.start
    start_at = start if isinstance(start, int) else None
    if start_at is not None:  # a start that cannot be read is refused before it is written down
        open_window(commits, courier.source.shown, start_at, None)
    return courier.registry.begin(
        {
            "to": wishes.to,
            "mode": wishes.mode,
            "net": wishes.net,
            "start_at": start_at,
            "table_id": commits.metadata_at(commits.newest).id,
            "on_expired": wishes.on_expired,
        },
        1,
    )


def _check_same(stream: Stream, wishes: Wishes) -> None:
    """See that a run asks for what the consumer is registered with: a receiver's position means that one receiver."""
    for name in ("to", "mode", "net", "on_expired"):
        was, wanted = getattr(stream, name), getattr(wishes, name)
        if was != wanted:
            msg = f"the consumer {stream.consumer} is registered with another `{name}`"
            step = "Ask for the same, use another name, or drop it: mirrorlib consumers TARGET --drop NAME"
            found = f"{wanted}, registered {was}"
            raise JournalError(msg, table=stream.table, found=found, next_step=step)


def _is_current(courier: Courier, entry: Entry) -> bool:
    commits, plan = courier.source.commits, entry.plan
    return (
        entry.position == plan.until == commits.newest
        and commits.written_at(plan.until).isoformat() == plan.until_at
    )


def _planned(courier: Courier, stream: Stream, entry: Entry | None) -> Plan | None:
    """Take up the window that is planned and not delivered, or plan the next; None when there is nothing more."""
    if entry is not None and entry.done is None:
        return entry.plan
    if entry is not None and _is_current(courier, entry):
        return None
    plan = _next(courier, stream, entry)
    if plan is None:
        return None
    _tell(courier, plan, "plan", "before")
    plan = courier.registry.write_plan(stream, plan)
    _tell(courier, plan, "plan", "after")
    return plan


def _next(courier: Courier, stream: Stream, entry: Entry | None) -> Plan | None:
    commits = courier.source.commits
    position = stream.start_at if entry is None else entry.position
    if entry is not None and entry.done is not None and entry.done.outcome == "void":
        return _snapshot(courier, stream, entry, reset=True)
    if position is None:
        return _snapshot(courier, stream, entry, reset=False)
    try:
        _check_table(courier, stream, entry, position)
        if position == commits.newest:
            return None
        limit = courier.wishes.max_versions or commits.newest
        until = min(commits.newest, position + limit)
        open_window(commits, courier.source.shown, position, until)
    except FeedExpiredError:
        if stream.on_expired == "fail":
            raise
        return _snapshot(courier, stream, entry, reset=True)
    return _plan(courier, stream, entry, after=position, until=until)


def _check_table(courier: Courier, stream: Stream, entry: Entry | None, position: int) -> None:
    """See that the table is still the one that was read.

    Raises:
        FeedExpiredError: it was made anew, so what came after the position is not known.

    """
    commits = courier.source.commits
    known = stream.table_id if entry is None else entry.plan.table_id
    found = commits.metadata_at(commits.newest).id
    if found != known or position > commits.newest:
        msg = "the table was made anew since it was read"
        step = "Begin anew: mirrorlib consumers TARGET --rewind NAME --to snapshot"
        raise FeedExpiredError(msg, table=stream.table, next_step=step)


def _snapshot(courier: Courier, stream: Stream, entry: Entry | None, *, reset: bool) -> Plan:
    newest = courier.source.commits.newest
    return _plan(courier, stream, entry, after=NOTHING, until=newest, snapshot=True, reset=reset)


def _plan(
    courier: Courier,
    stream: Stream,
    entry: Entry | None,
    *,
    after: int,
    until: int,
    snapshot: bool = False,
    reset: bool = False,
) -> Plan:
    commits, keys = courier.source.commits, courier.keys()
    spell_keys(stream.table, commits.metadata_at(until), keys)  # a plan is never changed
    return Plan(
        stream=stream.uuid,
        number=1 if entry is None else entry.plan.number + 1,
        attempt=new_attempt(),
        kind="snapshot" if snapshot else "changes",
        reset=reset,
        after=after,
        until=until,
        until_at=commits.written_at(until).isoformat(),
        table_id=commits.metadata_at(commits.newest).id,
        keys=keys,
        planned_at=now(),
    )


def _carry_out(courier: Courier, spark: SparkSession, stream: Stream, plan: Plan) -> Done:
    """Deliver a window, unless the receiver has it; void one whose changes are gone, where a snapshot may follow."""
    began = time.perf_counter()
    _tell(courier, plan, "deliver", "before")
    outcome: Outcome = "delivered"
    rows: int | None = None
    try:
        if courier.sink.position(stream) < plan.number:
            rows = _deliver(courier, spark, stream, plan)
    except FeedExpiredError:
        if stream.on_expired == "fail" and plan.kind == "changes":
            raise
        outcome = "void"
    _tell(courier, plan, "deliver", "after", rows or 0)
    seconds = round(time.perf_counter() - began, 3)
    done = Done(outcome=outcome, rows=rows, seconds=seconds, finished_at=now())
    _tell(courier, plan, "done", "before")
    done = courier.registry.write_done(stream, plan.number, done)
    _tell(courier, plan, "done", "after")
    return done


def _tell(
    courier: Courier, plan: Plan, step: str, when: Literal["before", "after"], rows: int = 0
) -> None:
    table = courier.registry.table
    courier.observe(Event(table=table, step=step, when=when, batch=plan.number, rows=rows))


def _deliver(courier: Courier, spark: SparkSession, stream: Stream, plan: Plan) -> int:
    source = courier.source
    if plan.kind == "snapshot":
        frame = read_snapshot(spark, source, plan.until)
    else:
        _check_table(courier, stream, Entry(plan=plan, done=None), plan.after)
        window = open_window(source.commits, source.shown, plan.after, plan.until)
        if not window.changes:
            return 0
        frame = read_window(spark, source, window)
        frame = tell_changes(frame, window, source.shown, plan.keys, net=stream.net)
    state = courier.registry.state
    # Of this call's own: a runner that was taken for gone may still be at the same window.
    folder = f"staged/exports/{courier.registry.folder}/{plan.attempt}/{new_attempt()}"
    delivery = Delivery(
        spark=spark, stream=stream, plan=plan, frame=frame, scratch=state, folder=folder
    )
    try:
        return courier.sink.deliver(delivery)
    finally:
        state.delete_folder(folder)

"""Bring one stream up to date: plan a window, deliver it, write down that it was, and so on.

In: a table, a consumer's registry, a receiver. Out: `Progress`. Promise: windows follow each other
without a gap, each is planned once and repeated as it was planned until it is delivered; where
changes are gone, the stream stops, or a snapshot that resets the receiver takes their place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.delivery.deliver_window import carry_out, check_registry, refuse_void
from mirrorlib.delivery.delivery import OtherWishesError, check_table, tell_step
from mirrorlib.delivery.sinks.open import is_same_url
from mirrorlib.delta.sessions import lend_session
from mirrorlib.errors import FeedExpiredError, TableBusyError
from mirrorlib.feed.read import spell_keys
from mirrorlib.feed.window import NOTHING, open_window
from mirrorlib.journal.entries import new_attempt, now
from mirrorlib.journal.leases import hold_stream
from mirrorlib.journal.streams import Entry, Plan, position_of, table_id_of

if TYPE_CHECKING:
    from mirrorlib.delivery.delivery import Courier, Progress, Wishes
    from mirrorlib.journal.streams import Stream


def bring_up_to_date(courier: Courier, progress: Progress) -> None:
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
    _note(courier, progress, stream, entry)
    if entry is not None and entry.done is not None and _is_current(courier, entry):
        return
    with hold_stream(courier.registry) as lease, lend_session(courier.spark) as spark:
        _check_still(courier, stream)
        entry = courier.registry.newest(stream)
        if entry is not None and entry.done is not None:
            check_registry(courier, stream, entry)
        while not courier.stop():
            plan = _planned(courier, stream, entry)
            if plan is None:
                return
            lease.check()
            done, courier = carry_out(courier, spark, stream, plan)
            entry = Entry(plan=plan, done=done)
            progress.windows += done.outcome == "delivered"
            progress.resets += plan.reset and done.outcome == "delivered"
            progress.rows += done.rows or 0
            _note(courier, progress, stream, entry)


def _check_still(courier: Courier, stream: Stream) -> None:
    """See that the stream was not dropped or rewound before it was held.

    Raises:
        TableBusyError: it was.

    """
    if courier.registry.newest_stream() != stream:
        msg = "the consumer was dropped or rewound a moment ago"
        raise TableBusyError(msg, table=stream.table, next_step="Run again.")


def _note(courier: Courier, progress: Progress, stream: Stream, entry: Entry | None) -> None:
    progress.position = position = position_of(stream, entry)
    progress.newest = max(_goal(courier), -1 if position is None else position)


def _goal(courier: Courier) -> int:
    """Return the version to deliver up to; a table that was made anew meanwhile may not have as many."""
    return min(courier.goal, courier.source.commits.newest)


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
            "first_table_id": courier.registry.forgotten_lineage(),
        },
        courier.registry.forgotten() + 1,
    )


def _check_same(stream: Stream, wishes: Wishes) -> None:
    """See that a run asks for what the consumer is registered with: a receiver's position means that one receiver.

    Raises:
        OtherWishesError: it does not.

    """
    for name in ("to", "mode", "net", "on_expired"):
        was, wanted = getattr(stream, name), getattr(wishes, name)
        if was != wanted and not (name == "to" and is_same_url(was, wanted)):
            msg = f"the consumer {stream.consumer} is registered with another `{name}`"
            step = "Ask for the same, use another name, or drop it: mirrorlib consumers TARGET --drop NAME"
            found = f"{wanted}, registered {was}"
            raise OtherWishesError(msg, table=stream.table, found=found, next_step=step)


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
    tell_step(courier, plan, "plan", "before")
    plan = courier.registry.write_plan(stream, plan)
    tell_step(courier, plan, "plan", "after")
    return plan


def _next(courier: Courier, stream: Stream, entry: Entry | None) -> Plan | None:
    commits, goal = courier.source.commits, _goal(courier)
    position = position_of(stream, entry)
    if entry is not None and entry.done is not None and entry.done.outcome == "void":
        refuse_void(stream, entry.plan)
        return _snapshot(courier, stream, entry, reset=True)
    if position is None:
        return _snapshot(courier, stream, entry, reset=False)
    try:
        check_table(courier, stream, table_id_of(stream, entry), position)
        if position >= goal:
            return None
        until = min(goal, position + (courier.wishes.max_versions or goal))
        window = open_window(commits, courier.source.shown, position, until)
    except FeedExpiredError:
        if stream.on_expired == "fail":
            raise
        return _snapshot(courier, stream, entry, reset=True)
    if window.rewritten:  # what came before is told in the types that it had
        until = max(window.rewritten[0] - 1, position + 1)
    return _plan(courier, stream, entry, after=position, until=until)


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
    commits, keys = courier.source.commits, courier.keys(courier.source)
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

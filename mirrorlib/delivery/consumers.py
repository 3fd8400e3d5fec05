"""Say which consumers a target has and how far each has come; let them go, or begin again elsewhere.

In: a target. Out: `ConsumersReport`, from the registry and the tables' logs. A log is the table's own: it forgets what
is older than it keeps, whoever has still to read it. Spark is needed only to find tables of a catalog.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from mirrorlib.delivery.report import ConsumersReport, ConsumerStatus, Health
from mirrorlib.delta.address import find_feed_table, find_table_at
from mirrorlib.delta.commits import Commits
from mirrorlib.delta.properties import LOG_RETENTION
from mirrorlib.delta.table import refer
from mirrorlib.delta.trouble import as_mirror_error
from mirrorlib.errors import FeedError, FeedExpiredError, JournalError, MirrorError
from mirrorlib.events import pick
from mirrorlib.feed.proof import may_leave_log
from mirrorlib.feed.window import begin_stream, check_table, open_window
from mirrorlib.journal.entries import now
from mirrorlib.journal.leases import hold
from mirrorlib.journal.registry import Registry, registries
from mirrorlib.journal.streams import Start, advise_snapshot, check_start, last_seen, version_given
from mirrorlib.names import matches, parse_name, refuse_unmatched
from mirrorlib.store import PathOrUrl, open_store
from mirrorlib.store.target import Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def list_consumers(
    target: PathOrUrl,
    *,
    consumer: str | None = None,
    tables: Sequence[str] = (),
    catalog: str | None = None,
    state: PathOrUrl | None = None,
    spark: SparkSession | None = None,
) -> ConsumersReport:
    """Tell how far each consumer has come in each table.

    Arguments are as for `export`; *consumer* is the only one to tell of. *spark* is needed to find tables of a catalog:
    without it their newest versions are not told.

    Raises:
        JournalError: there is no such consumer.
        LandingZoneError: a pattern fits no table that has one.

    """
    place = Target.of(target, catalog=catalog, state=state)
    every = (
        known_streams(place, consumer, tables, spark)
        if consumer
        else _registered(place, None, (), spark)
    )
    named = [(parse_name(each.table), each) for each in every]
    refuse_unmatched(() if consumer else tables, [name for name, _ in named])
    found = (each for name, each in named if matches(name, tables))
    streams = tuple(_status_safely(place, each, spark) for each in found)
    return ConsumersReport(target=place.shown, streams=streams)


def drop_consumer(
    target: PathOrUrl,
    consumer: str,
    *,
    tables: Sequence[str] = (),
    catalog: str | None = None,
    state: PathOrUrl | None = None,
) -> tuple[str, ...]:
    """Forget a consumer, or some tables of it, and name these; what its receiver holds stays there.

    Raises:
        JournalError: there is no such consumer.
        TableBusyError: a runner delivers to it.

    """
    found = known_streams(Target.of(target, catalog=catalog, state=state), consumer, tables)
    with contextlib.ExitStack() as held:  # all before one is changed
        for registry in found:
            held.enter_context(hold(registry.lease()))
        for registry in found:
            registry.forget()
    return tuple(registry.table for registry in found)


def rewind_consumer(
    target: PathOrUrl,
    consumer: str,
    to: Start,
    *,
    tables: Sequence[str] = (),
    catalog: str | None = None,
    state: PathOrUrl | None = None,
    spark: SparkSession | None = None,
) -> tuple[str, ...]:
    """Let a consumer begin again: after a version, with all rows ("snapshot"), or with what comes ("now").

    It is given again what it had since then, as windows of a new stream: kept copies end right, and
    append-only receivers hold it twice, each under its own stream. The tables are returned.

    Raises:
        LandingZoneError: *to* is none of these.
        FeedError: a table has no such version.
        FeedExpiredError: what came after that version is gone, or a backup has put the table back.
        JournalError: there is no such consumer.
        TableBusyError: a runner delivers to it.

    """
    place = Target.of(target, catalog=catalog, state=state)
    found = known_streams(place, consumer, tables, spark)
    check_start(to)
    begins = [(each, _begin(each, _commits_of(place, each.table, spark), to)) for each in found]
    with contextlib.ExitStack() as held:  # all before one is changed
        for registry in found:
            held.enter_context(hold(registry.lease()))
        for registry, begin in begins:
            stream = registry.newest_stream()
            if stream is None:  # dropped a moment ago
                continue
            kept = pick(stream, "to", "mode", "net", "on_expired")
            wanted = {**kept, **begin, "first_table_id": stream.lineage, "target": place.owner}
            registry.begin(wanted, stream.ordinal + 1)
            registry.forget_rest()
    return tuple(registry.table for registry in found)


def _begin(registry: Registry, commits: Commits, to: Start) -> dict[str, int | str | None]:
    """Settle where a stream begins again; from what a backup has taken out of its table, no changes lead there."""
    registry.present_stream()  # what is damaged is told before any stream is changed
    for stream in reversed(registry.all_streams() if to != "snapshot" else []):
        entry = registry.newest(stream)
        seen = last_seen(stream, entry)
        # Whoever keeps changes alone may have those of a table that was made anew behind the others.
        if seen[0] == commits.metadata.id:
            check_table(stream, commits, *seen)
        if stream.start_at is None and version_given(stream, entry) is not None:
            break  # a snapshot took the place of what was given before
    return begin_stream(commits, to, "to")


def _registered(
    place: Target, consumer: str | None, tables: Sequence[str], spark: SparkSession | None
) -> list[Registry]:
    """Find streams of a target; where its state folder has none that is known to be its own, all: it may be moved."""
    store = open_store(place.state)
    found = registries(store, consumer)
    asked = [each for each in found if matches(parse_name(each.table), tables)]
    own = [each for each in asked if _is_own(place, each, spark)]
    moved = not own and not any(_is_own(place, each, spark) for each in registries(store))
    return asked if moved else own


def _is_own(place: Target, registry: Registry, spark: SparkSession | None) -> bool:
    """Say whether a stream is of a target, by the rule of an export; what nobody can read is, to be forgotten."""
    try:
        stream = registry.present_stream()
    except MirrorError:
        return True
    if stream.target in {"", place.owner}:
        return True
    with contextlib.suppress(Exception):  # there is no such table, or nobody is let to look
        commits = _commits_of(place, registry.table, spark)
        return commits.is_still(*last_seen(stream, registry.newest(stream)))
    return False


def known_streams(
    place: Target, consumer: str, tables: Sequence[str], spark: SparkSession | None = None
) -> list[Registry]:
    """Find what a consumer receives, of these tables; `JournalError` where there is nothing."""
    found = _registered(place, consumer, tables, spark)
    if not found:
        others = " for these tables" if _registered(place, consumer, (), spark) else ""
        msg = f"no consumer {consumer} is registered{others}"
        raise JournalError(msg, next_step="See them with: mirrorlib consumers TARGET")
    return found


def _status_safely(place: Target, registry: Registry, spark: SparkSession | None) -> ConsumerStatus:
    """Say how a stream stands; what cannot be read of one is not its neighbours' trouble."""
    status = ConsumerStatus(consumer=registry.consumer, table=registry.table, health="failed")
    try:
        return _status(place, registry, status, spark)
    except Exception as exc:  # noqa: BLE001  # such as a log that is no JSON
        return replace(status, reason=str(as_mirror_error(exc, registry.table)))


def _status(
    place: Target, registry: Registry, status: ConsumerStatus, spark: SparkSession | None
) -> ConsumerStatus:
    stream = registry.present_stream()
    entry = registry.newest(stream)
    said = registry.read_status()
    done = None if entry is None else registry.last_done(stream, entry.plan, entry.done)
    status = replace(
        status,
        position=version_given(stream, entry),
        **pick(stream, "to", "mode"),
        last=None if done is None else done.finished_at,
    )
    health: Health = "unknown"
    try:
        commits = _commits_of(place, registry.table, spark)
        status, health = replace(status, newest=commits.newest), "failed"
        status = _compare(commits, registry, status, last_seen(stream, entry))
    except MirrorError as exc:
        status = replace(status, health=health, reason=str(exc))
    since = "" if done is None else done.finished_at  # what came after it failed went well
    # What seems to come has been delivered by a clock that was ahead.
    stuck = said.get("state") == "failed" and not str(said.get("at", "")) < since <= now()
    if stuck and status.health in {"behind", "expiring", "unknown"}:
        reason = " ".join(filter(None, (str(said.get("reason", "")), status.reason)))
        status = replace(status, health="failed", reason=reason)
    holder = registry.lease().newest()[1]
    return replace(status, health="delivering") if holder else status


def _compare(
    commits: Commits, registry: Registry, status: ConsumerStatus, seen: tuple[str, int, str]
) -> ConsumerStatus:
    """Compare the position that a status tells with the table's log; say what came of it."""
    newest, position = commits.newest, status.position
    if position is None:
        return replace(status, health="behind")
    if not commits.is_still(*seen):
        reason = f"{registry.table}: the table was made anew, or put back from a backup."
        return replace(status, health="expired", reason=reason)
    if position == newest:
        return replace(status, health="current", versions=0, seconds=0.0, rows=0)
    first = max(position + 1, commits.first)
    unread = [commit.rows for commit in commits.read_all(first, newest)]
    status = replace(
        status,
        health="behind",
        versions=newest - position,
        seconds=max(0.0, (datetime.now(UTC) - commits.committed_at(first)).total_seconds()),
        rows=None if None in unread else sum(rows or 0 for rows in unread),
    )
    try:
        open_window(commits, position, None)
    except FeedExpiredError as exc:  # whatever else cannot be read may still be there
        told = advise_snapshot(exc, registry.present_stream())
        return replace(status, health="expired", reason=str(told))
    try:
        loss = tell_horizon(commits, registry, position)
    except FeedError as exc:  # how long the log keeps cannot be understood, which is no failure
        return replace(status, reason=str(exc))
    if loss:
        return replace(status, health="expiring", reason=f"{loss}. Let it catch up.")
    return status


def _commits_of(place: Target, table: str, spark: SparkSession | None) -> Commits:
    address = refer(place, parse_name(table)).address
    if place.catalog is None:
        return find_table_at(address, shown=table).commits
    if spark is None:
        msg = "a table of a catalog cannot be found without Spark"
        raise JournalError(
            msg, table=table, next_step="See it with mirrorlib consumers, or give spark."
        )
    return find_feed_table(spark, address, shown=table).commits


def tell_horizon(commits: Commits, registry: Registry, position: int) -> str:
    """Say from when on the log may lack what a consumer has still to read; "" while that is far."""
    leaves = may_leave_log(commits, position)
    if leaves is None:
        return ""
    return (
        f"{registry.table}: consumer {registry.consumer} has read up to version {position}, and version {position + 1} "
        f"may leave the log from {leaves:%Y-%m-%d %H:%M} UTC on, unless {LOG_RETENTION} is raised"
    )

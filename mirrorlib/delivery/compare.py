"""Compare how far a stream has come with its table's log.

In: a target, a registered stream, its status as the registry has it. Out: that with its health, and how far it lies
behind. The log is the table's own: it forgets what is older than it keeps, whoever has still to read it.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from mirrorlib.delivery.report import ConsumerStatus
from mirrorlib.delta.address import find_feed_table
from mirrorlib.delta.commits import Commits
from mirrorlib.delta.properties import LOG_RETENTION
from mirrorlib.errors import JournalError, MirrorError
from mirrorlib.feed.declared_keys import table_address
from mirrorlib.feed.proof import may_leave_log
from mirrorlib.feed.window import open_window
from mirrorlib.journal.registry import Registry
from mirrorlib.names import parse_name
from mirrorlib.store import open_store
from mirrorlib.store.target import Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def compare(
    place: Target,
    registry: Registry,
    status: ConsumerStatus,
    table_id: str,
    spark: SparkSession | None,
) -> ConsumerStatus:
    """Compare the position that a status tells with the table's log; say what came of it."""
    try:
        commits = commits_of(place, registry.table, spark)
    except MirrorError as exc:
        return replace(status, health="unknown", reason=str(exc))
    status = replace(status, newest=commits.newest)
    try:
        return _compare(commits, registry, status, table_id)
    except MirrorError as exc:
        return replace(status, health="failed", reason=str(exc))


def _compare(
    commits: Commits, registry: Registry, status: ConsumerStatus, table_id: str
) -> ConsumerStatus:
    newest, position = commits.newest, status.position
    if position is None:
        return replace(status, health="behind")
    if commits.metadata_at(newest).id != table_id or position > newest:
        reason = f"{registry.table}: the table was made anew."
        return replace(status, health="expired", reason=reason)
    if position == newest:
        return replace(status, health="current", versions=0, seconds=0.0, rows=0)
    first = max(position + 1, commits.first)
    unread = [commits.read(version).rows for version in range(first, newest + 1)]
    status = replace(
        status,
        health="behind",
        versions=newest - position,
        seconds=max(0.0, (datetime.now(UTC) - commits.committed_at(first)).total_seconds()),
        rows=None if None in unread else sum(rows or 0 for rows in unread),
    )
    try:
        open_window(commits, position, None)
    except MirrorError as exc:
        return replace(status, health="expired", reason=str(exc))
    try:
        loss = tell_horizon(commits, registry, position)
    except MirrorError as exc:
        return replace(status, reason=str(exc))
    return (
        replace(status, health="expiring", reason=f"{loss}. Let it catch up.") if loss else status
    )


def commits_of(place: Target, table: str, spark: SparkSession | None) -> Commits:
    """Look at a table's log."""
    address = table_address(place, parse_name(table))
    if place.catalog is None:
        commits = Commits(open_store(address), table)
        commits.check()
        return commits
    if spark is None:
        msg = "a table of a catalog cannot be found without Spark"
        raise JournalError(msg, table=table, next_step="Give a session.")
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

"""Say which consumers a target has and how far each has come; let them go, or begin again elsewhere.

In: a target. Out: `ConsumersReport`, from the registry and the tables' logs. Spark is needed only
to find tables of a catalog.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirrorlib.delivery.compare import Health, commits_of, compare
from mirrorlib.delta.trouble import as_mirror_error
from mirrorlib.errors import JournalError
from mirrorlib.feed.window import open_window
from mirrorlib.journal.leases import hold_stream, holder_of
from mirrorlib.journal.registry import Registry, registries
from mirrorlib.journal.streams import Start, check_start, table_id_of, version_given
from mirrorlib.names import matches, parse_name
from mirrorlib.store import open_store
from mirrorlib.store.target import Target
from mirrorlib.tabular import Report, duration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorlib.store import PathOrUrl


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerStatus:
    """How far one consumer has come in one table.

    Attributes:
        consumer: its name.
        table: the table.
        health: current; behind (it has not been given the newest versions); delivering (a runner is at it);
            failed (the last run stopped); expiring (what it has not read may soon leave the table's log); expired
            (what it has not read is gone); unknown (no log to compare with).
        position: the last delivered version; None before the first snapshot.
        newest: the table's newest version.
        versions: how many versions lie between; None when that is not known.
        seconds: age of the oldest version that it has not been given; 0 when there is none.
        rows: rows that those versions change, as far as the log tells; None when it does not.
        holder: who delivers now, "" when nobody does.
        to: the receiver, without passwords.
        mode: what that makes of changes.
        windows: how many it was given since it was registered or rewound.
        last: when it was given the last one, ISO 8601; None before.
        reason: why it failed, or cannot go on, or soon will not.

    """

    consumer: str
    table: str
    health: Health
    position: int | None = None
    newest: int | None = None
    versions: int | None = None
    seconds: float | None = None
    rows: int | None = None
    holder: str = ""
    to: str = ""
    mode: str = ""
    windows: int = 0
    last: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ConsumersReport(Report):
    """How far every consumer of a target has come."""

    target: str
    streams: tuple[ConsumerStatus, ...]

    @property
    def ok(self) -> bool:
        """Say whether none has failed, lost something, or is about to."""
        return all(
            stream.health not in {"failed", "expiring", "expired"} for stream in self.streams
        )

    def header(self) -> tuple[str, ...]:
        """Name the columns."""
        return ("consumer", "table", "health", "version", "behind", "rows", "lag", "to")

    def rows(self) -> list[tuple[str, ...]]:
        """Return one row a stream."""
        return [
            (
                s.consumer,
                s.table,
                s.health,
                "-" if s.position is None else str(s.position),
                "-" if s.versions is None else str(s.versions),
                "-" if s.rows is None else f"{s.rows:,}",
                "-" if s.seconds is None else duration(s.seconds),
                s.to,
            )
            for s in self.streams
        ]

    def notes(self) -> list[str]:
        """Say why streams failed."""
        none = [] if self.streams else ["No consumer is registered."]
        return [*none, *(s.reason for s in self.streams if s.reason)]


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

    Args:
        target: as for `export`.
        consumer: only this one.
        tables: names or globs; empty is all of them.
        catalog: as for `export`.
        state: as for `export`.
        spark: needed to find tables of a catalog; without it their newest versions are not told.

    """
    place = Target.of(target, catalog=catalog, state=state)
    found = [
        each
        for each in registries(open_store(place.state), consumer)
        if matches(parse_name(each.table), tables)
    ]
    return ConsumersReport(
        target=place.shown, streams=tuple(_status_safely(place, each, spark) for each in found)
    )


def drop_consumer(
    target: PathOrUrl,
    consumer: str,
    *,
    tables: Sequence[str] = (),
    catalog: str | None = None,
    state: PathOrUrl | None = None,
) -> tuple[str, ...]:
    """Forget a consumer, or some tables of it; what its receiver holds stays there.

    Returns:
        the tables.

    Raises:
        JournalError: there is no such consumer.
        TableBusyError: a runner delivers to it.

    """
    found = _registered(target, consumer, tables, catalog, state)
    with _held(found):
        for registry in found:
            registry.forget()
    for registry in found:
        registry.forget_lease()
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
    append-only receivers hold it twice, each under its own stream.

    Returns:
        the tables.

    Raises:
        LandingZoneError: *to* is none of these.
        FeedError: a table has no such version.
        FeedExpiredError: what came after that version is gone.
        JournalError: there is no such consumer.
        TableBusyError: a runner delivers to it.

    """
    place = Target.of(target, catalog=catalog, state=state)
    found = _registered(target, consumer, tables, catalog, state)
    check_start(to)
    begins = [(registry, _beginning(place, registry, to, spark)) for registry in found]
    with _held(found):
        for registry, (start_at, table_id) in begins:
            _begin_again(registry, start_at, table_id)
    return tuple(registry.table for registry in found)


@contextlib.contextmanager
def _held(found: Sequence[Registry]) -> Iterator[None]:
    """Hold all streams before one is changed: none is, where a runner is at any of them."""
    with contextlib.ExitStack() as held:
        for registry in found:
            held.enter_context(hold_stream(registry))
        yield


def _begin_again(registry: Registry, start_at: int | None, table_id: str) -> None:
    stream = registry.newest_stream()
    if stream is None:  # dropped a moment ago
        return
    kept = {name: getattr(stream, name) for name in ("to", "mode", "net", "on_expired")}
    begun = {"start_at": start_at, "table_id": table_id, "first_table_id": stream.lineage}
    registry.begin({**kept, **begun}, stream.ordinal + 1)
    registry.forget_scratch()
    registry.forget_status()


def _beginning(
    place: Target, registry: Registry, to: Start, spark: SparkSession | None
) -> tuple[int | None, str]:
    """Settle where a stream begins, and see that it can be read from there."""
    commits = commits_of(place, registry.table, spark)
    start_at = commits.newest if to == "now" else to if isinstance(to, int) else None
    if start_at is not None:
        open_window(commits, start_at, None)
    return start_at, commits.metadata_at(commits.newest).id


def _registered(
    target: PathOrUrl,
    consumer: str,
    tables: Sequence[str],
    catalog: str | None,
    state: PathOrUrl | None,
) -> list[Registry]:
    place = Target.of(target, catalog=catalog, state=state)
    all_of_it = registries(open_store(place.state), consumer)
    found = [each for each in all_of_it if matches(parse_name(each.table), tables)]
    if not found:
        msg = f"no consumer {consumer} is registered" + (" for these tables" if all_of_it else "")
        raise JournalError(msg, next_step="See them with: mirrorlib consumers TARGET")
    return found


def _status_safely(place: Target, registry: Registry, spark: SparkSession | None) -> ConsumerStatus:
    """Say how a stream stands; what cannot be read of one is not its neighbours' trouble."""
    try:
        return _status(place, registry, spark)
    except Exception as exc:  # noqa: BLE001  # such as a log that is no JSON
        reason = str(as_mirror_error(exc, registry.table))
    return ConsumerStatus(
        consumer=registry.consumer,
        table=registry.table,
        health="failed",
        reason=reason,
    )


def _status(place: Target, registry: Registry, spark: SparkSession | None) -> ConsumerStatus:
    stream = registry.newest_stream()
    if stream is None:
        msg = "the consumer was dropped a moment ago"
        raise JournalError(msg, table=registry.table, next_step="Try again.")
    entry = registry.newest(stream)
    position = version_given(stream, entry)
    said = registry.read_status()
    table_id = table_id_of(stream, entry)
    health, newest, lag, reason = compare(place, registry, position, table_id, spark)
    holder = holder_of(registry)
    if said.get("state") == "failed" and health in {"behind", "expiring"}:
        health, reason = "failed", " ".join(filter(None, (str(said.get("reason", "")), reason)))
    if holder:
        health = "delivering"
    return ConsumerStatus(
        consumer=registry.consumer,
        table=registry.table,
        health=health,
        position=position,
        newest=newest,
        versions=lag.versions,
        seconds=lag.seconds,
        rows=lag.rows,
        holder=holder,
        to=stream.to,
        mode=stream.mode,
        windows=0 if entry is None else entry.plan.number - (entry.done is None),
        last=entry.done.finished_at if entry is not None and entry.done is not None else None,
        reason=reason,
    )

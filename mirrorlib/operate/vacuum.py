"""Remove files that no reader needs any more, and none that a registered consumer has still to read.

In: a target. Out: `VacuumReport`. Delta's VACUUM takes files that were removed longer ago than the
table keeps them, change files among them, whoever has still to read them. Here every stream of
every consumer is asked first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Literal

from mirrorlib.apply.job import unexpected_error
from mirrorlib.apply.sessions import configured, read_conf
from mirrorlib.apply.table import FILE_RETENTION
from mirrorlib.apply.target import STATE_FOLDER, Target
from mirrorlib.errors import FeedError, MirrorError, StoreError
from mirrorlib.export.record import version_given
from mirrorlib.export.registry import Registry, registries
from mirrorlib.feed.find import find_tables
from mirrorlib.feed.place import find_feed_table
from mirrorlib.feed.retention import kept_for, retention_told
from mirrorlib.landing.names import parse_name
from mirrorlib.store import open_store
from mirrorlib.tabular import Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorlib.feed.commits import Commits
    from mirrorlib.feed.place import FeedTable
    from mirrorlib.store import PathOrUrl

_CLOCKS = timedelta(hours=1)  # by which a store's and a machine's clock may differ
_HOUR = timedelta(hours=1)
# VACUUM lists a table's folders by so many tasks, which is 10,000 by default: 40 seconds of two cores.
_PARALLELISM = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
_LISTERS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Vacuumed:
    """What became of one table.

    Attributes:
        table: its name.
        state: vacuumed; ready (a dry run, nothing would be lost); refused (a consumer would lose changes);
            or failed.
        files: how many files were removed, or would be; None when that is not told.
        losers: the consumers that would lose, or have lost, changes that they have not read.
        reason: why not, or what was lost; "" when there is nothing to say.

    """

    table: str
    state: Literal["vacuumed", "ready", "refused", "failed"]
    files: int | None = None
    losers: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class VacuumReport(Report):
    """What became of every table."""

    target: str
    tables: tuple[Vacuumed, ...]

    @property
    def ok(self) -> bool:
        """Say whether no table was refused, and none failed."""
        return all(table.state in {"vacuumed", "ready"} for table in self.tables)

    def header(self) -> tuple[str, ...]:
        """Name the columns."""
        return ("table", "state", "files", "consumers that need them")

    def rows(self) -> list[tuple[str, ...]]:
        """Return one row a table."""
        return [
            (
                t.table,
                t.state,
                "-" if t.files is None else f"{t.files:,}",
                ", ".join(t.losers) or "-",
            )
            for t in self.tables
        ]

    def notes(self) -> list[str]:
        """Say why tables were refused."""
        none = [] if self.tables else ["There is no such Delta table."]
        return [*none, *(table.reason for table in self.tables if table.reason)]


def vacuum_tables(
    spark: SparkSession,
    target: PathOrUrl,
    *,
    tables: Sequence[str] = (),
    hours: int | None = None,
    dry_run: bool = False,
    force: bool = False,
    catalog: str | None = None,
    state: PathOrUrl | None = None,
) -> VacuumReport:
    """Remove the files that tables no longer need, unless a registered consumer has still to read them.

    Args:
        spark: any Spark with Delta.
        target: as for `export`.
        tables: names or globs; empty is all of them.
        hours: how long removed files are kept; by default what each table says, else Delta's week.
        dry_run: remove nothing; say what would be. The check for maintenance that runs elsewhere.
        force: remove them although consumers need them; they are named all the same.
        catalog: as for `export`.
        state: as for `export`.

    Raises:
        StoreError: the target cannot be listed.

    """
    place = Target.of(target, catalog=catalog, state=state)
    found = find_tables(spark, place.place, catalog, tables)
    streams = _streams_of(place, found)
    return VacuumReport(
        target=place.shown,
        tables=tuple(
            _vacuum_safely(
                spark,
                name,
                address,
                streams[name],
                hours=hours,
                dry_run=dry_run,
                force=force,
            )
            for name, address in found
        ),
    )


def _streams_of(place: Target, found: Sequence[tuple[str, str]]) -> dict[str, list[Registry]]:
    """Find who is registered for each table, with this target or beside another folder above the table.

    A target may lie inside another, or be a table itself.
    """
    own = registries(open_store(place.state))
    elsewhere = cache(_registries_of_others)
    streams = {name: [each for each in own if each.table == name] for name, _ in found}
    for name, address in found if place.catalog is None else ():
        for state, below in _states_above(address):
            if state != place.state:
                streams[name] += [each for each in elsewhere(state) if each.table == below]
    return streams


def _states_above(address: str) -> Iterator[tuple[str, str]]:
    """Name the state folders that may know a table, and by which name: of three folders, as targets are walked."""
    root, separator, path = address.rpartition("://")
    steps = path.split("/")
    for depth in range(1, min(4, len(steps))):
        folder = "/".join([*steps[:-depth], STATE_FOLDER])
        yield f"{root}{separator}{folder}", "/".join(steps[-depth:])


def _registries_of_others(state: str) -> list[Registry]:
    try:
        return registries(open_store(state))
    except StoreError:  # a folder that is none of this user's has no say
        return []


def _vacuum_safely(
    spark: SparkSession,
    name: str,
    address: str,
    streams: Sequence[Registry],
    *,
    hours: int | None,
    dry_run: bool,
    force: bool,
) -> Vacuumed:
    try:
        table = find_feed_table(spark, address, shown=name)
        kept = timedelta(hours=hours) if hours is not None else _kept(table)
        losers = _losers(table.commits, streams, datetime.now(UTC) - kept + _CLOCKS)
        reason = "; ".join(losers.values())
        if losers and not force:
            reason += (
                ". Let them catch up, drop them (mirrorlib consumers), or vacuum with --force."
            )
            return Vacuumed(table=name, state="refused", losers=tuple(losers), reason=reason)
        files = _vacuum(spark, table, kept, dry_run=dry_run)
    except MirrorError as exc:
        return Vacuumed(table=name, state="failed", reason=str(exc))
    except Exception as exc:  # noqa: BLE001  # one table's trouble is not its neighbours'
        return Vacuumed(
            table=name, state="failed", reason=str(unexpected_error(exc, parse_name(name)))
        )
    done: Literal["ready", "vacuumed"] = "ready" if dry_run else "vacuumed"
    return Vacuumed(table=name, state=done, files=files, losers=tuple(losers), reason=reason)


def _vacuum(spark: SparkSession, table: FeedTable, kept: timedelta, *, dry_run: bool) -> int | None:
    hours = kept / _HOUR
    retain = f"RETAIN {hours:.4f} HOURS"
    listers = min(_LISTERS, int(read_conf(spark, _PARALLELISM) or _LISTERS))
    with configured(spark, {}, {_PARALLELISM: str(listers)}):
        if dry_run:
            return len(spark.sql(f"VACUUM {table.sql} {retain} DRY RUN").collect())
        spark.sql(f"VACUUM {table.sql} {retain}")
    last = spark.sql(f"DESCRIBE HISTORY {table.sql} LIMIT 1").collect()[0]
    told = (last["operationMetrics"] or {}).get("numDeletedFiles")
    return int(told) if last["operation"] == "VACUUM END" and told is not None else None


def _losers(commits: Commits, streams: Sequence[Registry], horizon: datetime) -> dict[str, str]:
    """Name the consumers that have still to read changes from before a moment, and say how far they are."""
    found: dict[str, str] = {}
    for registry in streams:
        stream = registry.newest_stream()
        if stream is None:
            continue
        position = version_given(stream, registry.newest(stream))
        if position is None:  # it is given a snapshot of what is there by then
            continue
        for version in range(max(position + 1, commits.first), commits.newest + 1):
            if commits.written_at(version) >= horizon:
                break
            if commits.read(version).changes:
                found[registry.consumer] = (
                    f"{registry.table}: consumer {registry.consumer} has read up to version {position}, "
                    f"and the changes of version {version} may be removed"
                )
                break
    return found


def _kept(table: FeedTable) -> timedelta:
    """Read how long a table keeps removed files.

    Raises:
        FeedError: its property cannot be understood.

    """
    metadata = table.commits.metadata_at(table.commits.newest)
    kept = kept_for(metadata)
    if kept is None:
        msg = f"the table's {FILE_RETENTION} cannot be understood"
        step = "Say how long files are kept, with --hours."
        raise FeedError(msg, table=table.shown, found=retention_told(metadata), next_step=step)
    return kept

"""Keep tables fast and small: put rows of small files into few, and remove files that no reader needs any more.

In: a target. Out: `OptimizeReport`, `VacuumReport`. Delta's VACUUM takes change files, too, whoever has still to read
them: here every stream of every consumer is asked first. No runner commits to a table on a local disk meanwhile.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from typing import TYPE_CHECKING, ClassVar, Literal

from mirrorlib.delivery.consumers import tell_horizon
from mirrorlib.delta.address import FeedTable, act_on_tables, find_feed_table, find_tables
from mirrorlib.delta.commits import Commits
from mirrorlib.delta.key_property import KEYS_PROPERTY
from mirrorlib.delta.lock import find_place
from mirrorlib.delta.properties import FILE_RETENTION, LOG_RETENTION, SEEN, set_properties
from mirrorlib.delta.sessions import configured, lend_session, read_conf
from mirrorlib.errors import JournalError, StoreError
from mirrorlib.feed.owners import owned_since
from mirrorlib.feed.proof import CLOCKS, kept_for, retention_of
from mirrorlib.identifiers import fold_name
from mirrorlib.journal.registry import Registry, registries
from mirrorlib.journal.streams import last_seen, version_given
from mirrorlib.store import PathOrUrl, open_store
from mirrorlib.store.target import STATE_FOLDER, Target, targets_above
from mirrorlib.tabular import StateReport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FILE_BYTES = str(32 << 20)
# In files of 1 GB, which is Delta's default, few changes of neighbouring keys take half as long again.
_FASTER = {
    "spark.databricks.delta.optimize.minFileSize": _FILE_BYTES,
    "spark.databricks.delta.optimize.maxFileSize": _FILE_BYTES,
}
# VACUUM lists a table's folders by so many tasks, which is 10,000 by default: 40 seconds of two cores.
_PARALLELISM = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
_LISTERS = 200
# Newer Delta keeps what the table says, whatever it is asked for, unless this is off.
_IGNORES = "spark.databricks.delta.vacuum.retentionWindowIgnore.enabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimized:
    """What became of one table: how many files were *replaced* by those *written*, or the *reason* why not."""

    table: str
    state: Literal["optimized", "current", "failed"]
    replaced: int = 0
    written: int = 0
    seconds: float = 0.0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class OptimizeReport(StateReport):
    """What became of every table."""

    columns: ClassVar = ("table", "state", "files replaced", "files written", "seconds")
    facts: ClassVar = "table state replaced:count written:count seconds:.1f"
    target: str
    tables: tuple[Optimized, ...]


def optimize_tables(
    spark: SparkSession,
    target: PathOrUrl,
    *,
    tables: Sequence[str] = (),
    catalog: str | None = None,
    state: PathOrUrl | None = None,
) -> OptimizeReport:
    """Put the rows of small files, and of files with many deleted rows, into few; a table that has none stays as it is.

    Runners may be at work: one of a table on a local disk is waited for; elsewhere, where both meet, the table fails,
    or the runner tries again, which on S3 takes a multi-writer log store. What was replaced is there until it is
    vacuumed. *tables* are names or globs, and empty is all of them; *target*, *catalog* and *state* mean the same as
    for `export`.

    Raises:
        StoreError: the target cannot be listed.
        LandingZoneError: a pattern matches none of its tables.

    """
    place = Target.of(target, catalog=catalog, state=state)

    def optimize(name: str, address: str) -> Optimized:
        began = time.perf_counter()
        table = find_place(spark, address, state=state)
        with table.hold(spark), lend_session(spark) as session, configured(session, {}, _FASTER):
            (told,) = session.sql(f"OPTIMIZE {table.ref.sql}").collect()
        replaced, written = told["metrics"]["numFilesRemoved"], told["metrics"]["numFilesAdded"]
        return Optimized(
            table=name,
            state="optimized" if replaced else "current",
            replaced=replaced,
            written=written,
            seconds=round(time.perf_counter() - began, 3),
        )

    found = find_tables(spark, place.place, catalog, tables, each=True)
    done = act_on_tables(found, optimize, partial(Optimized, state="failed"))
    return OptimizeReport(target=place.shown, tables=done)


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
class VacuumReport(StateReport):
    """What became of every table."""

    columns: ClassVar = ("table", "state", "files", "consumers that need them")
    facts: ClassVar = "table state files:count losers"
    ill: ClassVar = frozenset({"refused", "failed"})
    target: str
    tables: tuple[Vacuumed, ...]


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

    Removed files are kept for so many *hours*: by default what each table says, else Delta's week. With *dry_run*
    nothing is removed, and it is said what would be: the check for maintenance that runs elsewhere. With *force*
    files go although consumers need them, who are named all the same. *tables* are names or globs, and empty is all of
    them; *target*, *catalog* and *state* mean the same as for `export`.

    Raises:
        StoreError: the target cannot be listed.
        LandingZoneError: a pattern matches none of its tables.

    """
    place = Target.of(target, catalog=catalog, state=state)
    own, elsewhere = registries(open_store(place.state)), cache(_elsewhere)
    fold = str if catalog is None else fold_name  # as a reader may spell it otherwise
    asked = None if hours is None else timedelta(hours=hours)

    def vacuum(name: str, address: str) -> Vacuumed:
        table = find_feed_table(spark, address, shown=name)
        # By whatever folder they were exported from: one of another table tells by its id that it is none of these.
        above = dict(targets_above(table.location))
        names = {fold(name), *map(fold, above.values())}
        streams = [each for each in own if fold(each.table) in names]
        for root, below in above.items():
            folder = f"{root.rstrip('/')}/{STATE_FOLDER}"
            if folder != place.state:
                streams += [each for each in elsewhere(folder) if each.table == below]
        losers = _losers(table.commits, streams, _horizon(table.commits, asked))
        told = Vacuumed(
            table=name,
            state="ready" if dry_run else "vacuumed",
            losers=tuple(losers),
            reason="; ".join(losers.values()),
        )
        if losers and not force:
            advice = "Let them catch up, drop them (mirrorlib consumers), or vacuum with --force."
            return replace(told, state="refused", reason=f"{told.reason}. {advice}")
        held = find_place(spark, address, state=state).hold(spark)
        with contextlib.nullcontext() if dry_run else held:  # VACUUM commits that it was there
            told = replace(told, files=_vacuum(spark, table, hours, dry_run=dry_run))
            if not dry_run:
                _renew_keys(spark, table)
            return told

    found = find_tables(spark, place.place, catalog, tables, each=True)
    done = act_on_tables(found, vacuum, partial(Vacuumed, state="failed"))
    return VacuumReport(target=place.shown, tables=done)


def _elsewhere(state: str) -> list[Registry]:
    """List the streams of another target than the one that is asked for."""
    try:
        return registries(open_store(state))
    except StoreError:  # a folder that is none of this user's has no say
        return []


def _horizon(commits: Commits, asked: timedelta | None) -> datetime:
    """Say up to when versions were committed whose files may go.

    Where Delta does not let itself be told, it keeps what the table says, which may be less than is *asked* for. It
    goes by the age of each file, and a commit may have taken hours: a seventh of the time is a day of Delta's week.
    """
    kept = retention_of(commits, FILE_RETENTION) if asked is None else asked
    own = kept_for(commits, FILE_RETENTION)
    return datetime.now(UTC) - (kept if own is None else min(kept, own)) * 6 / 7 + CLOCKS


def _vacuum(
    spark: SparkSession, table: FeedTable, hours: int | None, *, dry_run: bool
) -> int | None:
    # Delta itself reads the table's own: said here, in whole hours, it might be less.
    statement = f"VACUUM {table.sql}" + ("" if hours is None else f" RETAIN {hours} HOURS")
    listers = min(_LISTERS, int(read_conf(spark, _PARALLELISM) or _LISTERS))
    with configured(spark, {}, {_PARALLELISM: str(listers), _IGNORES: "false"}):
        if dry_run:
            paths = [row.path for row in spark.sql(f"{statement} DRY RUN").collect()]
            return sum("." in path.rpartition("/")[2] for path in paths)  # some are folders
        spark.sql(statement)
    last = spark.sql(f"DESCRIBE HISTORY {table.sql} LIMIT 1").collect()[0]
    deleted = (last["operationMetrics"] or {}).get("numDeletedFiles")
    return int(deleted) if last["operation"] == "VACUUM END" and deleted is not None else None


def _renew_keys(spark: SparkSession, table: FeedTable) -> None:
    """Say anew whose the rows of a quiet table are, before the commit that wrote them leaves its log.

    What is claimed of its keys rests on that. Where it cannot be said, they are claimed as long as the commit is there.
    """
    from pyspark.errors import PySparkException

    commits = table.commits.refresh()
    since = owned_since(commits, commits.newest)
    kept = kept_for(commits, LOG_RETENTION)
    if since is None or kept is None or KEYS_PROPERTY not in commits.metadata.properties:
        return
    if datetime.now(UTC) - commits.written_at(since) > kept / 2:
        with contextlib.suppress(PySparkException):
            set_properties(spark, table.sql, {SEEN: str(commits.newest)})


def _losers(commits: Commits, streams: Sequence[Registry], horizon: datetime) -> dict[str, str]:
    """Name the consumers that have still to read what may go, and say how far they are.

    That are changes from before a moment, and whatever may soon leave the table's log.
    """
    found: dict[str, str] = {}
    for registry in streams:
        try:
            loss = _tell_loss(commits, registry, horizon)
        except JournalError as exc:  # nobody knows what it has still to read
            loss = str(exc)
        if loss:
            # That may be the state of a target above or inside this one.
            found[registry.consumer] = f"{loss} (registered in {registry.state.url})"
    return found


def _tell_loss(commits: Commits, registry: Registry, horizon: datetime) -> str:
    """Say what a consumer would lose; "" when it is nothing."""
    if (stream := registry.newest_stream()) is None:
        return ""
    entry = registry.newest(stream)
    if not commits.is_still(*last_seen(stream, entry)):
        return ""  # of a table that was made anew, or of another schema's, and reads nothing of this one
    position = version_given(stream, entry)
    if position is None:  # it is given a snapshot of what is there by then
        return ""
    if position + 1 < commits.first:  # it has lost them already, and only a snapshot can serve it
        return ""
    if loss := tell_horizon(commits, registry, position):
        return loss
    gone = _first_before(commits, position, horizon)
    who = f"{registry.table}: consumer {registry.consumer} has read up to version {position}"
    return "" if gone is None else f"{who}, and the changes of version {gone} may be removed"


def _first_before(commits: Commits, after: int, horizon: datetime) -> int | None:
    """Find the first version behind one that has changes, of those that were written before a moment."""
    for version in range(max(after + 1, commits.first), commits.newest + 1):
        # Each by itself: a clock may have been ahead for a while.
        if commits.written_at(version) < horizon and commits.read(version).changes:
            return version
    return None

"""Gather what the tables of one call share, and say which of them it is about.

In: a session, a zone, a target, options. Out: a `Job`, its tables, and for each table a `Work`.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from mirrorlib.delta.log import LOG
from mirrorlib.delta.table import open_log, refer
from mirrorlib.errors import (
    LandingZoneError,
    MetadataError,
    MirrorError,
    StoreError,
    TableNameError,
)
from mirrorlib.events import Observer, unobserved
from mirrorlib.ingest.files.source import Source
from mirrorlib.ingest.files.source_identity import check_snapshots
from mirrorlib.ingest.files.table_folder import OpenedFolder, policies_of
from mirrorlib.ingest.options import Options
from mirrorlib.ingest.report import SHOWS_NOTHING, PlannedTable
from mirrorlib.ingest.work import Work
from mirrorlib.journal.disk import Journal, find_journals
from mirrorlib.journal.entries import Life, zone_of
from mirrorlib.landing.listing import Tables, is_unlisted, list_tables
from mirrorlib.names import TableName, find_conflicts, matches, refuse_unmatched
from mirrorlib.store import PathOrUrl, Store, open_store
from mirrorlib.store.target import Target, settled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorlib.landing.metadata.declared import TableMetadata

_LOG = logging.getLogger(__name__)
_STILL_THERE = "one of them is no longer in the landing zone, and its Delta table is still there"
_MAKE_WAY = "Rename the other at its publisher, or remove that table if nobody needs it, with --on-gone drop."
_STRICT_CATALOGS = frozenset({"spark_catalog", "hive_metastore"})  # Spark's own session catalog
_STRICT_NAME = re.compile(r"[A-Za-z0-9_]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One call of `apply`, for all its tables."""

    spark: SparkSession
    zone: Store
    target: Target
    state: Store
    options: Options
    observe: Observer
    stop: Callable[[], bool]
    others_wait: Callable[[], bool] = lambda: False  # for their turn, in this run or the next one
    # All that may be done, by table; None for whatever there is.
    approved: Mapping[str, PlannedTable] | None = None
    # The one table that it is about; None for all that its options name.
    only: TableName | None = None
    rebuilds: bool = False  # it is foreseen what a rebuild of that would do


def open_job(
    spark: SparkSession,
    landing_zone: PathOrUrl,
    target: Target,
    options: Options,
    observe: Observer | None = None,
    stop: Callable[[], bool] | None = None,
) -> Job:
    """Gather what all tables of one call share."""
    zone = open_store(landing_zone)
    refuse_overlap(zone.url, target)
    return Job(
        spark=spark,
        zone=zone,
        target=target,
        state=open_store(target.state),
        options=options,
        observe=observe or unobserved,
        stop=stop or (lambda: False),
    )


def open_work(
    job: Job,
    spark: SparkSession,
    name: TableName,
    opened: OpenedFolder,
    lives: tuple[Life, ...],
) -> Work:
    """Gather what one table's batches need; *spark* is a session that is lent to it alone."""
    ref = refer(job.target, name)
    metadata = cast("TableMetadata", opened.metadata)  # callers ask `waits_for` first
    if job.options.snapshots:
        check_snapshots(metadata, str(name))
    source = Source(
        zone=job.zone,
        table=str(name),
        folder=name.folder,
        policies=policies_of(metadata, opened.dialect, job.options),
    )
    if source.policies.partial and source.policies.conditional:
        msg = "updates cannot be partial and conditional at once: which values a row would keep is not defined"
        step = "Apply the table without --conditional-updates, or with --partial-updates never."
        raise MetadataError(msg, table=str(name), next_step=step)
    return Work(
        spark=spark,
        ref=ref,
        log=open_log(spark, ref),
        source=source,
        journal=Journal(job.state, name),
        lives=lives,
        state=job.state,
        options=job.options,
        observe=job.observe,
        stop=job.stop,
        approved=None if job.approved is None else job.approved[name.shown],
    )


def find_tables(
    job: Job,
) -> tuple[Tables, tuple[TableName, ...], tuple[str, ...]]:
    """Find the tables that were asked for: those that the zone shows, and those that it has filled and shows no longer.

    And what it is warned of: a zone without any table looks like one that is not mounted, and nothing is gone from
    it.
    """
    known, wanted = find_journals(job.state), job.options.tables
    shown = _list_shown(job, known)
    refuse_unmatched(wanted, shown, known)

    def is_meant(name: TableName) -> bool:
        return name == job.only if job.only else matches(name, wanted)

    meant = {name: refusal for name, refusal in shown.items() if is_meant(name)}
    absent = (name for name in known if name not in shown and is_meant(name))
    gone = tuple(name for name in absent if _is_of(job, name))
    if not shown:
        return {}, (), (SHOWS_NOTHING,) if gone else ()
    return _refuse_in_catalog(meant, job.target), gone, ()


def _list_shown(job: Job, known: Collection[TableName]) -> Tables:
    """List the zone's tables; in the place of a schema folder that cannot be listed, those that it has filled.

    A table whose place in the target would be that of one which the zone shows no longer is refused by name.
    """
    found: dict[TableName, MirrorError | None] = {}
    for shown, refusal in list_tables(job.zone).items():
        unlisted = isinstance(refusal, StoreError)
        filled = (name for name in known if unlisted and name.schema == shown.schema)
        found |= {name: refusal for name in filled if _is_of(job, name)} or {shown: refusal}
    tables = [name for name, refusal in found.items() if not is_unlisted(name, refusal)]
    conflicts = _conflicts_with_kept(job, tables, known)
    return {name: refusal or conflicts.get(name) for name, refusal in found.items()}


def _conflicts_with_kept(
    job: Job, shown: Collection[TableName], known: Iterable[TableName]
) -> Mapping[TableName, TableNameError]:
    """Find the tables that cannot lie in the target together with those that are kept there."""
    others = {name for name in known if name not in shown}
    if job.target.catalog is not None or not others & find_conflicts([*shown, *others]).keys():
        return {}
    kept = [name for name in others if is_kept(job, name)]
    return {
        name: error.but(found=_STILL_THERE, next_step=_MAKE_WAY)
        for name, error in find_conflicts([*shown, *kept]).items()
        if name in shown
    }


def is_kept(job: Job, name: TableName) -> bool:
    """Say whether a Delta table of that name lies in the target, which is no catalog."""
    return open_store(job.target.place).list_folder(f"{name}/{LOG}") is not None


def _is_of(job: Job, name: TableName) -> bool:
    journal = Journal(job.state, name)
    try:
        lives = journal.lives()
        entry = journal.newest_of(lives)
    except MirrorError as exc:
        _LOG.warning("a table that is not in the zone: %s", exc)
        return False
    if entry is None:
        return bool(lives) and lives[-1].zone == job.zone.url
    return zone_of(journal.read_status(), entry) == job.zone.url


def _refuse_in_catalog(tables: Tables, target: Target) -> Tables:
    if target.catalog is None:
        return tables
    seen, refused = Counter(name.table.lower() for name in tables), dict(tables)
    for name, refusal in tables.items():
        if isinstance(refusal, StoreError):
            continue
        if target.catalog in _STRICT_CATALOGS and not _STRICT_NAME.fullmatch(name.table):
            msg = f"the catalog {target.catalog} takes letters, digits and _ in a table's name, nothing else"
            step = "Rename it at the publisher, or use a path as the target."
            refused[name] = TableNameError(msg, table=str(name), next_step=step)
        elif seen[name.table.lower()] > 1:
            msg = f"another table of the landing zone is called so too, and {target.shown} has room for one"
            step = "Apply one of them, with --table, or rename one at its publisher."
            refused[name] = TableNameError(msg, table=str(name), next_step=step)
    return refused


def refuse_overlap(zone: str, target: Target) -> None:
    """Refuse a zone inside its target or state, and the reverse."""
    for place in [target.state] + ([target.place] if target.catalog is None else []):
        outer, inner = sorted((f"{settled(zone)}/", f"{settled(place)}/"), key=len)
        if inner.startswith(outer):
            msg = "the landing zone and the target lie one inside the other"
            raise LandingZoneError(
                msg, found=f"{zone} and {place}", next_step="Keep them in two folders."
            )

"""Gather what the tables of one call share, and say which of them it is about.

In: a session, a zone, a target, options. Out: a `Job`, its tables, and for each table a `Work`.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mirrorlib.delta.table import find_location, open_log, refer
from mirrorlib.errors import JournalError, LandingZoneError, MetadataError, TableNameError
from mirrorlib.events import unobserved
from mirrorlib.ingest.files.source import Source
from mirrorlib.ingest.files.source_identity import check_snapshots
from mirrorlib.ingest.files.table_folder import policies_of
from mirrorlib.ingest.work import Work
from mirrorlib.journal.disk import Journal
from mirrorlib.names import matches
from mirrorlib.store import open_store
from mirrorlib.store.target import Target, settled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    from mirrorlib.events import Observer
    from mirrorlib.ingest.files.table_folder import Folder
    from mirrorlib.ingest.options import Options
    from mirrorlib.journal.entries import Life
    from mirrorlib.landing.listing import TableFolder
    from mirrorlib.names import TableName
    from mirrorlib.store import PathOrUrl, Store

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


def open_job(
    spark: SparkSession,
    landing_zone: PathOrUrl,
    target: Target,
    options: Options,
    observe: Observer | None = None,
    stop: Callable[[], bool] | None = None,
) -> Job:
    """Gather what all tables of one call share.

    Raises:
        LandingZoneError: the zone lies inside its target, or the reverse.

    """
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
    job: Job, spark: SparkSession, folder: TableFolder, opened: Folder, lives: tuple[Life, ...]
) -> Work:
    """Gather what one table's batches need; *spark* is a session that is lent to it alone."""
    ref = refer(job.target, folder.name)
    if opened.metadata is None:  # callers ask `waits_for` first
        msg = "the table has no metadata"
        raise JournalError(msg, table=str(folder.name))
    if job.options.snapshots:
        check_snapshots(opened.metadata, str(folder.name))
    source = Source(
        zone=job.zone,
        table=str(folder.name),
        folder=folder.path,
        policies=policies_of(opened.metadata, opened.dialect, job.options),
    )
    if source.policies.partial and source.policies.conditional:
        msg = "updates cannot be partial and conditional at once: which values a row would keep is not defined"
        step = "Apply the table without --conditional-updates, or with --partial-updates never."
        raise MetadataError(msg, table=str(folder.name), next_step=step)
    return Work(
        spark=spark,
        ref=ref,
        log=open_log(spark, ref, find_location(spark, ref)),
        source=source,
        journal=Journal(job.state, folder.name),
        lives=lives,
        state=job.state,
        observe=job.observe,
        allow_foreign_writes=job.options.allow_foreign_writes,
        allow_empty=job.options.allow_empty,
        max_loss=job.options.max_loss,
    )


def choose_tables(
    folders: Sequence[TableFolder], options: Options, known: Sequence[TableName] = ()
) -> tuple[TableFolder, ...]:
    """Keep the tables that were asked for; *known* ones may be asked for though they are gone.

    Raises:
        LandingZoneError: a pattern names no table.

    """
    names = [*known, *(folder.name for folder in folders)]
    for pattern in options.tables:
        if not any(matches(name, [pattern]) for name in names):
            msg = "no table of the landing zone matches"
            shown = ", ".join(str(folder.name) for folder in folders[:10]) or "none"
            raise LandingZoneError(
                msg, table=pattern, found=f"tables {shown}", next_step="Correct --table."
            )
    return tuple(folder for folder in folders if matches(folder.name, options.tables))


def refuse_in_catalog(folders: Sequence[TableFolder], target: Target) -> tuple[TableFolder, ...]:
    """Refuse by name the tables that a catalog's schema has no room for."""
    if target.catalog is None:
        return tuple(folders)
    seen = Counter(folder.name.table.lower() for folder in folders)
    refused = []
    for folder in folders:
        table = folder.name.table
        error = folder.refusal
        if folder.unlisted:
            pass
        elif target.catalog in _STRICT_CATALOGS and not _STRICT_NAME.fullmatch(table):
            msg = f"the catalog {target.catalog} takes letters, digits and _ in a table's name, nothing else"
            step = "Rename it at the publisher, or use a path as the target."
            error = TableNameError(msg, table=str(folder.name), next_step=step)
        elif seen[table.lower()] > 1:
            msg = f"another table of the landing zone is called so too, and {target.shown} has room for one"
            step = "Apply one of them, with --table, or rename one at its publisher."
            error = TableNameError(msg, table=str(folder.name), next_step=step)
        refused.append(replace(folder, refusal=error))
    return tuple(refused)


def refuse_overlap(zone: str, target: Target) -> None:
    """Refuse a zone inside its target or state, and the reverse.

    Raises:
        LandingZoneError: one lies inside the other.

    """
    for place in [target.state] + ([target.place] if target.catalog is None else []):
        outer, inner = sorted((f"{settled(zone)}/", f"{settled(place)}/"), key=len)
        if inner.startswith(outer):
            msg = "the landing zone and the target lie one inside the other"
            raise LandingZoneError(
                msg, found=f"{zone} and {place}", next_step="Keep them in two folders."
            )

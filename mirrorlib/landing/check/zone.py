"""Review a whole landing zone: `mirrorlib.check(landing_zone)`. Never writes, never starts Spark.

In: a path or URL. Out: `CheckReport`. Tables are reviewed side by side, each for itself: trouble
with one does not hide what is wrong with the others.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from mirrorlib.errors import LandingZoneError, StoreError
from mirrorlib.landing.check.report import CheckReport, Findings
from mirrorlib.landing.check.table import review_table
from mirrorlib.landing.listing import list_tables
from mirrorlib.landing.metadata.declared import METADATA_BYTES
from mirrorlib.landing.metadata.lenient import NotJsonError, read_lenient
from mirrorlib.landing.metadata.partner import PARTNER_FILE
from mirrorlib.names import SCHEMA_SUFFIX, is_ignored, matches
from mirrorlib.store import open_store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirrorlib.landing.check.report import CheckObserver, Finding
    from mirrorlib.landing.listing import TableFolder
    from mirrorlib.store import PathOrUrl, Store

MOST_TABLES = 1000  # of one mirrored database in Fabric
_TABLES_AT_ONCE = 8


def check_zone(
    landing_zone: PathOrUrl,
    *,
    tables: Sequence[str] = (),
    strict: bool = False,
    deep: bool = False,
    parallelism: int = _TABLES_AT_ONCE,
    observe: CheckObserver | None = None,
) -> CheckReport:
    """Review a landing zone as a strict reader would. Writes nothing, and needs no Spark.

    Args:
        landing_zone: path or URL of the folder that holds the table folders.
        tables: names or globs of the tables to review; empty is all of them, and the zone itself.
        strict: count warnings as errors.
        deep: decode every page of every file, not only footers, markers and keys.
        parallelism: tables at once.
        observe: told how far each table is, from several threads.

    Returns:
        every finding; `ok` says whether there is nothing to be corrected.

    Raises:
        LandingZoneError: there is no landing zone, or no table of a given name.
        StoreError: the zone cannot be listed.

    """
    zone = open_store(landing_zone)
    folders = list_tables(zone)
    chosen = _chosen(folders, (tables,) if isinstance(tables, str) else tuple(tables))
    findings = () if tables else _review_zone(zone, folders)
    review = partial(review_table, zone, deep=deep, observe=observe or (lambda _: None))
    pool = ThreadPoolExecutor(max_workers=max(1, parallelism))
    try:
        reviewed = tuple(pool.map(review, chosen))
    finally:
        pool.shutdown(cancel_futures=True)  # Ctrl-C waits for the tables in work, not for all
    return CheckReport(
        landing_zone=zone.url,
        strict=strict,
        deep=deep,
        tables=tuple(table for table, _ in reviewed),
        findings=(*findings, *(finding for _, its in reviewed for finding in its)),
    )


def _chosen(folders: Sequence[TableFolder], patterns: Sequence[str]) -> tuple[TableFolder, ...]:
    for pattern in patterns:
        if not any(matches(folder.name, [pattern]) for folder in folders):
            msg = "no table of the landing zone matches"
            known = ", ".join(folder.name.shown for folder in folders[:10]) or "none"
            raise LandingZoneError(
                msg, table=pattern, found=f"tables {known}", next_step="Correct --table."
            )
    return tuple(folder for folder in folders if matches(folder.name, patterns))


def _review_zone(zone: Store, folders: Sequence[TableFolder]) -> tuple[Finding, ...]:
    """Look at what lies beside the table folders."""
    found = Findings(None)
    if not folders:
        found.add("no-tables", "no table folder")
    if len(folders) > MOST_TABLES:
        found.add("too-many-tables", f"{len(folders):,} table folders")
    try:
        _review_levels(zone, found)
        _review_partner_events(zone, found)
    except StoreError as exc:
        found.add("not-checked", exc.reason)
    return found.all()


def _review_levels(zone: Store, found: Findings) -> None:
    """Name the files that lie above the table folders."""
    top = zone.list_folder("")
    folders = top.folders if top else ()
    schemas = [f for f in folders if f.endswith(SCHEMA_SUFFIX) and not is_ignored(f)]
    for folder in ("", *schemas):
        listed = zone.list_folder(folder) if folder else top
        for file in listed.files if listed else ():
            shown = f"{folder}/{file.name}".lstrip("/")
            if file.name.casefold() == PARTNER_FILE.casefold():
                if folder:
                    found.add("partner-events-place", "it lies in a schema folder", file=shown)
            elif not is_ignored(file.name):
                found.add("stray-file", "outside of every table folder", file=shown)


def _review_partner_events(zone: Store, found: Findings) -> None:
    data = zone.read(PARTNER_FILE, most=METADATA_BYTES)
    if data is None:
        return
    try:
        value, repairs = read_lenient(data)
    except NotJsonError as exc:
        found.add("partner-events-json", str(exc), file=PARTNER_FILE)
        return
    what = repairs[0] if repairs else "another value" if not isinstance(value, tuple) else ""
    if what:
        found.add("partner-events-json", what, file=PARTNER_FILE)

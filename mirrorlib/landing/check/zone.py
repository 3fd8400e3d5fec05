"""Review a whole landing zone: `mirrorlib.check(landing_zone)`. Never writes, never starts Spark.

In: a path or URL. Out: `CheckReport`. Tables are reviewed side by side, their files one by one, in the order in which
they apply: trouble with one does not hide what is wrong with the others.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from mirrorlib.errors import MirrorError, StoreError
from mirrorlib.events import Event, Observer, unobserved
from mirrorlib.landing.check.drift import Drift
from mirrorlib.landing.check.facts import Policy, Review, UnreadableError
from mirrorlib.landing.check.folder import review_folder
from mirrorlib.landing.check.metadata import review_dialect, review_metadata
from mirrorlib.landing.check.parquet import review_parquet
from mirrorlib.landing.check.report import (
    SEVERITIES,
    CheckedTable,
    CheckReport,
    Finding,
    Findings,
    tell_claim,
)
from mirrorlib.landing.check.text import review_text
from mirrorlib.landing.listing import list_tables, see_below, see_folder
from mirrorlib.landing.metadata.declared import METADATA_BYTES
from mirrorlib.names import TableName, matches, refuse_unmatched, uncarriable
from mirrorlib.store import PathOrUrl, Store, StoredFile, open_store

MOST_TABLES = 1000  # of one mirrored database in Fabric
_AT_ONCE = 8  # tables
_LOG = logging.getLogger(__name__)


def check_zone(
    landing_zone: PathOrUrl,
    *,
    tables: Sequence[str] = (),
    strict: bool = False,
    deep: bool = False,
    observe: Observer | None = None,
) -> CheckReport:
    """Review a landing zone as a strict reader would. Writes nothing, and needs no Spark.

    Args:
        landing_zone: path or URL of the folder that holds the table folders.
        tables: names or globs of the tables to review; empty is all of them, and the zone itself.
        strict: count warnings as errors.
        deep: decode every page of every file, not only footers, markers and keys.
        observe: told when a table is listed, and of each of its files, from several threads.

    Returns:
        every finding; `ok` says whether there is nothing to be corrected.

    Raises:
        LandingZoneError: there is no landing zone, or no table of a given name.
        StoreError: the zone cannot be listed.

    """
    zone = open_store(landing_zone)
    folders = list_tables(zone)
    refuse_unmatched(tables, folders)
    chosen = [one for one in folders.items() if matches(one[0], tables)]
    findings = () if tables else _review_zone(folders)
    review = partial(_review_table, zone, deep=deep, observe=observe or unobserved)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        # Ctrl-C waits for the tables in work, not for all: `map` cancels those.
        reviewed = tuple(pool.map(review, chosen))
    return CheckReport(
        landing_zone=zone.url,
        strict=strict,
        deep=deep,
        tables=tuple(table for table, _ in reviewed),
        findings=(*findings, *(finding for _, its in reviewed for finding in its)),
    )


def _review_zone(folders: Collection[TableName]) -> tuple[Finding, ...]:
    found = Findings(None)
    if not folders:
        found.add("no-tables", "no table folder")
    if len(folders) > MOST_TABLES:
        found.add("too-many-tables", f"{len(folders):,} table folders")
    return found.all()


def _review_table(
    zone: Store,
    listed: tuple[TableName, MirrorError | None],
    *,
    deep: bool,
    observe: Observer,
) -> tuple[CheckedTable, tuple[Finding, ...]]:
    """Review one table; what its store refuses is a finding too."""
    name, refusal = listed
    table = name.shown
    found = Findings(table)
    files: Sequence[StoredFile] = ()
    if isinstance(refusal, StoreError):
        found.add("not-checked", tell_claim(refusal))
    elif odd := uncarriable(name):  # which cannot even be listed
        found.add("table-name", odd.reason)
    else:
        if refusal is not None:
            found.add("tables-collide", refusal.reason)
        try:
            files = _review_content(zone, name, found, deep=deep, observe=observe)
        except StoreError as exc:
            found.add("not-checked", tell_claim(exc))
        except Exception as exc:  # noqa: BLE001  # one table's trouble is not its neighbours'
            _LOG.debug("%s: cannot be reviewed", table, exc_info=True)
            found.add("not-checked", f"an unexpected {type(exc).__name__}; -vv tells where")
    findings = found.all()
    severities = [finding.severity for finding in findings]
    written = [file.modified.isoformat() for file in files]
    checked = CheckedTable(
        table=table,
        files=len(files),
        **{f"{severity}s": severities.count(severity) for severity in SEVERITIES},
        first=min(written, default=None),
        last=max(written, default=None),
    )
    return checked, findings


def _review_content(
    zone: Store, name: TableName, found: Findings, *, deep: bool, observe: Observer
) -> Sequence[StoredFile]:
    table, seen = name.shown, see_folder(zone, name)
    data = zone.read(seen.metadata.path, most=METADATA_BYTES) if seen.metadata else None
    seen = see_below(zone, name, seen, plain=False)
    metadata = review_metadata(data, table, found, (file.name for file in seen.files))
    dialect = review_dialect(metadata, table, found)
    policy = Policy(table=table, metadata=metadata, dialect=dialect, deep=deep)
    files = review_folder(seen, policy, found)
    drift = Drift(zone, policy, found)
    observe(Event(table=table, step="read", when="before", files=len(files), waits=len(files)))
    for file in files:
        review = _review_file(zone, file, policy, found) if file.size else None
        if review is not None:
            drift.take(review)
        observe(Event(table=table, step="done", when="after", files=1))
    drift.close()
    return files


def _review_file(zone: Store, file: StoredFile, policy: Policy, found: Findings) -> Review | None:
    """Read one file; None when it cannot be compared with others."""
    text, dialect = policy.is_text(file), policy.dialect
    if text and dialect is None:
        return None
    try:
        with zone.open_file(file.path) as handle:
            review = Review(file=file, handle=handle, policy=policy, found=found)
            if text and dialect:
                return review if review_text(review, dialect) else None
            review_parquet(review)
            return review
    except UnreadableError as exc:
        found.add(exc.rule, exc.found, file=file.name, line=exc.line)
    except StoreError as exc:
        found.add("not-checked", tell_claim(exc), file=file.name)
    return None

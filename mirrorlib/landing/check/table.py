"""Review one table folder, room after room: its listing, its metadata, each of its files, their drift.

In: a table folder. Out: a `CheckedTable` and its findings. One listing a folder; files are opened one
at a time, in the order in which they apply. A file that cannot be read does not hide the next one.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mirrorlib.errors import StoreError, TableNameError
from mirrorlib.landing.check.drift import Drift
from mirrorlib.landing.check.facts import Facts, Policy, Review, UnreadableError
from mirrorlib.landing.check.folder import iter_levels, review_folder
from mirrorlib.landing.check.metadata import review_dialect, review_metadata
from mirrorlib.landing.check.parquet import review_parquet
from mirrorlib.landing.check.report import CheckedTable, CheckStep, Findings
from mirrorlib.landing.check.text import review_text
from mirrorlib.landing.metadata.declared import METADATA_BYTES, METADATA_NAME
from mirrorlib.names import is_ignored, refuse_uncarriable

if TYPE_CHECKING:
    from mirrorlib.landing.check.report import CheckObserver, Finding
    from mirrorlib.landing.listing import TableFolder
    from mirrorlib.store import Folder, Store, StoredFile

_LOG = logging.getLogger(__name__)


def review_table(
    zone: Store, folder: TableFolder, *, deep: bool, observe: CheckObserver
) -> tuple[CheckedTable, tuple[Finding, ...]]:
    """Review one table; what its store refuses is a finding too."""
    table = folder.name.shown
    found = Findings(table)
    files = 0
    if _review_name(folder, found):
        try:
            listed = zone.list_folder(folder.path)
            if listed is not None:
                files = _review_content(zone, folder, listed, found, deep=deep, observe=observe)
        except StoreError as exc:
            found.add("not-checked", exc.reason)
        except Exception as exc:  # noqa: BLE001  # one table's trouble is not its neighbours'
            _LOG.exception("%s: cannot be reviewed", table)
            found.add("not-checked", f"an unexpected {type(exc).__name__}")
    findings = found.all()
    severities = [finding.severity for finding in findings]
    checked = CheckedTable(
        table=table,
        files=files,
        errors=severities.count("error"),
        warnings=severities.count("warning"),
        notes=severities.count("note"),
    )
    return checked, findings


def _review_name(folder: TableFolder, found: Findings) -> bool:
    """Say whether the folder can be looked into: a name that no store carries cannot even be listed."""
    if folder.unlisted and folder.refusal is not None:
        found.add("not-checked", folder.refusal.reason)
        return False
    try:
        refuse_uncarriable(folder.name)
    except TableNameError as exc:
        found.add("table-name", exc.reason)
        return False
    if folder.refusal is not None:
        found.add("tables-collide", folder.refusal.reason)
    return True


def _review_content(
    zone: Store,
    folder: TableFolder,
    listed: Folder,
    found: Findings,
    *,
    deep: bool,
    observe: CheckObserver,
) -> int:
    """Review what is in the folder; return how many change files there are."""
    table = folder.name.shown
    levels = list(iter_levels(zone, folder.path, listed))
    stated = any(file.name == METADATA_NAME for file in listed.files)
    data = zone.read(f"{folder.path}/{METADATA_NAME}", most=METADATA_BYTES) if stated else None
    shown = [file.name for _, level in levels for file in level.files if not is_ignored(file.name)]
    metadata = review_metadata(data, table, found, shown)
    dialect = review_dialect(metadata, table, found)
    policy = Policy(table=table, metadata=metadata, dialect=dialect, deep=deep)
    files = review_folder(levels, policy, found)
    drift = Drift(zone, policy, found)
    observe(CheckStep(table=table, files=len(files), checked=0))
    for checked, file in enumerate(files, start=1):
        facts = _review_file(zone, file, policy, found) if file.size else None
        if facts is not None:
            # Advice against markers in an initial load; delimited text is to have them always.
            rows = facts.scan.rows if facts.marked and facts.columns is not None else 0
            if checked == 1 and rows and facts.scan.inserts == rows:
                found.add("marker-in-initial-load", "all rows are inserts", file=file.name)
            drift.take(facts)
        observe(CheckStep(table=table, files=len(files), checked=checked))
    drift.close()
    return len(files)


def _review_file(zone: Store, file: StoredFile, policy: Policy, found: Findings) -> Facts | None:
    """Read one file; None when it cannot be compared with others."""
    text, dialect = policy.is_text(file), policy.dialect
    if text and dialect is None:
        return None
    try:
        with zone.open_file(file.path) as handle:
            review = Review(file=file, handle=handle, policy=policy, found=found)
            return review_text(review, dialect) if text and dialect else review_parquet(review)
    except (UnreadableError, StoreError) as exc:
        if _has_changed(zone, file):
            found.add("file-changing", "another file than was listed", file=file.name)
        elif isinstance(exc, UnreadableError):
            found.add(exc.rule, exc.found, file=file.name, line=exc.line)
        else:
            found.add("not-checked", exc.reason, file=file.name)
    return None


def _has_changed(zone: Store, file: StoredFile) -> bool:
    """Say whether a file that could not be read is no longer the one that was listed."""
    try:
        now = zone.stat(file.path)
    except StoreError:
        return False
    return now is None or now.etag != file.etag

"""Review one table folder, room after room: its listing, its metadata, each of its files, their drift.

In: a table folder. Out: a `CheckedTable` and its findings. One listing a folder; files are opened one
at a time, in the order in which they apply. A file that cannot be read does not hide the next one.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from mirrorlib.errors import StoreError, TableNameError
from mirrorlib.landing.check.columns import Facts, UnreadableError
from mirrorlib.landing.check.drift import Drift
from mirrorlib.landing.check.findings import Findings
from mirrorlib.landing.check.folder import review_folder
from mirrorlib.landing.check.metadata import review_dialect, review_metadata
from mirrorlib.landing.check.parquet import misfit, review_parquet
from mirrorlib.landing.check.report import CheckedTable, CheckStep
from mirrorlib.landing.check.rows import Policy
from mirrorlib.landing.check.text import review_text
from mirrorlib.landing.metadata.declared import METADATA_BYTES, METADATA_NAME
from mirrorlib.names import is_ignored, refuse_uncarriable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirrorlib.landing.check.columns import ColumnFacts
    from mirrorlib.landing.check.folder import ChangeFile
    from mirrorlib.landing.check.report import CheckObserver, Finding
    from mirrorlib.landing.delimited import Dialect
    from mirrorlib.landing.listing import TableFolder
    from mirrorlib.store import Folder, Store

_LOG = logging.getLogger(__name__)


def review_table(
    zone: Store, folder: TableFolder, *, deep: bool, observe: CheckObserver
) -> tuple[CheckedTable, tuple[Finding, ...]]:
    """Review one table; what its store refuses is a finding too."""
    found = Findings(folder.name.shown)
    files: tuple[ChangeFile, ...] = ()
    if _review_name(folder, found):
        try:
            listed = zone.list_folder(folder.path)
            if listed is not None:
                files = _review_content(zone, folder, listed, found, deep=deep, observe=observe)
        except StoreError as exc:
            found.add("not-checked", exc.reason)
        except Exception as exc:  # noqa: BLE001  # one table's trouble is not its neighbours'
            _LOG.exception("%s: cannot be reviewed", folder.name.shown)
            found.add("not-checked", f"an unexpected {type(exc).__name__}")
    findings = found.all()
    counts = {
        severity: sum(one.severity == severity for one in findings)
        for severity in ("error", "warning", "note")
    }
    checked = CheckedTable(
        table=folder.name.shown,
        files=len(files),
        errors=counts["error"],
        warnings=counts["warning"],
        notes=counts["note"],
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


def _shown(zone: Store, path: str, listed: Folder) -> Iterator[str]:
    """Give the names of a table's files, those of its partition folders too, as far as they are asked for."""
    yield from (file.name for file in listed.files if not is_ignored(file.name))
    for name in listed.folders:
        inner = None if is_ignored(name) or "=" not in name else zone.list_folder(f"{path}/{name}")
        if inner is not None:
            yield from _shown(zone, f"{path}/{name}", inner)


def _review_content(
    zone: Store,
    folder: TableFolder,
    listed: Folder,
    found: Findings,
    *,
    deep: bool,
    observe: CheckObserver,
) -> tuple[ChangeFile, ...]:
    stated = any(file.name == METADATA_NAME for file in listed.files)
    data = zone.read(f"{folder.path}/{METADATA_NAME}", most=METADATA_BYTES) if stated else None
    names = _shown(zone, folder.path, listed)
    metadata = review_metadata(data, folder.name.shown, found, names)
    dialect = review_dialect(metadata, folder.name.shown, found)
    files = review_folder(zone, listed, folder.path, metadata, found)
    policy = Policy(
        table=folder.name.shown,
        keys=metadata.stated_keys if metadata else (),
        upsert_default=metadata is not None and metadata.upsert_default,
        stated=metadata is not None,
        deep=deep,
    )
    drift = Drift(found, policy.keys, partial(_misfit, zone) if deep else None)
    observe(CheckStep(table=policy.table, files=len(files), checked=0))
    for checked, file in enumerate(files, start=1):
        facts = _review_file(zone, file, dialect, policy, found) if file.stored.size else None
        if facts is not None:
            if checked == 1:
                _review_first(facts, found)
            drift.take(facts)
        observe(CheckStep(table=policy.table, files=len(files), checked=checked))
    drift.close()
    return files


def _review_file(
    zone: Store,
    file: ChangeFile,
    dialect: Dialect | None,
    policy: Policy,
    found: Findings,
) -> Facts | None:
    """Read one file; None when it cannot be compared with others."""
    try:
        if file.text:
            return review_text(zone, file, dialect, policy, found) if dialect else None
        return review_parquet(zone, file, policy, found)
    except UnreadableError as exc:
        if _has_changed(zone, file):
            found.add("file-changing", "another file than was listed", file=file.name)
        else:
            found.add(exc.rule, exc.found, file=file.name, line=exc.line)
    except StoreError as exc:
        if _has_changed(zone, file):
            found.add("file-changing", "another file than was listed", file=file.name)
        else:
            found.add("not-checked", exc.reason, file=file.name)
    return None


def _has_changed(zone: Store, file: ChangeFile) -> bool:
    """Say whether a file that could not be read is no longer the one that was listed."""
    try:
        now = zone.stat(file.stored.path)
    except StoreError:
        return False
    return now is None or now.etag != file.stored.etag


def _review_first(facts: Facts, found: Findings) -> None:
    """Advise against markers in an initial load; delimited text is to have them always."""
    scan = facts.scan
    if facts.marked and not facts.file.text and scan.rows and scan.inserts == scan.rows:
        found.add("marker-in-initial-load", "all rows are inserts", file=facts.file.name)


def _misfit(zone: Store, file: ChangeFile, column: ColumnFacts, kind: pa.DataType) -> int | None:
    try:
        return misfit(zone, file, column, kind)
    except (pa.ArrowException, OSError):  # said already: a value does not fit its own type
        return None

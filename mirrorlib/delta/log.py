"""Read what was committed to a Delta table: which version is the newest, and what each commit says of itself.

In: a `Store` over the table's folder, or a session where the folder cannot be read (a catalog that
manages it). Out: `Commit` values. The log's own files are read because that takes milliseconds
where `DESCRIBE HISTORY` takes a Spark job; both give the same facts. Source: Delta PROTOCOL.md,
"Delta Log Entries" and "Commit Provenance Information".
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from mirrorlib.delta.key_property import ON
from mirrorlib.delta.properties import CLAIM, PAUSED, SEEN
from mirrorlib.delta.trouble import MEND_LOG
from mirrorlib.errors import StoreError
from mirrorlib.journal.plan_log import read_object
from mirrorlib.store import Store, StoredFile, contents

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Operations that change no row: what they write may stand between two batches of ours.
_HARMLESS = frozenset({
    "OPTIMIZE", "REORG", "CLUSTER BY", "VACUUM START", "VACUUM END", "ANALYZE", "COMPUTE STATS",
    "CREATE TABLE", "ADD COLUMNS", "CHANGE COLUMN", "CHANGE COLUMNS", "ADD CONSTRAINT", "DROP CONSTRAINT",
    "SET TBLPROPERTIES", "UNSET TBLPROPERTIES", "UPGRADE PROTOCOL", "ROW TRACKING BACKFILL", "Empty Commit",
    "REORG TABLE UPGRADE UNIFORM", "DROP FEATURE",  # which makes the next ones, too
    "Deletion Vector Tombstones", "ROW TRACKING UNBACKFILL", "DOMAIN METADATA CLEANUP",
})  # fmt: skip
LOG = "_delta_log"
IN_CONDITION = "mirrorlib:"  # before what a MERGE's condition says, in base64
_SAID = re.compile(rf"{IN_CONDITION}([\w-]+=*)")
_SEEN = re.compile(rf"{re.escape(SEEN)}\W+(\d+)")
_CLAIMED = re.compile(rf"{re.escape(CLAIM)}\W+(\w+-\w+)")
REWRITE = "rewrite"  # the outcome of a commit that gives rows other types, and changes none
_DIGITS = 20
_SINCE = 16  # commits that may have come since the newest version was asked for
TRANSACTION_RETENTION = "delta.setTransactionRetentionDuration"


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One commit of a Delta table: who made it, as far as the engine says, and how many rows it has added, as it says.

    `operation` is Delta's word for what it did, "MERGE", "OPTIMIZE" …; `ours` what mirrorlib says in it,
    None in anybody else's commit. One that *forgets* lets Delta forget transaction marks, on which exactly-once rests.
    """

    version: int
    operation: str
    ours: Mapping[str, Any] | None
    user: str
    forgets: bool
    rows: int
    read: int | None = None  # the version that it was computed on, as it says

    @property
    def told(self) -> str:
        """Tell which commit it is, and whose."""
        return f"version {self.version}, {self.operation} by {self.user}"

    @property
    def has_window(self) -> bool:
        """Say whether it is the commit of a stream's window, which whoever is at another one has not seen."""
        return "window" in (self.ours or {})

    @property
    def harmless(self) -> bool:
        """Say whether it changed no row."""
        return self.operation in _HARMLESS and not self.forgets


@dataclass(frozen=True, slots=True)
class LogFiles:
    """The files in which a table's log has versions and checkpoints, by version, in order."""

    versions: dict[int, StoredFile]
    checkpoints: dict[int, list[str]]  # of one version there may be several


class FileLog:
    """The log as the files of a table's `_delta_log`, whose folder's store it takes."""

    def __init__(self, table: Store) -> None:
        self._table = table

    def newest(self, at_least: int = -1) -> int | None:
        """Return the newest version; None when there is no table.

        Goes on one by one from *at_least*, a version known to have been there; lists only where that one is gone.
        """
        if at_least < 0 or self._table.stat(commit_path(at_least)) is None:
            return max(list_log(self._table).versions, default=None)
        while self._table.stat(commit_path(at_least + 1)) is not None:
            at_least += 1
        return at_least

    def commits(self, after: int, until: int) -> tuple[Commit, ...]:
        """Return the commits in (after, until] that are still there, oldest first."""
        found = []
        for version in range(after + 1, until + 1):
            data = self._table.read(commit_path(version))
            if data is not None:
                actions = read_actions(data, self._table, commit_path(version), "commitInfo")
                said = (action.get("commitInfo") for action in actions)
                found.append(tell_commit(version, next(filter(None, said), {})))
        return tuple(found)

    def table_bytes(self, version: int) -> int | None:
        """Return the size of a version's files, where its writer has noted it."""
        size = read_checksum(self._table, version).get("tableSizeBytes")
        return size if isinstance(size, int) else None


class HistoryLog:
    """The log as `DESCRIBE HISTORY` tells it, for tables, quoted, whose folder only the catalog may read."""

    def __init__(self, spark: SparkSession, table: str) -> None:
        self._spark = spark
        self._table = table

    def newest(self, at_least: int = -1) -> int | None:
        """Return the newest version; None when there is no table."""
        del at_least
        if not self._spark.catalog.tableExists(self._table):
            return None
        rows = self._spark.sql(f"DESCRIBE HISTORY {self._table} LIMIT 1").collect()
        return int(rows[0]["version"]) if rows else None

    def commits(self, after: int, until: int) -> tuple[Commit, ...]:
        """Return the commits in (after, until], oldest first.

        History has no lower bound: it is told from the newest on, of which some may have come since.
        """
        count = until - after + _SINCE
        rows = self._spark.sql(f"DESCRIBE HISTORY {self._table} LIMIT {count}").collect()
        if len(rows) == count and min(row["version"] for row in rows) > after + 1:
            rows = self._spark.sql(f"DESCRIBE HISTORY {self._table}").collect()
        found = {int(row["version"]): row.asDict(recursive=True) for row in rows}
        return tuple(tell_commit(one, found[one]) for one in sorted(found) if after < one <= until)

    def table_bytes(self, version: int) -> None:
        """Return nothing: no history tells it."""


TableLog: TypeAlias = FileLog | HistoryLog


def commit_path(version: int) -> str:
    """Return where a version's file is, relative to the table."""
    return f"{LOG}/{version:0{_DIGITS}d}.json"


def list_log(table: Store) -> LogFiles:
    """List a table's log, by the store of its folder; it is empty where there is no table."""
    found = LogFiles({}, {})
    for file in contents(table, LOG).files:
        number, _, rest = file.name.partition(".")
        if len(number) == _DIGITS and number.isdecimal():
            if rest == "json":
                found.versions[int(number)] = file
            elif rest.startswith("checkpoint."):
                found.checkpoints.setdefault(int(number), []).append(file.path)
    return found


def read_actions(data: bytes, table: Store, path: str, *kinds: str) -> Iterator[dict[str, Any]]:
    """Read the actions of a version's file, or of a checkpoint's; others than *kinds* are mostly left out unread.

    Raises `StoreError`: the file, which is named by its *path* below the *table*, is cut short or damaged.
    """
    words = [f'"{kind}"'.encode() for kind in kinds]
    for line in data.splitlines():  # of bytes: text is cut at characters that names may have, too
        if line.strip() and (not words or any(word in line for word in words)):
            try:
                yield {**json.loads(line.decode("utf-8", "surrogatepass"))}
            except (RecursionError, TypeError, ValueError) as exc:
                msg = "a file of the table's log is damaged"
                file = f"{table.url}/{path}"
                raise StoreError(msg, file=file, found=str(exc), next_step=MEND_LOG) from exc


def tell_commit(version: int, info: Mapping[str, Any]) -> Commit:
    """Tell who made a version and how, of what its writer says."""
    asked, operation = json.dumps(info.get("operationParameters") or {}), info.get("operation")
    # Auto compaction runs in the session of the statement before it, whose mark its own commit gets, too.
    said = read_object(info.get("userMetadata")) if operation != "OPTIMIZE" else {}
    ours = said["mirrorlib"] if "mirrorlib" in said else _read_parameters(operation, asked)
    return Commit(
        version=version,
        operation=operation or "a commit without provenance",
        ours=ours if isinstance(ours, dict) else None,
        user=info.get("userName") or info.get("userId") or info.get("engineInfo") or "unknown",
        forgets=TRANSACTION_RETENTION in asked,
        rows=int((info.get("operationMetrics") or {}).get("numOutputRows", 0)),
        read=info.get("readVersion"),
    )


def _read_parameters(operation: str | None, asked: str) -> Mapping[str, Any] | None:
    """Read what a statement's own parameters say, where its session could not be told to say it."""
    if operation in {"DELETE", "MERGE"} and (said := _SAID.search(asked)):
        with contextlib.suppress(binascii.Error):  # somebody else's text
            return read_object(base64.urlsafe_b64decode(said[1])).get("mirrorlib")
    if operation == "SET TBLPROPERTIES":
        outcome = {"outcome": REWRITE} if PAUSED in asked else {}
        if claimed := _CLAIMED.search(asked):
            return {"claim": claimed[1], **outcome}
        if seen := _SEEN.search(asked):
            return {ON: int(seen[1])}
        return outcome or None
    return None


def read_checksum(store: Store, version: int) -> Mapping[str, Any]:
    """Read what the writer of a version has noted of the table as a whole; nothing where it has not, or not yet.

    Source: Delta PROTOCOL.md, "Version Checksum File".
    """
    return read_object(store.read(checksum_path(version)))


def checksum_path(version: int) -> str:
    """Return where a version's checksum is, relative to the table."""
    return commit_path(version).removesuffix("json") + "crc"

"""Commit files that lie in a table's folder as they are: nothing is read.

In: copies, what their reader has found in them, the version that they come behind. Out: one commit that adds them,
written as Delta's protocol has it, or False where another came first. Promise: put-if-absent lets one of all writers
have a version, so it is there once, for exactly the table that the caller has looked at.
Source: Delta PROTOCOL.md, "Add File and Remove File", "Transaction Identifiers", "Commit Provenance Information",
"Per-file Statistics".
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mirrorlib.commit.mark import Mark
from mirrorlib.delta.log import commit_path
from mirrorlib.delta.table import Found, TableRef, read_table
from mirrorlib.store import Store
from mirrorlib.version import VERSION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Features that ask nothing of a commit which only adds files.
_ASKS_NOTHING = frozenset({
    "appendOnly", "changeDataFeed", "clustering", "deletionVectors", "domainMetadata", "invariants",
    "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck",
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedFile:
    """A file that becomes a part of a table."""

    path: str  # relative to the table, of letters, digits, "-", "/" and "." alone
    size: int  # bytes
    rows: int  # how many it has
    ends: Mapping[str, tuple[Any, Any]]  # the least and the greatest value of columns without NULLs


def takes_files(spark: SparkSession, ref: TableRef, found: Found) -> bool:
    """Say whether a table takes files as they are: nothing in it asks more of a commit than to add them."""
    if not found.features or not found.features <= _ASKS_NOTHING:
        return False
    if any(name.startswith("delta.constraints.") for name in found.properties):
        return False
    return all(one.nullable and not one.metadata for one in read_table(spark, ref).schema.fields)


def commit_files(
    table: Store, after: int, files: Sequence[AddedFile], mark: Mark, *, replaces: bool
) -> bool:
    """Add files by the version behind *after*; False where somebody else has that version."""
    now, rows = int(time.time() * 1000), sum(file.rows for file in files)
    size = sum(file.size for file in files)
    info = {
        "timestamp": now,
        "operation": "WRITE",
        "operationParameters": {"mode": "Overwrite" if replaces else "Append", "partitionBy": "[]"},
        "readVersion": after,
        "isolationLevel": "Serializable",
        "isBlindAppend": not replaces,
        "operationMetrics": {
            "numFiles": str(len(files)),
            "numOutputRows": str(rows),
            "numOutputBytes": str(size),
        },
        "userMetadata": mark.text,
        "engineInfo": f"mirrorlib/{VERSION}",
        "txnId": str(uuid.uuid4()),
    }
    actions: list[dict[str, Any]] = [
        {"commitInfo": info},
        {"txn": {"appId": mark.app_id, "version": mark.version, "lastUpdated": now}},
    ]
    actions += [
        {
            "add": {
                "path": file.path,
                "partitionValues": {},
                "size": file.size,
                "modificationTime": now,
                "dataChange": True,
                "stats": _statistics(file),
            }
        }
        for file in files
    ]
    text = "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions)
    path, data = commit_path(after + 1), text.encode()
    # A store that repeats a call whose answer was lost meets its own file.
    return table.put_new(path, data) or table.read(path) == data


def _statistics(file: AddedFile) -> str:
    """Write Delta's statistics of a file."""
    least, most = ({name: ends[place] for name, ends in file.ends.items()} for place in (0, 1))
    nulls = dict.fromkeys(file.ends, 0)
    told = {"minValues": least, "maxValues": most, "nullCount": nulls}
    return json.dumps({"numRecords": file.rows, **told}, default=str)  # as it writes dates, too

"""Commit files that lie in a table's folder as they are: nothing is read but their footers.

In: copies, what their footers tell, the version that they come behind. Out: one commit that adds them, written as
Delta's protocol has it, or False where another came first. Promise: put-if-absent lets one of all writers have a
version, so it is there once, for exactly the table that the caller has looked at.
Source: Delta PROTOCOL.md, "Add File and Remove File", "Transaction Identifiers", "Commit Provenance Information",
"Per-file Statistics".
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

from mirrorlib.commit.mark import Mark
from mirrorlib.commit.stage import column_statistics
from mirrorlib.delta.log import commit_path
from mirrorlib.delta.table import Found, TableRef, read_table
from mirrorlib.store import Store
from mirrorlib.version import VERSION

if TYPE_CHECKING:
    import pyarrow.parquet as pq
    from pyspark.sql import SparkSession

# Features that ask nothing of a commit which only adds files.
_ASKS_NOTHING = frozenset({
    "appendOnly", "changeDataFeed", "clustering", "deletionVectors", "domainMetadata", "invariants",
    "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck",
})  # fmt: skip
_LONGEST = 32  # bytes of a text in statistics: writers cut longer ones


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedFile:
    """A file that becomes a part of a table."""

    path: str  # relative to the table, of letters, digits, "-", "/" and "." alone
    size: int  # bytes
    rows: int  # how many it has
    statistics: Mapping[str, Any]  # Delta's, beside the number of rows


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
                "stats": json.dumps({"numRecords": file.rows, **file.statistics}),
            }
        }
        for file in files
    ]
    text = "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions)
    path, data = commit_path(after + 1), text.encode()
    # A store that repeats a call whose answer was lost meets its own file.
    return table.put_new(path, data) or table.read(path) == data


def read_statistics(metadata: pq.FileMetaData, names: Sequence[str]) -> dict[str, Any]:
    """Read the ends of some columns off a footer, of those types whose ends Delta and Parquet write alike."""
    lows: dict[str, Any] = {}
    highs: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name in names:
        known = column_statistics([metadata], name)
        if any(one is None or not one.has_null_count for one in known):
            continue
        nulls[name] = sum(one.null_count for one in known)
        filled = [one for one in known if one.has_min_max]
        ends = [end for one in filled for end in (one.min, one.max)]
        empty = sum(one.num_values == 0 for one in known)
        if ends and len(filled) + empty == len(known) and all(_is_exact(end) for end in ends):
            lows[name], highs[name] = _as_json(min(ends)), _as_json(max(ends))
    return {"minValues": lows, "maxValues": highs, "nullCount": nulls}


def _is_exact(end: object) -> bool:
    if isinstance(end, str):
        return len(end.encode()) < _LONGEST
    return type(end) in {int, date}


def _as_json(end: object) -> object:
    return end.isoformat() if isinstance(end, date) else end

"""Commit files that lie in a table's folder as they are.

In: copies, what their keys tell, the version that they come behind. Out: one commit that adds them, written as
Delta's protocol has it, or False where another came first. Promise: put-if-absent lets one of all writers have a
version, so it is there once, for exactly the table that the caller has looked at.
Source: Delta PROTOCOL.md, "Add File and Remove File", "Transaction Identifiers", "Commit Provenance Information",
"Per-file Statistics".
"""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlib.commit.mark import Mark
from mirrorlib.delta.log import commit_path
from mirrorlib.delta.table import Found, TableRef, read_table
from mirrorlib.landing.parquet import iter_batches
from mirrorlib.store import Store
from mirrorlib.version import VERSION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Features that ask nothing of a commit which only adds files.
_ASKS_NOTHING = frozenset({
    "appendOnly", "changeDataFeed", "clustering", "deletionVectors", "domainMetadata", "invariants",
    "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck",
})  # fmt: skip
_LONGEST = 36  # bytes of a text in a log, as of a UUID


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
                "stats": json.dumps({"numRecords": file.rows, **file.statistics}, default=str),
            }
        }
        for file in files
    ]
    text = "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions)
    path, data = commit_path(after + 1), text.encode()
    # A store that repeats a call whose answer was lost meets its own file.
    return table.put_new(path, data) or table.read(path) == data


def read_statistics(source: BinaryIO, names: Sequence[str]) -> dict[str, Any]:
    """Read the ends of some columns of a Parquet file, of those types whose ends Delta and Arrow tell alike.

    They are those of the rows: Arrow ends the process that asks it for damaged ones of a footer, and a footer may lie.
    """
    found: dict[str, list[pa.Scalar]] = {name: [] for name in names}
    nulls = dict.fromkeys(names, 0)
    for rows in iter_batches(source, names) if names else ():
        for name in names:
            values = rows.column(name)
            if isinstance(values, pa.DictionaryArray):
                values = values.dictionary_decode()
            nulls[name] += values.null_count
            found[name] += pc.min_max(values).values()
    lows, highs = dict[str, Any](), dict[str, Any]()
    for name, ends in found.items():
        with contextlib.suppress(OverflowError, UnicodeDecodeError):  # Python has no such value
            least, most = pc.min_max(pa.array(ends)).as_py().values()
            if _is_exact(least) and _is_exact(most):
                lows[name], highs[name] = least, most
    return {"minValues": lows, "maxValues": highs, "nullCount": nulls}


def _is_exact(end: object) -> bool:
    if isinstance(end, str):
        return len(end.encode()) <= _LONGEST
    return type(end) in {int, date}

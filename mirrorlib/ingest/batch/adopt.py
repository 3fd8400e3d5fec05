"""Let a table take a batch's files as they are, where every row is an insert and every file fits it to the byte.

In: a plan and its opened files. Out: whether it was done; if not, Spark reads and writes them (see `stage.py`). A first
load takes a fraction of the time so. Files are copied where the store does it itself, are told by their identity
before and after, are decoded by Spark to the last page, and count from one commit on, written as Delta's protocol has
it. Promise: put-if-absent lets one of all writers have the version behind the one that was looked at, so the commit is
there once, for exactly that table. Source: Delta PROTOCOL.md, "Add File and Remove File", "Transaction Identifiers",
"Commit Provenance Information", "Per-file Statistics".
"""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Mapping, Sequence
from datetime import date
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from mirrorlib.commit.protocol import OvertakenError
from mirrorlib.delta.columns import Columns
from mirrorlib.delta.commits import Commits
from mirrorlib.delta.log import FileLog, checksum_path, commit_path
from mirrorlib.delta.properties import LIFE_PROPERTY
from mirrorlib.delta.sessions import PATTERN, carries_marks, file_reader, side_by_side
from mirrorlib.delta.table import Found, find_table
from mirrorlib.delta.trouble import conditions_of
from mirrorlib.errors import StoreError
from mirrorlib.identifiers import quote
from mirrorlib.ingest.batch.foreign_writes import find_outcome
from mirrorlib.ingest.batch.open_batch import Prepared
from mirrorlib.ingest.batch.stage import is_plain
from mirrorlib.ingest.rows.marks import Ends
from mirrorlib.ingest.rows.read import Landed, can_spark_read
from mirrorlib.ingest.work import Attempt
from mirrorlib.journal.entries import new_attempt
from mirrorlib.store import Store, copy_file, keeps_out, open_store
from mirrorlib.version import VERSION

# Features that ask nothing of a commit which only adds files.
_ASKS_NOTHING = frozenset({
    "appendOnly", "changeDataFeed", "deletionVectors", "domainMetadata", "invariants", "timestampNtz",
    "v2Checkpoint", "vacuumProtocolCheck",
})  # fmt: skip
# Of what a checksum tells, what only has to be right, or is added up. Source: "Version Checksum File".
_CHECKSUM = {"tableSizeBytes", "numFiles", "numMetadata", "numProtocol", "metadata", "protocol"}
_ANCIENT = "READ_ANCIENT_DATETIME"
_LONGEST = 36  # bytes of a text in a log, as of a UUID
_WORTH_IT = 8 << 20  # bytes a file: many small ones are better written together


def adopt_batch(attempt: Attempt, prepared: Prepared) -> bool:
    """Copy the files of a plan into its table and commit them; False where they have to be read.

    Raises `FileChangedError`: a file is no longer the one that was prepared; `OvertakenError`: another commit came
    meanwhile.
    """
    work, plan = attempt.work, attempt.plan
    version = _adoptable(attempt, prepared)
    if version is None or work.ref.path is None:
        return False
    table = open_store(work.ref.path)
    # Names unlike those of any other runner: what one that comes too late has copied is removed.
    copies = [f"{plan.batch}-{new_attempt()}.parquet" for _ in prepared.landed]
    pairs = list(zip(prepared.landed, copies, strict=True))
    counts = False
    try:
        with attempt.step("stage", counted=True):
            # The state may lie elsewhere, and Delta needs no put-if-absent: a mount without hard links has none.
            if not keeps_out(table, f"{plan.batch}-{new_attempt()}.probe"):
                return False
            if not all(side_by_side(partial(_copy, table), pairs, table.at_once)):
                return False
            if not _decode(work.spark, prepared):
                return False
            prepared.check_files()
            adds = [_added(landed, copy) for landed, copy in pairs]
            seen = Commits(table, work.table)
            sums = seen.checksum if seen.exist and seen.newest == version else {}
        with attempt.step("commit", counted=True):
            counts = True  # as far as anybody knows, until the store has answered
            counts = _commit(attempt, table, version, adds, sums)
    finally:
        for copy in [] if counts else copies:
            with contextlib.suppress(StoreError):  # nobody reads it
                table.delete(copy)
    if not counts:
        raise OvertakenError
    return True


def _copy(table: Store, pair: tuple[Landed, str]) -> bool:
    landed, copy = pair
    with contextlib.suppress(StoreError):  # not all stores copy what they give
        return copy_file(landed.source.zone, landed.file, table, copy)
    return False


def _adoptable(attempt: Attempt, prepared: Prepared) -> int | None:
    """Return the version of the table that a batch can be added behind as it is; None where it cannot."""
    work, plan = attempt.work, attempt.plan
    if not _are_inserts(attempt, prepared) or not isinstance(work.log, FileLog):
        return None
    # Nobody has looked who else has written; or a claim is needed, which only what Spark reads is bound to.
    if work.options.allow_foreign_writes or not carries_marks(work.spark):
        return None
    if not all(_fits(one, prepared.growth.columns) for one in prepared.landed):
        return None
    version, ended = find_outcome(attempt)
    found = find_table(work.spark, work.ref)
    if ended is not None or found is None or not _takes_files(found):
        return None
    if found.properties.get(LIFE_PROPERTY) != work.life.uuid:
        return None  # fenced off, which Delta sees and this way does not
    # What a table holds that is begun anew has to go.
    return version if plan.before or not found.bytes else None


def _decode(spark: SparkSession, prepared: Prepared) -> bool:
    """Let Spark decode all values: what a page does not give is found before the file counts.

    False where a day or moment is so old that readers ask for its calendar, of which only Spark's own files say any.
    """
    ddl = ", ".join(column.ddl for column in prepared.growth.columns)
    paths = (one.source.zone.uri(one.file.path) for one in prepared.landed)
    rows = file_reader(spark, ddl).option("datetimeRebaseMode", "EXCEPTION").parquet(*paths)
    try:
        rows.agg(*(f.count(quote(name)) for name in rows.columns)).collect()
    except Exception as exc:
        if not any(_ANCIENT in name for name in conditions_of(exc)):
            raise
        return False
    return True


def _are_inserts(attempt: Attempt, prepared: Prepared) -> bool:
    """Say whether the rows are to be inserted without a look, by files that are worth to be kept."""
    plan = attempt.plan
    if plan.policies.snapshots or plan.bytes < _WORTH_IT * len(plan.files):
        return False
    if any(one.schema.marker is not None or one.rows is not None for one in prepared.landed):
        return False
    return is_plain(prepared)


def _fits(landed: Landed, columns: Columns) -> bool:
    """Say whether a file's columns are the table's, in the table's types, and Spark reads it as it is."""
    types = {column.name: column.type for column in columns}
    return (
        bool(landed.schema.columns)
        and all(
            column.native
            and not column.moved
            and column.given is None
            and column.stored == types.get(column.name)
            for column in landed.schema.columns
        )
        and not PATTERN.search(landed.source.zone.uri(landed.file.path))  # Spark reads all for each
        and can_spark_read(landed)
    )


def _takes_files(found: Found) -> bool:
    """Say whether a table takes files as they are: nothing in it asks more of a commit than to add them."""
    if found.partitions or not found.features or not found.features <= _ASKS_NOTHING:
        return False
    if any(name.startswith("delta.constraints.") for name in found.properties):
        return False
    return all(one.nullable and not one.metadata for one in found.schema.fields)


def _added(landed: Landed, copy: str) -> dict[str, Any]:
    """Return the action that adds a copy; its name is of letters, digits, "-" and "." alone."""
    return {
        "path": copy,
        "partitionValues": {},
        "size": landed.file.size,
        "modificationTime": int(time.time() * 1000),
        "dataChange": True,
        "stats": json.dumps(
            {"numRecords": landed.schema.rows, **tell_ends(landed.key_ends)}, default=str
        ),
    }


def _commit(
    attempt: Attempt,
    table: Store,
    after: int,
    adds: Sequence[dict[str, Any]],
    before: Mapping[str, Any],
) -> bool:
    """Add a plan's files by the version behind *after*; False where somebody else has that version.

    The checksum *before* is the one of *after*, if that has one.
    """
    plan, now = attempt.plan, int(time.time() * 1000)
    rows = {"inserts": plan.rows}
    facts = {"outcome": "applied", "kind": "adopt", "rows": rows, "bytes": plan.bytes}
    mark = attempt.mark(facts)
    info = {
        "timestamp": now,
        "operation": "WRITE",
        "operationParameters": {
            "mode": "Append" if plan.before else "Overwrite",
            "partitionBy": "[]",
        },
        "readVersion": after,
        "isolationLevel": "Serializable",
        "isBlindAppend": bool(plan.before),
        "operationMetrics": {
            "numFiles": str(len(adds)),
            "numOutputRows": str(plan.rows),
            "numOutputBytes": str(plan.bytes),
        },
        "userMetadata": mark.text,
        "engineInfo": f"mirrorlib/{VERSION}",
        "txnId": str(uuid.uuid4()),
    }
    txn = {"appId": mark.app_id, "version": mark.version, "lastUpdated": now}
    actions = [{"commitInfo": info}, {"txn": txn}, *({"add": add} for add in adds)]
    text = "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions)
    path, data = commit_path(after + 1), text.encode()
    # A store that repeats a call whose answer was lost meets its own file.
    if not (table.put_new(path, data) or table.read(path) == data):
        return False
    more = {"tableSizeBytes": plan.bytes, "numFiles": len(adds)}
    _write_checksum(table, after + 1, str(info["txnId"]), before, more)
    return True


def _write_checksum(
    table: Store, version: int, transaction: str, before: Mapping[str, Any], more: Mapping[str, int]
) -> None:
    """Sum up the table where that is known of the version *before*; else Delta does, by a job, when it is asked."""
    if before.keys() >= _CHECKSUM:
        sums = {name: before[name] + count for name, count in more.items()}
        said = {name: before[name] for name in _CHECKSUM} | sums | {"txnId": transaction}
        with contextlib.suppress(StoreError):  # the batch is there
            table.put(checksum_path(version), json.dumps(said).encode())


def tell_ends(found: Mapping[str, Ends]) -> dict[str, Any]:
    """Tell the ends of key columns as a log does, where Delta and Arrow tell them alike."""
    lows, highs = dict[str, Any](), dict[str, Any]()
    for name, ends in found.items():
        with contextlib.suppress(OverflowError, UnicodeDecodeError):  # Python has no such value
            least, most = pc.min_max(pa.array(ends.values)).as_py().values()
            if _is_exact(least) and _is_exact(most):
                lows[name], highs[name] = least, most
    nulls = {name: ends.nulls for name, ends in found.items()}
    return {"minValues": lows, "maxValues": highs, "nullCount": nulls}


def _is_exact(end: object) -> bool:
    if isinstance(end, str):
        return len(end.encode()) <= _LONGEST
    return type(end) in {int, date}

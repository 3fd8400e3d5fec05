"""Write rows as one Delta commit that carries its own position.

In: rows and a `Mark`. Out: nothing; what became of it is read from the log (`protocol.py`),
because a repeat is skipped without a word, by Delta or by a `Claim`. Promise: whatever happens, the
commit is there as a whole or not at all, and at most once for its (application id, version).
Source: Delta idempotent writes (`txnAppId`, `txnVersion`).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mirrorlib.commit.claim import Claim
from mirrorlib.commit.protocol import OvertakenError
from mirrorlib.delta.log import IN_CONDITION
from mirrorlib.delta.table import TableRef, read_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

METADATA = "spark.databricks.delta.commitInfo.userMetadata"  # for statements, which have no options
FENCE = 2**63 - 1  # a transaction version that nothing comes after


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What makes a commit ours and unrepeatable."""

    app_id: str  # Delta's txn application id, one per life; "" for a commit that may be made again
    # Delta's txn version: twice the batch, one less for what makes way for it, or `FENCE`.
    version: int = 0
    facts: Mapping[str, Any]  # what `userMetadata` says about the batch
    claim: Claim | None = None  # what stands for Delta's check where a MERGE cannot carry the mark

    @property
    def text(self) -> str:
        """Return the commit's `userMetadata`: what it says of itself, and what makes it unrepeatable."""
        return as_metadata({**self.facts, "txn": [self.app_id, self.version]})

    @property
    def options(self) -> dict[str, str]:
        """Return the options by which a write carries the mark."""
        once = {"txnAppId": self.app_id, "txnVersion": str(self.version)} if self.app_id else {}
        return {**once, "userMetadata": self.text}


def as_metadata(facts: Mapping[str, Any]) -> str:
    """Write what a commit says of itself."""
    return json.dumps({"mirrorlib": facts}, separators=(",", ":"))


def as_condition(column: str, metadata: str) -> str:
    """Write a commit's `userMetadata` where neither its statement nor its session has a place for it.

    The condition, on a quoted column, is always true, which Spark does not see: so the log has it with all others.
    """
    said = base64.urlsafe_b64encode(metadata.encode()).decode()
    text = f"CAST({column} AS STRING)"
    return f"(coalesce(length({text}), 0) >= 0 OR {text} = '{IN_CONDITION}{said}')"


@contextmanager
def claimed(mark: Mark, rows: DataFrame, *, nothing: bool = False) -> Iterator[DataFrame | None]:
    """Lend rows as they may be committed now, or *nothing* of them; None where the log has the mark already."""
    if mark.claim is None:
        yield rows.limit(0) if nothing else rows
        return
    try:
        yield mark.claim.lay(rows, mark.app_id, mark.version, nothing=nothing)
    except Exception as exc:  # it stays: the commit may come yet
        if mark.claim.is_gone():
            raise OvertakenError from exc
        raise
    mark.claim.withdraw()


def append_rows(
    ref: TableRef, rows: DataFrame, mark: Mark, *, grows: bool = False, nothing: bool = False
) -> None:
    """Insert rows; *nothing* of them records the mark alone. A table that *grows* gets the columns that it lacks."""
    options = {**mark.options, "mergeSchema": str(grows).lower()}
    with claimed(mark, rows, nothing=nothing) as free:
        if free is None:
            return
        writer = free.write.format("delta").options(**options).mode("append")
        if ref.path is None:
            writer.saveAsTable(ref.sql)
        else:
            writer.save(ref.path)


def overwrite_rows(ref: TableRef, rows: DataFrame, mark: Mark, *, schema: bool) -> None:
    """Replace the table's content in one commit, and its columns too when *schema* says so."""
    from pyspark.sql import functions as f

    options = {**mark.options, "overwriteSchema": str(schema).lower()}
    with claimed(mark, rows) as free:
        if free is None:
            return
        if ref.path is None:
            # Delta 3 does not take saveAsTable for it: "does not support truncate".
            free.writeTo(ref.sql).options(**options).overwrite(f.lit(True))  # noqa: FBT003  # every row goes
        else:
            free.write.format("delta").options(**options).mode("overwrite").save(ref.path)


def mark_nothing(spark: SparkSession, ref: TableRef, mark: Mark) -> None:
    """Record the mark in a commit that changes no row."""
    append_rows(ref, read_table(spark, ref), mark, nothing=True)

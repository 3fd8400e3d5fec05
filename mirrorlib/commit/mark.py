"""Write rows as one Delta commit that carries its own position.

In: rows and a `Mark`. Out: nothing; what became of it is read from the log (`protocol.py`),
because a repeat is skipped by Delta without a word. Promise: whatever happens, the
commit is there as a whole or not at all, and at most once for its (application id, version).
Source: Delta idempotent writes (`txnAppId`, `txnVersion`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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

    @property
    def text(self) -> str:
        """Return the commit's `userMetadata`."""
        return as_metadata(self.facts)

    @property
    def options(self) -> dict[str, str]:
        """Return the options by which a write carries the mark."""
        once = {"txnAppId": self.app_id, "txnVersion": str(self.version)} if self.app_id else {}
        return {**once, "userMetadata": self.text}


def as_metadata(facts: Mapping[str, Any]) -> str:
    """Write what a commit says of itself."""
    return json.dumps({"mirrorlib": facts}, separators=(",", ":"))


def append_rows(ref: TableRef, rows: DataFrame, mark: Mark, *, grows: bool = False) -> None:
    """Insert rows; zero rows record the mark alone. Where it *grows*, the table gets the columns that it lacks."""
    options = {**mark.options, "mergeSchema": str(grows).lower()}
    writer = rows.write.format("delta").options(**options).mode("append")
    if ref.path is None:
        writer.saveAsTable(ref.sql)
    else:
        writer.save(ref.path)


def overwrite_rows(ref: TableRef, rows: DataFrame, mark: Mark, *, schema: bool) -> None:
    """Replace the table's content in one commit, and its columns too when *schema* says so."""
    from pyspark.sql import functions as f

    options = {**mark.options, "overwriteSchema": str(schema).lower()}
    if ref.path is None:  # Delta 3 does not take saveAsTable for it: "does not support truncate"
        rows.writeTo(ref.sql).options(**options).overwrite(f.lit(True))  # noqa: FBT003  # every row goes
    else:
        rows.write.format("delta").options(**options).mode("overwrite").save(ref.path)


def mark_nothing(spark: SparkSession, ref: TableRef, mark: Mark) -> None:
    """Record the mark in a commit that changes no row."""
    append_rows(ref, read_table(spark, ref).limit(0), mark)

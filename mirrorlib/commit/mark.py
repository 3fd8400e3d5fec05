"""Write rows as one Delta commit that carries its own position.

In: rows and a `Mark`. Out: nothing; what became of it is read from the log (`protocol.py`),
because a repeat is skipped without a word, by Delta or by a `Claim`. Promise: whatever happens, the
commit is there as a whole or not at all, and at most once for its (application id, version).
Source: Delta idempotent writes (`txnAppId`, `txnVersion`).

Where Delta lets nobody give a table other columns and rows at once, under column mapping with its feed on, they are
three commits: feed off, overwrite, feed on. Each is repeated without harm: a property says that the feed is off for
this alone, the overwrite has a mark that Delta takes once. Whoever writes to a table that a killed runner has left so
calls `resume_feed` first. The versions around the overwrite say that they rewrite, as it does, so that readers of the
feed know that no row has changed without one.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mirrorlib.commit.claim import Claim, runner
from mirrorlib.commit.protocol import OvertakenError
from mirrorlib.delta.ddl import allow_columns
from mirrorlib.delta.log import IN_CONDITION, REWRITE
from mirrorlib.delta.properties import CLAIM, FEED, PAUSED, set_properties
from mirrorlib.delta.sessions import configured
from mirrorlib.delta.table import Found, TableRef, clustered_by, find_table, read_table
from mirrorlib.identifiers import quote
from mirrorlib.version import VERSION

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


def overwrite_columns(
    spark: SparkSession,
    ref: TableRef,
    rows: DataFrame,
    mark: Mark,
    step: Callable[[str], AbstractContextManager[object]] = nullcontext,
) -> None:
    """Replace a table's rows and columns in one commit, with its feed off meanwhile where Delta asks for it.

    Before, the table is given what its new columns need. The session is our own. *step* is done around each switch of
    the feed.
    """
    from pyspark.errors import AnalysisException

    found = find_table(spark, ref)
    if found is not None and allow_columns(spark, ref, rows.schema.fields, found):
        found = find_table(spark, ref)  # with column mapping, its feed has to be off
    paused, clustered = _is_paused(found), clustered_by(spark, ref, found)
    if found is not None and found.mapped and found.has_feed:
        now = dict(rows.dtypes)
        # A column that does not stay what it is, Delta takes for one that is dropped.
        if any(now.get(name) != kind for name, kind in read_table(spark, ref).dtypes):
            with step("pause"):
                _switch(spark, ref, on=False)
            paused = True
    overwrite_rows(ref, rows, mark, schema=True)
    if paused:
        with step("resume"):
            _switch(spark, ref, on=True)
    # Delta forgets it with the columns.
    if by := ", ".join(quote(name) for name in clustered if name in rows.columns):
        with suppress(AnalysisException):  # not by all types
            spark.sql(f"ALTER TABLE {ref.sql} CLUSTER BY ({by})")


def resume_feed(spark: SparkSession, ref: TableRef, found: Found | None) -> None:
    """Switch the feed of a table on again that a killed runner has left off; what its owner has switched off stays."""
    if _is_paused(found):
        _switch(spark, ref, on=True)


def _is_paused(found: Found | None) -> bool:
    return found is not None and found.properties.get(PAUSED) == "true" and not found.has_feed


def _switch(spark: SparkSession, ref: TableRef, *, on: bool) -> None:
    claim = f"{runner()}-feed"
    properties = {FEED: str(on).lower(), PAUSED: str(not on).lower(), CLAIM: claim}
    facts = {"outcome": REWRITE, "mirrorlib": VERSION, "claim": claim}
    with configured(spark, {}, {METADATA: as_metadata(facts)}):  # which the properties say, too
        set_properties(spark, ref.sql, properties)

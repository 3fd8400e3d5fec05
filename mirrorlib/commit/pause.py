"""Give a table other columns and rows at once where Delta does not let anybody: under column mapping, with its feed on.

In: a table, rows, a mark. Out: three commits, feed off, overwrite, feed on; one where one will do. Each is repeated
without harm: a property says that the feed is off for this alone, the overwrite has a mark that Delta takes once.
Whoever writes to a table that a killed runner has left so calls `resume_feed` first. The versions around the overwrite
say that they rewrite, as it does, so that readers of the feed know that no row has changed without one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from mirrorlib.commit.mark import METADATA, Mark, as_metadata, overwrite_rows
from mirrorlib.delta.log import REWRITE
from mirrorlib.delta.properties import FEED, PAUSED, set_properties
from mirrorlib.delta.sessions import configured
from mirrorlib.delta.table import Found, TableRef, find_table, read_table
from mirrorlib.version import VERSION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def overwrite_columns(
    spark: SparkSession,
    ref: TableRef,
    rows: DataFrame,
    mark: Mark,
    step: Callable[[str], AbstractContextManager[object]] = nullcontext,
) -> None:
    """Replace a table's rows and columns in one commit, with its feed off meanwhile where Delta asks for it.

    The session is our own. *step* is done around each switch of the feed.
    """
    found = find_table(spark, ref)
    paused = _is_paused(found)
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


def resume_feed(spark: SparkSession, ref: TableRef, found: Found | None) -> None:
    """Switch the feed of a table on again that a killed runner has left off; what its owner has switched off stays."""
    if _is_paused(found):
        _switch(spark, ref, on=True)


def _is_paused(found: Found | None) -> bool:
    return found is not None and found.properties.get(PAUSED) == "true" and not found.has_feed


def _switch(spark: SparkSession, ref: TableRef, *, on: bool) -> None:
    properties = {FEED: str(on).lower(), PAUSED: str(not on).lower()}
    facts = {"outcome": REWRITE, "mirrorlib": VERSION}
    with configured(spark, {}, {METADATA: as_metadata(facts)}):  # which the properties say, too
        set_properties(spark, ref.sql, properties)

"""Switch the change feed on: for tables that are there, and for all that a session will create.

In: a table, or a folder or schema of tables. Out: `EnableReport`. Changes before that commit stay
unrecorded. Kept files and log decide for how long a reader may sleep, so both are set, and never
lowered.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal

from mirrorlib.delta.address import act_on_tables, find_feed_table, find_tables
from mirrorlib.delta.commits import Commits
from mirrorlib.delta.lock import find_place
from mirrorlib.delta.properties import FEED, FEED_DAYS, feed_properties, set_properties
from mirrorlib.delta.sessions import set_conf
from mirrorlib.errors import FeedError, SchemaError
from mirrorlib.feed.proof import duration_of, retention_of
from mirrorlib.identifiers import fold_name, quote
from mirrorlib.store import PathOrUrl
from mirrorlib.tabular import StateReport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

State = Literal["enabled", "already", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Enabled:
    """What became of one table, by its name below the place or in the schema.

    "already" is where it was on. `version` is the commit that switched it on or let it be kept for longer, None without
    one; `reason` why it was refused, "" when it was not.
    """

    table: str
    state: State
    version: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class EnableReport(StateReport):
    """What became of every table."""

    columns: ClassVar = ("table", "feed", "from version")
    facts: ClassVar = "table state version"
    ill: ClassVar = frozenset({"refused"})
    place: str
    tables: tuple[Enabled, ...]


def enable_feed(
    spark: SparkSession,
    place: PathOrUrl,
    *,
    catalog: str | None = None,
    tables: Sequence[str] = (),
    days: int | None = None,
) -> EnableReport:
    """Switch the feed on for a table, or for every table of a folder or of a catalog's schema.

    Args:
        spark: any Spark with Delta.
        place: a table's folder or one that holds tables; with *catalog*, a schema.
        catalog: the Spark catalog.
        tables: only these; globs such as `dbo/*` too.
        days: how long the feed is to be readable at least; without it 7 where nothing else is set. What a table
            keeps for longer already is never shortened.

    Raises:
        FeedError: *days* is not a number of days.
        StoreError: the place cannot be listed.
        LandingZoneError: a pattern matches none of its tables.

    """
    if days is not None:
        _check_days(days)
    place = os.fspath(place)
    done = act_on_tables(
        find_tables(spark, place, catalog, tables, each=True),
        lambda name, address: _switch_on(spark, name, address, days),
        partial(Enabled, state="refused"),
    )
    return EnableReport(place=place, tables=done)


def enable_by_default(spark: SparkSession, *, days: int = FEED_DAYS) -> None:
    """Let every Delta table that this session creates have its feed on, readable for that many days.

    Raises:
        FeedError: *days* is not a number of days.
        ComputeError: the session cannot be configured so.

    """
    _check_days(days)
    defaults = "spark.databricks.delta.properties.defaults."
    for name, value in feed_properties(days).items():
        set_conf(spark, defaults + name.removeprefix("delta."), value)


def _check_days(days: int) -> None:
    if isinstance(days, bool) or days < 1:
        msg = "`days` is not a number of days from 1 on"
        raise FeedError(msg, found=str(days), next_step="Give a whole number, such as 7.")


def _switch_on(spark: SparkSession, name: str, address: str, days: int | None) -> Enabled:
    table = find_feed_table(spark, address, shown=name)
    metadata = table.commits.metadata
    check_names(name, table.sql, [field["name"] for field in metadata.schema["fields"]])
    wanted = {
        key: value
        for key, value in feed_properties(days or FEED_DAYS).items()
        if not _is_met(table.commits, key, value, asked=days is not None)
    }
    if not wanted:
        return Enabled(table=name, state="already")
    with find_place(spark, address).hold(spark):
        set_properties(spark, table.sql, wanted)
    newest = find_feed_table(spark, address).commits.newest
    state: State = "already" if metadata.has_feed else "enabled"
    return Enabled(table=name, state=state, version=newest)


def _is_met(commits: Commits, name: str, value: str, *, asked: bool) -> bool:
    """Say whether a property is as it has to be; what is set already, or kept for longer than asked, stays so."""
    metadata = commits.metadata
    if name == FEED:
        return metadata.properties.get(name) == value if asked else metadata.has_feed
    if name not in metadata.properties or not asked:
        return name in metadata.properties
    wanted = duration_of(value)
    return wanted is not None and retention_of(commits, name) >= wanted


def check_names(name: str, sql: str, columns: Sequence[str]) -> None:
    """Refuse columns whose names the feed has for itself, and say how to free them: by names that no other one has.

    Raises `SchemaError`.
    """
    from mirrorlib.feed.net import FEED_COLUMNS  # Spark comes with it

    taken = [column for column in columns if fold_name(column) in FEED_COLUMNS]
    if not taken:
        return
    used = {fold_name(column) for column in columns}
    steps = [f"ALTER TABLE {sql} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"]
    for column in taken:
        free = column.lstrip("_")
        while fold_name(free) in used:
            free += "_"
        steps.append(f"ALTER TABLE {sql} RENAME COLUMN {quote(column)} TO {quote(free)}")
    msg = "the column's name is reserved for the change feed"
    step = f"Leave the table out, as one that a consumer keeps for its log; or rename it: {'; '.join(steps)}"
    raise SchemaError(msg, table=name, column=taken[0], next_step=step)

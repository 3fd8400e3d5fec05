"""The properties of the tables that mirrorlib makes: their names, and how SQL is told them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mirrorlib.identifiers import sql_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAPPING = "delta.columnMapping.mode"
LIFE_PROPERTY = "mirrorlib.life"
WALL_CLOCK = {"delta.feature.timestampNtz": "supported"}
# With a feature beside it, a reader has to be of version 3 and to know both. Of version 2, which is what the mapping
# alone makes, delta-rs's datasets read NULLs for the columns without a word, and DuckDB reads nothing.
MAPPED = {MAPPING: "name", **WALL_CLOCK}
READERS_PROPERTY = "mirrorlib.readers"  # "plain": every reader of Delta
FEED = "delta.enableChangeDataFeed"
PAUSED = "mirrorlib.feedPaused"  # the feed is off while a table is written anew, see commit/mark.py
CLAIM = "mirrorlib.claim"  # which attempt took others' claims away, see commit/claim.py
SEEN = "mirrorlib.seen"  # the version up to which whoever sets it has seen whose the rows are, see feed/owners.py
VECTORS = "delta.enableDeletionVectors"
FILE_RETENTION = "delta.deletedFileRetentionDuration"
LOG_RETENTION = "delta.logRetentionDuration"
FEED_DAYS = 7
REWRITE_LIMIT = 1 << 30  # bytes of a table that is rewritten where Delta cannot widen it in place
LOG_DAYS = 30


class Described:
    """What has a table's properties, and what these tell."""

    __slots__ = ()
    properties: Mapping[str, str]

    @property
    def has_feed(self) -> bool:
        """Say whether commits record their changes."""
        return self.properties.get(FEED, "").lower() == "true"

    @property
    def mapped(self) -> bool:
        """Say whether columns are known by ids, so that they can have any name, be renamed and dropped."""
        return self.properties.get(MAPPING, "none") != "none"


def feed_properties(days: int) -> dict[str, str]:
    """Return the properties of a table whose feed is on, and readable for that many days."""
    files, log = f"interval {days} days", f"interval {max(days, LOG_DAYS)} days"
    return {FEED: "true", FILE_RETENTION: files, LOG_RETENTION: log}


def set_properties(spark: SparkSession, sql: str, properties: Mapping[str, str]) -> None:
    """Set properties of a table, by its quoted name."""
    spark.sql(f"ALTER TABLE {sql} SET TBLPROPERTIES ({to_sql(properties)})")


def to_sql(properties: Mapping[str, str]) -> str:
    """Write table properties for SQL."""
    return ", ".join(f"{sql_text(name)} = {sql_text(value)}" for name, value in properties.items())

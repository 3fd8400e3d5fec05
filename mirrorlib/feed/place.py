"""Address the Delta table whose feed is asked for: a path, a URL, or a name in a catalog.

In: what a caller says. Out: `FeedTable`. A word with a slash or a backslash in it is a path, every
other one a catalog's name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirrorlib.errors import FeedError
from mirrorlib.landing.names import quote
from mirrorlib.store import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

    from mirrorlib.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedTable:
    """A Delta table, and where its log lies.

    Attributes:
        shown: as its user names it.
        sql: for SQL, quoted.
        path: what Spark's readers take; None for a table of a catalog.
        store: its folder.

    """

    shown: str
    sql: str
    path: str | None
    store: Store

    def load(self, reader: DataFrameReader | DataStreamReader) -> DataFrame:
        """Let a reader that has its options read the table."""
        return reader.table(self.sql) if self.path is None else reader.load(self.path)


def find_feed_table(spark: SparkSession, table: str) -> FeedTable:
    """Address a table.

    Raises:
        FeedError: there is no such Delta table.

    """
    if "/" in table or "\\" in table:
        store = open_store(table)
        path = store.uri("").rstrip("/")
        found = FeedTable(shown=table, sql=f"delta.{quote(path)}", path=path, store=store)
        if store.list_folder("_delta_log") is None:
            msg = "there is no Delta table"
            raise FeedError(msg, table=table, next_step="Check the path.")
        return found
    if not spark.catalog.tableExists(table):
        msg = "there is no such table in the catalog"
        step = "Check the name; a path has a slash in it."
        raise FeedError(msg, table=table, next_step=step)
    detail = spark.sql(f"DESCRIBE DETAIL {_quoted(table)}").collect()[0]
    if detail["format"] != "delta":
        msg = "the table is not a Delta table, and has no change feed"
        raise FeedError(msg, table=table, found=detail["format"])
    store = open_store(detail["location"])
    return FeedTable(shown=table, sql=_quoted(table), path=None, store=store)


def _quoted(name: str) -> str:
    """Quote a dotted name part by part, as Spark reads it: backticks may be there already."""
    parts, part, inside = [], "", False
    for character in name:
        if character == "`":
            inside = not inside
        elif character == "." and not inside:
            parts.append(part)
            part = ""
        else:
            part += character
    return ".".join(quote(part) for part in (*parts, part))

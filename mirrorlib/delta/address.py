"""Address the Delta table whose feed is asked for: a path, a URL, or a name in a catalog.

In: what a caller says. Out: `FeedTable`. A word with a slash or a backslash in it is a path, every
other one a catalog's name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mirrorlib.delta.commits import Commits
from mirrorlib.errors import FeedError, first_line
from mirrorlib.identifiers import quote
from mirrorlib.store import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

    from mirrorlib.store import PathOrUrl

_PART = re.compile(r"`((?:[^`]|``)*)`|([^.`]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedTable:
    """A Delta table, and its log as it was when the table was looked up.

    Attributes:
        shown: as its user names it.
        sql: for SQL, quoted.
        path: what Spark's readers take; None for a table of a catalog.
        location: the URL of its folder.
        commits: the versions that its log holds.

    """

    shown: str
    sql: str
    path: str | None
    location: str
    commits: Commits

    def look_again(self) -> FeedTable:
        """Look at its log anew; returns itself where nothing has come or gone.

        Raises:
            FeedError: it is gone.

        """
        commits = self.commits.look_again()
        return self if commits is self.commits else replace(self, commits=commits)

    def load(self, reader: DataFrameReader | DataStreamReader) -> DataFrame:
        """Let a reader that has its options read the table."""
        return reader.table(self.sql) if self.path is None else reader.load(self.path)


def address_of(table: PathOrUrl) -> str:
    """Say a table in one text; what is given as a path is one, even without a slash in it."""
    return table if isinstance(table, str) else str(Path(table).absolute())


def find_feed_table(spark: SparkSession, table: str, *, shown: str = "") -> FeedTable:
    """Address a table; errors call it *shown*, or what the caller calls it.

    Raises:
        FeedError: there is no such Delta table.

    """
    path, sql = None, quote_dotted(table)
    if "/" in table or "\\" in table:
        location = path = open_store(table).uri("").rstrip("/")
        sql = f"delta.{quote(path)}"
    else:
        location = _location(spark, table)
    store = open_store(location)
    commits = Commits(store, shown or table)
    commits.check()
    return FeedTable(
        shown=shown or table, sql=sql, path=path, location=store.url.rstrip("/"), commits=commits
    )


def _location(spark: SparkSession, table: str) -> str:
    """Ask the catalog where a table lies."""
    from pyspark.errors import AnalysisException

    if not spark.catalog.tableExists(quote_dotted(table)):
        msg = "there is no such table in the catalog"
        step = "Check the name; a path has a slash in it."
        raise FeedError(msg, table=table, next_step=step)
    try:
        detail = spark.sql(f"DESCRIBE DETAIL {quote_dotted(table)}").collect()[0]
    except AnalysisException as exc:
        msg = "Delta cannot say where the table lies"
        raise FeedError(msg, table=table, found=first_line(exc)) from exc
    if detail["format"] != "delta":
        msg = "the table is not a Delta table, and has no change feed"
        raise FeedError(msg, table=table, found=detail["format"])
    return str(detail["location"])


def quote_dotted(name: str) -> str:
    """Quote a dotted name part by part, as Spark reads it: backticks may be there already."""
    return ".".join(map(quote, split_dotted(name)))


def split_dotted(name: str) -> list[str]:
    """Take a dotted name apart as Spark reads it."""
    return [(quoted.replace("``", "`") or plain) for quoted, plain in _PART.findall(name)]

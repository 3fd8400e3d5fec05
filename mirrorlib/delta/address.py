"""Address the Delta table whose feed is asked for: a path, a URL, or a name in a catalog.

In: what a caller says. Out: `FeedTable`. A word with a slash or a backslash in it is a path, every
other one a catalog's name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from mirrorlib.delta.commits import Commits
from mirrorlib.delta.log import LOG
from mirrorlib.delta.trouble import as_mirror_error, tell_trouble
from mirrorlib.errors import FeedError, LandingZoneError, StoreError, first_line, printable
from mirrorlib.identifiers import quote
from mirrorlib.names import TableName, as_names, is_ignored, matches, refuse_unmatched
from mirrorlib.store import PathOrUrl, Store, open_store
from mirrorlib.store.target import TABLE_DEPTH

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

_PART = re.compile(r"`((?:[^`]|``)*)`|([^.`]+)")
# Kept by `operate.book`, often beside mirrors.
LEDGER, EVENTS = "mirrorlib_ledger", "mirrorlib_events"
_Done = TypeVar("_Done")
_OWN = (
    "Its log is read with credentials of your own: AWS_…, AZURE_… or GOOGLE_… variables. For Databricks' own storage, "
    "and for dbfs:/, there are none: let its schema have an external location."
)
_DETAILS = "# Detailed Table Information"


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedTable:
    """A Delta table, and its log as it was when the table was looked up.

    It is *shown* as its user names it. Spark's readers take its path, None for a table of a catalog; `location` is the
    URL of its folder.
    """

    shown: str
    sql: str
    path: str | None
    location: str
    commits: Commits

    def refresh(self) -> FeedTable:
        """Look at its log anew; returns itself where nothing has come or gone, raises `FeedError` where it is gone."""
        commits = self.commits.refresh()
        return self if commits is self.commits else replace(self, commits=commits)

    def load(self, reader: DataFrameReader | DataStreamReader) -> DataFrame:
        """Let a reader that has its options read it."""
        return reader.table(self.sql) if self.path is None else reader.load(self.path)


def address_of(table: PathOrUrl) -> str:
    """Say a table in one text; what is given as a path is one, even without a slash in it."""
    if table == "":
        msg, step = "a table's address is empty", "Give a path, a URL, or a name in a catalog."
        raise LandingZoneError(msg, next_step=step)
    return table if isinstance(table, str) else str(Path(table).absolute())


def find_feed_table(spark: SparkSession, table: str, *, shown: str = "") -> FeedTable:
    """Address a table, which errors call *shown*, or what the caller calls it; `FeedError` where there is none."""
    if "/" in table or "\\" in table:
        return find_table_at(table, shown=shown)
    location = _location(spark, table)
    try:
        return _found(location, shown or table, None, quote_dotted(table))
    except (LandingZoneError, StoreError) as exc:
        step = _OWN if re.match(r"dbfs:|(?!file:)\w+://", location) else exc.next_step
        raise exc.but(table=shown or table, next_step=step) from exc


def find_table_at(path: str, *, shown: str = "") -> FeedTable:
    """Address the table of a path, which takes no Spark; raises as `find_feed_table` does."""
    location = open_store(path).uri("").rstrip("/")
    return _found(location, shown or path, location, f"delta.{quote(location)}")


def _found(location: str, shown: str, path: str | None, sql: str) -> FeedTable:
    store = open_store(location)
    commits = Commits(store, shown)
    commits.check()
    place = store.url.rstrip("/")
    return FeedTable(shown=shown, sql=sql, path=path, location=place, commits=commits)


def _location(spark: SparkSession, table: str) -> str:
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


def parse_found(name: str) -> TableName:
    """Take apart the name of a table that was found, which may lie deeper than any that `parse_name` takes."""
    schema, _, table = name.rpartition("/")
    return TableName(schema or None, table)


def find_tables(
    spark: SparkSession,
    place: str,
    catalog: str | None,
    patterns: Sequence[str] = (),
    *,
    each: bool = False,
) -> list[tuple[str, str]]:
    """Find tables by name or glob, all without one; views and tables of other formats are none.

    A ledger that is kept in the same place is found by its name only: its rows are about the others. Raises
    `StoreError` where the place cannot be listed, and `LandingZoneError` where *each* pattern has to fit a table and
    one does not.
    """

    def asked(name: str) -> bool:
        table = parse_found(name)
        named = {name, table.table} & {*as_names(patterns)}
        about_others = table.table in {LEDGER, EVENTS} and not named
        return matches(table, patterns) and (name == place or not about_others)

    if catalog is None:
        store = open_store(place)
        below = _walk(store, "", TABLE_DEPTH)
        all_of_it = [(name or place, f"{store.url}/{name}".rstrip("/")) for name in below]
        refuse_unmatched(patterns if each else (), [parse_found(name) for name, _ in all_of_it])
        return [(name, address) for name, address in all_of_it if asked(name)]
    schema = f"{quote(catalog)}.{quote(place)}"
    try:
        rows = spark.sql(f"SHOW TABLES IN {schema}").collect()
    except Exception as exc:  # some are PySpark's errors, others Py4J's
        told = tell_trouble(exc, "list the tables")
        raise StoreError(told.reason, found=told.found or schema, next_step=told.next_step) from exc
    names = sorted(row["tableName"] for row in rows if not row["isTemporary"])
    refuse_unmatched(patterns if each else (), list(map(parse_found, names)))
    found = [(name, f"{schema}.{quote(name)}") for name in names if asked(name)]
    return [(name, address) for name, address in found if _may_be_delta(spark, address)]


def act_on_tables(
    found: Iterable[tuple[str, str]], act: Callable[[str, str], _Done], fail: Callable[..., _Done]
) -> tuple[_Done, ...]:
    """Do something to each table that was found, by its name and address; one's trouble is not its neighbours'.

    What does not go well is told by *fail*, which is given the *table* and the *reason*.
    """
    done: list[_Done] = []
    for name, address in found:
        try:
            done.append(act(name, address))
        except Exception as exc:  # noqa: BLE001  # as said
            done.append(fail(table=name, reason=str(as_mirror_error(exc, printable(name)))))
    return tuple(done)


def _may_be_delta(spark: SparkSession, address: str) -> bool:
    """Leave out what the catalog knows to be something else; what it cannot describe is whoever's who reads it."""
    try:
        rows = spark.sql(f"DESCRIBE TABLE EXTENDED {address}").collect()
    except Exception:  # noqa: BLE001  # such as a table whose folder is gone, which is to be told by its name
        return True
    details = dropwhile(lambda row: row["col_name"] != _DETAILS, rows)  # behind its own columns
    described = {row["col_name"]: row["data_type"] for row in details}
    is_view = described.get("Type", "").endswith("VIEW")
    return described.get("Provider", "delta").lower() == "delta" and not is_view


def _walk(store: Store, folder: str, depth: int) -> Iterator[str]:
    """Find the Delta tables at and below a folder; a table holds no tables."""
    there = store.list_folder(folder)
    if there is None and not folder:
        msg = f"there is no folder {store.url}"
        raise StoreError(msg, next_step="Check the path.")
    if there is not None and LOG in there.folders:
        yield folder
        return
    for name in there.folders if there and depth else ():
        if not is_ignored(name):
            yield from _walk(store, f"{folder}/{name}".lstrip("/"), depth - 1)

"""A Delta table: where it lies, what it is, how its rows and its log are read, and how it is removed.

In: a `Target` and a table's name. Out: `TableRef` (how SQL, writers and the log address it) and
`Found` (id, columns, properties). How it is made and changed: `ddl`.
"""

from __future__ import annotations

import contextlib
import copy
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirrorlib.delta.actions import Metadata, read_metadata
from mirrorlib.delta.columns import Columns, to_columns
from mirrorlib.delta.commits import Commits
from mirrorlib.delta.log import LOG, FileLog, HistoryLog, TableLog
from mirrorlib.delta.properties import READERS_PROPERTY, VECTORS, Described
from mirrorlib.delta.sessions import read_conf, side_by_side
from mirrorlib.errors import FeedError, ForeignWriteError, LandingZoneError, StoreError
from mirrorlib.identifiers import quote
from mirrorlib.names import TableName
from mirrorlib.store import ObjectStore, contents, open_store
from mirrorlib.store.target import Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.types import StructType

    from mirrorlib.journal.entries import Readers


# In the location of what Unity Catalog manages: nobody is lent its files, and to be told so may take minutes a table.
_MANAGED = "/__unitystorage/"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRef:
    """How a table of a name in the landing zone is addressed: quoted in SQL, and by path; None for one of a catalog."""

    name: TableName
    sql: str
    path: str | None

    @property
    def address(self) -> str:
        """Return what `read_feed` and `read_table` know the table by."""
        return self.sql if self.path is None else self.path


@dataclass(frozen=True, slots=True, kw_only=True)
class Found(Described):
    """What a Delta table is at this moment.

    `features` are the names that its protocol lists, `partitions` the columns that its folders are of.
    """

    id: str
    bytes: int
    schema: StructType
    properties: Mapping[str, str]
    location: str
    features: frozenset[str]
    partitions: tuple[str, ...]

    @property
    def columns(self) -> Columns:
        """Return those of its `schema` that a mirror can have."""
        return to_columns((one.name, one.dataType.simpleString()) for one in self.schema.fields)

    @property
    def readers(self) -> Readers | None:
        """Return whom the table is for, as it remembers."""
        return "plain" if self.properties.get(READERS_PROPERTY) == "plain" else None

    @property
    def vectors(self) -> bool:
        """Say whether commits may leave deletion vectors."""
        return self.properties.get(VECTORS) == "true"


def refer(target: Target, name: TableName) -> TableRef:
    """Address a table of the target."""
    if target.catalog is None:
        path = open_store(target.place).uri(str(name))
        return TableRef(name=name, sql=f"delta.{quote(path)}", path=path)
    parts = (target.catalog, target.place, name.table)
    return TableRef(name=name, sql=".".join(quote(part) for part in parts), path=None)


def find_table(spark: SparkSession, ref: TableRef) -> Found | None:
    """Look at the Delta table; None when there is none.

    A log within reach tells one version of it, without Spark, which is asked where the log has what only Spark knows.

    Raises `LandingZoneError`: something else has a catalog's table's place; `StoreError`: a version is damaged.
    """
    if ref.path is not None:
        commits = Commits(open_store(ref.path), str(ref.name))
        if not commits.exist:  # a killed runner may have left drafts in a log
            return None
        with contextlib.suppress(FeedError, KeyError, ValueError):
            return _find_by_log(spark, ref, commits)
    elif not spark.catalog.tableExists(ref.sql):
        return None
    detail = _describe(spark, ref)
    if detail["format"] != "delta":
        msg, step = "the target is not a Delta table", "Choose another target."
        raise LandingZoneError(msg, table=str(ref.name), found=detail["format"], next_step=step)
    return Found(
        id=detail["id"],
        bytes=detail["sizeInBytes"] or 0,
        schema=read_table(spark, ref).schema,
        properties=dict(detail["properties"]),
        location=detail["location"],
        features=frozenset(detail["tableFeatures"] or ()),
        partitions=tuple(detail["partitionColumns"] or ()),
    )


def _find_by_log(spark: SparkSession, ref: TableRef, commits: Commits) -> Found:
    said = commits.checksum
    metadata = read_metadata(said["metadata"]) if "metadata" in said else commits.metadata
    protocol = said.get("protocol") or commits.protocol
    size = said.get("tableSizeBytes")
    return Found(
        id=metadata.id,
        bytes=_describe(spark, ref)["sizeInBytes"] or 0 if size is None else size,
        schema=spark_schema(metadata),
        properties=metadata.properties,
        location=str(ref.path),
        features=frozenset(
            name
            for kind in ("readerFeatures", "writerFeatures")
            for name in protocol.get(kind) or ()
        ),
        partitions=tuple(metadata.partitions),
    )


def spark_schema(metadata: Metadata) -> StructType:
    """Read a table's columns as Spark does; of a copy, as Spark changes what it reads where text has a collation."""
    from pyspark.sql.types import StructType

    return StructType.fromJson(copy.deepcopy(dict(metadata.schema)))


def check_made(found: Found | None, table: str) -> Found:
    """Return a table that was just made; `ForeignWriteError` where somebody has removed it."""
    if found is None:
        msg = "the table is gone as soon as it was made"
        step = "Run again; if it stays, see what lies there; where Spark's files are not this machine's, give a URL."
        raise ForeignWriteError(msg, table=table, next_step=step)
    return found


def clustered_by(spark: SparkSession, ref: TableRef, found: Found | None) -> tuple[str, ...]:
    """Name the columns by which its owner lets Delta place the table's rows."""
    if found is None or "clustering" not in found.features:
        return ()
    return tuple(_describe(spark, ref)["clusteringColumns"] or ())


def _describe(spark: SparkSession, ref: TableRef) -> Row:
    return spark.sql(f"DESCRIBE DETAIL {ref.sql}").collect()[0]


def describe_schema(spark: SparkSession, sql: str) -> dict[str, str]:
    """Return what a catalog says of a schema; nothing where there is none, which is told as a table is made in it."""
    from pyspark.errors import AnalysisException

    rows = []
    with contextlib.suppress(AnalysisException):
        rows = spark.sql(f"DESCRIBE SCHEMA EXTENDED {sql}").collect()
    return dict(rows)


def open_log(spark: SparkSession, ref: TableRef, location: str | None = None) -> TableLog:
    """Choose the way to the table's commits: its own files, or the catalog's history where those are closed to us.

    A catalog is asked for the *location* of its table where that is not known.
    """
    if ref.path is not None:
        return FileLog(open_store(ref.path))
    if location is None and spark.catalog.tableExists(ref.sql):
        location = str(_describe(spark, ref)["location"])
    if location is not None and _MANAGED not in location:
        with contextlib.suppress(LandingZoneError, StoreError):
            store = open_store(location)
            if store.list_folder(LOG) is not None:
                return FileLog(store)
    return HistoryLog(spark, ref.sql)


def read_table(spark: SparkSession, ref: TableRef) -> DataFrame:
    """Return the table's rows."""
    return spark.table(ref.sql) if ref.path is None else spark.read.format("delta").load(ref.path)


@contextlib.contextmanager
def named_rows(rows: DataFrame, session: SparkSession) -> Iterator[str]:
    """Give rows a name in a session's SQL until the block ends, a global one where they are another session's."""
    name = f"_mirror_{uuid.uuid4().hex}"  # a session may have to do for several tables
    source, drop = name, session.catalog.dropTempView
    if rows.sparkSession is session:  # where the compute has one for all, it has no global views
        rows.createOrReplaceTempView(name)
    else:
        rows.createOrReplaceGlobalTempView(name)
        shared = quote(read_conf(session, "spark.sql.globalTempDatabase") or "global_temp")
        source, drop = f"{shared}.{name}", session.catalog.dropGlobalTempView
    try:
        yield source
    finally:
        drop(name)


def drop_table(spark: SparkSession, ref: TableRef) -> None:
    """Remove a table with all its rows and files; nothing happens when there is none."""
    if ref.path is None:
        spark.sql(f"DROP TABLE IF EXISTS {ref.sql}")
        return
    store = open_store(ref.path)
    there = contents(store, "")
    for folder in there.folders:
        if folder != LOG:  # last: what is left without it is nobody's table
            store.delete_folder(folder)
    side_by_side(store.delete, [file.path for file in there.files], store.at_once)
    store.delete_folder(LOG)
    if isinstance(store, ObjectStore):
        # Objects that stand for its folders, which Hadoop alone sees, would be in the way of another table.
        spark.range(0).write.mode("overwrite").parquet(ref.path)
    store.delete_folder("")

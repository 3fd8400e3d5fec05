"""Lend Spark sessions of our own, and configure them: Delta's transaction marks are session configuration.

All threads of a session share its configuration, so each table in flight works in a session that
nobody else has. Sessions are kept for the next table and the next run: a new one has to be set up
before its first statement, which costs as much as reading the change files of a small batch.

Some compute lets nobody configure a session. What only makes a run faster is left out there; where a
result depends on it, `ComputeError` says so.
And which generation of Spark a session is of, see `spark_generation`; and tables go side by side, see `side_by_side`.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary, finalize

from mirrorlib.errors import ComputeError, first_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrameReader, SparkSession
    from pyspark.sql.types import StructType

_MOST_TABLES_AT_ONCE = 8
_Table = TypeVar("_Table")
_Report = TypeVar("_Report")
_IDLE: WeakKeyDictionary[SparkSession, list[SparkSession]] = WeakKeyDictionary()
# A file that cannot be read is an error; where a cluster ignores it, its rows are lost without a word.
READS_WHOLE = {
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
}
# What a cluster may have set otherwise, and rows or types would not mean what they say.
_CONF = {
    "spark.sql.session.timeZone": "UTC",
    # Else Spark puts ${env:HOME} in before it parses, inside quoted names too.
    "spark.sql.variable.substitute": "false",
    **READS_WHOLE,  # for Delta's own files, of which reader options say nothing
    "spark.sql.timestampType": "TIMESTAMP_LTZ",  # of "timestamp" in DDL and casts
    "spark.sql.caseSensitive": "false",
    "spark.sql.storeAssignmentPolicy": "ANSI",
    "spark.sql.sources.partitionOverwriteMode": "static",  # else nothing replaces a table's columns
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.databricks.delta.schema.autoMerge.enabled": "false",
}
_READER = {
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "datetimeRebaseMode": "CORRECTED",  # dates before 1582 are meant as they stand, not refused
    "int96RebaseMode": "CORRECTED",
    "__globPaths__": "false",  # a path is a path, whatever brackets it has
}
PATTERN = re.compile(r"[{}\[\]*?\\]")  # what Hadoop takes for a pattern of names
_SMALL_ROWS = 10_000  # a commit whose fixed cost outweighs its work
_SMALL_TABLE = 32 << 20  # bytes
# A commit of few rows is all planning: one partition, nothing adapted, nothing compiled, no plan
# written out for people, no call site looked up for each expression.
SMALL_COMMIT = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.dataFrameQueryContext.enabled": "false",
    "spark.databricks.delta.snapshotPartitions": "1",
}
ARROW_FRAMES = 4  # a DataFrame is made from an Arrow table
FULL_WIDENING = 4  # Delta widens every type of its protocol in place (TypeWidening, Delta 4.0)


def side_by_side(
    act: Callable[[_Table], _Report], tables: Sequence[_Table], at_once: int | None
) -> tuple[_Report, ...]:
    """Do something to each table: to as many at once as are asked for, else as there are cores, at most eight."""
    at_once = at_once or min(os.cpu_count() or 1, _MOST_TABLES_AT_ONCE)
    if at_once == 1 or len(tables) <= 1:
        return tuple(map(act, tables))
    with ThreadPoolExecutor(max_workers=at_once, thread_name_prefix="mirrorlib") as pool:
        return tuple(pool.map(act, tables))


@contextlib.contextmanager
def lend_session(spark: SparkSession) -> Iterator[SparkSession]:
    """Lend a session that shares *spark*'s cluster and nothing else, until the block ends.

    Raises `ComputeError` where the compute has none, or none that can be configured.
    """
    idle = _IDLE.setdefault(spark, [])
    try:
        session = idle.pop()
    except IndexError:  # not asked beforehand: other threads take from it, too
        session = new_session(spark)
        for name, value in _CONF.items():
            set_conf(session, name, value)
    yield session
    idle.append(session)  # not after an error, which may have left something behind


def is_remote(spark: SparkSession) -> bool:
    """Say whether a session is a client's of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def new_session(spark: SparkSession) -> SparkSession:
    """Make a session with a configuration of its own.

    A server of Spark Connect has no other way than to clone one; `ComputeError` where its client cannot.
    """
    if not is_remote(spark):
        return spark.newSession()
    if not hasattr(spark, "cloneSession"):
        msg = "this client of Spark Connect cannot make a session of its own, which PySpark 4.1 and newer can"
        raise ComputeError(msg, found=spark.version)
    clone: SparkSession = spark.cloneSession()
    # Closed when Python is already ending, gRPC would wait for ever for a thread that is no more.
    finalize(clone, clone.client.close)
    return clone


def file_reader(spark: SparkSession, ddl: str | StructType) -> DataFrameReader:
    """Return a reader of Parquet files by their exact paths: all of each, or an error, whatever the session ignores."""
    return spark.read.schema(ddl).options(**_READER)


def is_small(rows: int, table_bytes: int) -> bool:
    """Say whether `SMALL_COMMIT` makes a commit of that many rows faster."""
    return rows <= _SMALL_ROWS and table_bytes <= _SMALL_TABLE


@contextlib.contextmanager
def configured(
    session: SparkSession, needed: Mapping[str, str], faster: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Set configuration of a session that nobody else has until the block ends; what was set before is put back.

    A result depends on what is *needed*, `ComputeError` where the compute refuses that; and not on what makes it
    *faster*, which is left out then.
    """
    before: dict[str, str | None] = {}
    try:
        for name, value in {**(faster or {}), **needed}.items():
            old = read_conf(session, name)
            if old == value:
                continue
            try:
                set_conf(session, name, value)
            except ComputeError:
                if name in needed:
                    raise
            else:
                before[name] = old
        yield
    finally:
        for name, old in before.items():
            if old is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, old)


def set_conf(session: SparkSession, name: str, value: str) -> None:
    """Set what a result depends on; `ComputeError` where the compute refuses it, and it is not so already."""
    from pyspark.errors import PySparkException

    try:
        session.conf.set(name, value)
    except PySparkException as exc:
        if read_conf(session, name) == value:
            return
        msg = f"the compute does not let a session set {name}, which the result depends on"
        raise ComputeError(msg, found=first_line(exc)) from exc


def read_conf(session: SparkSession, name: str) -> str | None:
    """Read what is configured; None where nothing is, and where the compute does not tell."""
    from pyspark.errors import PySparkException

    try:
        return session.conf.get(name, None)
    except PySparkException:
        return None


def spark_generation() -> int:
    """Return the major version of the PySpark at hand: 3 or 4."""
    import pyspark  # an extra

    return int(pyspark.__version__.partition(".")[0])

"""Lend Spark sessions of our own, and configure them: Delta's transaction marks are session configuration.

All threads of a session share its configuration, so each table in flight works in a session that
nobody else has. Sessions are kept for the next table and the next run: a new one has to be set up
before its first statement, which costs as much as reading the change files of a small batch.

Some compute, such as Databricks serverless, lets nobody configure a session, nor make one. What only makes a run faster
is left out there. What a result depends on is then as Spark has it by default, which nobody can have changed; where
somebody has, `ComputeError` says so. Whether a MERGE can be marked there, `carries_marks` tells.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet, finalize

from mirrorlib.errors import ComputeError, first_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrameReader, SparkSession
    from pyspark.sql.types import StructType

_MOST_TABLES_AT_ONCE = 8
_Table = TypeVar("_Table")
_Report = TypeVar("_Report")
_ZONE = "spark.sql.session.timeZone"
_MERGES_SCHEMAS = "spark.databricks.delta.schema.autoMerge.enabled"
TXN_APP = "spark.databricks.delta.write.txnAppId"
_VARIABLES = "spark.sql.variable.substitute"  # Spark puts ${env:HOME} in before it parses, in quoted names too
_BACKSLASHES = "spark.sql.parser.escapedStringLiterals"
_SUBSTITUTING: WeakSet[SparkSession] = WeakSet()
_UNMARKED: WeakSet[SparkSession] = WeakSet()
_LENDING = threading.Lock()
_LENT: WeakKeyDictionary[SparkSession, tuple[int, str | None]] = WeakKeyDictionary()
_IDLE: WeakKeyDictionary[SparkSession, list[SparkSession]] = WeakKeyDictionary()
# A file that cannot be read is an error; where a cluster ignores it, its rows are lost without a word.
READS_WHOLE = {
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
}
# Delta hands a feed's rows on as Java's, whose older dates have no 1582-10-05 to 10-14: each would be the day after.
READS_FEEDS = {"spark.sql.datetime.java8API.enabled": "true"}
# Dates before 1582 are written as they stand, which Spark 3.5 refuses; moments with their microseconds.
WRITES_DATES = {
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
# What a cluster may have set otherwise, and rows or types would not mean what they say.
_CONF = {
    _ZONE: "UTC",
    _VARIABLES: "false",
    **READS_WHOLE,  # for Delta's own files, of which reader options say nothing
    "spark.sql.timestampType": "TIMESTAMP_LTZ",  # of "timestamp" in DDL and casts
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",  # else 1582-10-05 to 10-14 are 10-15 as text
    "spark.sql.caseSensitive": "false",
    "spark.sql.parser.quotedRegexColumnNames": "false",  # else a quoted name is a pattern of names
    "spark.sql.ansi.enforceReservedKeywords": "false",  # else Spark itself writes no column called "order"
    "spark.sql.storeAssignmentPolicy": "ANSI",
    "spark.sql.sources.partitionOverwriteMode": "static",  # else nothing replaces a table's columns
    "spark.databricks.delta.stalenessLimit": "0",  # else a version that is there may be told to be none
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    **WRITES_DATES,
    _MERGES_SCHEMAS: "false",
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
# Bytes: 80,000 rows of ten columns. Every row is looked at, without compiled code.
_SMALL_TABLE = 3 << 20
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
PYTHON_SOURCES = 4  # a source is written in Python
FULL_WIDENING = 4  # Delta widens every type of its protocol in place (TypeWidening, Delta 4.0)


def side_by_side(
    act: Callable[[_Table], _Report], tables: Sequence[_Table], at_once: int | None
) -> tuple[_Report, ...]:
    """Act on each table or file: on as many at once as are asked for, else as there are cores, at most eight."""
    at_once = at_once or min(os.cpu_count() or 1, _MOST_TABLES_AT_ONCE)
    if at_once == 1 or len(tables) <= 1:
        return tuple(map(act, tables))
    with ThreadPoolExecutor(max_workers=at_once, thread_name_prefix="mirrorlib") as pool:
        return tuple(pool.map(act, tables))


@contextlib.contextmanager
def lend_session(spark: SparkSession) -> Iterator[SparkSession]:
    """Lend a session that shares *spark*'s cluster and nothing else, until the block ends; or *spark*, see `_set_up`.

    Raises `ComputeError` where the compute has none, or none that can be configured as results need it.
    """
    idle = _IDLE.setdefault(spark, [])
    try:
        session = idle.pop()
    except IndexError:  # not asked beforehand: other threads take from it, too
        session = _set_up(spark)
    else:
        if is_remote(session) and read_conf(session, _ZONE) is None:
            session = _set_up(spark)  # a server forgets sessions that nobody has used for an hour
    if session is spark:
        with _in_utc(spark):
            yield spark
        return
    with active(session, spark):
        yield session
    idle.append(session)  # not after an error, which may have left something behind


@contextlib.contextmanager
def active(session: SparkSession, users: SparkSession) -> Iterator[None]:
    """Let what belongs to no session, such as a type's name in a cast, mean what it does in one; then in the *users*'.

    PySpark keeps the session that was given rows last as the active one, for the user, too.
    """
    if is_remote(session):
        yield
        return
    active_one, activate, clear = _switches(session._jvm)  # noqa: SLF001  # there is no public way
    before = active_one()
    activate(session._jsparkSession)  # noqa: SLF001  # as above
    try:
        yield
    finally:
        with contextlib.suppress(Exception):  # of a process that has ended: what ended it is told
            if before.isDefined():
                activate(before.get())
            else:
                clear()
        type(users)._activeSession = users  # noqa: SLF001  # as above


@cache
def _switches(java: Any) -> tuple[Any, Any, Any]:  # noqa: ANN401  # py4j has no types
    """Find what gives, sets and clears a thread's active session: by name, Java is asked eight times."""
    sessions = java.org.apache.spark.sql.SparkSession
    return sessions.getActiveSession, sessions.setActiveSession, sessions.clearActiveSession


def _set_up(spark: SparkSession) -> SparkSession:
    """Make a session as results need it; where the compute has one for all and lets nobody configure it, that is it."""
    try:
        session = new_session(spark)
    except ComputeError:
        if _can_set(spark, _MERGES_SCHEMAS, "false"):
            raise
        _UNMARKED.add(spark)
        _SUBSTITUTING.add(spark)
        return spark
    for name, value in _CONF.items():
        try:
            set_conf(session, name, value)
        except ComputeError:
            if name == _ZONE or read_conf(session, name) is not None:
                raise
            if name == _VARIABLES:
                _SUBSTITUTING.add(session)
    for name, value in READS_FEEDS.items():  # every day as it is: docs/feed.md says so
        with contextlib.suppress(ComputeError):
            set_conf(session, name, value)
    if read_conf(session, _BACKSLASHES) == "true":  # Connect warns of whoever sets it
        set_conf(session, _BACKSLASHES, "false")  # else `sql_text` would write other texts
    if not _can_set(session, TXN_APP, "tried"):
        _UNMARKED.add(session)
    return session


def carries_marks(session: SparkSession) -> bool:
    """Say whether a MERGE of a session that was lent can carry a transaction mark, which is configuration."""
    return session not in _UNMARKED


def check_variables(session: SparkSession, names: Iterable[str], table: str) -> None:
    """Raise `ComputeError` where a name would be taken for a variable's in SQL, and the compute does not let it be."""
    for name in names if session in _SUBSTITUTING else ():
        if "${" in name:
            msg = f"the compute does not let a session set {_VARIABLES}, and the column's name has ${{ in it"
            raise ComputeError(msg, table=table, column=name)


def _can_set(session: SparkSession, name: str, value: str) -> bool:
    with contextlib.suppress(ComputeError), configured(session, {name: value}):
        return True
    return False


@contextlib.contextmanager
def _in_utc(spark: SparkSession) -> Iterator[None]:
    """Set the time zone of a session that is lent to several at once, until the last of them gives it back."""
    with _LENDING:
        count, zone = _LENT.get(spark, (0, read_conf(spark, _ZONE)))
        set_conf(spark, _ZONE, "UTC")
        _LENT[spark] = (count + 1, zone)
    try:
        yield
    finally:
        with _LENDING:
            count, zone = _LENT.pop(spark)
            if count > 1:
                _LENT[spark] = (count - 1, zone)
            elif zone is None:
                spark.conf.unset(_ZONE)
            else:
                spark.conf.set(_ZONE, zone)


def is_remote(spark: SparkSession) -> bool:
    """Say whether a session is a client's of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def new_session(spark: SparkSession) -> SparkSession:
    """Make a session with a configuration of its own.

    A server of Spark Connect has no other way than to clone one; `ComputeError` where its client cannot.
    """
    from pyspark.errors import PySparkException

    if not is_remote(spark):
        return spark.newSession()
    if not hasattr(spark, "cloneSession"):
        msg = "this client of Spark Connect cannot make a session of its own, which PySpark 4.1 and newer can"
        raise ComputeError(msg, found=spark.version)
    try:
        clone: SparkSession = spark.cloneSession()
    except PySparkException as exc:
        msg = "this compute lets nobody make a session of his own"
        raise ComputeError(msg, found=first_line(exc)) from exc
    # Closed when Python is already ending, gRPC would wait for ever for a thread that is no more.
    finalize(clone, clone.client.close)
    return clone


def file_reader(spark: SparkSession, ddl: str | StructType) -> DataFrameReader:
    """Return a reader of Parquet files by their exact paths: all of each, or an error, whatever the session ignores."""
    return spark.read.schema(ddl).options(**_READER)


def in_scans(paths: Iterable[str]) -> list[list[str]]:
    """Say which exact paths one scan may read: all, but each that looks like a pattern alone.

    Even where patterns mean nothing, Spark reads every path of a scan again for each such path
    (`DataSource.checkAndGlobPathIfNecessary`).
    """
    scans: dict[str, list[str]] = {}
    for path in paths:
        scans.setdefault(path if PATTERN.search(path) else "", []).append(path)
    return [*scans.values()]


def is_small(rows: int, table_bytes: int) -> bool:
    """Say whether `SMALL_COMMIT` makes a commit of that many rows faster."""
    return rows <= _SMALL_ROWS and table_bytes <= _SMALL_TABLE


@contextlib.contextmanager
def configured(
    session: SparkSession, needed: Mapping[str, str], faster: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Set configuration of a session that nobody else has until the block ends; what was set before is put back.

    A result depends on what is *needed*, `ComputeError` where the compute refuses that; and not on what makes it
    *faster*, which is left out then, and in a session that is lent to several.
    """
    faster = {} if session in _LENT else faster
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


def read_conf(session: SparkSession, name: str, *, meant: bool = False) -> str | None:
    """Read what is configured, or, where nothing is, what is *meant* then; None where the compute does not tell."""
    from pyspark.errors import PySparkException

    try:
        return session.conf.get(name) if meant else session.conf.get(name, None)
    except PySparkException:
        return None


def spark_generation() -> int:
    """Return the major version of the PySpark at hand: 3 or 4."""
    import pyspark  # an extra

    return int(pyspark.__version__.partition(".")[0])

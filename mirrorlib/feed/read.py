"""Read a window of a table's change feed as one DataFrame.

In: a table and bounds. Out: its columns, then Delta's `_change_type` (insert, update_preimage,
update_postimage, delete), `_commit_version` and `_commit_timestamp`. Promise: every change of every
version of the window, once; a version whose changes are gone is an error when the window is opened,
not a gap. Columns are those of the window's last version; a column that an older version has not is
NULL there, one that was renamed follows its id, one that was widened is cast up.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import reduce
from typing import Literal, get_args

from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from mirrorlib.delta.actions import Metadata
from mirrorlib.delta.address import FeedTable, address_of, find_feed_table
from mirrorlib.delta.commits import Commits
from mirrorlib.delta.sessions import configured, read_conf, set_conf
from mirrorlib.delta.table import spark_schema
from mirrorlib.delta.trouble import conditions_of
from mirrorlib.errors import ComputeError, FeedError
from mirrorlib.feed.enable import check_names
from mirrorlib.feed.files.direct import read_directly
from mirrorlib.feed.files.unique_keys import fold_unique_keys
from mirrorlib.feed.net import (
    FEED_COLUMNS,
    INSERT,
    KIND,
    PRE,
    TIME,
    VERSION,
    fold_net,
    pair_updates,
    refuse_incomparable,
)
from mirrorlib.feed.owners import stored_columns
from mirrorlib.feed.proof import TOO_OLD, check_planned, refuse_losses, refused_load
from mirrorlib.feed.schemas import tell_columns
from mirrorlib.feed.window import BEYOND, Bound, Segment, Window, open_window
from mirrorlib.identifiers import fold_name
from mirrorlib.journal.streams import snapshot_command
from mirrorlib.keys.tags import tag_columns, untag
from mirrorlib.keys.value import Keys
from mirrorlib.names import as_names
from mirrorlib.store import PathOrUrl

Images = Literal["both", "post"]
# Delta lets a feed be read with the schema of a version that it is asked for, instead of the newest one.
_TRAVELS = "spark.databricks.delta.changeDataFeed.allowTimeTravelOptionsForSchema"
_ENFORCED = "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration"
_LIFTING = threading.Lock()  # all threads of a session share its configuration


def read_feed(
    spark: SparkSession,
    table: PathOrUrl,
    *,
    after: Bound | None = None,
    until: Bound | None = None,
    net: bool = False,
    images: Images = "both",
    keys: Sequence[str] | None = None,
) -> DataFrame:
    """Read the changes of a Delta table that were committed after one version, and up to another.

    A window is `(after, until]`: reading on from the version that was read last gives every change
    once. Moments work the same: `after` takes what was committed later than it, `until` what was
    committed at it or before. Where the log cannot be read by path, StoreError says so.

    Args:
        spark: any Spark with Delta.
        table: a path or URL, or a name in a catalog.
        after: a version, -1 for everything from the first one on; or a moment: an aware datetime, or
            `yyyy-MM-dd[ HH:mm:ss[.SSS]]` in UTC, whatever the session's time zone is. One beyond the table's last
            commit is an error, or, where the session sets
            `spark.databricks.delta.changeDataFeed.timestampOutOfRange.enabled`, an empty window, as for Delta.
        until: the same; the newest version without it, and, under that setting, for one beyond it.
        net: fold the window to what is different between its ends: at most one change a key, no
            update that changes nothing. `_commit_version` is the last one that touched the key. Where keys are
            one row each, up to 256 MiB of the window's files are looked through now, in this process.
        images: both images of an update, or what it made of the row alone.
        keys: the key columns; without it those that the table's property names, where each value of them is
            one row, as `apply` with `insert_policy="upsert"`, `derive` and exports leave it. With them a delete
            and an insert of one key in one commit are an update, and `net` gives updates; with none, `[]`, it
            gives deletes and inserts.

    Returns:
        a lazy DataFrame; its order means nothing, `_commit_version` does. It has the partition key that the
        table's property names. That no version is missing is proven now: Delta leaves out, without a word, what
        goes from the log before the DataFrame is used.

    Raises:
        FeedExpiredError: a version of the window is gone from the log, its files were vacuumed, or the
            feed was off when it was committed; `first_readable` says from where on it can be read.
        FeedError: the bounds are missing, reversed or beyond the table's versions, a key is no column, there
            is no such table, or the session leaves out files that it cannot read.

    """
    name = address_of(table)
    if images not in get_args(Images):
        msg = '`images` is neither "both" nor "post"'
        raise FeedError(msg, table=name, found=str(images))
    found = find_feed_table(spark, name)
    beyond = (read_conf(spark, BEYOND) or "").lower() == "true"
    window = open_window(found.commits, after, until, beyond=beyond)
    frame = read_window(spark, found, window)
    if keys is None:
        keys = stored_columns(found.commits, max(window.until, 0))
    frame = tell_changes(frame, window, found, keys, net=net)
    if images == "post":
        frame = frame.where(f"{KIND} <> '{PRE}'")
    return declare_grouping(frame, found.commits, max(window.until, 0))


def declare_grouping(frame: DataFrame, commits: Commits, version: int) -> DataFrame:
    """Declare on a feed the partition key that the table's property names; an image of a row identifies none."""
    columns = stored_columns(commits, version, grouping=True)
    return tag_columns(frame, Keys(partition=columns), "read_feed") if columns else frame


def tell_changes(
    frame: DataFrame,
    window: Window,
    table: FeedTable,
    keys: Sequence[str],
    *,
    net: bool,
    pairs: bool = True,
) -> DataFrame:
    """Tell a window's changes by key: folded to the net ones, or deletes and inserts paired to updates.

    Without *pairs* these are left as they are; returns *frame* itself where nothing is left to be told. Raises
    `FeedError` where a key is no column, or a column cannot be compared.
    """
    spelled = spell_keys(table.shown, window.metadata, keys)
    if not net:
        if not (spelled and window.pairs):
            return frame
        anew = snapshot_command("NAME", "TABLE")
        step = f"Name other columns as keys; a consumer begins anew with them: {anew}"
        refuse_incomparable(frame, spelled, table.shown, "so it is no key", step)
        return pair_updates(frame, spelled) if pairs else frame
    once = fold_unique_keys(frame, table, window, spelled)
    return fold_net(frame, spelled, table.shown) if once is None else once


def read_snapshot(spark: SparkSession, table: FeedTable, version: int) -> DataFrame:
    """Read the rows of a version in the shape of a feed: each was inserted by it; raises as `read_rows` does.

    `SchemaError`, too, where the table has a column of a name that the feed has for itself.
    """
    rows = read_rows(spark, table, version)
    check_names(table.shown, table.sql, rows.columns)
    at = f.lit(table.commits.committed_at(version))
    return rows.withColumns({KIND: f.lit(INSERT), VERSION: f.lit(version).cast("long"), TIME: at})


def read_rows(spark: SparkSession, table: FeedTable, version: int) -> DataFrame:
    """Read the rows of a version; what they may have for tags on disk counts for nothing.

    Raises `FeedExpiredError` where it cannot be read any more, `FeedError` where the session would leave out files.
    """
    refuse_losses(spark, table)
    reader = spark.read.format("delta").option("versionAsOf", version)
    # Nothing may have taken the newest version's rows, however old it is; others are read as long as Delta lets us.
    frame = _loaded(spark, table, reader, lift=version == table.commits.newest)
    check_planned(spark, table, frame)
    return untag(frame)


def read_window(spark: SparkSession, table: FeedTable, window: Window) -> DataFrame:
    """Read a window that was proven whole, segment by segment; raises as `read_rows` does."""
    refuse_losses(spark, table)
    schema = spark_schema(window.metadata)
    if not window.segments:
        return spark.createDataFrame([], feed_schema(window))
    if (rows := read_directly(spark, table, window, schema)) is not None:
        return rows
    if any(segment.past for segment in window.segments):
        # It stays: Spark Connect analyses a read again whenever it is used. No other reader gives what it allows.
        set_conf(spark, _TRAVELS, "true")
    frames = [_read_segment(spark, table, segment, schema) for segment in window.segments]
    for frame in frames:
        check_planned(spark, table, frame)
    return untag(reduce(lambda one, other: one.unionByName(other), frames))


def _read_segment(
    spark: SparkSession, table: FeedTable, segment: Segment, schema: t.StructType
) -> DataFrame:
    bounds = {"startingVersion": segment.first, "endingVersion": segment.last}
    if segment.past:
        bounds["versionAsOf"] = segment.last
    reader = spark.read.format("delta").option("readChangeFeed", "true").options(**bounds)
    frame = _loaded(spark, table, reader, lift=True)  # the window was proven whole
    was = spark_schema(segment.metadata)
    return frame.select(*tell_columns(frame, was, schema), *FEED_COLUMNS)


def _loaded(
    spark: SparkSession, table: FeedTable, reader: DataFrameReader, *, lift: bool
) -> DataFrame:
    """Load a read: what Delta refuses becomes an error of ours.

    Delta refuses versions older than the table keeps removed files, as VACUUM may have taken some. With *lift*, none
    is gone, and they are loaded without that look at the age; once loaded, a read does not look at it again.
    """

    def load() -> DataFrame:
        # A client of Spark Connect sends a read only when somebody asks for something; its server keeps what it has
        # analysed for a while, and does not look at the age of versions again.
        frame = table.load(reader)
        frame.schema  # noqa: B018  # asks
        return frame

    try:
        return load()
    except Exception as exc:  # some of Delta's refusals are PySpark's errors, others Py4J's
        if TOO_OLD not in conditions_of(exc) or not lift:
            raise refused_load(table, exc) from exc
        refusal = exc
    try:
        with _LIFTING, configured(spark, {_ENFORCED: "false"}):
            return load()
    except ComputeError:  # the look cannot be switched off, so what it has refused stays refused
        raise refused_load(table, refusal) from refusal
    except Exception as exc:
        raise refused_load(table, exc) from exc


def feed_schema(window: Window) -> t.StructType:
    """Return the columns of a window's rows, and what tells the change."""
    table = spark_schema(window.metadata)
    fields = [t.StructField(field.name, field.dataType) for field in table.fields]
    schema = t.StructType(fields).add(KIND, t.StringType())
    return schema.add(VERSION, t.LongType()).add(TIME, t.TimestampType())


def spell_keys(table: str, metadata: Metadata, keys: Sequence[str]) -> list[str]:
    """Name the key columns as the table does; raises `FeedError` where one is no column."""
    names = {fold_name(field["name"]): field["name"] for field in metadata.schema["fields"]}
    keys = as_names(keys)
    for key in keys:
        if fold_name(key) not in names:
            msg = "the key is no column of the table"
            raise FeedError(msg, table=table, column=key, found=", ".join(names.values()))
    return [names[fold_name(key)] for key in keys]

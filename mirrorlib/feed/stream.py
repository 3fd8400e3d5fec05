"""Read a table's change feed as a stream.

In: a table and where to begin. Out: a streaming DataFrame of the feed's columns. Delivery: what
Spark's checkpoint makes of it; with a checkpoint that has progress, Spark goes on there and the
beginning given here counts for nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.errors import FeedError
from mirrorlib.feed.net import VERSION
from mirrorlib.feed.place import FeedTable, address_of, find_feed_table
from mirrorlib.feed.read import declare_grouping
from mirrorlib.feed.refusal import refuse_losses
from mirrorlib.feed.window import Bound, open_window
from mirrorlib.keys.tags import untag

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mirrorlib.store import PathOrUrl


def stream_feed(
    spark: SparkSession,
    table: PathOrUrl,
    *,
    after: Bound | None = None,
    max_files: int | None = None,
    max_bytes: int | None = None,
) -> DataFrame:
    """Stream the changes of a Delta table.

    Args:
        spark: any Spark with Delta.
        table: a path or URL, or a name in a catalog.
        after: begin with what came after this version or moment, as for `read_feed`: the version that
            the target has, when a checkpoint is lost. Without it the table's rows come first, as inserts.
        max_files: files a micro-batch; a commit is taken whole, however many it has.
        max_bytes: bytes a micro-batch; the same.

    Raises:
        FeedExpiredError: a version since *after* is gone, or was made while the feed was off.
        FeedError: *after* is no version or moment of the table, its feed is off, there is no such table,
            or the session leaves out files that it cannot read.

    """
    name = address_of(table)
    found = find_feed_table(spark, name)
    refuse_losses(spark, found)
    reader = spark.readStream.format("delta").option("readChangeFeed", "true")
    limits = {"maxFilesPerTrigger": max_files, "maxBytesPerTrigger": max_bytes}
    for option, limit in limits.items():
        if limit is not None:
            reader = reader.option(option, limit)
    _check_fed(found)
    newest = found.commits.newest
    if after is None:
        return declare_grouping(untag(found.load(reader)), found.commits, newest)
    window = open_window(found.commits, name, after, None)
    if len(window.segments) > 1:
        msg = "the table's schema has changed since then in a way that one stream cannot span"
        last = window.segments[-1].first
        step = f"Read up to version {last - 1} with read_feed, and stream after it."
        raise FeedError(msg, table=name, first_readable=last, next_step=step)
    # Delta refuses to begin with a version that is still to come: the newest one is read once more instead.
    first = min(window.after + 1, newest)
    rows = found.load(reader.option("startingVersion", first)).where(f"{VERSION} > {window.after}")
    return declare_grouping(untag(rows), found.commits, newest)


def _check_fed(table: FeedTable) -> None:
    """See that the feed is on: Spark would say so only when the stream has begun."""
    commits = table.commits
    if not commits.metadata_at(commits.newest).has_feed:
        msg = "the table's change feed is off"
        step = "Switch it on: mirrorlib enable-feed TARGET"
        raise FeedError(msg, table=table.shown, next_step=step)

"""Read a table's change feed as a stream.

In: a table and where to begin, or the checkpoint to go on from. Out: a streaming DataFrame of the feed's
columns. Delivery: what Spark's checkpoint makes of it.
"""

from __future__ import annotations

import json
import re
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

from mirrorlib.delta.address import FeedTable, address_of, find_feed_table
from mirrorlib.delta.sessions import FULL_WIDENING, spark_generation
from mirrorlib.errors import FeedError, FeedExpiredError
from mirrorlib.feed.net import VERSION
from mirrorlib.feed.proof import refuse_losses
from mirrorlib.feed.read import declare_grouping
from mirrorlib.feed.schemas import widens
from mirrorlib.feed.window import Bound, Window, open_window
from mirrorlib.keys.tags import untag
from mirrorlib.store import PathOrUrl, Store, contents, open_store

# A query may have several sources, an offset each; formats of the file differ in what is around them.
_OFFSET = re.compile(r'\{[^{}]*"reservoirId"[^{}]*\}')
ANEW = (
    "Copy the table's rows as they are now, and go on with a new checkpoint, "
    "with `after` the version that was copied."
)


def stream_feed(
    spark: SparkSession,
    table: PathOrUrl,
    *,
    after: Bound | None = None,
    checkpoint: PathOrUrl | None = None,
    max_files: int | None = None,
    max_bytes: int | None = None,
    exclude_regex: str | None = None,
) -> DataFrame:
    """Stream the changes of a Delta table.

    Args:
        spark: any Spark with Delta.
        table: a path or URL, or a name in a catalog.
        after: begin with what came after this version or moment, as for `read_feed`: the version that
            the target has, when a checkpoint is lost. Without it the table's rows come first, as inserts.
        checkpoint: the location that the query keeps its progress in, its `checkpointLocation`. Where it has any,
            *after* counts for nothing, and what is proven is what the query has still to read. A query that is
            begun again with a later *after* needs it: without it Delta refuses to go on.
        max_files: files a micro-batch; a commit is taken whole, however many it has.
        max_bytes: bytes a micro-batch; the same.
        exclude_regex: leave out the changes of files whose paths match, as Delta's `excludeRegex` does; that no version
            is missing is proven all the same.

    Raises:
        FeedExpiredError: a version since *after*, or since the query's progress, is gone or was made while the
            feed was off; or the query has read a table that was made anew since.
        FeedError: *after* is no version or moment of the table, its feed is off, there is no such table,
            the session leaves out files that it cannot read, or the schema has changed on the way in a way that
            one stream cannot span.

    """
    found = find_feed_table(spark, address_of(table))
    refuse_losses(spark, found)
    commits = found.commits
    # Spark would say so only when it has begun.
    if not commits.metadata.has_feed:
        msg, step = "the table's change feed is off", "Switch it on: mirrorlib enable-feed TARGET"
        raise FeedError(msg, table=found.shown, next_step=step)
    options: dict[str, str | int | None] = {
        "readChangeFeed": "true",
        "maxFilesPerTrigger": max_files,
        "maxBytesPerTrigger": max_bytes,
        "excludeRegex": exclude_regex,
    }
    given = {option: value for option, value in options.items() if value is not None}
    reader = spark.readStream.format("delta").options(**given)
    rows = None if checkpoint is None else _go_on(found, reader, checkpoint)
    if rows is None:
        rows = found.load(reader) if after is None else _begin(found, reader, after)
    return declare_grouping(untag(rows), commits, commits.newest)


def _begin(table: FeedTable, reader: DataStreamReader, after: Bound) -> DataFrame:
    """Stream what came after a version or moment."""
    window = open_window(table.commits, after, None)
    _check_spanned(table, window, "stream after it")
    before = window.after
    if before == window.until and table.commits.read(before).rewrites:
        msg = "no stream can begin after a version that gave the rows other types before another one has come"
        step, first = "Stream again once the table has changed.", before + 1
        raise FeedError(msg, table=table.shown, first_readable=first, next_step=step)
    # Delta refuses to begin with a version that is still to come: the newest one is read once more instead.
    first = min(before + 1, table.commits.newest)
    rows = table.load(reader.option("startingVersion", first))
    # No more than this one is left out: a query may have progress that is older.
    return rows.where(f"{VERSION} <> {before}") if first == before else rows


def _check_spanned(table: FeedTable, window: Window, then: str) -> None:
    """See that one stream can span a window of one schema; it goes on over a change of types from Delta 4.1 on."""
    last = window.until
    for segment in reversed(window.segments):
        follows = spark_generation() >= FULL_WIDENING and widens(segment.metadata, window.metadata)
        if segment.last != last or not (last == window.until or follows):  # a rewrite lies between
            break
        last = segment.first - 1
    if last != window.after:
        msg = "the table's schema has changed since then in a way that one stream cannot span"
        step = f"Read after version {window.after} up to version {last} with read_feed, and {then}."
        raise FeedError(msg, table=table.shown, first_readable=last + 1, next_step=step)


def _go_on(table: FeedTable, reader: DataStreamReader, checkpoint: PathOrUrl) -> DataFrame | None:
    """Stream what the query of a checkpoint has still to read, once all of it is seen to be there.

    None where it has still to begin. Spark makes the last batch once more and throws it away, and one that was the
    first begins with the version that is given here.
    """
    store, commits = open_store(checkpoint), table.commits
    planned, done = _batches(store, "offsets"), _batches(store, "commits")
    last = max(planned, default=-1)
    taken = last if last in done else last - 1
    if taken not in planned:  # a first batch that did not end is read as if for the first time
        return None
    stands = _offset(store, taken, table)
    began = _offset(store, last - 1, table) if last - 1 in planned else stands
    following, again = stands["reservoirVersion"], began["reservoirVersion"]
    # Whether it is still at the rows that were there when it began, as of `following`.
    snapshot = bool(stands.get("isStartingVersion"))
    try:
        if again < commits.first:
            open_window(commits, again - 1, None)
        window = open_window(commits, following if snapshot else following - 1, None)
    except FeedExpiredError as exc:
        shown, first = table.shown, exc.first_readable
        msg = f"the stream stands at version {following}, and {exc.reason}"
        raise FeedExpiredError(msg, table=shown, first_readable=first, next_step=ANEW) from exc
    _check_spanned(table, window, "go on with a new checkpoint and `after` it")
    start = min(following, commits.newest)
    return table.load(reader if snapshot else reader.option("startingVersion", start))


def _batches(store: Store, folder: str) -> set[int]:
    return {int(file.name) for file in contents(store, folder).files if file.name.isdecimal()}


def _offset(store: Store, batch: int, table: FeedTable) -> dict[str, Any]:
    """Read where a batch ends in a table; a query that reads it twice is as far as the slower of the two."""
    text = (store.read(f"offsets/{batch}") or b"").decode().replace('\\"', '"')
    commits = table.commits
    wanted = commits.metadata.id
    found = [json.loads(one) for one in _OFFSET.findall(text)]
    mine = [one for one in found if one["reservoirId"] == wanted]
    if not mine or min(one["reservoirVersion"] for one in mine) > commits.newest + 1:
        msg = "the checkpoint is of another table, or of this one before it was made anew"
        first = commits.made_at
        raise FeedExpiredError(msg, table=table.shown, first_readable=first, next_step=ANEW)
    return min(mine, key=lambda one: (one["reservoirVersion"], one["index"]))

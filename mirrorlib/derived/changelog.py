"""Make a keyed changelog of a table's change feed."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from mirrorlib.errors import KeysError
from mirrorlib.feed.net import DELETE, FEED_COLUMNS, KIND, PRE, VERSION
from mirrorlib.identifiers import quote
from mirrorlib.keys.tags import tag_columns
from mirrorlib.keys.value import TABLE_KEY_TYPES, check_keys

DELETED, NEWEST, PLACE = "_mirror_deleted", "_mirror_version", "_mirror_place"


def key_feed(feed: DataFrame, columns: str | Sequence[str]) -> DataFrame:
    """Make a changelog with a primary key of what `read_feed` or `stream_feed` gives.

    A delete and an image of before an update say that a key's row is gone, an insert and an image of after it
    what the row is. So an update of a key itself ends one record and begins another. What a row's deletion and
    order are is told by columns that every table can have, which the feed's own are not: `_mirror_deleted`,
    `_mirror_version`, and `_mirror_place`, by which in one version what goes comes before what is there then.

    Args:
        feed: a change feed, batch or stream. With the images of after alone (`images="post"`) nothing tells
            that a key was updated.
        columns: what identifies a row of the table.

    Raises:
        KeysError: it is no feed, or *columns* cannot be keys.

    """
    names = feed.columns
    if missing := [name for name in FEED_COLUMNS if name not in names]:
        msg = "the DataFrame is no change feed: it lacks a column of one"
        step = "Give what read_feed or stream_feed returns, with all of its columns."
        raise KeysError(msg, column=missing[0], next_step=step)
    if taken := [name for name in (DELETED, NEWEST, PLACE) if name in names]:
        msg = "a column has a name that is needed"
        raise KeysError(msg, column=taken[0], next_step="Rename it.")
    gone = f.col(KIND).isin(DELETE, PRE)
    changes = feed.select(
        *[quote(name) for name in names if name not in FEED_COLUMNS],
        gone.alias(DELETED),
        f.col(VERSION).cast("long").alias(NEWEST),
        f.when(gone, 0).otherwise(1).cast("tinyint").alias(PLACE),
    )
    keys = check_keys(
        changes.schema,
        columns,
        cdc=True,
        deleted=DELETED,
        order_by=(NEWEST, PLACE),
        types=TABLE_KEY_TYPES,
    )
    return tag_columns(changes, keys, "key_by")

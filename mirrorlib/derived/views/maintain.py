"""Keep the current view of a changelog in a Delta table, as its changes come.

In: a keyed changelog, batch or stream. Out: a table with the newest row of each key, tombstones included: a
deleted row that is kept makes sure that a change which comes late, and is older, does not bring its record back.
Delivery: exactly once in effect. A change counts only where it is newer than what the table has, so what comes
again, or in another order, ends in the same table, and what changes nothing makes no difference.
"""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from mirrorlib.commit.mark import METADATA, as_metadata
from mirrorlib.delta.address import find_feed_table
from mirrorlib.delta.key_property import ON, VIEW_PROPERTY, missing_columns, stored_keys
from mirrorlib.delta.sessions import configured, lend_session, read_conf
from mirrorlib.derived.place import find_place
from mirrorlib.derived.views.maintained_view import (
    DELETED_AT,
    OWNED,
    View,
    check_owner,
    ensure_table,
)
from mirrorlib.errors import KeysError
from mirrorlib.feed.keyed import read_keyed
from mirrorlib.feed.owners import keeps_columns
from mirrorlib.identifiers import quote
from mirrorlib.keys.read import keys_of, require_keys
from mirrorlib.keys.tags import tag_columns, untag
from mirrorlib.keys.value import Keys
from mirrorlib.keys.view import NULL_KEY, live_rows, newest_rows, order_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import timedelta

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_VIEW = "_mirror_view_"
_SHARED = "spark.sql.globalTempDatabase"


def maintain_current_view(
    changes: DataFrame,
    target: str,
    *,
    arrival: str | Sequence[str] = (),
    tombstone_retention: timedelta | None = None,
    checkpoint: str | None = None,
    available_now: bool = False,
) -> StreamingQuery | None:
    """Bring a table that holds the current view of a changelog up to date.

    A batch is applied when this returns. A stream is started, and its query returned; each of its
    micro-batches is applied the same way. Read the table with `read_current_view`.

    Args:
        changes: a changelog with a primary key that is whole: see `key_by`, and `key_feed` for a change feed.
        target: the table that is kept, a path or URL, or a name in a catalog; made when it is not there.
            Nobody else may write to it.
        arrival: columns by which changes arrived. They decide where the order columns do not, the same ones in
            every run.
        tombstone_retention: how long a deleted record is remembered; without it, for ever. A change that is later
            than that can bring its record back.
        checkpoint: where a stream keeps its progress; it needs one.
        available_now: end the stream when all that is there has been applied.

    Raises:
        KeysLostError: there is no primary key, or a part of it was lost.
        KeysError: nothing tells which row is newer, a key is NULL, the changelog is resolved already, so that its
            tombstones are missing, or the table was made with other keys or columns of arrival.
        SchemaError: the table's columns are not the changelog's; new ones are added.
        ForeignWriteError: somebody else has written to the table.

    """
    if changes.isStreaming and checkpoint is None:
        msg = "a stream has to keep its progress somewhere"
        raise KeysError(msg, table=target, next_step="Name a checkpoint.")
    spark = changes.sparkSession
    keys = require_keys(changes, primary=True)
    if keys.unique and keys.deleted is not None:
        msg = (
            "the changelog is resolved already: what it says of deleted records is no longer there"
        )
        step = "Hand over the changelog itself, not its current view."
        raise KeysError(msg, table=target, column=keys.deleted, next_step=step)
    view = View(
        place=find_place(spark, target),
        keys=replace(keys, unique=False),  # its tombstones are rows, too
        order=order_columns(changes, keys, arrival),
        retention=tombstone_retention,
    )
    rows = untag(changes)
    with view.place.hold(spark), lend_session(spark) as session:
        view = replace(view, id=ensure_table(session, rows, view))
        if not rows.isStreaming:
            _apply(session, rows, view)
            return None
    return _start(rows, view, str(checkpoint), available_now=available_now)


def _start(rows: DataFrame, view: View, checkpoint: str, *, available_now: bool) -> StreamingQuery:
    """Start a stream whose every micro-batch is applied.

    On Spark Connect a process beside the server applies them, to which *view* is sent; mirrorlib has to be there.
    """

    def apply_batch(batch: DataFrame, _: int) -> None:
        spark = batch.sparkSession
        with view.place.hold(spark), lend_session(spark) as session:
            _apply(session, batch, view)

    writer = rows.writeStream.foreachBatch(apply_batch).option("checkpointLocation", checkpoint)
    if available_now:
        writer = writer.trigger(availableNow=True)
    return writer.start()


def read_current_view(spark: SparkSession, target: str) -> DataFrame:
    """Read a table that `maintain_current_view` keeps: live rows alone, with their keys.

    Raises:
        KeysError: the table is no such view, or a column of its keys is another one by now.

    """
    found = find_feed_table(spark, target)
    commits = found.commits
    properties = commits.metadata_at(commits.newest).properties
    keys = stored_keys(properties)
    if keys is None or VIEW_PROPERTY not in properties:
        msg = "the table holds no current view that mirrorlib keeps"
        raise KeysError(msg, table=target, next_step="Make one with maintain_current_view.")
    changelog = read_keyed(spark, found, commits.newest)
    gone = missing_columns(keys, changelog.columns)
    if gone or not keeps_columns(commits, commits.newest, keys.columns):
        msg = "a column of the view's keys was renamed or dropped, or the log does not tell that none was"
        step = "Give the columns the names that they had, or drop the table and let the view be made anew."
        column = ", ".join(gone or keys.columns)
        raise KeysError(msg, table=target, column=column, next_step=step)
    rows = live_rows(untag(changelog), keys).drop(DELETED_AT)
    if not keys_of(changelog).primary:  # somebody else has written
        return tag_columns(rows, Keys(partition=keys.partition), "current_view")
    return tag_columns(rows, replace(keys, unique=True), "current_view")


def _apply(session: SparkSession, rows: DataFrame, view: View) -> None:
    """Merge changes by key where they are newer, in one commit; then forget what is old enough.

    The commits' mark is session configuration, which all threads of a session share: set in the caller's own, it
    would mark what he writes meanwhile, too. So rows are handed over to a session that nobody else has.
    """
    newest = check_owner(session, view)
    with configured(session, {METADATA: as_metadata({OWNED: view.id, ON: newest})}):
        _merge(session, rows, view)
        if view.retention is not None and view.keys.deleted is not None:
            seconds = int(view.retention.total_seconds())
            session.sql(
                f"DELETE FROM {view.sql} WHERE {quote(view.keys.deleted)} "  # noqa: S608  # every name in it is quoted
                f"AND {DELETED_AT} < current_timestamp() - INTERVAL '{seconds}' SECOND"
            )


def _merge(session: SparkSession, rows: DataFrame, view: View) -> None:
    with _handed_over(session, _newest(rows, view)) as source:
        try:
            session.sql(_merge_sql(view, source))
        except Exception as exc:  # up to Spark 3.5 it is Py4J's
            if NULL_KEY in str(exc):
                msg = "a primary key is NULL in the changelog"
                step = "Filter such rows out, or give them a key."
                raise KeysError(msg, column=", ".join(view.keys.primary), next_step=step) from exc
            raise


@contextlib.contextmanager
def _handed_over(session: SparkSession, rows: DataFrame) -> Iterator[str]:
    """Let a session find the rows of another one, under a name that nobody guesses, until the block ends."""
    name = f"{_VIEW}{uuid.uuid4().hex}"
    # Only a global view is seen by another session. Compute that has none, serverless, lends no session either.
    rows.createOrReplaceGlobalTempView(name)
    try:
        yield f"{quote(read_conf(session, _SHARED) or 'global_temp')}.{name}"
    finally:
        session.catalog.dropGlobalTempView(name)


def _newest(rows: DataFrame, view: View) -> DataFrame:
    from pyspark.sql import functions as f

    newest = newest_rows(rows, view.keys, view.order)
    if view.keys.deleted is None:
        return newest
    gone = f.col(quote(view.keys.deleted))
    return newest.withColumn(DELETED_AT, f.when(gone, f.current_timestamp()))


def _merge_sql(view: View, source: str) -> str:
    same = " AND ".join(f"t.{quote(name)} <=> s.{quote(name)}" for name in view.keys.primary)
    # Structs compare field by field, and NULL is less than everything: the oldest.
    ours, theirs = (
        f"struct({', '.join(f'{side}.{quote(name)}' for name in view.order)})" for side in "st"
    )
    return (
        f"MERGE INTO {view.sql} AS t USING {source} AS s ON {same} "
        f"WHEN MATCHED AND {ours} > {theirs} THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )

"""Keep the current view of a changelog in a Delta table, as its changes come.

In: a keyed changelog, batch or stream. Out: a table with the newest row of each key, tombstones included, so that no
older change brings a record back. What the view was made with, its keys and the columns of arrival, stands in the
table's properties: another order would resolve the same rows otherwise. Delivery: exactly once in effect, as a change
counts only where it is newer than what the table has.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructField, TimestampType

from mirrorlib.commit.claim import was_overtaken
from mirrorlib.commit.last_commit import read_last_commit
from mirrorlib.commit.mark import as_condition, as_metadata
from mirrorlib.delta.address import find_feed_table
from mirrorlib.delta.ddl import add_columns, make_table
from mirrorlib.delta.key_property import (
    ON,
    VIEW_PROPERTY,
    keys_property,
    missing_columns,
    spell_keys_as,
    stored_keys,
)
from mirrorlib.delta.lock import TablePlace, find_place
from mirrorlib.delta.log import TableLog
from mirrorlib.delta.properties import FEED_DAYS, feed_properties
from mirrorlib.delta.sessions import configured, lend_session, read_conf
from mirrorlib.delta.table import check_made, find_table, named_rows, open_log
from mirrorlib.delta.trouble import as_mirror_error, is_sparks
from mirrorlib.errors import ForeignWriteError, KeysError, SchemaError
from mirrorlib.feed.owners import is_owners, keeps_columns
from mirrorlib.feed.read import read_rows
from mirrorlib.identifiers import find_name, fold_name, quote
from mirrorlib.keys.read import require_keys
from mirrorlib.keys.tags import tag_columns, untag
from mirrorlib.keys.value import Keys
from mirrorlib.keys.view import NULL_KEY, live_rows, newest_rows, order_columns

DELETED_AT = "_mirror_deleted_at"  # when a tombstone came, by the clock: its retention starts there
_TRIES = 5  # against writers that commit in between
# Settings that Spark looks up when rows are computed: they mean what they do in the session of whoever gave them.
_LATE = ("spark.sql.legacy.timeParserPolicy", "spark.sql.mapKeyDedupPolicy")
_OWNED = "view"  # in what a commit says: the id of the table that it was meant for


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A current view that is kept."""

    place: TablePlace
    keys: Keys  # of the changelog; none is said to occur once, as the table has tombstones, too
    # All columns that tell which row of a key is newer: the order columns, then those of arrival.
    order: tuple[str, ...]
    retention: timedelta | None  # how long tombstones are kept; None for ever
    id: str = ""  # Delta's, of the table; "" while there is none


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
        checkpoint: where a stream keeps its progress; it needs one. A whole path or a URL: Spark, not Python, says
            where a relative one lies.
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
    _check_retention(target, tombstone_retention)
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
        view = replace(view, id=_ensure_table(session, rows, view))
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


def _check_retention(target: str, kept: object) -> None:
    if kept is not None and not (isinstance(kept, timedelta) and kept >= timedelta(0)):
        msg = "`tombstone_retention` is no length of time"
        step = "Give timedelta(days=30), or none."
        raise KeysError(msg, table=target, found=str(kept), next_step=step)


def read_current_view(spark: SparkSession, target: str) -> DataFrame:
    """Read a table that `maintain_current_view` keeps: live rows alone, with their keys.

    Raises:
        KeysError: the table is no such view, or a column of its keys is another one by now.

    """
    found = find_feed_table(spark, target)
    commits = found.commits
    properties = commits.metadata.properties
    keys = stored_keys(properties)
    if keys is None or VIEW_PROPERTY not in properties:
        msg = "the table holds no current view that mirrorlib keeps"
        raise KeysError(msg, table=target, next_step="Make one with maintain_current_view.")
    rows = read_rows(spark, found, commits.newest)
    gone = missing_columns(keys, rows.columns)
    if gone or not keeps_columns(commits, commits.newest, keys.columns):
        msg = "a column of the view's keys was renamed or dropped, or the log does not tell that none was"
        step = (
            "Give the columns the names that they had; where none was, maintain the view once more."
        )
        raise KeysError(msg, table=target, column=", ".join(gone or keys.columns), next_step=step)
    keys = spell_keys_as(keys, rows.columns)
    rows = live_rows(rows, keys).drop(DELETED_AT)
    # Not where somebody else has written.
    owned = is_owners(commits, commits.newest)
    keys = replace(keys, unique=True) if owned else Keys(partition=keys.partition)
    return tag_columns(rows, keys, "current_view")


def _ensure_table(session: SparkSession, rows: DataFrame, view: View) -> str:
    """Make the table, or see that it is one of this changelog, and add the columns that are new; return its id."""
    table, ref = view.place.shown, view.place.ref
    fields = list(rows.schema.fields)
    if DELETED_AT in rows.columns:
        msg = "a column has a name that the current view needs"
        raise KeysError(msg, table=table, column=DELETED_AT, next_step="Rename it.")
    if view.keys.deleted is not None:
        fields.append(StructField(DELETED_AT, TimestampType()))
    arrival = view.order[len(view.keys.order_by) :]
    resolution = json.dumps({"format": 1, "arrival": arrival}, ensure_ascii=False)
    told = {**keys_property(view.keys), VIEW_PROPERTY: resolution}
    make_table(session, ref, fields, {**feed_properties(FEED_DAYS), **told}, table)
    found = check_made(find_table(session, ref), table)
    kept, stored = stored_keys(found.properties) or Keys(), found.properties.get(VIEW_PROPERTY, "")
    was, asked = (kept.to_json(), stored), (view.keys.to_json(), resolution)
    if [*map(fold_name, was)] != [*map(fold_name, asked)]:
        msg = "the table was made with other keys or columns of arrival, by which its rows were resolved"
        step = "Name the same ones, choose another table, or drop it and let the view be made anew."
        said = f"keys {', '.join(kept.partition) or 'none'}; {stored or 'no view'}"
        raise KeysError(msg, table=table, found=said, next_step=step)
    there, wants = (
        {fold_name(field.name): field.dataType.simpleString() for field in some}
        for some in (found.schema.fields, fields)
    )
    odd = next((name for name, kind in there.items() if wants.get(name) != kind), None)
    if odd is not None:
        both = f"{there[odd]} in the table, {wants.get(odd, 'nothing')} in the changelog"
        msg = "the table's columns are not those of the changelog"
        step = "Add or cast the column, or choose another table."
        column = find_name(found.schema.names, odd)
        raise SchemaError(msg, table=table, column=column, found=both, next_step=step)
    if new := [field for field in fields if fold_name(field.name) not in there]:
        add_columns(session, ref, new, found)
    return found.id


def _apply(session: SparkSession, rows: DataFrame, view: View) -> None:
    """Merge changes by key where they are newer, then forget what is old; again where another commit came first."""
    for tries_left in reversed(range(_TRIES)):
        log, newest = _check_untouched(session, view)
        try:
            _apply_once(session, rows, view, newest)
        except Exception as exc:
            # What is wrong with the changes themselves is told as it is.
            if isinstance(exc, AnalysisException) or not is_sparks(exc):
                raise
            if not tries_left or not was_overtaken(log, newest):
                raise as_mirror_error(exc, view.place.shown) from exc
        else:
            return


def _check_untouched(session: SparkSession, view: View) -> tuple[TableLog, int]:
    """See that nobody else has written to the table; return its log, and how far that was looked at."""
    ref = view.place.ref
    log = open_log(session, ref)
    last = read_last_commit(log, lambda one: (one.ours or {}).get(_OWNED) == view.id, _OWNED)
    if last.foreign is not None:
        msg = "somebody else has written to the table of the current view"
        step = "Drop the table and let the view be made anew, or keep it in another one."
        found = last.foreign.told
        raise ForeignWriteError(msg, table=view.place.shown, found=found, next_step=step)
    return log, max(last.newest, 0)


def _apply_once(session: SparkSession, rows: DataFrame, view: View, newest: int) -> None:
    ref, deleted = view.place.ref, view.keys.deleted
    said = as_metadata({_OWNED: view.id, ON: newest})
    _merge(session, rows, view, said)
    if view.retention is not None and deleted is not None:
        seconds = int(view.retention.total_seconds())
        session.sql(
            f"DELETE FROM {ref.sql} WHERE {quote(deleted)} "  # noqa: S608  # every name in it is quoted
            f"AND {DELETED_AT} < current_timestamp() - INTERVAL '{seconds}' SECOND "
            f"AND {as_condition(quote(deleted), said)}"
        )


def _merge(session: SparkSession, rows: DataFrame, view: View, said: str) -> None:
    keys = view.keys
    newest = newest_rows(rows, keys, view.order)
    if keys.deleted is not None:
        gone = f.when(f.col(quote(keys.deleted)), f.current_timestamp())
        newest = newest.withColumn(DELETED_AT, gone)
    same = " AND ".join(f"t.{quote(name)} <=> s.{quote(name)}" for name in keys.primary)
    # Structs compare field by field, and NULL is less than everything: the oldest.
    ours, theirs = (
        f"struct({', '.join(f'{side}.{quote(name)}' for name in view.order)})" for side in "st"
    )
    meant = {}
    for name in _LATE:
        told, here = (read_conf(one, name, meant=True) for one in (rows.sparkSession, session))
        if told not in {None, here}:  # some compute tells what it lets nobody set
            meant[name] = told
    try:
        with configured(session, meant), named_rows(newest, session) as source:
            session.sql(
                f"MERGE INTO {view.place.ref.sql} AS t USING {source} AS s "
                f"ON {same} AND {as_condition(f's.{quote(keys.primary[0])}', said)} "
                f"WHEN MATCHED AND {ours} > {theirs} THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            )
    except Exception as exc:  # up to Spark 3.5 it is Py4J's
        if NULL_KEY in str(exc):
            msg = "a primary key is NULL in the changelog"
            step = "Filter such rows out, or give them a key."
            raise KeysError(msg, column=", ".join(keys.primary), next_step=step) from exc
        raise

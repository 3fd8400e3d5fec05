"""Keep the current view of a changelog in a Delta table, as its changes come.

In: a keyed changelog, batch or stream. Out: a table with the newest row of each key, tombstones included: a
deleted row that is kept makes sure that a change which comes late, and is older, does not bring its record back.
Delivery: exactly once in effect. A change counts only where it is newer than what the table has, so what comes
again, or in another order, ends in the same table, and what changes nothing makes no difference.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from mirrorlib.apply.columns import needs_mapping, to_columns
from mirrorlib.apply.commit import Mark
from mirrorlib.apply.keyed import VIEW_PROPERTY, keys_property, stored_keys
from mirrorlib.apply.sessions import configured
from mirrorlib.apply.table import MAPPING, feed_properties, find_location, open_log, to_sql
from mirrorlib.derive.place import Place, find_place
from mirrorlib.errors import ForeignWriteError, KeysError, SchemaError
from mirrorlib.feed.keyed import read_keyed
from mirrorlib.feed.place import find_feed_table
from mirrorlib.identifiers import quote
from mirrorlib.keys.read import keys_of, require_keys
from mirrorlib.keys.tags import tag_columns, untag
from mirrorlib.keys.value import Keys
from mirrorlib.keys.view import NULL_KEY, live_rows, newest_rows, order_columns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

DELETED_AT = "_mirror_deleted_at"  # when a tombstone came, by the clock: its retention starts there
_VIEW = "_mirror_view_"
_FEED_DAYS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """A current view that is kept.

    Attributes:
        place: the table.
        keys: of the changelog.
        order: all columns that tell which row of a key is newer.
        retention: how long tombstones are kept; None for ever.

    """

    place: Place
    keys: Keys
    order: tuple[str, ...]
    retention: timedelta | None

    @property
    def sql(self) -> str:
        """Return the table, quoted for SQL."""
        return self.place.ref.sql


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
        arrival: columns by which changes arrived. They decide where the order columns do not.
        tombstone_retention: how long a deleted record is remembered; without it, for ever. A change that is later
            than that can bring its record back.
        checkpoint: where a stream keeps its progress; it needs one.
        available_now: end the stream when all that is there has been applied.

    Raises:
        KeysLostError: there is no primary key, or a part of it was lost.
        KeysError: nothing tells which row is newer, a key is NULL, or the table was made with other keys.
        SchemaError: the table's columns are not the changelog's; new ones are added.
        ForeignWriteError: somebody else has written to the table.

    """
    keys = require_keys(changes, primary=True)
    view = _View(
        place=find_place(changes.sparkSession, target),
        keys=keys,
        order=order_columns(changes, keys, arrival),
        retention=tombstone_retention,
    )
    rows = untag(changes)
    _ensure_table(rows, view, target)
    if not rows.isStreaming:
        _apply(rows, view)
        return None
    if checkpoint is None:
        msg = "a stream has to keep its progress somewhere"
        raise KeysError(msg, table=target, next_step="Name a checkpoint.")

    def apply_batch(batch: DataFrame, _: int) -> None:
        _apply(batch, view)

    writer = rows.writeStream.foreachBatch(apply_batch).option("checkpointLocation", checkpoint)
    if available_now:
        writer = writer.trigger(availableNow=True)
    return writer.start()


def read_current_view(spark: SparkSession, target: str) -> DataFrame:
    """Read a table that `maintain_current_view` keeps: live rows alone, with their keys.

    Raises:
        KeysError: the table is no such view.

    """
    found = find_feed_table(spark, target)
    commits = found.commits
    properties = commits.metadata_at(commits.newest).properties
    keys = stored_keys(properties)
    if keys is None or VIEW_PROPERTY not in properties:
        msg = "the table holds no current view that mirrorlib keeps"
        raise KeysError(msg, table=target, next_step="Make one with maintain_current_view.")
    told = read_keyed(spark, found, commits.newest)
    rows = live_rows(untag(told), keys).drop(DELETED_AT)
    if not keys_of(told).primary and commits.newest:  # somebody else has written
        return tag_columns(rows, Keys(partition=keys.partition), "current_view")
    return tag_columns(rows, replace(keys, unique=True), "current_view")


def _properties(view: _View, spark: SparkSession) -> dict[str, str]:
    return dict(spark.sql(f"DESCRIBE DETAIL {view.sql}").collect()[0]["properties"])


def _ensure_table(rows: DataFrame, view: _View, target: str) -> None:
    """Make the table, or see that it is one of this changelog.

    Raises:
        KeysError: its keys are others.
        SchemaError: its columns are.

    """
    spark = rows.sparkSession
    fields = [(field.name, field.dataType.simpleString()) for field in rows.schema.fields]
    if DELETED_AT in rows.columns:
        msg = "a column has a name that the current view needs"
        raise KeysError(msg, table=target, column=DELETED_AT, next_step="Rename it.")
    if view.keys.deleted is not None:
        fields.append((DELETED_AT, "timestamp"))
    columns = to_columns(fields)
    properties = {
        **feed_properties(_FEED_DAYS),
        **keys_property(view.keys),
        VIEW_PROPERTY: "current",
    }
    if any(needs_mapping(column.name) for column in columns):
        properties[MAPPING] = "name"
    ddl = ", ".join(column.ddl for column in columns)
    told = to_sql(properties)
    spark.sql(f"CREATE TABLE IF NOT EXISTS {view.sql} ({ddl}) USING delta TBLPROPERTIES ({told})")
    found = _properties(view, spark)
    if stored_keys(found) != view.keys or VIEW_PROPERTY not in found:
        msg = "the table was made with other keys"
        raise KeysError(msg, table=target, next_step="Choose another table, or drop it.")
    there = {f.name: f.dataType.simpleString() for f in spark.table(view.sql).schema.fields}
    new = {name: kind for name, kind in fields if name not in there}
    if {**there, **new} == dict(fields):
        _add_columns(spark, view, new, found)
    else:
        odd = min(set(there.items()) ^ set(fields))
        msg = "the table's columns are not those of the changelog"
        step = "Add or cast the column, or choose another table."
        raise SchemaError(msg, table=target, column=odd[0], found=odd[1], next_step=step)


def _add_columns(
    spark: SparkSession, view: _View, new: Mapping[str, str], properties: Mapping[str, str]
) -> None:
    """Add the columns that a changelog has got since."""
    columns = to_columns(new.items())
    if not columns:
        return
    wanted = {}
    if MAPPING not in properties and any(needs_mapping(column.name) for column in columns):
        wanted[MAPPING] = "name"
    if any(column.sql_type == "timestamp_ntz" for column in columns):
        wanted["delta.feature.timestampNtz"] = "supported"
    if wanted:
        spark.sql(f"ALTER TABLE {view.sql} SET TBLPROPERTIES ({to_sql(wanted)})")
    spark.sql(f"ALTER TABLE {view.sql} ADD COLUMNS ({', '.join(c.ddl for c in columns)})")


def _apply(rows: DataFrame, view: _View) -> None:
    """Merge changes by key where they are newer, in one commit; then forget what is old enough."""
    facts = {"view": view.place.shown}
    mark = Mark(app_id="", version=0, facts=facts)
    marked = {"spark.databricks.delta.commitInfo.userMetadata": mark.text}
    spark = rows.sparkSession
    with view.place.hold(spark), configured(spark, marked):
        _check_owner(spark, view)
        _merge(rows, view)


def _check_owner(spark: SparkSession, view: _View) -> None:
    """See that every row of the table is one that was merged into it.

    Raises:
        ForeignWriteError: somebody else has written.

    """
    place = view.place
    log = open_log(spark, place.ref, find_location(spark, place.ref))
    newest = log.newest() or 0
    after = newest
    while after >= 0:
        found = log.commits(after - 1, after)
        if not found or found[0].ours is not None:
            return
        if not found[0].harmless:
            msg = "somebody else has written to the table of the current view"
            told = f"version {after}, {found[0].operation} by {found[0].user}"
            step = "Drop the table and let the view be made anew, or keep it in another one."
            raise ForeignWriteError(msg, table=place.shown, found=told, next_step=step)
        after -= 1


def _merge(rows: DataFrame, view: _View) -> None:
    name = f"{_VIEW}{uuid.uuid4().hex}"
    spark = rows.sparkSession
    _newest(rows, view).createOrReplaceTempView(name)
    try:
        spark.sql(_merge_sql(view, name))
    except Exception as exc:  # up to Spark 3.5 it is Py4J's
        if NULL_KEY in str(exc):
            msg = "a primary key is NULL in the changelog"
            step = "Filter such rows out, or give them a key."
            raise KeysError(msg, column=", ".join(view.keys.primary), next_step=step) from exc
        raise
    finally:
        spark.catalog.dropTempView(name)
    if view.retention is not None and view.keys.deleted is not None:
        seconds = int(view.retention.total_seconds())
        spark.sql(
            f"DELETE FROM {view.sql} WHERE {quote(view.keys.deleted)} "  # noqa: S608  # every name in it is quoted
            f"AND {DELETED_AT} < current_timestamp() - INTERVAL '{seconds}' SECOND"
        )


def _newest(rows: DataFrame, view: _View) -> DataFrame:
    from pyspark.sql import functions as f

    newest = newest_rows(rows, view.keys, view.order)
    if view.keys.deleted is None:
        return newest
    gone = f.col(quote(view.keys.deleted))
    return newest.withColumn(DELETED_AT, f.when(gone, f.current_timestamp()))


def _merge_sql(view: _View, source: str) -> str:
    same = " AND ".join(f"t.{quote(name)} <=> s.{quote(name)}" for name in view.keys.primary)
    # Structs compare field by field, and NULL is less than everything: the oldest.
    ours, theirs = (
        f"struct({', '.join(f'{side}.{quote(name)}' for name in view.order)})" for side in "st"
    )
    return (
        f"MERGE INTO {view.sql} AS t USING {source} AS s ON {same} "
        f"WHEN MATCHED AND {ours} > {theirs} THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )

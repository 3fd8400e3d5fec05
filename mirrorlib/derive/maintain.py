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
from mirrorlib.apply.table import MAPPING, feed_properties, to_sql
from mirrorlib.errors import KeysError, SchemaError
from mirrorlib.feed.place import quote_dotted
from mirrorlib.identifiers import quote
from mirrorlib.keys.read import require_keys
from mirrorlib.keys.tags import tag_columns, untag
from mirrorlib.keys.value import Keys
from mirrorlib.keys.view import NULL_KEY, live_rows, newest_rows, order_columns
from mirrorlib.store import open_store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

KEYS_PROPERTY = "mirrorlib.keys"
DELETED_AT = "_mirror_deleted_at"  # when a tombstone came, by the clock: its retention starts there
_VIEW = "_mirror_view_"
_FEED_DAYS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """A current view that is kept.

    Attributes:
        sql: the table, quoted.
        keys: of the changelog.
        order: all columns that tell which row of a key is newer.
        retention: how long tombstones are kept; None for ever.

    """

    sql: str
    keys: Keys
    order: tuple[str, ...]
    retention: timedelta | None


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
        SchemaError: the table's columns are not the changelog's.

    """
    keys = require_keys(changes, primary=True)
    view = _View(
        sql=_address(target),
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
    sql = _address(target)
    keys = _stored_keys(spark, sql)
    if keys is None:
        msg = "the table holds no current view that mirrorlib keeps"
        raise KeysError(msg, table=target, next_step="Make one with maintain_current_view.")
    rows = live_rows(spark.table(sql), keys).drop(DELETED_AT)
    return tag_columns(rows, replace(keys, unique=True), "current_view")


def _address(target: str) -> str:
    """Write a table for SQL: a word with a slash in it is a path, every other one a catalog's name."""
    if "/" in target or "\\" in target:
        return f"delta.{quote(open_store(target).uri('').rstrip('/'))}"
    return quote_dotted(target)


def _stored_keys(spark: SparkSession, sql: str) -> Keys | None:
    properties = spark.sql(f"DESCRIBE DETAIL {sql}").collect()[0]["properties"]
    told = properties.get(KEYS_PROPERTY)
    return None if told is None else Keys.from_json(told)


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
    properties = {**feed_properties(_FEED_DAYS), KEYS_PROPERTY: view.keys.to_json()}
    if any(needs_mapping(column.name) for column in columns):
        properties[MAPPING] = "name"
    ddl = ", ".join(column.ddl for column in columns)
    told = to_sql(properties)
    spark.sql(f"CREATE TABLE IF NOT EXISTS {view.sql} ({ddl}) USING delta TBLPROPERTIES ({told})")
    found = _stored_keys(spark, view.sql)
    if found != view.keys:
        msg = "the table was made with other keys"
        raise KeysError(msg, table=target, next_step="Choose another table, or drop it.")
    there = [(f.name, f.dataType.simpleString()) for f in spark.table(view.sql).schema.fields]
    if dict(there) != dict(fields):
        odd = min(set(there) ^ set(fields))
        msg = "the table's columns are not those of the changelog"
        step = "Add or cast the column, or choose another table."
        raise SchemaError(msg, table=target, column=odd[0], found=odd[1], next_step=step)


def _apply(rows: DataFrame, view: _View) -> None:
    """Merge changes by key where they are newer, in one commit; then forget what is old enough."""
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

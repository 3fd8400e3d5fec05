"""Append windows to a log as they are.

In: a window. Out: one commit. A snapshot that takes the place of what the log has is told by a row
before it: `_change_type` is "reset", all else is NULL but the snapshot's version and time.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from mirrorlib.commit.mark import append_rows
from mirrorlib.delivery.sink import Delivery
from mirrorlib.delivery.sinks.delta.fit import fit_columns
from mirrorlib.delivery.sinks.delta.work import WindowWork
from mirrorlib.feed.net import KIND, TIME, VERSION


def log_columns(delivery: Delivery) -> t.StructType:
    """Return the columns of a log: the source's, and those that tell the change; it has those of any feed."""
    return delivery.frame.schema


def append_window(work: WindowWork) -> int | None:
    """Append a window; new columns come with it, and the commit tells how many rows it took."""
    work = fit_columns(work)
    plan, rows = work.plan, work.frame
    if plan.reset or (plan.kind == "snapshot" and not work.fresh):
        version = f.lit(plan.until).cast("long").alias(VERSION)
        reset = snapshot_time(work).select(f.lit("reset").alias(KIND), version, TIME)
        rows = reset.unionByName(rows, allowMissingColumns=True)
    append_rows(work.ref, rows, work.mark(), grows=True)
    return None


def snapshot_time(work: WindowWork) -> DataFrame:
    """Give one row: when a snapshot's version was committed, as its rows have it, or its log where there are none."""
    written = f.lit(work.plan.until_at).cast("timestamp")
    return work.frame.select(TIME).limit(1).agg(f.coalesce(f.max(TIME), written).alias(TIME))

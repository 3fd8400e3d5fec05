"""Bring a target to the end of a window, in each of the modes that the package tells of.

In: a window. Out: one commit. The row of a log that tells a reset is NULL but for the snapshot's version and time. Of a
copy by key, the last state that a window tells of each key counts, so windows that come again after a rewind end in the
same copy, which is in the past meanwhile; without keys, versions that the copy has are left out. The rows of a history
are a multiset: one that comes opens a state, one that goes closes the oldest open state of an equal row. That is right
for updates, for a key that is deleted and inserted again, for several changes in a window, for keys that occur several
times, and without any.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql import types as t

from mirrorlib.commit.difference import NET, NEW, ops_of_counts, rows_like
from mirrorlib.commit.mark import append_rows, overwrite_columns
from mirrorlib.commit.stage import ADD, DROP, FRESH, OP, PUT, WRONG, count_doubles, staged_table
from mirrorlib.delivery.sink import Delivery
from mirrorlib.delivery.sinks.delta.fit import check_columns, fit_columns
from mirrorlib.delivery.sinks.delta.rewrite import fold_few, rewrite_copy
from mirrorlib.delivery.sinks.delta.work import WindowWork
from mirrorlib.delta.table import read_table
from mirrorlib.feed.files.direct import to_frame
from mirrorlib.feed.net import DELETE, KIND, TIME, VERSION, last_states
from mirrorlib.identifiers import quote
from mirrorlib.keys.tags import bare_columns

VALID_FROM, VALID_TO, IS_CURRENT = "valid_from", "valid_to", "is_current"
_FROM, _TO, _WAS, _AT = "_mirror_from", "_mirror_to", "_mirror_was", "_mirror_at"
_COMES, _PLACE = "_mirror_comes", "_mirror_place"
_OPENED, _CLOSED = "_mirror_opened", "_mirror_closed"
_ENDS, _CHANGED = "_mirror_ends", "_mirror_changed"
_BEFORE = -1  # what was open before a window stands before all that it opens


def log_columns(delivery: Delivery) -> t.StructType:
    """Return the columns of a log: the source's, and those that tell the change; it has those of any feed."""
    return delivery.frame.select(*bare_columns(delivery.frame, delivery.frame.columns)).schema


def append_window(work: WindowWork) -> int | None:
    """Append a window; new columns come with it, and the commit tells how many rows it took."""
    work = fit_columns(work)
    plan, rows = work.plan, work.frame
    if plan.reset or (plan.kind == "snapshot" and not work.fresh):
        version = f.lit(plan.until).cast("long").alias(VERSION)
        reset = _snapshot_time(work).select(f.lit("reset").alias(KIND), version, TIME)
        rows = reset.unionByName(rows, allowMissingColumns=True)
    append_rows(work.ref, rows.select(*bare_columns(rows, rows.columns)), work.mark(), grows=True)
    return None


def _snapshot_time(work: WindowWork) -> DataFrame:
    """Give one row: when a snapshot's version was committed, as its rows have it, or its log where there are none."""
    written = f.lit(work.plan.until_at).cast("timestamp")
    return work.frame.select(TIME).limit(1).agg(f.coalesce(f.max(TIME), written).alias(TIME))


def copy_columns(delivery: Delivery) -> t.StructType:
    """Return the columns of a copy: the source's; without keys refuse what cannot be compared."""
    check_columns(delivery, comparable=not delivery.keys)
    return delivery.frame.select(*bare_columns(delivery.frame, delivery.columns)).schema


def keep_copy(work: WindowWork) -> int | None:
    """Bring a copy to the end of a window; return how many rows that took, None where the commit tells."""
    replaces = work.plan.kind == "snapshot"
    if replaces and work.keys and count_doubles(work.frame, work.keys):
        raise work.twice()
    work = fit_columns(work)
    if not replaces:
        return _merge_keys(work) if work.keys else _merge_counts(work)
    rows = work.frame.select(
        *bare_columns(work.frame, work.columns),
        *[f.lit(None).cast(work.found.schema[name].dataType).alias(name) for name in work.dropped],
    )
    overwrite_columns(work.spark, work.ref, rows, work.mark())
    return None


def _merge_keys(work: WindowWork) -> int:
    keys, planned = work.keys, list(work.plan.keys)
    others = work.last.facts.get("keys", planned) != planned
    if others and count_doubles(read_table(work.spark, work.ref), keys):
        raise work.twice()
    few = fold_few(work)
    if few is not None:
        schema = t.StructType(list(work.wanted)).add(OP, "byte").add(FRESH, "boolean")
        staged = staged_table(to_frame(work.spark, few, schema), few, keys)
    else:
        folded = last_states(work.frame, keys, work.upto if work.overlaps else -1)
        staged = work.stage_rows(folded, "folded", keys, (WRONG, DROP, PUT))
    if WRONG in staged.ops:
        raise work.twice()
    if not staged.ops or few is None or not rewrite_copy(work, few):
        work.merge_rows(staged)
    return staged.rows


def _merge_counts(work: WindowWork) -> int:
    """Let rows occur more or less often, as a window tells: equal ones go together, and those that stay come again."""
    columns = work.columns
    names = [quote(name) for name in columns]

    def tell(counted: DataFrame, gone: DataFrame | None) -> DataFrame:
        rows = counted.select(*names, NET, f.col(NET).alias(NEW))
        if gone is not None:
            held = rows_like(read_table(work.spark, work.ref), (gone.select(*names), columns))
            rows = rows.unionByName(held.select(*names, f.lit(0).alias(NET), f.lit(1).alias(NEW)))
        return ops_of_counts(rows, columns, exact=work.exact)

    return work.merge_counts(work.new_rows(), columns, columns, columns, tell)


def history_columns(delivery: Delivery) -> t.StructType:
    """Return the columns of a history: the source's, and when each row was one; refuse those that none can have."""
    check_columns(delivery, VALID_FROM, VALID_TO, IS_CURRENT, comparable=True)
    return _opened(delivery.frame, delivery.columns).schema


def keep_history(work: WindowWork) -> int | None:
    """Bring a history to the end of a window; return how many rows that took, None where the commit tells."""
    by = work.keys or work.columns
    work = fit_columns(work)
    if work.plan.kind == "snapshot" and work.fresh:
        append_rows(work.ref, _opened(work.frame, work.columns), work.mark())
        return None
    events = _difference(work) if work.plan.kind == "snapshot" else work.new_rows()

    def tell(counted: DataFrame, gone: DataFrame | None) -> DataFrame:
        states = _events(counted, work)
        if gone is not None:
            held = rows_like(_open_rows(work), (gone.select(*map(quote, by)).distinct(), by))
            states = states.unionByName(_held(held, work))
        return _ops_of_states(states, work, by)

    return work.merge_counts(events, [*work.columns, VERSION, TIME], by, [*by, IS_CURRENT], tell)


def _opened(frame: DataFrame, columns: Sequence[str]) -> DataFrame:
    return frame.select(
        *bare_columns(frame, columns),
        f.col(TIME).alias(VALID_FROM),
        f.lit(None).cast("timestamp").alias(VALID_TO),
        f.lit(True).alias(IS_CURRENT),  # noqa: FBT003  # a value of a column
    )


def _open_rows(work: WindowWork) -> DataFrame:
    return read_table(work.spark, work.ref).where(quote(IS_CURRENT))


def _difference(work: WindowWork) -> DataFrame:
    """Return a snapshot as changes of what is open: all of that goes, and all of the snapshot comes.

    At the snapshot's time; or, where the source was put back from a backup, the latest that the history tells, though
    not later than now: one time that was wrong would carry all that is told afterwards there.
    """
    goes = _open_rows(work).select(
        *map(quote, work.columns),
        f.lit(DELETE).alias(KIND),
        f.lit(work.plan.until).cast("long").alias(VERSION),
    )
    told = f.max(f.least(f.greatest(VALID_FROM, VALID_TO), f.current_timestamp())).alias(_TO)
    latest = _snapshot_time(work).crossJoin(read_table(work.spark, work.ref).agg(told))
    at = latest.select(f.greatest(TIME, _TO).alias(TIME))
    return work.frame.drop(TIME).unionByName(goes).crossJoin(f.broadcast(at))


def _events(counted: DataFrame, work: WindowWork) -> DataFrame:
    """Give a row for each time that a row comes or goes."""
    comes, times = f.col(NET) > 0, f.sequence(f.lit(1).cast("long"), f.abs(NET))
    return counted.withColumn(_PLACE, f.explode(times)).select(
        *map(quote, work.columns),
        *[f.lit(None).cast(work.found.schema[name].dataType).alias(name) for name in work.dropped],
        f.when(comes, f.col(TIME)).alias(_FROM),
        f.when(~comes, f.col(TIME)).alias(_TO),
        f.lit(False).alias(_WAS),  # noqa: FBT003  # a value of a column
        f.col(VERSION).alias(_AT),
        comes.alias(_COMES),
    )


def _held(rows: DataFrame, work: WindowWork) -> DataFrame:
    return rows.select(
        *map(quote, [*work.columns, *work.dropped]),
        f.col(VALID_FROM).alias(_FROM),
        f.lit(None).cast("timestamp").alias(_TO),
        f.lit(True).alias(_WAS),  # noqa: FBT003  # a value of a column
        f.lit(_BEFORE).cast("long").alias(_AT),
        f.lit(True).alias(_COMES),  # noqa: FBT003  # a value of a column
    )


def _ops_of_states(events: DataFrame, work: WindowWork, by: Sequence[str]) -> DataFrame:
    """Pair the n-th opening of a row with its n-th closing, and tell what a commit has to do.

    What closes while no equal row is open closes nothing, least of all one that opens later.
    Where an open row of a key is closed, all open rows of the key go, and those that stay come again:
    equal rows cannot be told apart.
    """
    columns = list(map(quote, work.columns))
    order, comes = Window.partitionBy(*columns).orderBy(_AT, _FROM), f.col(_COMES)
    first, here = Window.unboundedPreceding, Window.currentRow
    events = events.repartition(*map(quote, by)).withColumns(
        {
            name: f.count(f.when(which, 1)).over(order.rowsBetween(first, here))
            for name, which in ((_OPENED, comes), (_CLOSED, ~comes))
        }
    )
    lacks = f.col(_CLOSED) - f.col(_OPENED)
    void = f.greatest(f.max(lacks).over(order.rowsBetween(first, -1)), f.lit(0))
    place = f.when(comes, f.col(_OPENED)).when(lacks > void, -lacks)
    places = events.withColumn(_PLACE, place.otherwise(f.col(_CLOSED) - void))
    states = places.groupBy(*columns, _PLACE).agg(
        *[f.max(name).alias(name) for name in (_FROM, _TO, _WAS)],
        *[f.first(quote(name), ignorenulls=True).alias(name) for name in work.dropped],
    )
    opens, closes, was = f.col(_FROM).isNotNull(), f.col(_TO).isNotNull(), f.col(_WAS)
    key = Window.partitionBy(*map(quote, by))
    states = states.withColumn(_ENDS, opens & closes & was).withColumns(
        {_CHANGED: f.max(_ENDS).over(key), _PLACE: f.row_number().over(key.orderBy(f.desc(_ENDS)))}
    )
    adds, none = f.array(f.lit(ADD)), f.array().cast("array<int>")
    ops = (
        f.when(~opens, f.array(f.lit(WRONG)) if work.exact else none)
        .when(was & ~f.col(_CHANGED), none)
        .when(f.col(_CHANGED) & (f.col(_PLACE) == 1), f.concat(f.array(f.lit(DROP)), adds))
        .otherwise(adds)
    )
    return states.withColumn(OP, f.explode(ops.cast("array<tinyint>"))).select(
        *columns,
        *map(quote, work.dropped),
        f.col(_FROM).alias(VALID_FROM),
        f.when(closes, f.greatest(_FROM, _TO)).alias(VALID_TO),  # clocks may have gone back
        ((f.col(OP) == DROP) | ~closes).alias(IS_CURRENT),  # what goes is found by it
        OP,
    )

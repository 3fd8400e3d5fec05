"""Fold a window to its net changes where each key is one row, in every version of it.

In: the feed of a window, and its files. Out: what `fold_net` gives, or None where that is not worth it. The
first thing that went of a key was there before, the last that came is there now. Which ones these are is told by
the keys that changed more than once, or by an update that changes nothing, so no row is moved. Spark would bring
all keys together to find these, which costs it as much as to read the window; here it takes a third, in the
memory of a few of the files and of the rows of these keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from mirrorlib.delta.actions import ChangeFile
from mirrorlib.delta.address import FeedTable
from mirrorlib.delta.columns import Columns
from mirrorlib.delta.commits import Commits
from mirrorlib.delta.sessions import ARROW_FRAMES, side_by_side, spark_generation
from mirrorlib.errors import StoreError
from mirrorlib.feed import net
from mirrorlib.feed.files.direct import change_files, columns_of_window, read_file, to_frame
from mirrorlib.feed.owners import stays_one_row
from mirrorlib.feed.window import Window
from mirrorlib.identifiers import quote
from mirrorlib.landing.types import INSTANT
from mirrorlib.landing.values import equal_values

_CAME = net.ORDER[net.POST]  # of what is added, the first
_BITS = 2  # that say what a row tells, see `net.ORDER`; a place is a version and these
_KINDS = (1 << _BITS) - 1
_NOWHERE = -1  # the place of what an update that changes nothing took and gave
_FIRST, _LAST, _PLACE, _ROW = "_mirror_first", "_mirror_last", "_mirror_place", "_mirror_row"
_AT, _WHEN, _KEY = "_mirror_at", "_mirror_when", "_mirror_key"
_MOST_ROWS = 4_000_000  # whose keys are grouped in this process
_MOST_VALUES = 32_000_000  # of the rows that are read a second time: files that compress well are many times their size
_MOST_READ = 256 << 20  # bytes of files: each is read here
_MOST_KEPT = 256 << 20  # bytes of rows that are put in order
_MOST_KNOWN = 32 << 20  # bytes of what is known of keys, which travels to every task
_AT_ONCE = 4  # files
_UNTOLD = "the files alone do not tell what happened to each key"


def fold_unique_keys(
    frame: DataFrame, table: FeedTable, window: Window, keys: Sequence[str]
) -> DataFrame | None:
    """Fold the feed of a window to its net changes by keys as the table spells them; these are looked through now."""
    stated, columns = window.rows, columns_of_window(window)
    if stated is None or stated > _MOST_ROWS or stated * len(columns) > _MOST_VALUES:
        return None
    files = change_files(table, window) if keys and spark_generation() >= ARROW_FRAMES else None
    if files is None:
        return None
    if not stays_one_row(table.commits, window.after, max(window.until, 0), tuple(keys)):
        return None
    repeated = find_repeated(table.commits, files, columns, keys)
    if repeated is None or repeated.nbytes > _MOST_KNOWN:
        return None
    if not repeated:
        return frame
    times = table.commits.fed_at(window.after + 1, window.until)
    last = pc.shift_right(repeated.column(_LAST), _BITS)
    places = pc.index_in(last, value_set=pa.array(times, pa.int64())).combine_chunks()
    when = pa.array(times.values(), INSTANT).take(places)
    return _ends_of(frame, repeated.append_column(_WHEN, when), keys)


def _ends_of(frame: DataFrame, repeated: pa.Table, keys: Sequence[str]) -> DataFrame:
    """Keep the ends of the keys that changed more than once, and all changes of the others."""
    names = [f"{_KEY}{place}" for place in range(len(keys))]
    schema = t.StructType()
    for name, key in zip(names, keys, strict=True):
        schema.add(name, frame.schema[key].dataType)
    schema.add(_FIRST, t.LongType()).add(_LAST, t.LongType()).add(_WHEN, t.TimestampType())
    repeated = repeated.rename_columns(schema.names)  # the table may have columns of its own names
    known = to_frame(frame.sparkSession, repeated, schema)
    # A key that is never NULL is found in half the time by equality alone.
    same = [
        f.col(quote(key)).eqNullSafe(f.col(name))
        if repeated.column(name).null_count
        else f.col(quote(key)) == f.col(name)
        for key, name in zip(keys, names, strict=True)
    ]
    place = f.shiftleft(net.VERSION, _BITS).bitwiseOR(net.place_of_kind())
    rows = frame.withColumn(_AT, place).join(f.broadcast(known), same, "left")
    is_known = f.col(_FIRST).isNotNull()
    kinds = (f.col(one).bitwiseAND(_KINDS) for one in (_AT, _FIRST, _LAST))
    went, first_went, last_went = (one < _CAME for one in kinds)
    before = (f.col(_AT) == f.col(_FIRST)) & went
    now = (f.col(_AT) == f.col(_LAST)) & ~went
    image = f.when(went, net.PRE).otherwise(net.POST)
    alone = f.when(went, net.DELETE).otherwise(net.INSERT)
    kind = f.when(first_went & ~last_went, image).otherwise(alone)
    version = f.shiftright(_LAST, _BITS)
    return rows.where(~is_known | before | now).select(
        *map(quote, net.columns_of(frame)),
        f.when(is_known, kind).otherwise(f.col(net.KIND)).alias(net.KIND),
        f.when(is_known, version).otherwise(f.col(net.VERSION)).alias(net.VERSION),
        f.coalesce(_WHEN, net.TIME).alias(net.TIME),
    )


def find_repeated(
    commits: Commits, files: Sequence[ChangeFile], columns: Columns, keys: Sequence[str]
) -> pa.Table | None:
    """Find the keys whose changes are not their net changes as they are, and the places of their ends.

    Each key is one row of every version. None where that is not told by the files alone.
    """
    narrow = tuple(one for one in columns if one.name in keys)
    # Spark knows one NaN, and one zero.
    floating = any(pa.types.is_floating(one.type) for one in narrow)
    if floating or sum(file.size for file in files) > _MOST_READ:
        return None
    try:
        things = _read(commits, files, narrow, _things)
        counted = things.group_by(list(keys)).aggregate([(_PLACE, "count")])
        several = counted.filter(pc.greater(counted.column(f"{_PLACE}_count"), 1)).select(keys)
        rows = _read(commits, files, columns, partial(_suspects, several=several))
        return None if rows.nbytes > _MOST_KEPT else _ends(rows, keys)
    except (StoreError, pa.ArrowException):
        return None


def _read(
    commits: Commits, files: Sequence[ChangeFile], columns: Columns, keep: Callable[[pa.Table], Any]
) -> pa.Table:
    """Read files, and the place of each change, and keep some rows; raises `pa.ArrowInvalid` where one is not told."""

    def read_one(file: ChangeFile) -> pa.Table:
        with commits.store.open_file(file.path) as source:
            rows = read_file(source, file, columns)
        if rows is None:
            raise pa.ArrowInvalid(_UNTOLD)
        rows = rows.combine_chunks()
        within = pc.index_in(rows.column(net.KIND), value_set=pa.array(net.ORDER))
        if within.null_count:
            raise pa.ArrowInvalid(_UNTOLD)
        rows = rows.append_column(_PLACE, pc.add(within.cast(pa.int64()), file.version << _BITS))
        return rows.filter(keep(rows)) if len(rows) else rows

    return pa.concat_tables(side_by_side(read_one, files, _AT_ONCE))


def _things(rows: pa.Table) -> pa.ChunkedArray:
    """Mark one row for each thing that happened; raises where some update's images do not lie side by side."""
    before = pc.equal(rows.column(net.KIND), net.PRE)
    if pc.sum(before, min_count=0) != pc.sum(_pairs(rows), min_count=0):
        raise pa.ArrowInvalid(_UNTOLD)
    return pc.invert(before)


def _pairs(rows: pa.Table) -> pa.ChunkedArray:
    """Mark the rows before an update that are followed by the row after it, and equal it in all columns."""
    one, next_one = rows.slice(0, max(len(rows) - 1, 0)), rows.slice(1)
    before, after = one.column(net.KIND), next_one.column(net.KIND)
    sides = pc.and_(pc.equal(before, net.PRE), pc.equal(after, net.POST))
    names = [name for name in rows.column_names if name not in (net.KIND, _PLACE)]
    return reduce(pc.and_, (equal_values(one.column(c), next_one.column(c)) for c in names), sides)


def _suspects(rows: pa.Table, several: pa.Table) -> pa.ChunkedArray:
    """Mark the rows of keys that may be repeated in several versions, and of updates that change nothing."""
    keys = several.column_names
    found = (pc.is_in(rows.column(key), value_set=several.column(key)) for key in keys)
    again = reduce(pc.and_, found)
    same, none = _pairs(rows).chunks, pa.array([False])
    before, after = pa.chunked_array([*same, none]), pa.chunked_array([none, *same])
    return pc.or_(again, pc.or_(before, after))


def _ends(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Give the places of the first and the last thing that happened to each key, where these are not its net change."""
    rows = rows.sort_by(_PLACE).append_column(_ROW, pa.array(range(len(rows)), pa.int64()))
    ends = rows.group_by(list(keys)).aggregate([(_ROW, "min"), (_ROW, "max")])
    firsts, lasts = (rows.take(ends.column(f"{_ROW}_{end}")) for end in ("min", "max"))
    first, last = firsts.column(_PLACE), lasts.column(_PLACE)
    began, ended = (pc.bit_wise_and(place, _KINDS) for place in (first, last))
    values = [name for name in rows.column_names if name not in (*keys, net.KIND, _PLACE, _ROW)]
    equal = (equal_values(firsts.column(name), lasts.column(name)) for name in values)
    there = pc.and_(pc.less(began, _CAME), pc.greater_equal(ended, _CAME))
    nothing = reduce(pc.and_, equal, there)
    # One update, one insert or one delete is net as it is.
    update = pc.and_(pc.equal(began, net.ORDER[net.PRE]), pc.equal(ended, net.ORDER[net.POST]))
    version = pc.equal(pc.shift_right(first, _BITS), pc.shift_right(last, _BITS))
    is_net = pc.or_(pc.equal(first, last), pc.and_(version, update))
    found = firsts.select(keys)
    for name, place in ((_FIRST, first), (_LAST, last)):
        found = found.append_column(name, pc.if_else(nothing, _NOWHERE, place))
    return found.filter(pc.or_(nothing, pc.invert(is_net)))

"""Fold a window to its net changes where each key is one row, in every version of it.

In: the feed of a window, and its files. Out: what `fold_net` gives, or None where that is not worth it. Of a key to
which one thing happened, that is its net change, unless it is an update that changes nothing: so only the rows of the
other keys are brought together, which costs Spark as much as to read them. These keys are found here, in the memory
of a few of the files and of the keys of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from mirrorlib.delta.actions import ChangeFile
from mirrorlib.delta.address import FeedTable
from mirrorlib.delta.columns import Columns
from mirrorlib.delta.commits import Commits
from mirrorlib.delta.sessions import ARROW_FRAMES, spark_generation
from mirrorlib.errors import StoreError
from mirrorlib.feed import net
from mirrorlib.feed.files.direct import change_files, columns_of_window, read_file, to_frame
from mirrorlib.feed.owners import stays_one_row
from mirrorlib.feed.window import Window
from mirrorlib.identifiers import quote

_KEY = "_mirror_key"
_MOST_ROWS = 4_000_000  # whose keys are grouped in this process
# Of the rows that are read: files that compress well are many times their size.
_MOST_VALUES = 32_000_000
_MOST_READ = 256 << 20  # bytes of files: each is read here
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
    named = list(zip(repeated.column_names, keys, strict=True))
    schema = t.StructType([t.StructField(name, frame.schema[key].dataType) for name, key in named])
    known = f.broadcast(to_frame(frame.sparkSession, repeated, schema))
    # A key that is never NULL is found in half the time by equality alone.
    same = [
        f.col(quote(key)).eqNullSafe(f.col(name))
        if repeated.column(name).null_count
        else f.col(quote(key)) == f.col(name)
        for name, key in named
    ]
    folded = net.fold_net(frame.join(known, same, "left_semi"), keys, table.shown)
    return frame.join(known, same, "left_anti").unionByName(folded)


def find_repeated(
    commits: Commits, files: Sequence[ChangeFile], columns: Columns, keys: Sequence[str]
) -> pa.Table | None:
    """Find the keys whose changes are not their net changes as they are.

    Each key is one row of every version. None where that is not told by the files alone.
    """
    narrow = tuple(one for one in columns if one.name in keys)
    # Spark knows one NaN, and one zero.
    floating = any(pa.types.is_floating(one.type) for one in narrow)
    if floating or sum(file.size for file in files) > _MOST_READ:
        return None
    names = [f"{_KEY}{place}" for place in range(len(keys))]

    def read_one(file: ChangeFile) -> pa.Table:
        with commits.store.open_file(file.path) as source:
            rows = read_file(source, file, columns if file.images else narrow)
        if rows is None:
            raise pa.ArrowInvalid(_UNTOLD)
        rows = rows.combine_chunks()
        touched = rows.filter(_things(rows, keys)) if len(rows) else rows
        return touched.select(keys).rename_columns(names)

    try:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            touched = pa.concat_tables(pool.map(read_one, files))
        counted = touched.group_by(names).aggregate([([], "count_all")])
        return counted.filter(pc.greater(counted.column("count_all"), 1)).select(names)
    except (StoreError, pa.ArrowException):
        return None


def _things(rows: pa.Table, keys: Sequence[str]) -> pa.ChunkedArray:
    """Mark one row for each thing that happened, and two for an update that changes nothing.

    Raises `pa.ArrowInvalid` where some update's images do not lie side by side.
    """
    one, following = rows.slice(0, len(rows) - 1), rows.slice(1)
    updates = pc.and_(
        pc.equal(one.column(net.KIND), net.PRE), pc.equal(following.column(net.KIND), net.POST)
    )
    others = [name for name in rows.column_names if name not in (net.KIND, *keys)]
    for name in keys:
        updates = pc.and_(updates, _equal(one.column(name), following.column(name)))
    before = pc.equal(rows.column(net.KIND), net.PRE)
    if pc.sum(before, min_count=0) != pc.sum(updates, min_count=0):
        raise pa.ArrowInvalid(_UNTOLD)
    equal = (_equal(one.column(name), following.column(name)) for name in others)
    nothing = reduce(pc.and_, equal, updates)
    return pc.or_(pc.invert(before), pa.chunked_array([*nothing.chunks, pa.array([False])]))


def _equal(one: pa.ChunkedArray, other: pa.ChunkedArray) -> pa.ChunkedArray:
    """Compare values as Spark groups them: NULL is NULL, and NaN is NaN."""
    same = pc.equal(one, other)
    if pa.types.is_floating(one.type):
        same = pc.or_(same, pc.and_(pc.is_nan(one), pc.is_nan(other)))
    return pc.coalesce(same, pc.and_(pc.is_null(one), pc.is_null(other)))

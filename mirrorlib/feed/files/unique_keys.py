"""Fold a window to its net changes where each key is one row, in every version of it.

In: the feed of a window, and its files. Out: what `fold_net` gives, or None where that is not worth it. The
first thing that went of a key was there before, the last that came is there now; which ones these are is told
by the keys that changed more than once, so no row is moved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlib.delta.columns import to_columns
from mirrorlib.delta.sessions import ARROW_FRAMES, spark_generation
from mirrorlib.feed.files.direct import change_files
from mirrorlib.feed.files.repeated_keys import BITS, FIRST, LAST, ORDER, find_repeated
from mirrorlib.feed.files.small_window import frame_of
from mirrorlib.feed.net import (
    DELETE,
    FEED_COLUMNS,
    INSERT,
    KIND,
    POST,
    PRE,
    TIME,
    VERSION,
    columns_of,
)
from mirrorlib.feed.owners import stays_one_row
from mirrorlib.identifiers import quote
from mirrorlib.landing.types import INSTANT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from pyspark.sql import Column, DataFrame

    from mirrorlib.delta.address import FeedTable
    from mirrorlib.feed.window import Window

_MOST_ROWS = 4_000_000  # whose keys are grouped in this process
_MOST_BYTES = 32 << 20  # of what is known of keys, which travels to every task
_AT, _WHEN, _KEY = "_mirror_at", "_mirror_when", "_mirror_key"


def fold_unique_keys(
    frame: DataFrame, table: FeedTable, window: Window, keys: Sequence[str]
) -> DataFrame | None:
    """Fold a window to its net changes; which keys changed more than once is found now.

    Args:
        frame: the feed of the window.
        table: the table.
        window: of its versions.
        keys: key columns, as the table spells them.

    """
    repeated = _repeated(frame, table, window, keys)
    if repeated is None:
        return None
    if not repeated:
        return frame
    times = table.commits.fed_at(window.after + 1, window.until)
    return _ends_of(frame, _dated(repeated, times), keys)


def _repeated(
    frame: DataFrame, table: FeedTable, window: Window, keys: Sequence[str]
) -> pa.Table | None:
    """Find keys whose changes are not their net changes; None where the files do not tell, or it is not worth it."""
    few = window.rows is not None and window.rows <= _MOST_ROWS
    files = change_files(table, window) if few and keys else None
    if files is None or spark_generation() < ARROW_FRAMES:
        return None
    if not stays_one_row(table.commits, window.after, max(window.until, 0), tuple(keys)):
        return None
    fields = [one for one in frame.schema.fields if one.name not in FEED_COLUMNS]
    columns = to_columns((one.name, one.dataType.simpleString()) for one in fields)
    repeated = find_repeated(table.commits, files, columns, keys)
    return None if repeated is None or repeated.nbytes > _MOST_BYTES else repeated


def _dated(repeated: pa.Table, times: Mapping[int, datetime]) -> pa.Table:
    """Say of each key when it changed last."""
    last = pc.shift_right(repeated.column(LAST), BITS)
    places = pc.index_in(last, value_set=pa.array(times, pa.int64())).combine_chunks()
    return repeated.append_column(_WHEN, pa.array(times.values(), INSTANT).take(places))


def _ends_of(frame: DataFrame, repeated: pa.Table, keys: Sequence[str]) -> DataFrame:
    """Keep the ends of the keys that changed more than once, and all changes of the others."""
    from pyspark.sql import functions as f
    from pyspark.sql import types as t

    names = [f"{_KEY}{place}" for place in range(len(keys))]
    schema = t.StructType(
        [
            *(t.StructField(n, frame.schema[k].dataType) for n, k in zip(names, keys, strict=True)),
            t.StructField(FIRST, t.LongType()),
            t.StructField(LAST, t.LongType()),
            t.StructField(_WHEN, t.TimestampType()),
        ]
    )
    repeated = repeated.rename_columns(schema.names)  # the table may have columns of its own names
    known = frame_of(frame.sparkSession, repeated, schema)
    # A key that is never NULL is found in half the time by equality alone.
    same = [
        f.col(quote(key)).eqNullSafe(f.col(name))
        if repeated.column(name).null_count
        else f.col(quote(key)) == f.col(name)
        for key, name in zip(keys, names, strict=True)
    ]
    rows = frame.withColumn(_AT, _place()).join(f.broadcast(known), same, "left")
    is_known = f.col(FIRST).isNotNull()
    before = (f.col(_AT) == f.col(FIRST)) & _went(_AT)
    now = (f.col(_AT) == f.col(LAST)) & ~_went(_AT)
    version = f.shiftright(LAST, BITS)
    return rows.where(~is_known | before | now).select(
        *map(quote, columns_of(frame)),
        f.when(is_known, _net_kind()).otherwise(f.col(KIND)).alias(KIND),
        f.when(is_known, version).otherwise(f.col(VERSION)).alias(VERSION),
        f.coalesce(_WHEN, TIME).alias(TIME),
    )


def _place() -> Column:
    """Put a change in order: by version, and what went before what came."""
    from pyspark.sql import functions as f

    within = f.lit(ORDER[POST])
    for kind in (INSERT, PRE, DELETE):
        within = f.when(f.col(KIND) == kind, ORDER[kind]).otherwise(within)
    return f.shiftleft(VERSION, BITS).bitwiseOR(within)


def _went(place: str) -> Column:
    from pyspark.sql import functions as f

    return f.col(place).bitwiseAND((1 << BITS) - 1) < ORDER[INSERT]


def _net_kind() -> Column:
    from pyspark.sql import functions as f

    image, alone = (
        f.when(_went(_AT), went).otherwise(came) for went, came in ((PRE, POST), (DELETE, INSERT))
    )
    return f.when(_went(FIRST) & ~_went(LAST), image).otherwise(alone)

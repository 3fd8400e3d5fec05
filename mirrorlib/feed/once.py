"""Fold a window to its net changes where each key is one row, in every version of it.

In: the feed of a window, as files that Spark reads as often as it likes. Out: what `fold_net` gives. The
first thing that went of a key was there before, the last that came is there now; which ones these are is
told by key and version alone, so most rows need not be brought together. An update is compared by the
columns that are cheap to read; where these do not tell its images apart, all columns do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.feed.net import (
    DELETE,
    FEED_COLUMNS,
    INSERT,
    KIND,
    POST,
    PRE,
    TIME,
    VERSION,
    fold_net,
)
from mirrorlib.identifiers import fold_name, quote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

# What is known of keys that were touched more than once travels to every task: some 100 bytes a key.
_MOST_KEYS = 3_000_000  # values of fixed width, one for each key column of a row
_MOST_TEXTS = 300_000
_LONG = frozenset({"string", "binary"})
_ORDER = {DELETE: 0, PRE: 1, INSERT: 2, POST: 3}  # within a version; what came is 2 or more
_BITS = 2  # that say which of them
_OURS = "_mirror_"
_AT, _FIRST, _LAST, _WHEN, _ALIKE, _KEY = (
    f"{_OURS}{name}" for name in ("at", "first", "last", "when", "alike", "key")
)
# A change is known by one number, as the fewer a key has, the less there is to bring together: its place, and
# some bits of a hash of its row. Rows that look alike by these are compared in full.
_LOOKS = 30  # bits


def can_fold(schema: StructType, keys: Sequence[str], rows: int | None) -> bool:
    """Say whether a window of so many changed rows is worth it, and its keys fit into memory."""
    if not keys or rows is None or any(fold_name(name).startswith(_OURS) for name in schema.names):
        return False
    named = any(_is_long(field.dataType) for field in schema.fields if field.name in keys)
    most = _MOST_TEXTS if named else _MOST_KEYS
    return bool(_cheap(schema, keys)) and rows * len(keys) <= most


def _is_long(kind: DataType) -> bool:
    return kind.simpleString() in _LONG


def _cheap(schema: StructType, keys: Sequence[str]) -> list[str]:
    """Name the columns of fixed width, beside the keys."""
    apart = (*keys, *FEED_COLUMNS)
    return [
        one.name for one in schema.fields if one.name not in apart and not _is_long(one.dataType)
    ]


def fold_once(frame: DataFrame, keys: Sequence[str], table: str) -> DataFrame:
    """Fold a window to its net changes; no row of a key that was touched once is moved.

    Args:
        frame: the feed of a window, of flat columns; each key is one row in every version of it.
        keys: key columns.
        table: the table's name, for errors.

    """
    from pyspark.sql import functions as f

    columns = [quote(name) for name in frame.columns if name not in FEED_COLUMNS]
    rows = frame.withColumn(_AT, _place())
    names = [f"{_KEY}{place}" for place in range(len(keys))]
    touched = _touched(rows, keys).withColumnsRenamed(dict(zip(keys, names, strict=True)))
    same = [f.col(quote(k)).eqNullSafe(f.col(n)) for k, n in zip(keys, names, strict=True)]
    told = rows.join(f.broadcast(touched), same, "left").where(f.col(_ALIKE).isNull() | _is_net())
    known = f.col(_ALIKE).isNotNull()
    plain = told.select(
        *columns,
        f.when(known, _net_kind()).otherwise(f.col(KIND)).alias(KIND),
        f.when(known, _version_of(_LAST)).otherwise(f.col(VERSION)).alias(VERSION),
        f.coalesce(_WHEN, TIME).alias(TIME),
    )
    # It asks for all that is known of a key, so that Spark finds it once for both.
    alike = touched.where(f.col(_ALIKE) & f.col(_WHEN).isNotNull()).select(*names)
    others = rows.join(f.broadcast(alike), same).select(*columns, *FEED_COLUMNS)
    return plain.unionByName(fold_net(others, keys, table))


def _place() -> Column:
    """Put a change in order: by version, and what went before what came."""
    from pyspark.sql import functions as f

    within = f.lit(_ORDER[POST])
    for kind in (INSERT, PRE, DELETE):
        within = f.when(f.col(KIND) == kind, _ORDER[kind]).otherwise(within)
    return f.shiftleft(VERSION, _BITS).bitwiseOR(within)


def _touched(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Keep the keys whose changes are not their net changes as they are; `_ALIKE` where that is still open."""
    from pyspark.sql import functions as f

    looks = f.shiftrightunsigned(
        f.xxhash64(*map(quote, _cheap(rows.drop(_AT).schema, keys))), 64 - _LOOKS
    )
    number = f.shiftleft(_AT, _LOOKS).bitwiseOR(looks)
    ends = rows.select(*map(quote, keys), number.alias(_AT), TIME).groupBy(*map(quote, keys))
    found = ends.agg(
        f.min(_AT).alias(_FIRST), f.max(_AT).alias(_LAST), f.max(TIME).alias(_WHEN)
    ).select(
        *map(quote, keys),
        f.shiftright(_FIRST, _LOOKS).alias(_FIRST),
        f.shiftright(_LAST, _LOOKS).alias(_LAST),
        _WHEN,
        (_looks_of(_FIRST) == _looks_of(_LAST)).alias(_ALIKE),
    )
    alike = _is_update() & f.col(_ALIKE)
    within = _version_of(_FIRST) == _version_of(_LAST)
    images = (_kind_of(_FIRST) == _ORDER[PRE]) & (_kind_of(_LAST) == _ORDER[POST])
    alone = (f.col(_FIRST) == f.col(_LAST)) & _kind_of(_FIRST).isin(_ORDER[DELETE], _ORDER[INSERT])
    as_they_are = within & (images | alone) & ~alike
    return found.where(~as_they_are).withColumn(_ALIKE, alike)


def _looks_of(number: str) -> Column:
    from pyspark.sql import functions as f

    return f.col(number).bitwiseAND((1 << _LOOKS) - 1)


def _version_of(place: str) -> Column:
    from pyspark.sql import functions as f

    return f.shiftright(place, _BITS)


def _kind_of(place: str) -> Column:
    from pyspark.sql import functions as f

    return f.col(place).bitwiseAND((1 << _BITS) - 1)


def _went(place: str) -> Column:
    return _kind_of(place) < _ORDER[INSERT]


def _is_update() -> Column:
    return _went(_FIRST) & ~_went(_LAST)


def _is_net() -> Column:
    """Say whether a row is what was there before, or what is there now; not where that may be the same."""
    from pyspark.sql import functions as f

    before = (f.col(_AT) == f.col(_FIRST)) & _went(_FIRST)
    now = (f.col(_AT) == f.col(_LAST)) & ~_went(_LAST)
    return ~f.col(_ALIKE) & (before | now)


def _net_kind() -> Column:
    from pyspark.sql import functions as f

    image = f.when(_went(_AT), PRE).otherwise(POST)
    return f.when(_is_update(), image).otherwise(f.when(_went(_AT), DELETE).otherwise(INSERT))

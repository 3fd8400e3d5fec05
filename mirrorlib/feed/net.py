"""Fold a change feed to what is different between its ends, whatever happened in between.

In: feed rows, in any order. Out: feed rows again, at most one change a key where keys are unique.
A state before plus what a feed adds, minus what it removes, is the state after it: so rows that are
added as often as removed cancel out, and what is left of a key on both sides is an update. That is
right for keys that occur several times, for tables without keys (a difference of multisets), and
for a key that is deleted and inserted again; an update that changes nothing leaves nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.errors import FeedError
from mirrorlib.landing.names import quote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

KIND, VERSION, TIME = "_change_type", "_commit_version", "_commit_timestamp"
FEED_COLUMNS = (KIND, VERSION, TIME)
INSERT, DELETE, PRE, POST = "insert", "delete", "update_preimage", "update_postimage"
_SIGN, _TIMES, _PLACE, _PAIRS = "_mirror_sign", "_mirror_times", "_mirror_place", "_mirror_pairs"


def fold_net(frame: DataFrame, keys: Sequence[str], table: str) -> DataFrame:
    """Fold a window to its net changes; one shuffle by key.

    Args:
        frame: the feed of a window.
        keys: key columns; without them nothing can be told to be an update.
        table: the table's name, for errors.

    Raises:
        FeedError: a column is of a type that cannot be compared.

    """
    from pyspark.sql import functions as f

    columns = [name for name in frame.columns if name not in FEED_COLUMNS]
    _check_comparable(frame, columns, table)
    by = [f.col(quote(name)) for name in keys or columns]
    counted = (
        frame.repartition(*by)
        .groupBy(*[quote(name) for name in columns])
        .agg(
            f.sum(_sign()).alias(_SIGN),
            f.max(VERSION).alias(VERSION),
            f.max(TIME).alias(TIME),
        )
    )
    if keys:  # the last commit that touched the key, though the rows of it may have cancelled out
        counted = _newest_of_key(counted, keys)
    left = counted.where(f.col(_SIGN) != 0)
    copies = f.explode(f.sequence(f.lit(1), f.abs(_SIGN)))
    rows = left.withColumn(_TIMES, copies).withColumn(_SIGN, f.signum(_SIGN))
    return _told(rows, columns, keys, within=())


def pair_updates(frame: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Tell deletes and inserts of one key in one commit as what they are: updates."""
    from pyspark.sql import functions as f

    columns = [name for name in frame.columns if name not in FEED_COLUMNS]
    images = frame.where(f.col(KIND).isin(PRE, POST))
    others = frame.where(~f.col(KIND).isin(PRE, POST))
    rows = others.withColumn(_SIGN, _sign()).withColumn(_TIMES, f.lit(1))
    return images.select(*map(quote, columns), *FEED_COLUMNS).unionByName(
        _told(rows, columns, keys, within=(VERSION,))
    )


def _told(
    rows: DataFrame, columns: Sequence[str], keys: Sequence[str], *, within: Sequence[str]
) -> DataFrame:
    """Name each row's change: a key's n-th removal and its n-th addition are the two images of one update."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    added = f.col(_SIGN) > 0
    plain = f.when(added, INSERT).otherwise(DELETE)
    if keys:
        key = [*within, *map(quote, keys)]
        side = Window.partitionBy(*key, _SIGN).orderBy(
            VERSION, f.xxhash64(*map(quote, columns)), _TIMES
        )
        both = Window.partitionBy(*key)
        adds = f.sum(f.when(added, 1).otherwise(0)).over(both)
        removes = f.sum(f.when(added, 0).otherwise(1)).over(both)
        rows = rows.withColumns({_PLACE: f.row_number().over(side), _PAIRS: f.least(adds, removes)})
        image = f.when(added, POST).otherwise(PRE)
        plain = f.when(f.col(_PLACE) <= f.col(_PAIRS), image).otherwise(plain)
    return rows.select(*map(quote, columns), plain.alias(KIND), VERSION, TIME)


def _newest_of_key(counted: DataFrame, keys: Sequence[str]) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    key = Window.partitionBy(*map(quote, keys))
    return counted.withColumns({name: f.max(name).over(key) for name in (VERSION, TIME)})


def _sign() -> Column:
    from pyspark.sql import functions as f

    return f.when(f.col(KIND).isin(INSERT, POST), 1).otherwise(-1)


def _check_comparable(frame: DataFrame, columns: Sequence[str], table: str) -> None:
    """Refuse what Spark cannot group by."""
    for name in columns:
        kind = frame.schema[name].dataType.simpleString()
        if "map<" in kind or "variant" in kind:
            msg = "a column of this type cannot be compared, so net changes cannot be told"
            raise FeedError(msg, table=table, column=name, found=kind.partition("<")[0])

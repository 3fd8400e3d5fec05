"""Fold a change feed to what is different between its ends, whatever happened in between.

In: feed rows, in any order. Out: feed rows again, at most one change a key where keys are unique.
A state before plus what a feed adds, minus what it removes, is the state after it: so rows that are
added as often as removed cancel out, and what is left of a key on both sides is an update. That is
right for keys that occur several times, for tables without keys (a difference of multisets), and
for a key that is deleted and inserted again; an update that changes nothing leaves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirrorlib.errors import FeedError
from mirrorlib.identifiers import fold_name, quote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

KIND, VERSION, TIME = "_change_type", "_commit_version", "_commit_timestamp"
FEED_COLUMNS = (KIND, VERSION, TIME)
_INCOMPARABLE = {"map", "variant", "geography", "geometry"}
INSERT, DELETE, PRE, POST = "insert", "delete", "update_preimage", "update_postimage"


@dataclass(frozen=True, slots=True, kw_only=True)
class Helpers:
    """Names of columns that are only there while changes are told, and are no column of the table."""

    sign: str
    times: str
    place: str
    pairs: str

    @staticmethod
    def beside(columns: Sequence[str]) -> Helpers:
        """Choose names that no column has."""
        taken = [fold_name(name) for name in columns]
        prefix = "_mirror_"
        while any(name.startswith(prefix) for name in taken):
            prefix += "_"
        return Helpers(
            sign=f"{prefix}sign",
            times=f"{prefix}times",
            place=f"{prefix}place",
            pairs=f"{prefix}pairs",
        )


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
    helpers = Helpers.beside(columns)
    _check_comparable(frame, columns, table, "so net changes cannot be told")
    by = [f.col(quote(name)) for name in keys or columns]
    counted = (
        frame.repartition(*by)
        .groupBy(*[quote(name) for name in columns])
        .agg(
            f.sum(_sign()).alias(helpers.sign),
            f.max(VERSION).alias(VERSION),
            f.max(TIME).alias(TIME),
        )
    )
    if keys:  # the last commit that touched the key, though the rows of it may have cancelled out
        counted = _newest_of_key(counted, keys)
    left = counted.where(f.col(helpers.sign) != 0)
    copies = f.explode(f.sequence(f.lit(1), f.abs(helpers.sign)))
    rows = left.withColumn(helpers.times, copies)
    rows = rows.withColumn(helpers.sign, f.signum(helpers.sign))
    return _told(rows, columns, keys, helpers, within=())


def pair_updates(frame: DataFrame, keys: Sequence[str], table: str) -> DataFrame:
    """Tell deletes and inserts of one key in one commit as what they are: updates.

    Raises:
        FeedError: a key is of a type that cannot be compared.

    """
    from pyspark.sql import functions as f

    _check_comparable(frame, keys, table, "so it is no key")
    columns = [name for name in frame.columns if name not in FEED_COLUMNS]
    helpers = Helpers.beside(columns)
    images = frame.where(f.col(KIND).isin(PRE, POST))
    others = frame.where(~f.col(KIND).isin(PRE, POST))
    rows = others.withColumn(helpers.sign, _sign()).withColumn(helpers.times, f.lit(1))
    return images.select(*map(quote, columns), *FEED_COLUMNS).unionByName(
        _told(rows, columns, keys, helpers, within=(VERSION,))
    )


def _told(
    rows: DataFrame,
    columns: Sequence[str],
    keys: Sequence[str],
    helpers: Helpers,
    *,
    within: Sequence[str],
) -> DataFrame:
    """Name each row's change: a key's n-th removal and its n-th addition are the two images of one update."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    added = f.col(helpers.sign) > 0
    plain = f.when(added, INSERT).otherwise(DELETE)
    if keys:
        key = [*within, *map(quote, keys)]
        order = f.xxhash64(*orderable(rows, columns))
        side = Window.partitionBy(*key, helpers.sign).orderBy(VERSION, order, helpers.times)
        both = Window.partitionBy(*key)
        adds = f.sum(f.when(added, 1).otherwise(0)).over(both)
        removes = f.sum(f.when(added, 0).otherwise(1)).over(both)
        rows = rows.withColumns(
            {helpers.place: f.row_number().over(side), helpers.pairs: f.least(adds, removes)}
        )
        image = f.when(added, POST).otherwise(PRE)
        paired = f.col(helpers.place) <= f.col(helpers.pairs)
        plain = f.when(paired, image).otherwise(plain)
    return rows.select(*map(quote, columns), plain.alias(KIND), VERSION, TIME)


def orderable(rows: DataFrame, columns: Sequence[str]) -> list[Column]:
    """Give columns as values that can be hashed and put in order: maps and variants as what they look like."""
    from pyspark.sql import functions as f

    return [
        f.col(quote(name))
        if is_comparable(rows.schema[name].dataType)
        else f.to_json(f.struct(quote(name)))
        for name in columns
    ]


def is_comparable(kind: DataType) -> bool:
    """Say whether Spark can group, hash and order by a type: by no map, variant or place, however deep inside."""
    from pyspark.sql.types import ArrayType, StructType

    if isinstance(kind, StructType):
        return all(is_comparable(field.dataType) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return is_comparable(kind.elementType)
    return kind.typeName().partition("(")[0] not in _INCOMPARABLE


def _newest_of_key(counted: DataFrame, keys: Sequence[str]) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    key = Window.partitionBy(*map(quote, keys))
    return counted.withColumns({name: f.max(name).over(key) for name in (VERSION, TIME)})


def _sign() -> Column:
    from pyspark.sql import functions as f

    return f.when(f.col(KIND).isin(INSERT, POST), 1).otherwise(-1)


def _check_comparable(frame: DataFrame, columns: Sequence[str], table: str, end: str) -> None:
    """Refuse what Spark cannot group by."""
    for name in columns:
        kind = frame.schema[name].dataType
        if not is_comparable(kind):
            msg = f"a column of this type cannot be compared, {end}"
            found = kind.simpleString().partition("<")[0]
            raise FeedError(msg, table=table, column=name, found=found)

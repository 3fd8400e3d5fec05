"""Resolve a changelog into its current view: one live row for each primary key.

Which one that is: docs/keys.md, "The current view".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from operator import or_

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from mirrorlib.errors import KeysError
from mirrorlib.identifiers import find_name, quote
from mirrorlib.keys.read import require_keys
from mirrorlib.keys.tags import tag_columns
from mirrorlib.keys.value import Keys, named_columns
from mirrorlib.names import as_names

_RANK = "_mirror_rank"
NULL_KEY = "MIRRORLIB_NULL_KEY"


def current_view(df: DataFrame, arrival: str | Sequence[str] = ()) -> DataFrame:
    """Resolve a changelog: one live row for each primary key.

    Filter the result, not the changelog: a filter before that takes the newest row of a key makes an older
    one current. A NULL in a key fails the query when it runs; where each key is one row already, nothing is resolved.

    Args:
        df: a batch with a primary key that is whole; see `key_by`.
        arrival: columns by which rows arrived, such as a file's number and the row in it. They decide where
            the order columns do not.

    Raises:
        KeysLostError: there is no primary key, or a part of it was lost.
        KeysError: neither order columns nor arrival tell which row is newer, or the frame is a stream.

    """
    if df.isStreaming:
        msg = "a stream has no current view until it ends"
        raise KeysError(msg, next_step="Keep one in a table: maintain_current_view.")
    keys = require_keys(df, primary=True)
    if keys.unique:
        return df
    rows = newest_rows(df, keys, order_columns(df, keys, arrival))
    return tag_columns(live_rows(rows, keys), replace(keys, unique=True), "current_view")


def order_columns(df: DataFrame, keys: Keys, arrival: str | Sequence[str]) -> tuple[str, ...]:
    """Return all columns that tell which row of a key is newer."""
    order = tuple(dict.fromkeys((*keys.order_by, *as_names(arrival))))
    if not order:
        msg = "nothing tells which row of a key is newer: rows have no order in Spark"
        step = "Name order columns in key_by, or the columns by which rows arrived."
        raise KeysError(msg, next_step=step)
    return named_columns(df.schema, order, "order columns")


def newest_rows(df: DataFrame, keys: Keys, order: Sequence[str]) -> DataFrame:
    """Keep the newest row of each key, tombstones too."""
    if (taken := find_name(df.columns, _RANK)) is not None:
        msg = "a column has a name that is needed while rows are resolved"
        raise KeysError(msg, column=taken, next_step="Rename it.")
    # The query fails at a NULL in a key: dropping such rows would hide them, keeping them make them one record.
    missing = reduce(or_, [f.col(quote(name)).isNull() for name in keys.primary])
    names = ", ".join(keys.primary)
    message = f"{NULL_KEY}: a primary key ({names}) is NULL. Filter such rows out, or give a key."
    failing = f.raise_error(f.lit(message)).cast("boolean")
    checked = df.where(f.when(missing, failing).otherwise(True))  # noqa: FBT003  # a literal
    newest_first = [f.col(quote(name)).desc_nulls_last() for name in order]
    window = Window.partitionBy(*map(quote, keys.primary)).orderBy(*newest_first)
    ranked = checked.withColumn(_RANK, f.row_number().over(window))
    return ranked.where(f.col(_RANK) == 1).drop(_RANK)


def live_rows(df: DataFrame, keys: Keys) -> DataFrame:
    """Leave out the rows that say that their record is deleted; NULL does not say so."""
    if keys.deleted is None:
        return df
    return df.where(~f.coalesce(f.col(quote(keys.deleted)), f.lit(False)))  # noqa: FBT003  # a literal

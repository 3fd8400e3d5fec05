"""Declare keys: on a changelog as it comes in, again where they were lost, and across what no plan shows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from mirrorlib.errors import KeysError
from mirrorlib.identifiers import fold_name
from mirrorlib.keys.read import keys_of
from mirrorlib.keys.tags import tag_columns
from mirrorlib.keys.value import Keys, check_again, check_keys, left_under

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def key_by(
    df: DataFrame,
    columns: str | Sequence[str],
    *,
    cdc: bool = False,
    deleted: str | None = None,
    order_by: str | Sequence[str] = (),
) -> DataFrame:
    """Declare what the keys of a changelog are, in place of all that were declared before.

    Rows stay as they are and where they are: order, where there is one, holds from here on.

    Args:
        df: a changelog, batch or stream.
        columns: the partition key: rows equal in all of these belong together.
        cdc: they are the primary key, too: the newest row of a key is the record.
        deleted: a Boolean column: true says that the record is gone. Only with *cdc*.
        order_by: what tells which row is newer, the most telling column first; left out, arrival does.
            Only with *cdc*.

    Raises:
        KeysError: a column is missing, named twice or of a type that is not allowed, or parts do not go together.

    """
    keys = check_keys(df.schema, columns, cdc=cdc, deleted=deleted, order_by=order_by)
    return tag_columns(df, keys, "key_by")


def propagate(source: DataFrame | Keys, result: DataFrame) -> DataFrame:
    """Declare on a result the keys of its source, where a plan cannot show that they hold.

    For checkpoints, for what is done inside `foreachBatch`, for a function of which you know that it leaves
    keys alone. Nothing is checked but that the columns are there: whoever calls this vouches for it. In
    `foreachBatch` call `keys_of(stream)` before the stream starts, and give what it said as *source*.

    Args:
        source: the DataFrame before that step, or its keys.
        result: the DataFrame behind it. Key columns that it lacks are lost; without its deletion or order
            columns the primary key is.

    Raises:
        KeysError: a column has a type there that is not allowed.

    """
    keys = source if isinstance(source, Keys) else keys_of(source)
    left = left_under(keys, {name: name for name in result.columns})
    return tag_columns(result, check_again(result.schema, left), "propagate") if left else result


def union_keyed(*frames: DataFrame) -> DataFrame:
    """Put rows of several changelogs together, by the names of their columns, and keep the partition key they share.

    A plain union keeps no keys. This one keeps none either where the frames' partition keys differ. The
    primary key is never kept: call `key_by` on the result, which is the recipe for a backfill.

    Raises:
        KeysError: no frame is given, or a column is not in all of them; or they share a partition key and a column of
            it has several types: a union would cast it, and keys that were different could become one.

    """
    if not frames:
        msg = "there is nothing to put together"
        raise KeysError(msg, next_step="Give at least one DataFrame.")
    names = [{fold_name(name) for name in frame.columns} for frame in frames]
    if missing := set().union(*names) - names[0].intersection(*names):
        msg = "a column is not in all frames that are put together"
        step = "Select the same columns of each, NULL for what one does not have."
        raise KeysError(msg, column=min(missing), next_step=step)
    shared = {(keys.partition, keys.lost) for keys in map(keys_of, frames)}
    partition, lost = shared.pop()
    keeps = bool(partition) and not shared
    for name in partition if keeps else ():
        kinds = dict.fromkeys(frame.schema[name].dataType.simpleString() for frame in frames)
        if len(kinds) > 1:
            msg = "a key column has not the same type in all frames, and a cast could make two keys one"
            step = "Cast it to one type, and declare the keys behind that with key_by."
            raise KeysError(msg, column=name, found=", ".join(kinds), next_step=step)
    rows = reduce(lambda one, other: one.unionByName(other), frames)
    keys = Keys(partition=partition, lost=lost)
    return tag_columns(rows, keys, "union_keyed") if keeps else rows

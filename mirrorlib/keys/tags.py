"""Carry keys through Spark itself: a tag in each key column's metadata, and a marker in the plan.

Spark moves metadata along with a column that is renamed or copied, and leaves it off one that is
computed. So a tag says that a column may still be what it was; the marker, an alias of the DataFrame, says
where in the plan it was. A tag alone counts for nothing: files, schemas and checkpoints carry it on too.
Every declaration has an id of its own, so that tags of different ones are never mixed up.
"""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from mirrorlib.identifiers import quote
from mirrorlib.keys.value import Keys

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField, StructType

TAG = "mirrorlib.key"
MARKER = "mirrorlib_keyed_"  # it shows in Spark's errors about ambiguous columns

# The alias of rows of a table whose stored keys cannot be true any more, so that whoever asks is told why.
STALE = "mirrorlib_stale_keys"

Origin = Literal["key_by", "union_keyed", "propagate", "current_view", "read_table", "read_feed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tagged:
    """A column that may be one of the keys, the name and the type (as Spark prints it) with which it was declared.

    And what declared it: an *id* of no other declaration, the function, and all *keys* by the names of their columns.
    """

    name: str
    was: str
    kind: str
    id: str
    origin: Origin
    keys: Keys


def tag_columns(df: DataFrame, keys: Keys, origin: Origin) -> DataFrame:
    """Declare keys: tag their columns and mark the place in the plan."""
    from pyspark.sql import functions as f

    tag = {"id": uuid.uuid4().hex[:12], "origin": origin, "keys": keys.to_json()}
    roles = set(keys.columns)
    # By `select`: from Spark 4.1 on, `withColumn` sets empty metadata on a Connect server. What the field
    # has already, such as a watermark's delay, is kept.
    columns = []
    for field in df.schema.fields:
        column = f.col(quote(field.name))
        if field.name in roles:
            mine = {**tag, "name": field.name, "type": field.dataType.simpleString()}
            column = column.alias(field.name, metadata={**field.metadata, TAG: mine})
        columns.append(column)
    return df.select(*columns).alias(MARKER + tag["id"])


def read_tags(schema: StructType) -> list[Tagged]:
    """Return all tags of a schema, in the order of its columns."""
    found = []
    for field in schema.fields:
        tag: Any = field.metadata.get(TAG)
        if isinstance(tag, dict):
            with contextlib.suppress(KeyError):  # another version's tag on disk is none
                tagged = partial(Tagged, name=field.name, was=tag["name"], kind=str(tag["type"]))
                if keys := Keys.from_json(tag["keys"]):
                    found.append(tagged(id=tag["id"], origin=tag["origin"], keys=keys))
    return found


def untag(df: DataFrame) -> DataFrame:
    """Take all tags of keys off a DataFrame's columns: the last step before Spark's own writers.

    A tag stands in a column's metadata, which Spark writes into the schema of a table or a file along with the
    column. It says nothing there and is never believed, but it is another one in every run. What mirrorlib writes
    has none. The keys are no longer known after this call, so ask for them before.

    Args:
        df: any DataFrame, batch or stream.

    Returns:
        the same rows and columns; what else the columns say of themselves, such as a comment, is kept.

    """
    fields = df.schema.fields
    if not any(TAG in field.metadata for field in fields):
        return df
    kept = ({word: text for word, text in one.metadata.items() if word != TAG} for one in fields)
    return df.select(*map(_saying, fields, kept))


def bare_columns(frame: DataFrame, columns: Iterable[str]) -> list[Column]:
    """Select columns without what they say of themselves, but for comments: how long a text is may change."""
    schema = frame.schema  # which Connect asks its server for each time, up to Spark 3.5
    fields = [schema[name] for name in columns]
    kept = (
        {word: text for word, text in one.metadata.items() if word == "comment"} for one in fields
    )
    return list(map(_saying, fields, kept))


def _saying(field: StructField, metadata: dict[str, Any]) -> Column:
    """Select a column, which is to say no more of itself than this."""
    from pyspark.sql import functions as f

    # Up to Spark 4.0 no empty metadata takes the place of other; a cast, if only to the same type, does.
    column = f.col(quote(field.name)).cast(field.dataType)
    return column.alias(field.name, metadata=metadata)

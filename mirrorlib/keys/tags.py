"""Carry keys through Spark itself: a tag in each key column's metadata, and a marker in the plan.

Spark moves metadata along with a column that is renamed or copied, and leaves it off one that is
computed. So a tag says that a column may still be what it was; the marker, an alias of the DataFrame, says
where in the plan it was. A tag alone counts for nothing: files, schemas and checkpoints carry it on too.
Every declaration has an id of its own, so that tags of different ones are never mixed up.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from mirrorlib.errors import KeysError
from mirrorlib.identifiers import quote
from mirrorlib.keys.value import Keys

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField, StructType

TAG = "mirrorlib.key"
MARKER = "mirrorlib_keyed_"  # it shows in Spark's errors about ambiguous columns

STALE = "mirrorlib_stale_keys"  # where a table was read whose property names columns that it lacks

Origin = Literal["key_by", "union_keyed", "propagate", "current_view", "read_table", "read_feed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """Keys as they were declared.

    Attributes:
        id: of this declaration and no other.
        origin: the function that declared them.
        keys: by the names that the columns had.

    """

    id: str
    origin: Origin
    keys: Keys


@dataclass(frozen=True, slots=True, kw_only=True)
class Tagged:
    """A column that may be one of the keys.

    Attributes:
        name: its name now.
        was: the name by which it was declared.
        kind: the type that it had then, as Spark prints it.
        declared: the keys that it was declared with.

    """

    name: str
    was: str
    kind: str
    declared: Declared


def tag_columns(df: DataFrame, keys: Keys, origin: Origin) -> DataFrame:
    """Declare keys: tag their columns and mark the place in the plan."""
    from pyspark.sql import functions as f

    tag = {"id": uuid.uuid4().hex[:12], "origin": origin, "keys": keys.to_json()}
    roles = set(keys.columns)
    # By `select`: from Spark 4.1 on, `withColumn` sets empty metadata on a Connect server. What the field
    # has already, such as a watermark's delay, is kept.
    columns = [
        f.col(quote(field.name)).alias(
            field.name,
            metadata={
                **field.metadata,
                TAG: {**tag, "name": field.name, "type": field.dataType.simpleString()},
            },
        )
        if field.name in roles
        else f.col(quote(field.name))
        for field in df.schema.fields
    ]
    return df.select(*columns).alias(MARKER + tag["id"])


def stale(df: DataFrame) -> DataFrame:
    """Mark rows of a table whose stored keys cannot be true any more, so that whoever asks is told why."""
    return df.alias(STALE)


def read_tags(schema: StructType) -> dict[str, list[Tagged]]:
    """Return all tags of a schema by the id of their declaration."""
    found: dict[str, list[Tagged]] = defaultdict(list)
    for field in schema.fields:
        tagged = _read_tag(field)
        if tagged is not None:
            found[tagged.declared.id].append(tagged)
    return found


def _read_tag(field: StructField) -> Tagged | None:
    tag: Any = field.metadata.get(TAG)
    if not isinstance(tag, dict):
        return None
    try:
        keys, kind = Keys.from_json(tag["keys"]), str(tag["type"])
    except (KeyError, KeysError):  # an other version's tag on disk is none
        return None
    declared = Declared(id=tag["id"], origin=tag["origin"], keys=keys)
    return Tagged(name=field.name, was=tag["name"], kind=kind, declared=declared)


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
    from pyspark.sql import functions as f

    schema = df.schema
    if not any(TAG in field.metadata for field in schema.fields):
        return df
    return df.select(
        *[
            # Up to Spark 4.0 no empty metadata takes the place of other; a cast, if only to the same type, does.
            f.col(quote(field.name)).cast(field.dataType).alias(field.name, metadata=rest(field))
            if TAG in field.metadata
            else f.col(quote(field.name))
            for field in schema.fields
        ]
    )


def rest(field: StructField) -> Mapping[str, object]:
    """Return a field's metadata without the tag."""
    return {name: value for name, value in field.metadata.items() if name != TAG}

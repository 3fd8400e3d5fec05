"""Write a derived table: make it, let its columns be what they have to be, change the rows that differ.

In: a table as it is, and rows. Out: one commit that carries its round. Promise: the commit is there once, as a
whole, or not at all; rows that stay the same are not written, so that the table's own feed tells what is different
and nothing else; by a primary key that occurs once, as inserts, updates and deletes. Without one, rows are a
multiset: where equal ones become fewer, all go and those that stay come again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirrorlib.commit.mark import Mark, append_rows, mark_nothing, overwrite_rows
from mirrorlib.commit.merge import merge_changes
from mirrorlib.commit.pause import overwrite_columns
from mirrorlib.commit.staged import ADD, CHANGE, DROP, OP, Staged
from mirrorlib.delta.columns import is_same, sized_column
from mirrorlib.delta.ddl import make_table
from mirrorlib.delta.key_property import keys_property
from mirrorlib.delta.properties import VECTORS, feed_properties
from mirrorlib.delta.sessions import file_reader
from mirrorlib.errors import ForeignWriteError, SchemaError
from mirrorlib.feed.net import FEED_COLUMNS, is_comparable
from mirrorlib.identifiers import fold_name, folds_of, quote
from mirrorlib.journal.entries import new_attempt
from mirrorlib.keys.tags import untag
from mirrorlib.store import open_store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from mirrorlib.delta.table import Found
    from mirrorlib.derived.place import Place
    from mirrorlib.keys.value import Keys

OWNER = "mirrorlib.derived"  # the name of the derived table that a table is
_FEED_DAYS = 7
_VOID = re.compile(r"(^|[:<,])void\b")
_NET, _NEW = "_mirror_net", "_mirror_new"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """How many rows came and went."""

    added: int
    removed: int


def check_owner(place: Place, found: Found, name: str) -> None:
    """See that a table was made for a derived table of this name.

    Raises:
        ForeignWriteError: it was not.

    """
    owner = found.properties.get(OWNER)
    if owner != name:
        msg = "the target is a table that is not this derived table"
        step = "Choose another target, or remove the table."
        raise ForeignWriteError(msg, table=place.shown, found=owner, next_step=step)


def check_columns(place: Place, rows: DataFrame) -> None:
    """Refuse a result that no table with a feed can hold.

    Raises:
        SchemaError: two columns have one name, one is the feed's or ours, or has no type.

    """
    seen: set[str] = set()
    for field in rows.schema.fields:
        folds = folds_of(field.name)
        msg = ""
        if folds & seen:
            msg = "two columns of the result have the same name"
        elif fold_name(field.name) in FEED_COLUMNS or field.name in {OP, _NET, _NEW}:
            msg = "the column's name is reserved"
        elif _VOID.search(field.dataType.simpleString()):
            msg = "the column has no type"
        if msg:
            step = "Rename or cast it in the transformation."
            raise SchemaError(msg, table=place.shown, column=field.name, next_step=step)
        seen |= folds


def make_derived(spark: SparkSession, place: Place, rows: DataFrame, name: str, keys: Keys) -> None:
    """Make an empty derived table: feed on, deletion vectors on; nothing happens when there is one.

    Raises:
        LandingZoneError: its folder holds something else.

    """
    properties = {
        **feed_properties(_FEED_DAYS),
        VECTORS: "true",
        OWNER: name,
        **keys_property(keys),
    }
    make_table(spark, place.ref, rows.schema.fields, properties, place.shown)


def added_columns(schema: StructType, rows: DataFrame) -> list[str] | None:
    """Name the columns that a table lacks; None where one that it has is not among the rows, or of another type."""
    has = {fold_name(field.name): field.dataType for field in schema.fields}
    wants = {fold_name(field.name): field for field in rows.schema.fields}
    if any(
        name not in wants or not is_same(kind, wants[name].dataType) for name, kind in has.items()
    ):
        return None
    return [field.name for name, field in wants.items() if name not in has]


def replace_rows(
    session: SparkSession, place: Place, rows: DataFrame, mark: Mark, *, schema: bool
) -> None:
    """Let rows take the place of all that are there, and their columns too where *schema* says so."""
    if schema:
        overwrite_columns(session, place.ref, untag(rows), mark)
    else:
        overwrite_rows(place.ref, untag(rows), mark, schema=False)


def can_differ(rows: DataFrame) -> bool:
    """Say whether rows can be compared, so that only those that are different need be written."""
    return all(is_comparable(field.dataType) for field in rows.schema.fields)


def difference(old: DataFrame, new: DataFrame, keys: Sequence[str] = ()) -> DataFrame:
    """Tell what has to go, to come and, by keys that occur once, to change, so that some rows become others."""
    from pyspark.sql import functions as f

    names = [quote(name) for name in new.columns]
    both = new.select(*names, f.lit(1).alias(_NET), f.lit(1).alias(_NEW)).unionByName(
        old.select(*names, f.lit(-1).alias(_NET), f.lit(0).alias(_NEW))
    )
    counts = both.groupBy(*names).agg(f.sum(_NET).alias(_NET), f.sum(_NEW).alias(_NEW))
    come = f.array_repeat(f.lit(ADD), f.col(_NET).cast("int"))
    stay = f.array_repeat(f.lit(ADD), f.col(_NEW).cast("int"))
    ops = f.when(f.col(_NET) > 0, come).otherwise(f.concat(f.array(f.lit(DROP)), stay))
    different = counts.where(f.col(_NET) != 0)
    rows = different.select(*names, f.explode(ops.cast("array<tinyint>")).alias(OP))
    return _with_updates(rows, keys) if keys else rows


def _with_updates(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Let one row that goes and one that comes, both of one key, be an update."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    ops = f.sort_array(f.collect_list(OP).over(Window.partitionBy(*map(quote, keys))))
    one_each = ops == f.array(f.lit(DROP).cast("tinyint"), f.lit(ADD).cast("tinyint"))
    told = rows.withColumn(_NEW, one_each).where(~(f.col(_NEW) & (f.col(OP) == DROP)))
    change = f.lit(CHANGE).cast("tinyint")
    return told.withColumn(OP, f.when(f.col(_NEW), change).otherwise(f.col(OP))).drop(_NEW)


def write_difference(
    session: SparkSession,
    place: Place,
    found: Found,
    changes: DataFrame,
    keys: Keys,
    mark: Mark,
) -> Written:
    """Stage what is different, and carry it out by one commit.

    Args:
        session: of our own; the mark travels in its configuration.
        place: the table.
        found: what it is.
        changes: rows with `OP`, computed once.
        keys: those of the table; by a primary key that occurs once, rows are found faster.
        mark: what the commit carries.

    """
    state = open_store(place.state)
    folder = f"staged/derive/{place.ref.name.segment}/{new_attempt()}"
    try:
        untag(changes).write.parquet(state.uri(folder))
        staged = file_reader(session, _bare(changes.schema)).parquet(state.uri(folder))
        counts: dict[int, int] = {
            row[OP]: row["count"] for row in staged.groupBy(OP).count().collect()
        }
        listed = state.list_folder(folder)
        size = sum(file.size for file in (listed.files if listed else ()))
        _carry_out(session, place, found, staged, counts, size, keys, mark)
    finally:
        state.delete_folder(folder)
    changed = counts.get(CHANGE, 0)
    return Written(added=counts.get(ADD, 0) + changed, removed=counts.get(DROP, 0) + changed)


def _carry_out(
    session: SparkSession,
    place: Place,
    found: Found,
    staged: DataFrame,
    counts: dict[int, int],
    size: int,
    keys: Keys,
    mark: Mark,
) -> None:
    if not counts:
        mark_nothing(session, place.ref, mark)
        return
    if set(counts) == {ADD}:
        append_rows(place.ref, staged.drop(OP), mark)
        return
    fields = [field for field in staged.schema.fields if field.name != OP]
    changes = Staged(
        frame=staged,
        plain=False,
        ops=frozenset(counts),
        rows=sum(counts.values()),
        null_keys=True,
        bytes=size,
        private=True,
    )
    columns = tuple(sized_column(field.name, field.dataType) for field in fields)
    by = keys.primary if keys.unique else tuple(field.name for field in fields)
    merge_changes(
        session, place.ref, changes, columns, by, mark, quiet=False, table_bytes=found.bytes
    )


def _bare(schema: StructType) -> StructType:
    from pyspark.sql import types as t

    return t.StructType([t.StructField(field.name, field.dataType) for field in schema.fields])

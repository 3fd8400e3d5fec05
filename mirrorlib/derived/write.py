"""Write a derived table: make it, let its columns be what they have to be, change the rows that differ.

In: a table as it is, and rows. Out: one commit that carries its round. Promise: the commit is there once, as a
whole, or not at all; rows that stay the same are not written, so that the table's own feed tells what is different
and nothing else; by a primary key that occurs once, as inserts, updates and deletes. Without one, rows are a
multiset: where equal ones become fewer, all go and those that stay come again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mirrorlib.commit.difference import NET, NEW
from mirrorlib.commit.mark import Mark, overwrite_rows
from mirrorlib.commit.merge import commit_staged
from mirrorlib.commit.pause import overwrite_columns
from mirrorlib.commit.stage import stage_frame
from mirrorlib.commit.staged import ADD, CHANGE, DROP, OP
from mirrorlib.delta.columns import is_same, sized_column
from mirrorlib.delta.ddl import make_table
from mirrorlib.delta.key_property import keys_property
from mirrorlib.delta.properties import VECTORS, feed_properties
from mirrorlib.errors import ForeignWriteError, SchemaError
from mirrorlib.feed.net import FEED_COLUMNS, is_comparable
from mirrorlib.identifiers import fold_name, folds_of
from mirrorlib.journal.entries import new_attempt
from mirrorlib.keys.tags import untag
from mirrorlib.store import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from mirrorlib.delta.table import Found
    from mirrorlib.derived.place import Place
    from mirrorlib.keys.value import Keys

OWNER = "mirrorlib.derived"  # the name of the derived table that a table is
_FEED_DAYS = 7
_VOID = re.compile(r"(^|[:<,])void\b")


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
        elif fold_name(field.name) in FEED_COLUMNS or field.name in {OP, NET, NEW}:
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
    names = [name for name in changes.columns if name != OP]
    by = keys.primary if keys.unique else names
    try:
        staged = stage_frame(session, state, folder, untag(changes), by, (DROP, CHANGE, ADD))
        counts: dict[int, int] = {
            row[OP]: row["count"] for row in staged.frame.groupBy(OP).count().collect()
        }
        commit_staged(
            session,
            place.ref,
            replace(staged, ops=frozenset(counts)),
            tuple(sized_column(name, changes.schema[name].dataType) for name in names),
            by,
            mark,
            table_bytes=found.bytes,
        )
    finally:
        state.delete_folder(folder)
    changed = counts.get(CHANGE, 0)
    return Written(added=counts.get(ADD, 0) + changed, removed=counts.get(DROP, 0) + changed)

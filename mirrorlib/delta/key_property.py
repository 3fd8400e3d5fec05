"""Keep the keys of a table with it: one table property, written, read and removed here and nowhere else.

In: `Keys`, or a table's properties and columns. Out: the property, or the keys that it still stands for. What a
property claims is what its owner, the mirrorlib write that keeps the table, guarantees of the rows. A property
that names a column which the table lacks claims nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from mirrorlib.delta.columns import Columns, spelled_keys
from mirrorlib.delta.properties import set_properties
from mirrorlib.identifiers import fold_name
from mirrorlib.keys.value import Keys, left_under

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorlib.journal.entries import Plan

KEYS_PROPERTY = "mirrorlib.keys"
VIEW_PROPERTY = "mirrorlib.view"  # a current view with its tombstones: one row for each key
CLAIMED = "keys"  # in what a plan says of the one before it
# In what a commit of ours says: the newest version there was when it was computed.
ON = "on"


def keys_property(keys: Keys) -> dict[str, str]:
    """Return the properties of a table with these keys; none where there are none."""
    return {KEYS_PROPERTY: keys.to_json()} if keys else {}


def keep_keys(spark: SparkSession, sql: str, properties: Mapping[str, str], keys: Keys) -> None:
    """Write the keys of a table that is there, or remove them; no commit where nothing is different."""
    wanted = keys_property(keys)
    if properties.get(KEYS_PROPERTY) == wanted.get(KEYS_PROPERTY):
        return
    if wanted:
        set_properties(spark, sql, wanted)
    else:
        spark.sql(f"ALTER TABLE {sql} UNSET TBLPROPERTIES IF EXISTS ('{KEYS_PROPERTY}')")


def stored_keys(properties: Mapping[str, str]) -> Keys | None:
    """Read the keys of a table as they were written; None where there are none, or no keys that we know.

    A current view's are not read as unique, whatever is written: its tombstones are rows, too.
    """
    keys = Keys.from_json(properties.get(KEYS_PROPERTY, ""))
    return replace(keys, unique=False) if keys and VIEW_PROPERTY in properties else keys


def missing_columns(keys: Keys, columns: Iterable[str]) -> tuple[str, ...]:
    """Name the columns of keys that a table lacks."""
    there = {fold_name(name) for name in columns}
    return tuple(name for name in keys.columns if fold_name(name) not in there)


def spell_keys_as(keys: Keys, columns: Iterable[str]) -> Keys:
    """Name the columns of keys, which are all there, as the table does."""
    names = {fold_name(name): name for name in columns}
    return left_under(keys, {was: names[fold_name(was)] for was in keys.columns})


def grouping_columns(properties: Mapping[str, str], columns: Iterable[str]) -> tuple[str, ...]:
    """Name the partition key of a table; nothing where its property claims nothing."""
    keys, names = stored_keys(properties), list(columns)
    if keys is None or keys.lost or missing_columns(keys, names):
        return ()
    return spell_keys_as(keys, names).partition


def identifying_columns(properties: Mapping[str, str], columns: Iterable[str]) -> tuple[str, ...]:
    """Name the columns of which a table has one row for each value; nothing where that is not claimed."""
    keys = stored_keys(properties)
    one_row = keys is not None and (keys.unique or (keys.primary and VIEW_PROPERTY in properties))
    return grouping_columns(properties, columns) if one_row else ()


def mirror_keys(
    plan: Plan, columns: Columns, was: Keys | None, *, foreign: bool, fresh: bool = False
) -> Keys:
    """Say what a mirror's keys are once a batch is applied.

    Marker 0 under the policy "append" inserts a key again, unless files are snapshots, and so does whoever else
    writes: such a table has a partition key alone. A claim that was given up in a life does not come back in it: rows
    are unique if that is what the table *was* said to be by the same columns, or it is *fresh*, without any.
    """
    names = spelled_keys(columns, plan.policies.keys)
    if not names or len(names) < len(plan.policies.keys):
        return Keys()
    kept = fresh or (was is not None and was.unique and set(was.partition) == set(names))
    one_row = plan.policies.insert_policy == "upsert" or plan.policies.snapshots
    if not kept or foreign or not one_row:
        return Keys(partition=names)
    return Keys(partition=names, primary=names, unique=True)


def next_keys(plan: Plan, columns: Columns, *, foreign: bool) -> tuple[str, Keys]:
    """Return what the batch before has claimed, as it was written, and what is claimed from this batch on."""
    before = (plan.previous or {}).get(CLAIMED, "")
    was = stored_keys({KEYS_PROPERTY: before}) if before else None
    return before, mirror_keys(plan, columns, was, foreign=foreign)

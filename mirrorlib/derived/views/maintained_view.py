"""Make the table of a current view that is kept, and see that it is this changelog's and nobody else's.

In: a view, and the changelog's columns. Out: the table, with the columns that the changelog has got since. What the
view was made with, its keys and the columns of arrival, stands in the table's properties: another order would
resolve the same rows otherwise.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mirrorlib.delta.ddl import add_columns, make_table
from mirrorlib.delta.key_property import ON, VIEW_PROPERTY, keys_property, stored_keys
from mirrorlib.delta.properties import feed_properties, to_sql
from mirrorlib.delta.table import find_location, find_table, open_log
from mirrorlib.errors import ForeignWriteError, KeysError, SchemaError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructField

    from mirrorlib.delta.log import Commit, TableLog
    from mirrorlib.delta.table import Found
    from mirrorlib.derived.place import Place
    from mirrorlib.keys.value import Keys

DELETED_AT = "_mirror_deleted_at"  # when a tombstone came, by the clock: its retention starts there
OWNED = "view"  # in what a commit says: the id of the table that it was meant for
_BEFORE = "current"  # the property, where it does not tell the columns of arrival
_FEED_DAYS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A current view that is kept.

    Attributes:
        place: the table.
        keys: of the changelog; none is said to occur once, as the table has tombstones, too.
        order: all columns that tell which row of a key is newer: the order columns, then those of arrival.
        retention: how long tombstones are kept; None for ever.
        id: Delta's, of the table; "" while there is none.

    """

    place: Place
    keys: Keys
    order: tuple[str, ...]
    retention: timedelta | None
    id: str = ""

    @property
    def sql(self) -> str:
        """Return the table, quoted for SQL."""
        return self.place.ref.sql

    @property
    def arrival(self) -> tuple[str, ...]:
        """Return the columns that decide where the order columns do not."""
        return self.order[len(self.keys.order_by) :]


def ensure_table(session: SparkSession, rows: DataFrame, view: View) -> str:
    """Make the table, or see that it is one of this changelog; return its id.

    Raises:
        KeysError: its keys or its columns of arrival are others.
        SchemaError: its columns are.

    """
    from pyspark.sql.types import StructField, TimestampType

    fields = list(rows.schema.fields)
    if DELETED_AT in rows.columns:
        msg = "a column has a name that the current view needs"
        raise KeysError(msg, table=view.place.shown, column=DELETED_AT, next_step="Rename it.")
    if view.keys.deleted is not None:
        fields.append(StructField(DELETED_AT, TimestampType()))
    properties = {**feed_properties(_FEED_DAYS), **keys_property(view.keys), **_view_property(view)}
    make_table(session, view.place.ref, fields, properties, view.place.shown)
    found = find_table(session, view.place.ref)
    if found is None:
        msg = "the table was removed while it was made"
        raise ForeignWriteError(msg, table=view.place.shown, next_step="Run again.")
    _check_resolution(view, found.properties)
    _fit_columns(session, view, fields, found)
    if found.properties[VIEW_PROPERTY] == _BEFORE:  # from now on it tells
        property_sql = to_sql(_view_property(view))
        session.sql(f"ALTER TABLE {view.sql} SET TBLPROPERTIES ({property_sql})")
    return found.id


def _view_property(view: View) -> dict[str, str]:
    resolution = json.dumps({"format": 1, "arrival": view.arrival}, ensure_ascii=False)
    return {VIEW_PROPERTY: resolution}


def _check_resolution(view: View, properties: Mapping[str, str]) -> None:
    """See that a table's rows were resolved by the same keys and in the same order.

    Raises:
        KeysError: they were not.

    """
    table = view.place.shown
    stored = properties.get(VIEW_PROPERTY)
    if stored is None or stored_keys(properties) != view.keys:
        msg = "the table was made with other keys"
        raise KeysError(msg, table=table, next_step="Choose another table, or drop it.")
    if stored == _BEFORE:
        return
    arrival = _read_arrival(stored, table)
    if arrival != view.arrival:
        msg = "the table was made with other columns of arrival, by which its rows were resolved"
        step = "Name the same ones as arrival, choose another table, or drop it."
        found = ", ".join(arrival) or "none"
        raise KeysError(msg, table=table, found=found, next_step=step)


def _read_arrival(stored: str, table: str) -> tuple[str, ...]:
    try:
        value: Any = json.loads(stored)
    except ValueError:
        value = None
    if isinstance(value, dict) and value.get("format") == 1:
        return tuple(value["arrival"])
    msg = "the table's current view has a format that this version does not know"
    raise KeysError(msg, table=table, found=stored, next_step="Install a newer mirrorlib.")


def _fit_columns(
    session: SparkSession,
    view: View,
    fields: Sequence[StructField],
    found: Found,
) -> None:
    """Add the columns that a changelog has got since.

    Raises:
        SchemaError: the others are not the table's.

    """
    there = {f.name: f.dataType.simpleString() for f in session.table(view.sql).schema.fields}
    wants = {field.name: field.dataType.simpleString() for field in fields}
    new = [field for field in fields if field.name not in there]
    odd = next((name for name, kind in there.items() if wants.get(name) != kind), None)
    if odd is not None:
        both = f"{there[odd]} in the table, {wants.get(odd, 'nothing')} in the changelog"
        msg = "the table's columns are not those of the changelog"
        step = "Add or cast the column, or choose another table."
        raise SchemaError(msg, table=view.place.shown, column=odd, found=both, next_step=step)
    if new:
        add_columns(session, view.place.ref, new, found)


def check_owner(session: SparkSession, view: View) -> int:
    """See that every row of the table is one that was merged into it; return the newest version.

    Raises:
        ForeignWriteError: somebody else has written, or mirrorlib for another table.

    """
    place = view.place
    log = open_log(session, place.ref, find_location(session, place.ref))
    newest = log.newest() or 0
    after = newest
    while after >= 0:
        found = log.commits(after - 1, after)
        if not found:
            break
        if _is_meant(found[0], view):
            _check_between(log, found[0], view)
            break
        _check_commit(found[0], view)
        after -= 1
    return newest


def _check_between(log: TableLog, merged: Commit, view: View) -> None:
    """See that nobody has written while a merge was computed: Delta lets both be."""
    on = (merged.ours or {}).get(ON, merged.version)
    for commit in log.commits(on, merged.version - 1) if on < merged.version - 1 else ():
        if not _is_meant(commit, view):
            _check_commit(commit, view)


def _check_commit(commit: Commit, view: View) -> None:
    if commit.harmless:
        return
    msg = "somebody else has written to the table of the current view"
    who = f"version {commit.version}, {commit.operation} by {commit.user}"
    step = "Drop the table and let the view be made anew, or keep it in another one."
    raise ForeignWriteError(msg, table=view.place.shown, found=who, next_step=step)


def _is_meant(commit: Commit, view: View) -> bool:
    """Say whether a commit was made to keep this view; before marks told the table's id, they told its name."""
    return commit.ours is not None and commit.ours.get(OWNED) in (view.id, view.place.shown)

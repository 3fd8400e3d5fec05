"""Find the table of a mirror, and its keys, as its journal has them.

In: a target and a table's name. Out: what `read_feed` takes for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirrorlib.delta.table import refer
from mirrorlib.identifiers import fold_name
from mirrorlib.journal.disk import Journal
from mirrorlib.names import TableName, find_key, parse_name
from mirrorlib.store import open_store
from mirrorlib.store.target import Target

if TYPE_CHECKING:
    from mirrorlib.journal.entries import Entry
    from mirrorlib.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    """A table of a target: what `read_feed` knows it by, and its keys; no keys when it is no mirror or has none."""

    table: str
    keys: tuple[str, ...]


def find_mirror(place: str, table: str, *, catalog: str | None, state: str | None) -> Mirror:
    """Address a table of a target.

    Raises:
        LandingZoneError: a catalog's schema has no place for the journal and none is given.
        TableNameError: no table can have that name.

    """
    name = parse_name(table)
    if catalog is not None and state is None:
        nowhere = Target(place=place, catalog=catalog, state="")
        return Mirror(table=table_address(nowhere, name), keys=())
    target = Target.of(place, catalog=catalog, state=state)
    entry = _newest_batch(target, name)
    keys = entry.plan.policies.keys if entry is not None else ()
    columns = [column for column, _ in entry.done.columns] if entry and entry.done else []
    found = tuple(find_key(columns, key) or key.strip() for key in keys)
    return Mirror(table=table_address(target, name), keys=found)


def _newest_batch(target: Target, name: TableName) -> Entry | None:
    """Find the batch that was applied last to a table, whose name in the zone a catalog does not tell."""
    state = open_store(target.state)
    names = [name] if target.catalog is None else _names_in_zone(state, name)
    found = []
    for each in names:
        journal = Journal(state, each)
        entry = journal.newest(lives[-1]) if (lives := journal.lives()) else None
        if entry is not None:
            found.append(entry)
    return max(found, key=lambda entry: entry.done.finished_at if entry.done else "", default=None)


def _names_in_zone(state: Store, name: TableName) -> list[TableName]:
    """Name the journals of a catalog's table: it has the table part of a name alone, without regard to case.

    A zone's `dbo/orders` and `sales/orders` are not applied to one schema together, but may be one after the other.
    """
    listed = state.list_folder("journal")
    names = [TableName.from_segment(segment) for segment in listed.folders] if listed else []
    return [each for each in names if fold_name(each.table) == fold_name(name.table)]


def table_address(target: Target, name: TableName) -> str:
    """Return what `read_feed` knows a table of a target by."""
    ref = refer(target, name)
    return ref.sql if ref.path is None else ref.path

"""Find the table of a mirror, and its keys, as its journal has them.

In: a target and a table's name. Out: what `read_feed` takes for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from mirrorlib.delta.table import refer
from mirrorlib.identifiers import fold_name
from mirrorlib.journal.disk import Journal
from mirrorlib.names import TableName, find_key, parse_name
from mirrorlib.store import open_store
from mirrorlib.store.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    """A table of a target: what `read_feed` knows it by, and its keys; no keys when it is no mirror or has none."""

    table: str
    keys: tuple[str, ...]


def find_mirror(place: str, table: str, *, catalog: str | None, state: str | None) -> Mirror:
    """Address a table of a target; raises `TableNameError` where no table can have that name."""
    name = parse_name(table)
    if catalog is not None and state is None:
        nowhere = Target(place=place, catalog=catalog, state="")
        return Mirror(table=table_address(nowhere, name), keys=())
    target = Target.of(place, catalog=catalog, state=state)
    store, names = open_store(target.state), [name]
    if catalog is not None:
        # Its name in the zone a catalog does not tell: it has the table part alone, without regard to case. A zone's
        # `dbo/orders` and `sales/orders` are not applied to one schema together, but may be one after the other.
        listed = store.list_folder("journal")
        all_of_it = map(TableName.from_segment, listed.folders if listed else ())
        names = [each for each in all_of_it if fold_name(each.table) == fold_name(name.table)]
    journals = [Journal(store, each) for each in names]
    newest = [one.newest(lives[-1]) for one in journals if (lives := one.lives())]
    applied = (entry for entry in newest if entry is not None)
    entry = max(applied, key=lambda one: one.done.finished_at if one.done else "", default=None)
    keys = entry.plan.policies.keys if entry is not None else ()
    columns = [column for column, _ in entry.done.columns] if entry and entry.done else []
    found = tuple(find_key(columns, key) or key.strip() for key in keys)
    return Mirror(table=table_address(target, name), keys=found)


def table_address(target: Target, name: TableName) -> str:
    """Return what `read_feed` knows a table of a target by."""
    ref = refer(target, name)
    return ref.sql if ref.path is None else ref.path

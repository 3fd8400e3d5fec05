"""Find the table of a mirror, and its keys, as its journal has them.

In: a target and a table's name. Out: what `read_feed` takes for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from mirrorlib.apply.journal import Journal
from mirrorlib.apply.table import refer
from mirrorlib.apply.target import Target
from mirrorlib.landing.names import TableName, find_key, parse_name
from mirrorlib.store import open_store


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
    if catalog is not None and state is None:
        return Mirror(table=f"{catalog}.{place}.{table}", keys=())
    target = Target.of(place, catalog=catalog, state=state)
    name = parse_name(table)
    journal = Journal(open_store(target.state), name)
    entry = journal.newest(lives[-1]) if (lives := journal.lives()) else None
    keys = entry.plan.policies.keys if entry is not None else ()
    columns = [column for column, _ in entry.done.columns] if entry and entry.done else []
    found = tuple(find_key(columns, key) or key.strip() for key in keys)
    return Mirror(table=table_address(target, name), keys=found)


def table_address(target: Target, name: TableName) -> str:
    """Return what `read_feed` knows a table of a target by."""
    ref = refer(target, name)
    return ref.sql if ref.path is None else ref.path

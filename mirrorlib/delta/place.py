"""Address one table that is kept: for SQL and for writers, and where its lock and its state lie.

In: a path or URL, or a name in a catalog. Out: `TablePlace`. A word with a slash in it is a path, every other one a
catalog's name.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mirrorlib.delta.address import address_of, split_dotted
from mirrorlib.delta.lock import LOCKS, find_locks, lock_table
from mirrorlib.delta.table import TableRef, refer
from mirrorlib.errors import LandingZoneError, TableNameError
from mirrorlib.names import TableName, parse_name
from mirrorlib.store import PathOrUrl, open_store
from mirrorlib.store.target import STATE_FOLDER, Target, targets_above

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlace:
    """Where one table lies."""

    shown: str
    ref: TableRef  # how SQL and writers address it
    # What its state folder, "" where nobody has said it, belongs to; the table has the name of `ref` in it.
    root: Target

    @contextlib.contextmanager
    def hold(self, spark: SparkSession) -> Iterator[None]:
        """Keep other Java processes off the table where Delta does not: on a local file system.

        Each runner has the lock of its own target, which may be any of the folders above: all that have locks are
        held, the outermost first.
        """
        state = open_store(self.root.state) if self.root.state else None
        above = [(self.root.place, self.ref.name)]
        if self.ref.path is not None:
            above = _targets_of(open_store(self.ref.path).url.rstrip("/"))[::-1]
        with contextlib.ExitStack() as held:
            for folder, name in above:
                target = replace(self.root, place=folder)
                locks = find_locks(spark, target, state)
                if folder == self.root.place or (locks is not None and os.path.isdir(locks)):  # noqa: PTH112  # False where nobody may look
                    held.enter_context(lock_table(spark, target, state, name, lambda: False))
            yield


def find_place(
    spark: SparkSession, table: PathOrUrl, *, state: PathOrUrl | None = None
) -> TablePlace:
    """Address a table, which need not be there."""
    shown = address_of(table)
    if "/" in shown or "\\" in shown:
        folder, name = _root_of(open_store(shown).url.rstrip("/"))
        root = Target.of(folder, catalog=None, state=state)
    else:
        parts = split_dotted(shown)
        catalog = parts[-3] if len(parts) > 2 else spark.catalog.currentCatalog()  # noqa: PLR2004  # catalog.schema.table
        schema = parts[-2] if len(parts) > 1 else split_dotted(spark.catalog.currentDatabase())[-1]
        kept = open_store(state).url if state is not None else ""
        root, name = Target(place=schema, catalog=catalog, state=kept), TableName(None, parts[-1])
    return TablePlace(shown=shown, ref=refer(root, name), root=root)


def _root_of(url: str) -> tuple[str, TableName]:
    """Find the target that a table belongs to: the next folder above with a state in it, else the one it lies in."""
    found = _targets_of(url)
    if not found:
        msg = "a table lies in a folder, and this is none's path"
        raise LandingZoneError(msg, found=url, next_step="Give the path of a table's own folder.")
    for root, name in found:
        there = open_store(root).list_folder(STATE_FOLDER)
        # Locks alone are no state, and left by whoever has changed a table.
        if there is not None and (there.files or {*there.folders} - {LOCKS}):
            return root, name
    return found[0]


def _targets_of(url: str) -> list[tuple[str, TableName]]:
    """List the folders that may be a table's target, as stores know them, and its name in each: the next one first."""
    found = []
    for root, name in targets_above(url):
        with contextlib.suppress(TableNameError):
            found.append((open_store(root).url, parse_name(name)))
    return found

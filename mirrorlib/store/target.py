"""Where the tables of a zone go, and where their journal lives.

In: what a caller says. Out: `Target`, which knows nothing of Spark; `table.py` makes tables of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from mirrorlib.errors import LandingZoneError
from mirrorlib.store import PathOrUrl, open_store

STATE_FOLDER = "_mirrorlib"
TABLE_DEPTH = 3  # folders from a target down to a table: catalog, schema, table
_SCHEMES = {"s3a": "s3", "s3n": "s3", "abfs": "abfss"}  # two names of one store


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where the tables of a zone go."""

    place: str  # a root path or URL; with a catalog, the schema's name
    catalog: str | None  # the Spark catalog, None for tables by path
    state: str  # the state folder's path or URL

    @classmethod
    def of(cls, place: PathOrUrl, *, catalog: str | None, state: PathOrUrl | None) -> Target:
        """Settle where the state lies: beside the tables, or where the caller says; an empty text says nothing."""
        state = state or None
        if catalog is not None and state is None:
            msg = "a catalog's schema has no folder for the journal"
            raise LandingZoneError(msg, next_step="Say where the journal lives, with --state PATH.")
        root = open_store(place).url if catalog is None else os.fspath(place)
        kept = open_store(state or f"{root}/{STATE_FOLDER}").url
        return cls(place=root, catalog=catalog, state=kept)

    @property
    def owner(self) -> str:
        """Return what the state folder knows the target by: a folder around it may be moved together with it."""
        if self.catalog is not None:
            return self.shown.lower()
        place, state = settled(self.place), settled(self.state)
        beside = state.startswith(f"{place}/")
        return "/".join([".."] * state.removeprefix(place).count("/")) if beside else place

    @property
    def shown(self) -> str:
        """Return the target as its users name it."""
        return self.place if self.catalog is None else f"{self.catalog}.{self.place}"


def targets_above(address: str) -> Iterator[tuple[str, str]]:
    """Name the folders that may be the target of a table, and the table's name below each: the next one first.

    A target may lie inside another, or be a table itself; a catalog's table may be one of a folder, too.
    """
    scheme, separator, path = address.rpartition("://")
    steps = path.split("/")
    for depth in range(1, min(TABLE_DEPTH + 1, len(steps))):
        yield f"{scheme}{separator}{'/'.join(steps[:-depth]) or '/'}", "/".join(steps[-depth:])


def settled(place: str) -> str:
    """Return a path or URL as it is compared: a local one without links, a store by one of its names."""
    path = place.removeprefix("dbfs:") if place.startswith("dbfs:/") else place
    if "://" not in path:
        return os.path.realpath(path)
    scheme, _, rest = path.rstrip("/").partition("://")
    return f"{_SCHEMES.get(scheme, scheme)}://{rest}"

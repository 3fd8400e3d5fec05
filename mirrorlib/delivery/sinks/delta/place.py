"""Settle where the tables go, and keep two Java processes apart there.

In: what follows `delta:`. Out: `Place`. A word with a slash in it is a path or URL, every other one has
to be `catalog.schema`.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirrorlib.delta.lock import lock_table
from mirrorlib.delta.table import refer
from mirrorlib.errors import LandingZoneError
from mirrorlib.names import parse_name
from mirrorlib.store import open_store
from mirrorlib.store.target import Target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirrorlib.delivery.sink import Delivery
    from mirrorlib.delta.table import TableRef

_PART = r"(?:`((?:[^`]|``)+)`|([^.`\s]+))"
_SCHEMA = re.compile(rf"{_PART}\.{_PART}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the tables go: below a path, or into a schema of a catalog."""

    target: Target

    def refer(self, table: str) -> TableRef:
        """Address the table that a source table becomes; a catalog has one for all schemas of the source."""
        return refer(self.target, parse_name(table))

    @contextlib.contextmanager
    def hold(self, delivery: Delivery) -> Iterator[None]:
        """Keep other Java processes off the table, where Delta does not: on a local file system.

        It is the lock of whoever applies to the table; where neither its place nor a state is local,
        the consumers' scratch holds it.

        Raises:
            TableBusyError: the last holder's Java process lives on without its runner.

        """
        name, spark = parse_name(delivery.stream.table), delivery.spark
        state = open_store(self.target.state) if self.target.state else delivery.scratch
        with lock_table(spark, self.target, state, name, lambda: False):
            yield


def open_place(address: str) -> Place:
    """Read an address.

    Raises:
        LandingZoneError: it is neither a path nor a catalog's schema.

    """
    if "/" in address or "\\" in address:
        return Place(target=Target.of(address, catalog=None, state=None))
    parts = _SCHEMA.fullmatch(address)
    if parts is None:
        msg = "the Delta receiver's address is neither a path, which has a slash in it, nor catalog.schema"
        step = "Give delta:/data/copy, delta:./copy, a URL, or delta:catalog.schema."
        raise LandingZoneError(msg, found=ascii(address)[1:-1][:80], next_step=step)
    catalog, schema = (
        (quoted or "").replace("``", "`") or plain
        for quoted, plain in (parts.group(1, 2), parts.group(3, 4))
    )
    return Place(target=Target(place=schema, catalog=catalog, state=""))

"""One window on its way into one target table: what its writers need to know, and what its commit says.

In: a `Delivery` and what was found at its target. Out: `WindowWork`, frozen.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mirrorlib.commit.claim import claim_table
from mirrorlib.commit.last_commit import LastCommit
from mirrorlib.commit.mark import Mark
from mirrorlib.delivery.sink import KEY_OPTIONS, Delivery
from mirrorlib.delta.address import split_dotted
from mirrorlib.delta.log import TableLog
from mirrorlib.delta.table import Found, TableRef
from mirrorlib.errors import LandingZoneError, SchemaError
from mirrorlib.events import pick
from mirrorlib.feed.net import VERSION
from mirrorlib.identifiers import find_name
from mirrorlib.journal.streams import snapshot_command
from mirrorlib.store.target import Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_PART = r"(?:`(?:[^`]|``)+`|[^.`\s]+)"
_SCHEMA = re.compile(rf"{_PART}\.{_PART}")


@dataclass(frozen=True, kw_only=True)
class WindowWork(Delivery):
    """A window and its target."""

    mode: str  # what becomes of it
    wanted: StructType  # the columns that the target has to have for it
    ref: TableRef  # the target
    found: Found
    schema: StructType
    log: TableLog
    last: LastCommit  # what that tells
    dropped: tuple[str, ...] = ()  # the target's columns that the source has no longer

    @property
    def fresh(self) -> bool:
        """Say whether no window was written to the table yet."""
        return self.last.facts is None and self.last.complete

    @property
    def upto(self) -> int:
        """Return up to which version of the source the target has everything; -1 for nothing."""
        facts = self.last.facts
        if facts is None or facts.get("table_id") != self.plan.table_id:
            return self.plan.after
        return int(facts["upto"])

    @property
    def overlaps(self) -> bool:
        """Say whether the window brings versions again that the target has, as a rewound stream does."""
        return self.plan.kind == "changes" and self.upto > self.plan.after

    @property
    def physical_after(self) -> Mapping[str, str]:
        """Return which physical columns the names stand for, as the target holds them after the window."""
        if self.mode == "changes":
            return {}
        # Versions that the target has are left out.
        once = self.mode == "scd2" or not self.keys
        passed = once and self.overlaps and self.plan.until <= self.upto
        return self.physical_before if passed else self.physical

    @property
    def physical_before(self) -> Mapping[str, str]:
        """Return what they stood for before; older versions have not said it."""
        facts = self.last.facts or {}
        same = facts.get("table_id") == self.plan.table_id
        return facts.get("physical", {}) if same else {}

    @property
    def exact(self) -> bool:
        """Say whether the target can only hold what the source held before the window: it began with a snapshot."""
        return self.stream.start_at is None

    @property
    def known(self) -> bool:
        """Say whether `upto` is true, so that a row which came after it and is there already is there twice."""
        return self.exact or self.last.facts is not None or self.last.complete

    @property
    def set_right(self) -> str:
        """Say how the target is set right, for an error."""
        return f"Let a snapshot set it right: {snapshot_command(self.stream.consumer)}"

    def twice(self) -> SchemaError:
        """Say that a key does not tell the source's rows apart."""
        msg = "a key occurs more than once in the source, so a copy by key cannot hold its rows"
        step = (
            f"Name the columns that tell its rows apart, or none ({KEY_OPTIONS}); the window was planned with these, "
            f"so begin anew: {snapshot_command(self.stream.consumer)}"
        )
        column = ", ".join(self.keys)
        return SchemaError(msg, table=self.stream.table, column=column, next_step=step)

    def new_rows(self) -> DataFrame:
        """Return the rows without the versions that the target has: a rewound stream brings them again."""
        return self.frame.where(f"{VERSION} > {self.upto:d}") if self.overlaps else self.frame

    def mark(self) -> Mark:
        """Return what makes the window's commit ours and unrepeatable, see `LastCommit.next_mark`."""
        stream, plan = self.stream, self.plan
        facts: dict[str, Any] = {
            **pick(stream, "consumer", "table", "ordinal", "began_at"),
            **pick(plan, "attempt", "kind", "after", "until"),
            "upto": max(plan.until, self.upto),
            "table_id": plan.table_id,
            "keys": list(plan.keys),
            "dropped": list(self.dropped),
            "physical": dict(self.physical_after),
        }
        app_id = f"mirrorlib:export:{stream.consumer}:{stream.table}"
        claim = claim_table(self.spark, self.ref, self.log, self.scratch, self.last.newest, app_id)
        return self.last.next_mark(app_id, stream, plan.number, facts, claim)

    def spelled(self, name: str) -> str:
        """Name a column as the target does."""
        return find_name(self.schema.names, name) or name


def open_place(address: str) -> Target:
    """Read an address: a path below which the tables go, or a schema of a catalog."""
    if "/" in address or "\\" in address:
        return Target.of(address, catalog=None, state=None)
    if not _SCHEMA.fullmatch(address):
        msg = "the Delta receiver's address is neither a path, which has a slash in it, nor catalog.schema"
        step = "Give delta:/data/copy, delta:./copy, a URL, or delta:catalog.schema."
        raise LandingZoneError(msg, found=ascii(address)[1:-1][:80], next_step=step)
    catalog, schema = split_dotted(address)
    return Target(place=schema, catalog=catalog, state="")

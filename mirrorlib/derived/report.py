"""What a run of a derived table came to: for people, notebooks and machines, and for `lineage` beside the table.

derived/<table>.json        the derived table that a table of the target is: sources, keys, losses, last run
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from mirrorlib.delta.lock import TablePlace
from mirrorlib.derived.strategy.choose import How
from mirrorlib.journal.entries import now
from mirrorlib.journal.plan_log import read_word, write_word
from mirrorlib.keys.tracing.trace import KeysStep
from mirrorlib.keys.value import Keys
from mirrorlib.names import TableName
from mirrorlib.store import Store, contents, open_store
from mirrorlib.tabular import Report

_FOLDER = "derived"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceReport:
    """How far a source was taken in.

    Attributes:
        table: as its user names it.
        address: as `read_table` takes it.
        after: the version that the table was made of before; -1 for none.
        until: the version that it is made of now.
        keys: its partition key.

    """

    table: str
    address: str
    after: int
    until: int
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DeriveReport(Report):
    """What a run of a derived table came to.

    Attributes:
        name: the derived table's name.
        target: the table.
        how: "row-wise" (from changed rows), "affected keys" (from all rows of theirs), "full", or "nothing new".
        why: why it was done in full; "" otherwise.
        sources: how far each source was taken in.
        added: rows that came.
        removed: rows that went; an update is one of each.
        version: the table's version that holds them; None where there is none.
        keys: the keys that have survived.
        losses: where keys were lost.
        changes: what became of the table's columns.
        seconds: how long it took.

    """

    columns: ClassVar = ("source", "after", "until", "keys")
    each: ClassVar = "sources"
    facts: ClassVar = "table after until keys"
    name: str
    target: str
    how: How
    why: str = ""
    sources: tuple[SourceReport, ...]
    added: int = 0
    removed: int = 0
    version: int | None
    keys: Keys
    losses: tuple[KeysStep, ...] = ()
    changes: tuple[str, ...] = ()
    seconds: float

    def notes(self) -> list[str]:
        """Say how it was done and why, and which keys are left."""
        why = f": {self.why}" if self.why else ""
        done = f"{self.name}: {self.how}{why}."
        if self.how != "nothing new":
            done += f" {self.added:,} rows came, {self.removed:,} went; version {self.version}."
        keys = ", ".join(self.keys.partition) or "none"
        what = "primary key" if self.keys.primary else "partition key"
        lost = [f"{loss.operator} lost the {loss.lost}: {loss.why}." for loss in self.losses]
        return [done, *self.changes, f"Its {what if self.keys else 'keys'}: {keys}.", *lost]


def write_record(place: TablePlace, report: DeriveReport) -> None:
    """Replace what is told of a derived table; nothing rests on it."""
    name, told = place.ref.name, {"address": place.ref.address, **asdict(report), "at": now()}
    if place.root.catalog is not None:  # tables of several schemas may have one name
        name = TableName(place.root.place, name.table)
    write_word(open_store(place.root.state), f"{_FOLDER}/{name.segment}.json", told)


def read_records(state: Store) -> list[dict[str, Any]]:
    """Return what is told of the derived tables whose state is in a folder; what cannot be read is left out."""
    records = (read_word(state, file.path) for file in contents(state, _FOLDER).files)
    known = {"address", "name", "sources", "keys", "losses", "how"}
    return [one for one in records if one.keys() >= known]

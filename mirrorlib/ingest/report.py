"""What an apply did: values that print as a table, render in a notebook and turn into JSON.

Nothing here computes; every stage of the run fills in its part. `mirrorlib.events` is the live side of the same story.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self, TypeAlias

from mirrorlib.journal.entries import Done, Plan
from mirrorlib.names import WHOLE_FOLDER
from mirrorlib.tabular import StateReport, cells

State = Literal["current", "behind", "blocked", "failed", "waiting", "gone"]
Position: TypeAlias = int | Mapping[str, int]
Kind = Literal["adopt", "append", "matched-only", "merge", "overwrite", "difference", "empty"]
ROADS: Mapping[Kind, str] = {
    "adopt": "the files are the table's now, as they were: all rows are inserts, all columns fit",
    "append": "rows were added, none was looked for: all are inserts",
    "matched-only": "rows were changed or deleted by their keys: none is new",
    "merge": "rows were looked for by their keys: each may be new or there already",
    "overwrite": "the table was written anew: a first load, or one that replaces it",
    "difference": "the table was computed anew, and what differs was changed",
    "empty": "no row changed",
}
MARKED = ("inserts", "updates", "deletes", "upserts")
GONE = "Its folder is no longer in the landing zone."
SHOWS_NOTHING = (
    "The landing zone shows no table at all, as one does that is not mounted: none is taken for gone. "
    "Mount it; of a table that was removed on purpose: mirrorlib reset TARGET TABLE"
)


def shown_position(position: Mapping[str, int]) -> Position | None:
    """Return a position as it is shown: a number for a table without partition folders."""
    if not position:
        return None
    return dict(position) if position.keys() - {WHOLE_FOLDER} else position[WHOLE_FOLDER]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """One applied batch: its files, its rows by marker, the Delta version it made and the seconds of each stage."""

    batch: int
    kind: str
    files: int
    bytes: int
    first_file: str
    last_file: str
    inserts: int
    updates: int
    deletes: int
    upserts: int
    version: int
    seconds: Mapping[str, float]

    @classmethod
    def of(cls, plan: Plan, done: Done, **more: Any) -> Self:  # noqa: ANN401  # fields of any kind
        """Tell a batch that has ended, and *more* of it, as a kind of this report has it."""
        counts = {name: done.rows.get(name, 0) for name in MARKED}
        return cls(
            batch=plan.batch,
            kind=done.kind,
            files=len(plan.files),
            bytes=plan.bytes,
            first_file=plan.files[0].name,
            last_file=plan.files[-1].name,
            version=done.version,
            seconds=dict(done.seconds),
            **counts,
            **more,
        )

    @property
    def rows(self) -> int:
        """Return the change rows that the batch's files hold."""
        return sum(getattr(self, name) for name in MARKED)

    @property
    def spent(self) -> float:
        """Return the seconds of all its stages."""
        return sum(self.seconds.values(), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """How one table stands, as a run has left it, or as it is found.

    Attributes:
        table: "dbo/orders".
        state: current, behind, blocked (waits for a file), failed (something is wrong), waiting (no
            metadata or data yet), gone (its folder is no longer there).
        reason: why it is not current and what to do, "" when it is.
        file: the change file that it is about, None when there is none.
        since: when the table came into this state, ISO 8601; None where no run has seen it there.
        position: the last applied sequence number; one for each partition folder where there are any;
            how many files were applied where they have no numbers.
        version: the Delta version of the last applied batch.
        warnings: what was repaired or left out.

    """

    table: str
    state: State = "behind"
    reason: str = ""
    file: str | None = None
    since: str | None = None
    position: Position | None = None
    version: int | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReport(TableState):
    """One table after a run.

    Attributes:
        error: the error's class, None when there was none.
        batches: what this run applied.
        listing: how its folder was listed: "full", or "incremental", only for what has come; "" where it was not.

    """

    error: str | None = None
    batches: tuple[BatchReport, ...] = ()
    listing: str = ""

    def total(self, count: str) -> int:
        """Add up one count (`files`, `rows`, `inserts` …) over the batches of this run."""
        return sum(getattr(batch, count) for batch in self.batches)

    @property
    def seconds(self) -> float:
        """Return the seconds that this run spent on the table's batches."""
        return sum(batch.spent for batch in self.batches)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ApplyReport(StateReport):
    """What one `apply` did to every table of a zone."""

    columns: ClassVar = (
        "table", "state", "road", "files", "insert", "update", "delete", "upsert", "version", "seconds", "rows/s",
    )  # fmt: skip
    landing_zone: str
    target: str
    tables: tuple[TableReport, ...]
    seconds: float
    warnings: tuple[str, ...] = ()

    def rows(self) -> list[tuple[str, ...]]:
        """Return one row a table."""
        shown: list[tuple[str, ...]] = []
        for t in self.tables:
            counts = tuple(f"{t.total(name):,}" for name in ("files", *MARKED))
            rows, seconds = t.total("rows"), t.seconds
            rate = f"{rows / seconds:,.0f}" if rows and seconds else "-"
            road = ", ".join(dict.fromkeys(batch.kind for batch in t.batches)) or "-"
            shown.append((t.table, t.state, road, *counts, *cells(t, "version seconds:.1f"), rate))
        return shown

    def notes(self) -> list[str]:
        """Return what stopped tables, then what was warned about, then why the batches took their roads."""
        taken = {batch.kind for table in self.tables for batch in table.batches}
        roads = [f"{road}: {why}" for road, why in ROADS.items() if road in taken]
        return notes_of(self.tables, self.warnings) + roads


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTable:
    """What `apply` would do to one table now: the next batches, schema changes, and what the first snapshot changes."""

    table: str
    state: State
    reason: str = ""
    file: str | None = None
    batches: int = 0
    files: int = 0
    rows: int = 0
    first_file: str | None = None
    last_file: str | None = None
    schema_changes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    differences: str = ""
    # Name, size, etag and fingerprint of each file.
    contents: tuple[tuple[str, int, str, str], ...] = ()
    policies: Mapping[str, Any] = field(default_factory=dict)  # by which they are read, and applied
    receivers: tuple[str, ...] = ()  # what its consumers will see, a sentence each


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PlanReport(StateReport):
    """What `apply` would do; nothing was written. *hash* is what `apply` takes for *approve*; "" of a rebuild."""

    columns: ClassVar = ("table", "state", "batches", "files", "rows", "first file", "last file")
    facts: ClassVar = "table state batches files rows:count first_file last_file"
    landing_zone: str
    target: str
    tables: tuple[PlannedTable, ...] = ()
    warnings: tuple[str, ...] = ()
    hash: str = ""

    def notes(self) -> list[str]:
        """Return schema changes and what snapshots change, then what stops tables, then warnings."""
        changes = [f"{t.table}: {change}" for t in self.tables for change in t.schema_changes]
        changes += [f"{t.table}: {t.differences}" for t in self.tables if t.differences]
        changes += [f"{t.table}: {receiver}" for t in self.tables for receiver in t.receivers]
        if self.hash and any(t.batches for t in self.tables):
            changes.append(f"To apply this and nothing else: --approve {self.hash}")
        return changes + notes_of(self.tables, self.warnings)


def notes_of(
    tables: tuple[TableReport, ...] | tuple[PlannedTable, ...], warnings: tuple[str, ...]
) -> list[str]:
    """Say for each table why it is not current, then what it warns about, then what the zone itself does."""
    reasons = [reason_line(t.table, t.state, t.reason) for t in tables if t.reason]
    warned = [f"{t.table}: warning: {warning}" for t in tables for warning in t.warnings]
    empty = [] if tables or warnings else ["The landing zone shows no table."]
    return [*empty, *reasons, *warned, *(f"warning: {warning}" for warning in warnings)]


def reason_line(table: str, state: str, reason: str) -> str:
    """Say why a table is not current, naming it once."""
    return f"{table} is {state}: {reason.removeprefix(f'{table}: ')}"

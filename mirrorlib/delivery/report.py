"""What an export came to, table by table: for people, notebooks and machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mirrorlib.tabular import Report

State = Literal["current", "behind", "busy", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamReport:
    """What was delivered of one table.

    Attributes:
        table: its name.
        state: current, behind (the run was told to stop), busy (another runner delivers), or failed.
        windows: how many were delivered.
        rows: how many rows the receiver was given.
        resets: how many of the windows were snapshots that took the place of lost changes.
        position: the last delivered version; None before the first snapshot.
        newest: the table's newest version.
        seconds: how long it took.
        reason: why it is not current, "" when it is.

    """

    table: str
    state: State
    windows: int
    rows: int
    resets: int
    position: int | None
    newest: int | None
    seconds: float
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ExportReport(Report):
    """What was delivered of every table."""

    consumer: str
    to: str
    tables: tuple[StreamReport, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        """Say whether every table could go on."""
        return all(table.state in {"current", "behind"} for table in self.tables)

    def header(self) -> tuple[str, ...]:
        """Name the columns."""
        return ("table", "state", "windows", "rows", "version", "of", "seconds")

    def rows(self) -> list[tuple[str, ...]]:
        """Return one row a table."""
        return [
            (
                t.table,
                t.state,
                str(t.windows),
                f"{t.rows:,}",
                "-" if t.position is None else str(t.position),
                "-" if t.newest is None else str(t.newest),
                f"{t.seconds:.1f}",
            )
            for t in self.tables
        ]

    def notes(self) -> list[str]:
        """Say what was reset, and why tables failed."""
        resets = [
            f"{t.table}: changes were gone; a snapshot has taken their place."
            for t in self.tables
            if t.resets
        ]
        none = [] if self.tables else ["There is no such table."]
        return [*none, *resets, *(t.reason for t in self.tables if t.reason)]

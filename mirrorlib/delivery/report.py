"""What an export came to, table by table, and how far consumers are: for people, notebooks and machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from mirrorlib.tabular import Report, StateReport

State = Literal["current", "behind", "busy", "failed"]
Health = Literal["current", "behind", "delivering", "failed", "expiring", "expired", "unknown"]


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
    state: State = "current"
    windows: int = 0
    rows: int = 0
    resets: int = 0
    position: int | None = None
    newest: int | None = None
    seconds: float = 0.0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ExportReport(StateReport):
    """What was delivered of every table."""

    columns: ClassVar = ("table", "state", "windows", "rows", "version", "of", "seconds")
    facts: ClassVar = "table state windows rows:count position newest seconds:.1f"
    ill: ClassVar = frozenset({"busy", "failed"})
    consumer: str
    to: str
    tables: tuple[StreamReport, ...]
    seconds: float

    def notes(self) -> list[str]:
        """Say what was reset, and why tables failed."""
        gone = "changes were gone; a snapshot has taken their place."
        resets = [f"{t.table}: {gone}" for t in self.tables if t.resets]
        return [*resets, *super(ExportReport, self).notes()]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerStatus:
    """How far one consumer has come in one table.

    Attributes:
        consumer: its name.
        table: the table.
        health: current; behind (it has not been given the newest versions); delivering (a runner is at it);
            failed (the last run stopped); expiring (what it has not read may soon leave the table's log); expired
            (what it has not read is gone); unknown (no log to compare with).
        position: the last delivered version; None before the first snapshot.
        newest: the table's newest version.
        versions: how many versions lie between; None when that is not known.
        seconds: age of the oldest version that it has not been given; 0 when there is none.
        rows: rows that those versions change, as far as the log tells; None when it does not.
        to: the receiver, without passwords.
        mode: what that makes of changes.
        last: when it was given the last one, ISO 8601; None before.
        reason: why it failed, or cannot go on, or soon will not.

    """

    consumer: str
    table: str
    health: Health
    position: int | None = None
    newest: int | None = None
    versions: int | None = None
    seconds: float | None = None
    rows: int | None = None
    to: str = ""
    mode: str = ""
    last: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ConsumersReport(Report):
    """How far every consumer of a target has come."""

    columns: ClassVar = ("consumer", "table", "health", "version", "behind", "rows", "lag", "to")
    each: ClassVar = "streams"
    facts: ClassVar = "consumer table health position versions rows:count seconds:duration to"
    target: str
    streams: tuple[ConsumerStatus, ...]

    @property
    def ok(self) -> bool:
        """Say whether none has failed, lost something, or is about to."""
        return all(one.health not in {"failed", "expiring", "expired"} for one in self.streams)

    def notes(self) -> list[str]:
        """Say why streams failed."""
        none = [] if self.streams else ["No consumer is registered."]
        return [*none, *(s.reason for s in self.streams if s.reason)]

"""What is kept of a consumer: how it receives a table, which windows it was given, how each ended.

In: nothing. Out: frozen values and their JSON, which a person can read.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any, Literal

from mirrorlib.errors import FeedExpiredError, LandingZoneError
from mirrorlib.journal.plan_log import Value

Start = Literal["snapshot", "now"] | int
OnExpired = Literal["fail", "snapshot"]
Kind = Literal["changes", "snapshot"]
Outcome = Literal["delivered", "void"]


def check_start(start: object) -> None:
    """Raise `LandingZoneError` for what says nothing about where to begin: a misspelt word would mean a snapshot."""
    words: tuple[object, ...] = ("snapshot", "now")
    if start not in words and (isinstance(start, bool) or not isinstance(start, int)):
        msg = 'a consumer begins with "snapshot", "now" or a version'
        raise LandingZoneError(msg, found=repr(start)[:80], next_step="Give one of them.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream(Value):
    """One consumer's way through one table, since it was registered or rewound; moments are ISO 8601, UTC."""

    consumer: str
    table: str
    # 1 when it was registered, one more after each rewind, and when it is dropped and registered again.
    ordinal: int
    uuid: str  # random; a receiver that knows it, and a window's number, can tell a repetition
    to: str  # the receiver, without passwords
    mode: str  # what the receiver makes of changes; "" where there is one way only
    net: bool  # windows are folded to net changes
    start_at: int | None  # the version after which it begins; None when it begins with a snapshot
    table_id: str  # the Delta table's id when it began
    on_expired: OnExpired  # what happens when changes that it has not read are gone
    began_at: str
    # The Delta table's id when the first stream began; "" where that is *table_id*.
    first_table_id: str = ""
    # The hash of *start_at* in the log, "" where nobody knows it: of a table that a backup sets back it is another.
    start_hash: str = ""
    # What its state folder would know the target by: several may share one; "" where an older mirrorlib has begun it.
    target: str = ""

    @property
    def lineage(self) -> str:
        """Return what streams of one consumer and table share, and those of another target's table do not."""
        return self.first_table_id or self.table_id


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowPlan(Value):
    """One window: what is delivered as one, whole and once. Written before that, a round's behind it; never changed."""

    stream: str  # the stream's uuid
    number: int  # from 1 on
    attempt: str  # random, names this plan
    kind: Kind  # changes of the versions in (after, until], or all rows as of *until*
    # The receiver forgets what it has: changes were lost to it, and a snapshot takes their place.
    reset: bool
    after: int  # the last version before it; -1 for a snapshot
    until: int  # its last version
    until_at: str  # when that version's file was written, ISO 8601, UTC
    table_id: str
    keys: tuple[str, ...]  # the table's key columns; empty when it has none
    # Of these versions' files; "" for a snapshot's *after*, and where an older mirrorlib has planned it.
    until_hash: str = ""
    after_hash: str = ""

    @staticmethod
    def revive(known: dict[str, Any]) -> dict[str, Any]:
        """Give lists their type back."""
        return {**known, "keys": tuple(known["keys"])}


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowDone(Value):
    """How a window ended, after how many seconds and when, ISO 8601, UTC."""

    outcome: Outcome  # delivered, or void: its changes were gone before it could be delivered
    # How many rows the receiver was given; None where a former runner's delivery was found.
    rows: int | None
    seconds: float
    finished_at: str
    # The number of the last window, up to this one, whose rows the receiver was given, 0 for none; None for a round.
    given: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowEntry:
    """The newest window of a stream, and how it ended once it has."""

    plan: WindowPlan
    done: WindowDone | None

    @property
    def position(self) -> int:
        """Return the last version that was delivered."""
        delivered = self.done is not None and self.done.outcome == "delivered"
        return self.plan.until if delivered else self.plan.after


def position_of(stream: Stream, entry: WindowEntry | None) -> int | None:
    """Return the version that a stream goes on from; None when it begins with a snapshot."""
    return stream.start_at if entry is None else entry.position


def version_given(stream: Stream, entry: WindowEntry | None) -> int | None:
    """Return the last version that a stream was given; None while it has only a snapshot to come."""
    if entry is not None and entry.plan.kind == "snapshot" and entry.position == entry.plan.after:
        return None
    return position_of(stream, entry)


def last_seen(stream: Stream, entry: WindowEntry | None) -> tuple[str, int, str]:
    """Return what a stream last saw of the Delta table: its id, the version, and that one's hash, "" for unknown."""
    if entry is None:
        begins = -1 if stream.start_at is None else stream.start_at
        return stream.table_id, begins, stream.start_hash
    plan = entry.plan
    known = plan.until_hash if entry.position == plan.until else plan.after_hash
    return plan.table_id, entry.position, known


def snapshot_command(consumer: str, table: str) -> str:
    """Return the command by which a consumer is given a snapshot of one table: of the others it has no need."""
    which = f"--rewind {shlex.quote(consumer)} --to snapshot --table {shlex.quote(table)}"
    return f"mirrorlib consumers TARGET {which}"


def begin_anew(stream: Stream) -> str:
    """Say how a consumer is given a snapshot."""
    return f"Begin anew: {snapshot_command(stream.consumer, stream.table)}"


def advise_snapshot(exc: FeedExpiredError, stream: Stream) -> FeedExpiredError:
    """Add to what is told of lost history how a consumer goes on that is not given a snapshot by itself."""
    command, step = snapshot_command(stream.consumer, stream.table), exc.next_step or ""
    if stream.on_expired != "fail" or command in step:
        return exc.but()
    return exc.but(next_step=f"{step.rstrip('.')}; a consumer begins anew with: {command}")

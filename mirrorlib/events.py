"""What a run tells: each step of a table to whoever watches it, and what came of it to the log.

In: nothing. Out: `Event`, a step before it starts and after it has succeeded; and `emit`, one record of the logger
`mirrorlib.events` for each thing that has happened. Nothing here is a value of the data.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

_PLAIN = {*vars(logging.makeLogRecord({})), "asctime", "message", "taskName"}
STOPPED = frozenset({"blocked", "failed"})
When = Literal["before", "after"]
LOG = logging.getLogger(__name__)  # what it is given is told to every handler that listens there
# Where nobody listens, Python would print what the report says already.
LOG.addHandler(logging.NullHandler())


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One step of one table's run, told before it starts and after it has succeeded.

    Attributes:
        table: "dbo/orders".
        step: list, read, plan, guard, create, widen, rewrite, pause, resume, fence, stage, commit, deliver, void or
            done.
        when: "before" or "after".
        batch: the batch's number, None while there is none.
        files: change files in the batch (for list: files that the folder shows).
        rows: rows in the batch.
        waits: for read, how many files are still to be read or applied, this batch's included.

    """

    table: str
    step: str
    when: When
    batch: int | None = None
    files: int = 0
    rows: int = 0
    waits: int = 0


Observer = Callable[[Event], None]


def unobserved(_: Event) -> None:
    """Let nobody watch."""


def emit(event: str, text: str, *, well: bool = True, **facts: object) -> None:
    """Tell the log what has happened: *text* formats *facts*, which are attributes of the record (how-to/events.md)."""
    level = logging.INFO if well else logging.WARNING
    LOG.log(level, text, facts, extra={"event": event, **facts}, stacklevel=2)


def is_unsettled(state: str, file: str | None) -> bool:
    """Say whether a table that had stopped may not be past it: it is behind, or waits before any file was looked at."""
    return state == "behind" or (state == "waiting" and file is None)


def emit_state(before: str, **facts: Any) -> None:  # noqa: ANN401  # what `emit` takes
    """Tell that a table has stopped, each time, and that one goes on which had stopped before."""
    state, text = facts["state"], "%(table)s: %(state)s %(reason)s"
    if state in STOPPED:
        name = "block" if state == "blocked" else "failure"
        emit(name, text, well=False, before=before, **facts)
    elif before in STOPPED and not is_unsettled(state, facts.get("file")):
        emit("recovery", text, before=before, **facts)


def pick(value: object, *names: str) -> dict[str, Any]:
    """Take attributes of a value for facts."""
    return {name: getattr(value, name) for name in names}


def facts_of(record: logging.LogRecord) -> dict[str, Any]:
    """Return what an event's record says, but for what is not known."""
    return {k: v for k, v in vars(record).items() if k not in _PLAIN and v is not None}

"""What a run tells while it goes on: a step of a table, before it starts and after it has succeeded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One step of one table's run, told before it starts and after it has succeeded.

    Attributes:
        table: "dbo/orders".
        step: list, read, plan, guard, create, widen, rewrite, fence, stage, commit, void, done or
            clean.
        when: "before" or "after".
        batch: the batch's number, None while there is none.
        files: change files in the batch (for list: files that wait).
        rows: rows in the batch.

    """

    table: str
    step: str
    when: Literal["before", "after"]
    batch: int | None = None
    files: int = 0
    rows: int = 0


Observer = Callable[[Event], None]


def unobserved(event: Event) -> None:
    """Let nobody watch."""
    del event

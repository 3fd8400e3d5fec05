"""Keep count of a run while it goes on: a line for each table, in a terminal and in a notebook's cell.

In: the events of a run. Out: `Board`, a table of what each table is at. Promise: seconds that are left are said once
a batch of this run has been measured, and not before.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from mirrorlib.events import Event, Observer
from mirrorlib.tabular import Tabular, duration

_LINES = 15  # tables that are listed; a zone may have a thousand
_BAR = 12  # characters
_LIVE, _PRINTED = 0.5, 10.0  # seconds between two pictures


@dataclass(slots=True)
class _Course:
    """One table's way through the run."""

    doing: str = ""
    files: int = 0  # that are through
    waits: int = 0  # files that are not, those in work included
    work: int = 0  # files in work
    rows: int = 0  # that are through
    coming: int = 0  # rows in work
    began: float = field(default_factory=time.monotonic)
    at: float = 0.0  # when the last batch was through

    @property
    def done(self) -> bool:
        """Say whether nothing is left that is known of."""
        return self.doing in ("", "done") and not self.waits

    def take(self, event: Event) -> None:
        """Take in a step."""
        self.coming = event.rows or self.coming
        if event.when == "before":
            self.doing = event.step
            if event.waits:
                self.waits, self.work = event.waits, event.files
        elif event.step == "list":
            self.doing = ""
        elif event.step == "done":
            self.doing = "done"
            self.files, self.waits = self.files + event.files, max(0, self.waits - event.files)
            self.rows, self.coming, self.at = self.rows + self.coming, 0, time.monotonic()


class Board(Tabular):
    """What every table of a run is at; filled by several threads."""

    columns: ClassVar = ("table", "", "files", "rows", "", "left")

    def __init__(self) -> None:
        """Begin, with no table."""
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._courses: dict[str, _Course] = {}

    def observe(self, event: Event) -> None:
        """Take in a step of a table."""
        with self._lock:
            self._courses.setdefault(event.table, _Course()).take(event)

    def rows(self) -> list[tuple[str, ...]]:
        """Return a row for each table, those in work first."""
        with self._lock:
            known = sorted(self._courses.items(), key=lambda one: one[1].done)[:_LINES]
            return [(table, *self._cells(one)) for table, one in known]

    def notes(self) -> list[str]:
        """Say how many tables are through, and what they held."""
        with self._lock:
            every = list(self._courses.values())
        through, files, rows = (
            sum(getattr(one, what) for one in every) for what in ("done", "files", "rows")
        )
        spent = duration(time.monotonic() - self._began)
        held = "".join(f" {what}: {n:,}." for what, n in (("Files", files), ("Rows", rows)) if n)
        return [f"Begun: {len(every):,}, through: {through:,}.{held} Time: {spent}."]

    def _cells(self, one: _Course) -> tuple[str, ...]:
        every = one.files + one.waits
        full = round(_BAR * one.files / every) if every else 0
        left = self._left(one)
        return (
            "█" * full + "░" * (_BAR - full) if every else "",
            f"{one.files:,} of {every:,}" if every else "-",
            f"{one.rows:,}" + (f" + {one.coming:,}" if one.coming else ""),
            one.doing or "nothing new",
            "" if one.done else "-" if left is None else duration(left),
        )

    def _left(self, one: _Course) -> float | None:
        """Judge a table by its own batches; before its first one, its rows by those of others."""
        if one.files:
            whole = (one.at - one.began) / one.files * one.waits
            return max(0.0, whole - (time.monotonic() - one.at))
        others = [other for other in self._courses.values() if other.rows and other.at]
        if not (others and one.coming and one.work):
            return None
        pace = sum(other.at - other.began for other in others) / sum(other.rows for other in others)
        return max(0.0, pace * one.coming * one.waits / one.work - (time.monotonic() - one.began))


class _Line(str):
    """A text that a cell shows as it is."""

    __slots__ = ()
    __repr__ = str.__str__


@contextlib.contextmanager
def show_in_cell(*, live: bool) -> Iterator[Observer]:
    """Give an observer that shows a board in a notebook's cell: *live* in one place, else printed now and then."""
    board, ended, pause = Board(), threading.Event(), _PRINTED
    show: Callable[[object], object] = print
    shell = sys.modules.get("IPython")  # which every kernel has imported
    if live and shell is not None and shell.get_ipython() is not None:
        show, pause = shell.display.display(board, display_id=True).update, _LIVE

    def draw() -> None:
        while not ended.wait(pause):
            show(board)

    thread = threading.Thread(target=draw, name="progress", daemon=True)
    thread.start()
    try:
        yield board.observe
    finally:
        ended.set()
        thread.join()
        show(_Line(*board.notes()))  # the report, which comes next, has the rest

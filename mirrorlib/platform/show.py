"""Draw reports and progress for the person in front of a terminal; plain text where there is none, or no rich.

In: reports and events. Out: standard output for reports, standard error for progress.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from typing import TYPE_CHECKING

try:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TaskID,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.table import Table
    from rich.text import Text
except ImportError:  # the bare wheel on a platform: reports print themselves
    HAS_RICH = False
else:
    HAS_RICH = True

from mirrorlib.tabular import Cell

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirrorlib.events import Event, Observer
    from mirrorlib.tabular import Tabular

_COLOURS = {
    "current": "green",
    "behind": "yellow",
    "waiting": "cyan",
    "gone": "magenta",
    "blocked": "bold yellow",
    "failed": "bold red",
    "insert": "green",
    "update": "yellow",
    "delete": "red",
    "before": "red",
    "after": "green",
    "enabled": "green",
    "refused": "bold red",
    "delivering": "cyan",
    "busy": "yellow",
    "expiring": "bold yellow",
    "expired": "bold red",
    "vacuumed": "green",
    "ready": "green",
}
_DOING = {
    "list": "looking",
    "read": "reading",
    "stage": "folding",
    "commit": "committing",
    "void": "voiding",
    "deliver": "delivering",
}


def show_report(report: Tabular) -> None:
    """Print a report: in colours on a terminal, as plain text elsewhere."""
    if not (HAS_RICH and sys.stdout.isatty()):
        sys.stdout.write(f"{report}\n")
        sys.stdout.flush()
        return
    console = Console()
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    # Only the first column, a table's name, may fold.
    for place, name in enumerate(report.header()):
        table.add_column(escape(name), no_wrap=place > 0, overflow="fold")
    for row in report.rows():
        table.add_row(*[_coloured(cell) for cell in row])
    console.print(table)
    for note in report.notes():
        console.print(note, markup=False, highlight=False, soft_wrap=True)


@contextlib.contextmanager
def show_progress(*, quiet: bool = False) -> Iterator[Observer]:
    """Give an observer that draws one bar a table in work, and nothing where nobody looks."""
    if quiet or not (HAS_RICH and sys.stderr.isatty()):
        yield _ignore
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("files  {task.fields[doing]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield _Bars(progress).observe


def _ignore(event: Event) -> None:
    del event


class _Bars:
    """One bar a table; events come from several threads."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}
        self._lock = threading.Lock()

    def observe(self, event: Event) -> None:
        with self._lock:
            task = self._tasks.get(event.table)
            if task is None:
                task = self._progress.add_task(escape(event.table), total=None, doing="")
                self._tasks[event.table] = task
        if event.when == "before" and event.step in _DOING:
            self._progress.update(
                task,
                doing=f"{_DOING[event.step]} {event.rows:,} rows"
                if event.rows
                else _DOING[event.step],
            )
        elif event.step == "read":
            self._progress.update(task, total=event.files)
        elif event.step == "done" and event.when == "after":
            self._progress.update(task, advance=event.files)


def _coloured(cell: str) -> Text:
    """Colour a state, or the parts of a cell; whatever the text is, it is no markup."""
    if not isinstance(cell, Cell):
        return Text(cell, style=_COLOURS.get(cell, ""))
    parts = [p if isinstance(p, str) else (p[0], _COLOURS[p[1]]) for p in cell.parts]
    return Text.assemble(*parts)

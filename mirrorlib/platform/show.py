"""Draw reports and progress for the person in front of a terminal; plain text where there is none, or no rich.

In: reports and events. Out: standard output for reports, standard error for progress.
"""

from __future__ import annotations

import contextlib
import sys
import threading

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

from collections.abc import Iterator

from mirrorlib.events import Event, Observer, unobserved
from mirrorlib.tabular import Cell, Tabular

_WORDS = {
    "green": ("current", "insert", "after", "enabled", "vacuumed", "ready", "equal"),
    "yellow": ("behind", "update", "busy"),
    "red": ("delete", "before"),
    "cyan": ("waiting", "delivering"),
    "magenta": ("gone",),
    "bold yellow": ("blocked", "expiring"),
    "bold red": ("failed", "refused", "expired", "different", "not verified"),
}
_COLOURS = {word: colour for colour, words in _WORDS.items() for word in words}
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
        yield unobserved
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("files  {task.fields[doing]}"),
        TimeElapsedColumn(),
    )
    tasks: dict[str, TaskID] = {}
    lock = threading.Lock()  # events come from several threads
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:

        def observe(event: Event) -> None:
            with lock:
                if event.table not in tasks:
                    tasks[event.table] = progress.add_task(
                        escape(event.table), total=None, doing=""
                    )
            task = tasks[event.table]
            if event.when == "before" and event.step in _DOING:
                rows = f" {event.rows:,} rows" if event.rows else ""
                progress.update(task, doing=f"{_DOING[event.step]}{rows}")
            elif event.step == "read":
                progress.update(task, total=event.files)
            elif event.step == "done" and event.when == "after":
                progress.update(task, advance=event.files)

        yield observe


def _coloured(cell: str) -> Text:
    """Colour a state, or the parts of a cell; whatever the text is, it is no markup."""
    if not isinstance(cell, Cell):
        return Text(cell, style=_COLOURS.get(cell, ""))
    parts = [p if isinstance(p, str) else (p[0], _COLOURS[p[1]]) for p in cell.parts]
    return Text.assemble(*parts)

"""Draw reports and progress for the person in front of a terminal; plain text where there is none, or no rich.

In: reports and events. Out: standard output for reports, standard error for progress.
"""

from __future__ import annotations

import contextlib
import sys

try:
    from rich.box import SIMPLE_HEAD
    from rich.cells import cell_len
    from rich.console import Console
    from rich.live import Live
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text
except ImportError:  # the bare wheel on a platform: reports print themselves
    HAS_RICH = False
else:
    HAS_RICH = True

from collections.abc import Iterator

from mirrorlib.events import Observer, unobserved
from mirrorlib.platform.progress import Board
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
_LONGEST = 60  # columns of a terminal that a cell takes before it folds
_COLOURS = {word: colour for colour, words in _WORDS.items() for word in words}


def show_report(report: Tabular) -> None:
    """Print a report: in colours on a terminal, as plain text elsewhere."""
    if not (HAS_RICH and sys.stdout.isatty()):
        sys.stdout.write(f"{report}\n")
        sys.stdout.flush()
        return
    console, drawn = Console(), _drawn(report)
    # Too narrow a terminal breaks lines: a column that was cut would show other numbers.
    least = console.measure(drawn, options=console.options.update_width(10_000)).minimum
    Console(width=max(console.width, least)).print(drawn)
    for note in report.notes():
        console.print(note, markup=False, highlight=False, soft_wrap=True)


@contextlib.contextmanager
def show_progress(*, quiet: bool = False) -> Iterator[Observer]:
    """Give an observer that draws a line for each table in work, and nothing where nobody looks."""
    if quiet or not (HAS_RICH and sys.stderr.isatty()):
        yield unobserved
        return
    board = Board()
    console = Console(stderr=True)
    with Live(get_renderable=lambda: _drawn(board), console=console, transient=True):
        yield board.observe


def _drawn(report: Tabular) -> Table:
    """Draw the rows of a report; only the first column, a table's name, and long texts may fold."""
    table, rows = Table(box=SIMPLE_HEAD, pad_edge=False), [*report.rows()]
    for place, name in enumerate(report.columns):
        longest = max(cell_len(str(cell)) for cell in (name, *(row[place] for row in rows)))
        least = min(longest, _LONGEST) if place else None
        table.add_column(escape(name), min_width=least, overflow="fold")
    for row in rows:
        table.add_row(*[_coloured(cell) for cell in row])
    return table


def _coloured(cell: str) -> Text:
    """Colour a state, or the parts of a cell; whatever the text is, it is no markup."""
    if not isinstance(cell, Cell):
        return Text(cell, style=_COLOURS.get(cell, ""))
    parts = [p if isinstance(p, str) else (p[0], _COLOURS[p[1]]) for p in cell.parts]
    return Text.assemble(*parts)

"""A run's board says how far each table is, and what is left once something was measured."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mirrorlib.events import Event
from mirrorlib.platform.progress import Board, show_in_cell

if TYPE_CHECKING:
    import pytest


def tell(board: Board, table: str, step: str, **facts: int) -> None:
    """Tell a step, before and after."""
    board.observe(Event(table=table, step=step, when="before", **facts))  # type: ignore[arg-type]
    board.observe(Event(table=table, step=step, when="after", **facts))  # type: ignore[arg-type]


def test_a_table_shows_files_rows_and_seconds_left() -> None:
    """None before the first batch; then by its own pace, or by that of others."""
    board = Board()
    tell(board, "idle", "list", files=9)
    tell(board, "orders", "read", files=2, waits=5)
    tell(board, "orders", "plan", files=2, rows=500)
    before = {row[0]: row[1:] for row in board.rows()}
    time.sleep(0.3)
    tell(board, "orders", "done", files=2, rows=500)
    tell(board, "items", "read", files=1, waits=1)
    tell(board, "items", "plan", files=1, rows=50_000)

    after = {row[0]: row[1:] for row in board.rows()}

    assert ("░" * 12, "0 of 5", "0 + 500", "plan", "-") == before["orders"]
    assert ("", "-", "0", "nothing new", "") == before["idle"]
    assert ("█" * 5 + "░" * 7, "2 of 5", "500", "done") == after["orders"][:4]
    assert 20 <= int(after["items"][4].removesuffix(" s")) <= 60
    assert ["orders", "items", "idle"] == [row[0] for row in board.rows()]
    assert board.notes()[0].startswith("Begun: 3, through: 1. Files: 2. Rows: 500.")


def test_where_no_cell_can_be_redrawn_one_line_is_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As in Fabric, and where nobody looks; a run that has failed leaves it, too."""
    with show_in_cell(live=False) as observe:
        observe(Event(table="orders", step="read", when="before", files=1, waits=1))

    assert capsys.readouterr().out.startswith("Begun: 1, through: 0. Time: ")

"""The page for whoever carries on names rooms and functions that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.splitlines() if line.startswith("|") and "`" in line]
WORD = re.compile(r"`([a-z_/]+(?:\.py|/))`|`([a-z_]+)`")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip()[:40])
def test_a_row_leads_to_a_room_that_is_there(row: str) -> None:
    """A file without a folder lies beside the one before it; a function is in the file before it."""
    room = ROOT / "mirrorlib"
    for path, function in WORD.findall(row):
        if path:
            near = room.parent / path
            room = near if near.exists() else ROOT / "mirrorlib" / path
            room = room if room.exists() else ROOT / path
            assert room.exists(), path
        elif room.is_file():
            assert re.search(
                rf"^def {function}\b|^    def {function}\b", room.read_text(), re.MULTILINE
            ), function

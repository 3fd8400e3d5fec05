"""`docs/bad-input.md` promises messages; each is in the code."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "bad-input.md").read_text(encoding="utf-8")


def promised() -> list[str]:
    """Return the message of every table row."""
    rows = [line.split(" | ") for line in PAGE.splitlines() if line.startswith("| ")]
    cells = [row[1].strip() for row in rows if len(row) == 4]  # the tables' width
    return [cell.strip("`") for cell in cells if cell.startswith("`")]


@cache
def source() -> str:
    """Return the whole package as one text, each literal on one line."""
    texts = (path.read_text(encoding="utf-8") for path in (ROOT / "mirrorlib").rglob("*.py"))
    return "\n".join(texts).replace("\\\\", "\\")


@pytest.mark.parametrize("message", promised())
def test_a_promised_message_is_in_the_code(message: str) -> None:
    """What the page quotes is what a report says."""
    assert message in source()


def test_the_page_promises_something() -> None:
    """The rows were found."""
    assert len(promised()) > 40  # of about fifty

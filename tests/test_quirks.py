"""Every quirk of the publishers in the wild (Q1 to Q41) has a test that says so."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
_NAMED = re.compile(r"\bQ(\d+)(?:-Q?(\d+))?")
_LAST = 41


@cache
def named() -> set[int]:
    """Return the quirks that tests and cases name, and that look at something."""
    found: set[int] = set()
    for path in TESTS.rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.FunctionDef) or not looks(node):
                continue
            text = f"{node.name.upper().replace('_', ' ')} {ast.get_docstring(node)}"
            for first, last in _NAMED.findall(text):
                found |= set(range(int(first), int(last or first) + 1))
    return found


def looks(function: ast.FunctionDef) -> bool:
    """Say whether a function is a test, or a case of one, that asserts, expects an error or says what is wanted."""
    if not (function.name.startswith("test_") or function.decorator_list):
        return False
    return any(
        isinstance(node, ast.Assert | ast.Yield)
        or (isinstance(node, ast.Attribute) and node.attr.startswith(("assert_", "raises")))
        for node in ast.walk(function)
    )


@pytest.mark.parametrize("quirk", range(1, _LAST + 1))
def test_every_quirk_has_a_test(quirk: int) -> None:
    """By its number in the name or docstring of what shows that it is accepted, or refused with a reason."""
    assert quirk in named()

"""docs/check.md lists every rule as the catalogue has it, and the catalogue is worth listing."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from mirrorlib.landing.check.report import (
    RULES,
    SEVERITIES,
    CheckedTable,
    CheckReport,
    Finding,
)

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "check.md"
SOURCES = [
    path for path in (ROOT / "mirrorlib/landing/check").glob("*.py") if path.name != "rules.py"
]


def cells(line: str) -> list[str]:
    """Split a row of a Markdown table."""
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


@pytest.mark.parametrize("severity", SEVERITIES)
def test_the_page_lists_the_rules_as_they_are(severity: str) -> None:
    """By severity, with their titles and fixes; what either side makes of it is told in sentences."""
    table = PAGE.read_text(encoding="utf-8").split(f"### {severity.capitalize()}s\n")[1]
    rows = [cells(line) for line in table.strip().split("\n\n")[0].splitlines()[2:]]

    told = {name.strip("`"): (severity, title, fix) for name, title, _, _, fix in rows}
    assert told == {name: rule for name, rule in RULES.items() if rule.severity == severity}
    assert all(text.endswith(".") for _, _, fabric, ours, _ in rows for text in (fabric, ours))


@pytest.mark.parametrize("value", [CheckReport, CheckedTable, Finding])
def test_the_page_explains_every_key_of_the_json(value: type) -> None:
    """Nothing is in the JSON that the page does not name."""
    page = PAGE.read_text(encoding="utf-8")

    assert [] == [field.name for field in fields(value) if f"`{field.name}`" not in page]
    assert all(f"`{key}`" in page for key in ("ok", "errors", "warnings", "notes"))


@pytest.mark.parametrize("name", RULES)
def test_a_rule_is_told_in_full(name: str) -> None:
    """Its name is kebab-case, its title a clause, its fix a sentence."""
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", name)
    assert not RULES[name].title.endswith(".")
    assert RULES[name].fix.endswith(".")


def test_rules_have_names_of_their_own() -> None:
    """No rule hides another of the same name."""
    written = (ROOT / "mirrorlib/landing/check/rules.py").read_text()

    assert len(RULES) == len(re.findall(r"^[a-z-]+: ", written, flags=re.MULTILINE))


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_is_looked_for(rule: str) -> None:
    """Some room names it."""
    assert any(f'"{rule}"' in path.read_text() for path in SOURCES)

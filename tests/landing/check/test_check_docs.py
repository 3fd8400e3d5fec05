"""docs/check.md lists every rule as the catalogue has it, and the catalogue is worth listing."""

from __future__ import annotations

import os
import re
from dataclasses import fields
from pathlib import Path

import pytest

from mirrorlib.landing.check.report import CheckedTable, CheckReport, Finding
from mirrorlib.landing.check.rules import RULES
from mirrorlib.landing.check.rules.rule import SEVERITIES, Rule

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "check.md"
BEGIN, END = "<!-- rules: begin -->\n", "<!-- rules: end -->\n"
SOURCES = list((ROOT / "mirrorlib/landing/check").glob("*.py"))


def rules_table() -> str:
    """Write the catalogue as Markdown, the worst first."""
    lines = []
    for severity in SEVERITIES:
        lines += [f"\n### {severity.capitalize()}s\n"]
        lines += ["| rule | what | Fabric | mirrorlib | fix |", "|---|---|---|---|---|"]
        lines += [
            "| "
            + " | ".join(
                cell.replace("|", "\\|")
                for cell in (f"`{rule.id}`", rule.title, rule.fabric, rule.mirrorlib, rule.fix)
            )
            + " |"
            for rule in RULES.values()
            if rule.severity == severity
        ]
    return "\n".join(lines) + "\n\n"


def test_the_page_lists_the_rules_as_they_are() -> None:
    """Set UPDATE_DOCS=1 to write the table anew."""
    page = PAGE.read_text(encoding="utf-8")
    head, rest = page.split(BEGIN)
    table, tail = rest.split(END)
    if os.environ.get("UPDATE_DOCS"):
        PAGE.write_text(f"{head}{BEGIN}{rules_table()}{END}{tail}", encoding="utf-8")
        return

    assert rules_table() == table, "docs/check.md is stale: run this test with UPDATE_DOCS=1"


@pytest.mark.parametrize("value", [CheckReport, CheckedTable, Finding])
def test_the_page_explains_every_key_of_the_json(value: type) -> None:
    """Nothing is in the JSON that the page does not name."""
    page = PAGE.read_text(encoding="utf-8")

    assert [] == [field.name for field in fields(value) if f"`{field.name}`" not in page]
    assert all(f"`{key}`" in page for key in ("ok", "errors", "warnings", "notes"))


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.id)
def test_a_rule_is_told_in_full(rule: Rule) -> None:
    """Its name is kebab-case, its title a clause, its other texts sentences."""
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", rule.id)
    assert rule.severity in SEVERITIES
    assert not rule.title.endswith(".")
    assert all(text.endswith(".") for text in (rule.fabric, rule.mirrorlib, rule.fix))
    assert rule.fabric in rule.why
    assert rule.mirrorlib in rule.why


def test_rules_have_names_of_their_own() -> None:
    """No rule hides another of the same name."""
    written = "".join(
        path.read_text() for path in PAGE.parents[1].glob("mirrorlib/landing/check/rules/*.py")
    )

    assert len(RULES) == len(re.findall(r"^        id=", written, flags=re.MULTILINE))


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_is_looked_for(rule: str) -> None:
    """Some room names it."""
    assert any(f'"{rule}"' in path.read_text() for path in SOURCES)

"""Collect what the rooms find about one table, without drowning its reader in repetitions.

In: rule ids with facts. Out: `Finding` values, the worst first. A warning or note that many files
share is listed once with the number of the others; of errors of one rule the first hundred are
listed.
"""

from __future__ import annotations

from dataclasses import replace

from mirrorlib.errors import printable
from mirrorlib.landing.check.report import Finding
from mirrorlib.landing.check.rules import RULES
from mirrorlib.landing.check.rules.rule import SEVERITIES

ERRORS_LISTED = 100  # of one rule in one table


class Findings:
    """What was found in one table, or in the zone as a whole; filled by one thread."""

    def __init__(self, table: str | None) -> None:
        self._table = table
        self._listed: dict[tuple[object, ...], list[Finding]] = {}
        self._more: dict[tuple[object, ...], int] = {}

    def add(
        self,
        rule: str,
        found: str,
        *,
        file: str | None = None,
        column: str | None = None,
        row: int | None = None,
        line: int | None = None,
        fix: str | None = None,
    ) -> None:
        """Note that a rule is broken; *fix* when it is more than the rule's own advice."""
        broken = RULES[rule]
        finding = Finding(
            severity=broken.severity,
            rule=rule,
            title=broken.title,
            table=self._table,
            file=None if file is None else printable(file),
            column=None if column is None else printable(column),
            row=row,
            line=line,
            found=found,
            fix=broken.fix if fix is None else fix,
        )
        error = broken.severity == "error"
        same = (rule,) if error else (rule, column, found)
        listed = self._listed.setdefault(same, [])
        if len(listed) < (ERRORS_LISTED if error else 1):
            listed.append(finding)
        elif file != listed[-1].file:
            self._more[same] = self._more.get(same, 0) + 1

    def all(self) -> tuple[Finding, ...]:
        """Return the findings, the worst first, else in the order in which they were found."""
        found = [
            finding if finding is not listed[-1] else replace(finding, more=self._more.get(same, 0))
            for same, listed in self._listed.items()
            for finding in listed
        ]
        return tuple(sorted(found, key=lambda finding: SEVERITIES.index(finding.severity)))

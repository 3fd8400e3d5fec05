"""What a review found: values that print as a table, render in a notebook and turn into JSON.

Nothing here looks at a zone; the rooms beside fill these values in.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from html import escape
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

from mirrorlib.errors import MirrorError, place_in, printable
from mirrorlib.landing.check.rules import ERRORS, NOTES, WARNINGS
from mirrorlib.tabular import Report, shown_moment

ERRORS_LISTED = 100  # of one rule in one table
_COLOURS = ("#a91e2c", "#c98a14", "#2f9e77")  # of errors, of warnings, of neither

Severity: TypeAlias = Literal["error", "warning", "note"]

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")


class Rule(NamedTuple):
    """How bad it is to break a rule, what is wrong then, a clause, and what the publisher should do."""

    severity: Severity
    title: str
    fix: str


_RULE = re.compile(r"^(.+?): (.+)\n +(.+)$", re.MULTILINE)
RULES = {
    name: Rule(severity, title, fix)
    for severity, rules in zip(SEVERITIES, (ERRORS, WARNINGS, NOTES), strict=True)
    for name, title, fix in _RULE.findall(rules)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong in a zone.

    Attributes:
        severity: "error", "warning" or "note".
        rule: which rule it breaks, as `docs/check.md` lists them.
        title: what the rule is about, a clause.
        table: "dbo/orders", None for the zone as a whole.
        file: relative to the table's folder, or to the zone where *table* is None.
        column: the column's name.
        row: the first such row, counted from 0 without the header.
        line: the line of delimited text on which that row begins, counted from 1, where it is known.
        found: what is there; never a value of the data, except row markers.
        fix: what the publisher should do.
        more: how many other files of the table show the same and are not listed.

    """

    severity: Severity
    rule: str
    title: str
    table: str | None
    file: str | None = None
    column: str | None = None
    row: int | None = None
    found: str
    fix: str
    more: int = 0
    line: int | None = None

    def __str__(self) -> str:
        """Say it in one line."""
        place = place_in(self.file, self.row, self.line, self.column)
        files = "file" if self.more == 1 else "files"
        others = f", and {self.more:,} more {files}" if self.more else ""
        head = ": ".join(part for part in (self.table, f"{place}{others}", self.title) if part)
        return f"{self.severity} [{self.rule}] {head} ({self.found}). {self.fix}"


def tell_claim(error: MirrorError) -> str:
    """Say what is broken, and what was there instead."""
    return error.reason if error.found is None else f"{error.reason}: {error.found}"


class Findings:
    """What was found in one table, or in the zone as a whole; filled by one thread."""

    def __init__(self, table: str | None) -> None:
        self._table = table
        self._listed: dict[tuple[object, ...], list[Finding]] = {}

    def add(
        self, rule: str, found: str, *, fix: str | None = None, **place: str | int | None
    ) -> None:
        """Note that a rule is broken: in a file, column, row or line; *fix* where it is more than the rule's advice."""
        broken = RULES[rule]
        shown = {name: printable(it) if isinstance(it, str) else it for name, it in place.items()}
        finding = Finding(
            severity=broken.severity,
            rule=rule,
            title=broken.title,
            table=self._table,
            found=printable(found),
            fix=broken.fix if fix is None else fix,
            **shown,  # type: ignore[arg-type]  # its own parameters
        )
        error = broken.severity == "error"
        same = (rule,) if error else (rule, place.get("column"), found)
        listed = self._listed.setdefault(same, [])
        if len(listed) < (ERRORS_LISTED if error else 1):
            listed.append(finding)
        elif place.get("file") != listed[-1].file:
            listed[-1] = replace(listed[-1], more=listed[-1].more + 1)

    def all(self) -> tuple[Finding, ...]:
        """Return the findings, the worst first, else in the order in which they were found."""
        found = (finding for listed in self._listed.values() for finding in listed)
        return tuple(sorted(found, key=lambda finding: SEVERITIES.index(finding.severity)))


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedTable:
    """One table folder: how many change files it shows, when they were written, and how many findings it has.

    *first* and *last* are ISO 8601, UTC; None where there is no file.
    """

    table: str
    files: int
    errors: int
    warnings: int
    notes: int
    first: str | None = None
    last: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CheckReport(Report):
    """Everything that a review found in a zone.

    Attributes:
        landing_zone: where it lies.
        strict: whether warnings count as errors do.
        deep: whether every page of every file was decoded.
        tables: every table folder that was reviewed.
        findings: those of the zone first, then table by table, the worst first.

    """

    columns: ClassVar = ("table", "files", "errors", "warnings", "notes")
    facts: ClassVar = "table files:count errors:count warnings:count notes:count"
    landing_zone: str
    strict: bool
    deep: bool
    tables: tuple[CheckedTable, ...]
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Say whether there is no error, and, when strict, no warning."""
        counted = ("error", "warning") if self.strict else ("error",)
        return not any(finding.severity in counted for finding in self.findings)

    def count(self, severity: Severity) -> int:
        """Return how many findings are of one severity."""
        return sum(finding.severity == severity for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-ready values; the shape is a contract, see docs/check.md."""
        counts = {f"{severity}s": self.count(severity) for severity in SEVERITIES}
        return {"ok": self.ok, **counts, **asdict(self)}

    def notes(self) -> list[str]:
        """Return every finding, a line each."""
        return [str(finding) for finding in self.findings] or ["Nothing was found."]

    def _repr_html_(self) -> str:
        """Draw in a notebook, below the table, when each table's files came, in the colour of its worst finding."""
        came = [(t, t.first, t.last) for t in self.tables if t.first and t.last]
        if not came:
            return Report._repr_html_(self)
        since, until = min(first for _, first, _ in came), max(last for _, _, last in came)
        scale, drawn = 98 / (_seconds(since, until) or 1), []
        for t, first, last in came:
            left, width = _seconds(since, first) * scale, _seconds(first, last) * scale + 2
            colour = _COLOURS[0 if t.errors else 1 if t.warnings else 2]
            bar = f"margin-left:{left:.2f}%;width:{width:.2f}%;height:12px;background:{colour}"
            drawn.append(f'{escape(t.table)}: {t.files:,} files<div style="{bar}"></div>')
        axis = f"When files came: {shown_moment(since)} to {shown_moment(until)} UTC"
        drawing = f'<div style="max-width:60rem">{"".join(drawn)}</div>'
        return f"{Report._repr_html_(self)}<p>{axis}</p>{drawing}"


def _seconds(since: str, until: str) -> float:
    return (datetime.fromisoformat(until) - datetime.fromisoformat(since)).total_seconds()

"""Show rows to people: as aligned text in a terminal, as a table in a notebook. The base of every report.

A value that names its columns, its rows and its notes gets both for nothing; hosts with colours
(see `show.py`) draw the same three lists their own way.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import Field, asdict, dataclass
from html import escape
from typing import Any, ClassVar, Self

from mirrorlib.errors import MirrorError
from mirrorlib.events import STOPPED

_MINUTE, _HOUR, _DAY = 60, 3600, 86400  # seconds


Part = str | tuple[str, str]  # a text, or one and what it stands for


class Cell(str):
    """A cell of parts that stand for something, "before" or "after"; hosts with colours give each its own."""

    __slots__ = ("parts",)
    parts: tuple[Part, ...]

    def __new__(cls, parts: Sequence[Part]) -> Self:
        """Join the parts."""
        cell = super().__new__(cls, "".join(p if isinstance(p, str) else p[0] for p in parts))
        cell.parts = tuple(parts)
        return cell


class Tabular:
    """A value that prints as a table. Subclasses give `columns`, `notes`, and `rows` or what these are made of.

    Where there is a row for *each* value in a field, *facts* are what `cells` shows of one.
    """

    __slots__ = ()
    columns: ClassVar[tuple[str, ...]]
    each: ClassVar[str] = "tables"
    facts: ClassVar[str] = ""

    def rows(self) -> list[tuple[str, ...]]:
        """Return the rows, every cell as text."""
        return [cells(one, self.facts) for one in getattr(self, self.each)]

    def notes(self) -> list[str]:
        """Return sentences to be shown below the table."""
        return []

    def __str__(self) -> str:
        """Align the columns; numbers stand right."""
        lines = [self.columns, *self.rows()]
        widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
        text = ["  ".join(map(_aligned, line, widths)).rstrip() for line in lines]
        rule = "  ".join("-" * width for width in widths)
        return "\n".join([text[0], rule, *text[1:], *self.notes()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(cell)}</th>" for cell in self.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
            for row in self.rows()
        )
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes())
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"


class Report(Tabular):
    """What a whole call came to. Subclasses are dataclasses, and say when all is not well."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]  # only said, as `asdict` asks for it

    @property
    def ok(self) -> bool:
        """Say whether all is well, as where something was only told."""
        return True

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-ready values; the shape is a contract."""
        return {"ok": self.ok, **asdict(self)}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PartReport(Report):
    """A report that may lack something: *failures* say what could not be read, and why."""

    failures: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Say whether nothing is missing."""
        return not self.failures

    def notes(self) -> list[str]:
        """Say what is missing."""
        return list(self.failures)


@contextlib.contextmanager
def noted(failures: list[str]) -> Iterator[None]:
    """Note what cannot be read of one table: it takes no other along."""
    try:
        yield
    except MirrorError as exc:
        failures.append(str(exc))


class StateReport(Report):
    """A report on tables, each of which has a state, and a reason where there is something to say of it."""

    __slots__ = ()
    ill: ClassVar[frozenset[str]] = STOPPED  # states in which a table is not well
    tables: Sequence[Any]  # only said: a property would be taken for a field's default

    @property
    def ok(self) -> bool:
        """Say whether every table is well."""
        return not any(table.state in self.ill for table in self.tables)

    def notes(self) -> list[str]:
        """Say the reasons."""
        none = [] if self.tables else ["There is no such Delta table."]
        return [*none, *(table.reason for table in self.tables if table.reason)]


def cells(value: object, facts: str) -> tuple[str, ...]:
    """Show attributes of a value, "-" for one that is None, "" or ().

    *facts* are words, "name" or "name:how", as in "table rows:count seconds:.1f": how is a key of `_SHOWN`, or a
    format as Python has them. Of a tuple of texts all are shown.
    """
    asked = (fact.partition(":") for fact in facts.split())
    return tuple(_cell(getattr(value, name), how) for name, _, how in asked)


def _cell(fact: Any, how: str) -> str:  # noqa: ANN401  # whatever an attribute is
    text = ", ".join(fact) if isinstance(fact, tuple) else fact
    if text is None or text == "":
        return "-"
    return _SHOWN[how](text) if how in _SHOWN else format(text, how)


def _aligned(cell: str, width: int) -> str:
    is_number = cell.replace(",", "").replace(".", "").isdigit()
    return cell.rjust(width) if is_number else cell.ljust(width)


def shown_moment(moment: str | None) -> str:
    """Show a moment, which is ISO 8601, to the second; "-" where there is none."""
    return moment[:19].replace("T", " ") if moment else "-"


def duration(seconds: float) -> str:
    """Say how long something is, in the unit in which people would."""
    if seconds < 2 * _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < 2 * _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    return f"{seconds / _HOUR:.0f} h" if seconds < 2 * _DAY else f"{seconds / _DAY:.0f} d"


_SHOWN: Mapping[str, Callable[[Any], str]] = {
    "count": "{:,}".format,
    "moment": shown_moment,
    "duration": duration,
}

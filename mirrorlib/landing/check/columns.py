"""What the review remembers of a file for its neighbours' sake, and which column names it lets pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirrorlib.errors import SchemaError
from mirrorlib.identifiers import fold_name, folds_of
from mirrorlib.landing.columns import check_names
from mirrorlib.names import partition_values

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from mirrorlib.landing.check.findings import Findings
    from mirrorlib.landing.check.folder import ChangeFile
    from mirrorlib.landing.check.rows import Scan

UNREADABLE, DAMAGED = "unreadable", "damaged"  # rules that end the review of a file
UNDECODABLE, UNPARSABLE = "text-undecodable", "text-unparsable"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFacts:
    """One data column: its name as the file spells it, its mirror type, whether it may be NULL."""

    name: str
    type: pa.DataType
    nullable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What one readable file holds, for the comparison with its neighbours.

    Attributes:
        file: what was listed.
        columns: data columns; empty for delimited text, whose types are declared once.
        marked: it has a marker column.
        scan: what its rows say.

    """

    file: ChangeFile
    columns: tuple[ColumnFacts, ...]
    marked: bool
    scan: Scan


class UnreadableError(Exception):
    """A file cannot be read; carries the rule that says why."""

    def __init__(self, rule: str, found: str, *, line: int | None = None) -> None:
        self.rule = rule
        self.found = found
        self.line = line
        super().__init__(f"{rule}: {found}")


def good_names(names: list[str], file: str, table: str, found: Findings) -> frozenset[str]:
    """Return the column names that a table can have; say of the others why it cannot."""
    try:
        check_names(names, [], table=table, file=file)
    except SchemaError:  # the first one of perhaps several: ask for each
        good: dict[str, str] = {}
        for name in names:
            folds = folds_of(name)
            first = next((good[folded] for folded in folds if folded in good), None)
            if first is not None:
                both = f"{first!a} and {name!a}"[:80]
                found.add("columns-collide", both, file=file, column=name)
            elif _carried(name, file, table, found):
                good |= dict.fromkeys(folds, name)
        return frozenset(good.values())
    return frozenset(names)


def given_names(file: str, names: Iterable[str], table: str, found: Findings) -> tuple[str, ...]:
    """Return the columns that a file's partition folders state and the file lacks; refuse them as its own."""
    there = {fold_name(name) for name in names}
    values = partition_values(file)
    lacking = [name for name in values if fold_name(name) not in there]
    good = good_names(lacking, file, table, found)
    return tuple(name for name in lacking if name in good and values[name] is not None)


def _carried(name: str, file: str, table: str, found: Findings) -> bool:
    try:
        check_names([name], [], table=table, file=file)
    except SchemaError as exc:
        found.add("column-name", exc.reason, file=file, column=name[:80])
        return False
    return True

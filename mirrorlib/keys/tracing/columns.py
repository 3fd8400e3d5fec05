"""Find where in a plan keys were declared, and follow single columns from there by the numbers that Spark gives them.

A tag could come from anywhere: a file written with one and joined has the same. A number is a column's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mirrorlib.keys.tracing.outputs import TYPE, Column, is_closed, outputs_of, selected
from mirrorlib.keys.tracing.plan import Node, UnreadablePlanError

Step = tuple[Node, int]  # an operator, and which of its inputs is meant
_END = r"(?=,|\]|$)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Marked:
    """A place in the plan that has a mark, and the way from there to its end, or to the expression that reads it."""

    id: str  # what stands behind the mark's prefix: of keys, their declaration's
    node: Node  # the alias
    way: tuple[Step, ...]  # the operators, the first one first
    inner: bool  # it lies in a query inside an expression


def find_marked(root: Node, prefix: str) -> list[Marked]:
    """Find the marks that begin so, on every way to them; a later one hides earlier ones."""
    found: list[Marked] = []
    waiting: list[tuple[Node, tuple[Step, ...], bool]] = [(root, (), False)]
    while waiting:
        node, way, inner = waiting.pop()
        alias = node.text.strip() if node.operator == "SubqueryAlias" else ""
        if alias.startswith(prefix):
            found.append(Marked(id=alias.removeprefix(prefix), node=node, way=way, inner=inner))
            continue
        waiting += [(plan, way, True) for plan in node.subplans]
        waiting += [
            (child, ((node, side), *way), inner)
            for side, child in reversed(list(enumerate(node.children)))
        ]
    return found


def follow(
    marked: Marked, columns: Mapping[str, Column], kinds: Mapping[str, str]
) -> dict[str, Followed]:
    """Follow each column of the keys up to the end of the plan; *kinds* are their types, of those that have tags."""
    followed = {name: Followed(column, kinds.get(name, "")) for name, column in columns.items()}
    above = [*(node for node, _ in marked.way[1:]), None]
    for (node, _), following in zip(marked.way, above, strict=False):
        for column in followed.values():
            column.go_through(node, following)
    return followed


def follow_unnamed(marked: Marked) -> dict[str, Followed]:
    """Follow the columns of a declaration whose tags are gone, by name.

    Their types are not known, so that any cast below a view counts as a copy: what is left too long is safe.
    """
    pairs = re.findall(
        rf"(?:\[|, )((.+?)#\d+{TYPE} AS \2#(\d+)){TYPE}{_END}",
        marked.node.children[0].text,
        re.DOTALL,
    )
    return follow(marked, {name: (name, number) for _, name, number in pairs}, {})


def columns_end(marked: Marked) -> int:
    """Return behind how many operators no column of a declaration is left."""
    lost = [column.lost_at for column in follow_unnamed(marked).values()]
    way = [node for node, _ in marked.way]
    if not lost or None in lost:
        return len(way)
    return max(place for place, node in enumerate(way) if node in lost)


def declared_columns(marked: Node, names: Iterable[str]) -> dict[str, Column]:
    """Return the columns that a declaration has made, by name: `marked` is the select of `tag_columns`.

    Raises `UnreadablePlanError` where they cannot be told apart, as `selected_numbers` does.
    """
    found: dict[str, Column] = {}
    for name in names:
        escaped = re.escape(name)
        numbers = re.findall(
            rf"(?:\[|, ){escaped}#\d+{TYPE} AS {escaped}#(\d+){TYPE}{_END}", marked.text
        )
        if len(numbers) != 1:
            msg = "the key columns cannot be told apart in the plan"
            raise UnreadablePlanError(msg)
        found[name] = (name, numbers[0])
    return found


def selected_numbers(select: Node, names: Sequence[str]) -> tuple[str, ...]:
    """Return the numbers of the columns that a plan's last select names."""
    listed = ", ".join(rf"{re.escape(name)}#(\d+){TYPE}" for name in names)
    found = re.fullmatch(rf" \[{listed}\]", select.text)
    if select.operator != "Project" or found is None:
        msg = "the columns of the plan's last select cannot be told apart"
        raise UnreadablePlanError(msg)
    return found.groups()


class Followed:
    """A declared column on its way through the plan, under all its names.

    Attributes:
        columns: every column that has its values: itself, and what it was renamed or copied to.
        kind: its type as Spark prints it; "" where nobody has said it, and what is left of it is never claimed.
        lost_at: the operator behind which none of them is left, None where one may be.

    """

    def __init__(self, column: Column, kind: str = "") -> None:
        self.columns = {column}
        self.kind = kind
        self.lost_at: Node | None = None
        self._alive = {column}

    @property
    def numbers(self) -> set[str]:
        """Return the numbers of the columns that have its values."""
        return {number for _, number in self.columns}

    def equals(self, others: Iterable[Column]) -> None:
        """Take in columns that a join has made equal to it."""
        self.columns |= set(others)
        self._alive |= set(others)
        self.lost_at = None if self._alive else self.lost_at

    def go_through(self, node: Node, above: Node | None) -> None:
        """Take a step up the plan."""
        if node.operator == "CTERelationRef":
            renumbered = {new for old, new in _renumbered(node) if old in self._alive}
            self._alive |= renumbered
            self.columns |= renumbered
        if node.operator not in {"Project", "Aggregate"} or self.lost_at is not None:
            return
        listed = selected(node)
        casts = above is not None and above.operator == "View"
        copies = {
            copy
            for column in self._alive
            for copy in _copies(listed, column, self.kind, casts=casts)
        }
        self._alive = {column for column in self._alive if _kept(listed, column)} | copies
        self.columns |= copies
        if not self._alive:
            self.lost_at = node


def _copies(listed: str, column: Column, kind: str, *, casts: bool) -> list[Column]:
    """Find what a column is renamed or copied to; a view casts its columns to the types that they have.

    What its user casts stands in the same place, so only a cast to the *kind* that is known leaves values alone.
    """
    itself = _itself(column)
    if casts:
        known = re.escape(kind) or r"[^)]*?(?:\([\d, ]+\))?"
        itself = rf"(?:{itself}|cast\({itself} as {known}\))"
    return re.findall(rf"(?:^|, ){itself} AS (.*?)#(\d+){TYPE}{_END}", listed, re.DOTALL)


def _itself(column: Column) -> str:
    """Match a column as Spark prints it: as whoever selects it has written its name."""
    return f"(?i:{re.escape(column[0])})#{column[1]}{TYPE}"


def _kept(listed: str, column: Column) -> bool:
    """Say whether a column comes out as it is: one that a function is given, or an index, stands inside of others."""
    found = re.finditer(rf"(?:^|, ){_itself(column)}{_END}", listed)
    return any(is_closed(listed[: one.start()]) for one in found)


def _renumbered(reference: Node) -> list[tuple[Column, Column]]:
    """Pair the columns of a common table expression with what they are where it is used, by their places.

    From its second use on they have other numbers; the names say nothing, as a query may give any column any name.
    """
    inner, outer = (outputs_of(node) for node in (reference.children[0], reference))
    if [name for name, _ in inner] != [name for name, _ in outer]:
        return []
    return list(zip(inner, outer, strict=True))

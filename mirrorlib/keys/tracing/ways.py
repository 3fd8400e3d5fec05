"""Find where in a plan keys were declared, the way from there to its end, and what becomes of columns on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirrorlib.keys.tags import MARKER
from mirrorlib.keys.tracing.columns import Followed, marked_columns
from mirrorlib.keys.tracing.outputs import Column
from mirrorlib.keys.tracing.plan import Node
from mirrorlib.keys.tracing.rules import judge

if TYPE_CHECKING:
    from collections.abc import Mapping

Step = tuple[Node, int]  # an operator, and which of its inputs is meant


@dataclass(frozen=True, slots=True, kw_only=True)
class Marked:
    """A place where keys were declared, and the way from there to the end of the plan."""

    id: str
    node: Node
    way: tuple[Step, ...]


def columns_end(marked: Marked) -> int:
    """Return behind how many operators no column of a declaration is left.

    Their types are not known, so that any cast below a view counts as a copy: here what is left too long is safe.
    """
    followed = [Followed(column) for column in marked_columns(marked.node.children[0]).values()]
    for place, (node, above) in enumerate(_pairs(marked)):
        for column in followed:
            column.go_through(node, above)
        if followed and all(column.lost_at is not None for column in followed):
            return place
    return len(marked.way)


def _pairs(marked: Marked) -> list[tuple[Node, Node | None]]:
    """Give every operator of a way, and the one above it."""
    way = [node for node, _ in marked.way]
    above: list[Node | None] = [*way[1:], None]
    return list(zip(way, above[: len(way)], strict=True))


def find_marked(root: Node) -> list[Marked]:
    """Find the declarations whose rows or columns come out at the end; a later one hides earlier ones."""
    found: list[Marked] = []
    waiting: list[tuple[Node, tuple[Step, ...]]] = [(root, ())]
    while waiting:
        node, way = waiting.pop()
        if node.operator == "SubqueryAlias" and node.text.strip().startswith(MARKER):
            found.append(Marked(id=node.text.strip().removeprefix(MARKER), node=node, way=way))
            continue
        waiting += [
            (child, ((node, side), *way))
            for side, child in reversed(list(enumerate(node.children)))
            if judge(node, side).passes
        ]
    return found


def follow(
    marked: Marked, columns: Mapping[str, Column], kinds: Mapping[str, str]
) -> dict[str, Followed]:
    """Follow each column of the keys up to the end of the plan; *kinds* are their types, of those that have tags."""
    followed = {name: Followed(column, kinds.get(name, "")) for name, column in columns.items()}
    for node, above in _pairs(marked):
        for column in followed.values():
            column.go_through(node, above)
    return followed

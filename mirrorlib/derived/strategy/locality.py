"""Say by which key columns a transformation works on each source: rows of one key make rows of that key alone.

In: the analyzed plan of what a transformation gives. Out: `Reach`, one a source. That a key column comes out
unchanged is not enough here: a limit, or a window over all rows, leaves keys as they are and lets rows of other
keys decide. So every operator on the way of a source is judged anew, and what is not known reaches nothing. An
equal column of a join's other side stands for the key where no row of the source comes out itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirrorlib.keys.tracing.columns import Followed, declared_columns
from mirrorlib.keys.tracing.outputs import TYPE, Column, outputs_of, split
from mirrorlib.keys.tracing.plan import Node, walk
from mirrorlib.keys.tracing.rules import judge

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

_LIST = re.compile(r"\[([^\[\]]*)\]")
_ATTRIBUTE = re.compile(rf"(.+?)#(\d+){TYPE}", re.DOTALL)
_EQUAL = re.compile(rf"([^()]+?)#(\d+){TYPE} (?:=|<=>) ([^()]+?)#(\d+){TYPE}", re.DOTALL)
_WORD = re.compile(r"\w+")
_BOTH = 2  # sides of a join


@dataclass(slots=True, kw_only=True)
class Reach:
    """How the rows of a source reach the result.

    Attributes:
        columns: key columns of the source, and the numbers of the columns that have their values in the result.
        whole: every row is transformed by itself.
        own: every row of the result has the key of a row of the source, so that fewer rows make fewer.
        why: what does not work by key; "" where everything does.

    """

    columns: dict[str, frozenset[str]] = field(default_factory=dict)
    whole: bool = True
    own: bool = True
    why: str = ""


def reach_of(root: Node, marker: str, keys: Mapping[str, str], nodes: Iterable[Node]) -> Reach:
    """Follow a source from its mark, an alias, to the end of a plan.

    Args:
        root: the plan.
        marker: the alias.
        keys: the source's key columns, and their types as Spark prints them.
        nodes: the operators of the transformation.

    Raises:
        UnreadablePlanError: its key columns cannot be told apart.

    """
    ways = list(_ways(root, marker))
    if not ways:
        return Reach(columns={}, whole=False, why="the source is not read")
    if len(ways) > 1:
        return Reach(columns={}, whole=False, why="the source is read more than once")
    marked, way = ways[0]
    if way is None:
        return Reach(columns={}, whole=False, why="the source is read inside an expression")
    if not keys:
        return Reach(columns={}, whole=False, why="the source has no keys")
    why = _picked(nodes, {id(node) for node, _ in way})
    if why:
        return Reach(columns={}, whole=False, why=why)
    columns = declared_columns(marked.children[0], keys)
    return _follow(way, {name: Followed(column, keys[name]) for name, column in columns.items()})


def _ways(root: Node, marker: str) -> Iterator[tuple[Node, list[tuple[Node, int]] | None]]:
    """Give every way from a mark up to the end; None for one through an expression."""
    waiting: list[tuple[Node, list[tuple[Node, int]] | None]] = [(root, [])]
    while waiting:
        node, way = waiting.pop()
        if is_mark(node, marker):
            yield node, None if way is None else way[::-1]
            continue
        waiting += [
            (child, None if way is None else [*way, (node, side)])
            for side, child in enumerate(node.children)
        ]
        waiting += [(plan, None) for plan in node.subplans]


def is_mark(node: Node, marker: str) -> bool:
    """Say whether a node is the alias that marks a source."""
    return node.operator == "SubqueryAlias" and node.text.strip() == marker


def _picked(nodes: Iterable[Node], way: Container[int]) -> str:
    """Say what beside a source's way picks rows: what is there of other keys was made of the last pick."""
    for node in nodes:
        everything = node.operator == "Window" and not _listed(node)
        if id(node) in way or not (everything or judge(node, 0).picks):
            continue
        outputs = outputs_of(node)
        if node.operator == "Deduplicate" and outputs and {n for _, n in outputs} <= _listed(node):
            continue  # by all columns: there is nothing to pick
        return f"{_label(node, 0)} may pick other rows each time of what it is joined with"
    return ""


def _follow(way: Sequence[tuple[Node, int]], followed: dict[str, Followed]) -> Reach:
    reach = Reach()
    above = [node for node, _ in way[1:]]
    for place, (node, side) in enumerate(way):
        following = above[place] if place < len(above) else None
        for column in followed.values():
            column.go_through(node, following)
        why = _step(node, side, followed, reach)
        if why or not followed:
            reason = why or f"{_label(node, side)} brings rows of several keys together"
            return Reach(whole=False, own=False, why=reason)
    reach.columns = {
        name: frozenset(number for _, number in column.columns)
        for name, column in followed.items()
        if column.lost_at is None
    }
    return reach


def _label(node: Node, side: int) -> str:
    return judge(node, side).label or judge(node, 0).label


def _step(node: Node, side: int, followed: dict[str, Followed], reach: Reach) -> str:
    """Take one operator; drop the columns by which it does not work; say why where it works by none at all."""
    works = judge(node, side).works
    if works == "row":
        return ""
    reach.whole = False
    if works == "group":
        return ""
    if works == "list":
        _keep(followed, _listed(node))
        return ""
    if node.operator in {"Intersect", "Except"} and not side:
        return ""
    if node.operator == "Union":
        reach.own = False
        return _union(node, side, followed)
    if node.operator == "Join" and len(node.children) == _BOTH:
        return _join(node, side, followed, reach)
    return f"what {_label(node, side)} does is not known to work by key"


def _keep(followed: dict[str, Followed], numbers: Iterable[str]) -> None:
    listed = set(numbers)
    for name, column in list(followed.items()):
        if column.lost_at is not None or not listed & {number for _, number in column.columns}:
            del followed[name]


def _listed(node: Node) -> set[str]:
    """Return the numbers of the columns by which a window is cut, or rows are told to be the same."""
    lists = _LIST.findall(node.text)
    if node.operator == "Window":
        cut = re.search(r"\], \[([^\[\]]*)\](?:, \[([^\[\]]*)\])?$", node.text)
        if cut is None or (cut[2] is None and re.search(r" (ASC|DESC) NULLS ", cut[1])):
            return set()  # all rows are one window
        lists = [cut[1]]
    if len(lists) != 1:
        return set()
    found = [_ATTRIBUTE.fullmatch(part) for part in lists[0].split(", ")]
    return {one[2] for one in found if one is not None} if all(found) else set()


def _union(node: Node, side: int, followed: dict[str, Followed]) -> str:
    """Follow columns by their places: a union's columns are those of its first input.

    Of several with a key's values one is followed: in rows of the other inputs they need not be equal.
    """
    first, own = outputs_of(node.children[0]), outputs_of(node.children[side])
    if not first or len(first) != len(own):
        return "the columns of a union cannot be told apart"
    for name, column in list(followed.items()):
        became = [to for to, was in zip(first, own, strict=True) if was in column.columns]
        if became:
            followed[name] = Followed(became[0], column.kind)
        else:
            del followed[name]
    return ""


def _join(node: Node, side: int, followed: dict[str, Followed], reach: Reach) -> str:
    kind, _, condition = node.text.strip().partition(", ")
    equal = [pair for pair in _equalities(condition) if all(_is_given(one, node) for one in pair)]
    preserved = {"LeftOuter": 0, "LeftSemi": 0, "LeftAnti": 0, "RightOuter": 1}
    if kind in {"Inner", "Cross"}:
        for column in followed.values():
            column.equals(_partners(column, equal))
        return ""
    if kind not in preserved:
        return f"a join ({kind}) gives rows that have no key of the source"
    if preserved[kind] == side:
        return ""
    reach.own = False
    for name, column in list(followed.items()):
        partners = sorted(_partners(column, equal))
        if partners:  # one of several: in rows without a match they need not be equal
            followed[name] = Followed(partners[0], column.kind)
        else:
            del followed[name]
    if followed:
        return ""
    return f"a join ({kind}) is not by the source's keys"


def _partners(column: Followed, equal: Sequence[tuple[Column, Column]]) -> set[Column]:
    pairs = [*equal, *((right, left) for left, right in equal)]
    numbers = {number for _, number in column.columns}
    return {right for left, right in pairs if left[1] in numbers and right[1] not in numbers}


def _equalities(condition: str) -> Iterator[tuple[Column, Column]]:
    """Give the pairs of columns that have to be equal for a condition to be true."""
    inner = _inside(condition.strip())
    if inner is None:
        return
    parts = split(inner, " AND ")
    if len(parts) > 1:
        for part in parts:
            yield from _equalities(part)
        return
    found = _EQUAL.fullmatch(inner)
    if found is not None:
        yield (found[1], found[2]), (found[3], found[4])


def _is_given(column: Column, join: Node) -> bool:
    """Say whether a text is a column of a join's inputs, and not what is computed of one.

    Spark prints some operations without parentheses, `-x#1`, `NOT x#1`, `x#1 + y#2`: they look like odd names.
    """
    if _WORD.fullmatch(column[0]):
        return True
    return any(column in outputs_of(node) for node in walk(*join.children))


def _inside(text: str) -> str | None:
    """Return what is between two parentheses that belong together; None for anything else."""
    depth = 0
    for place, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        if depth == 0:
            return text[1:-1] if place == len(text) - 1 and text[0] == "(" else None
    return None


def nodes_above(root: Node, markers: Iterable[str]) -> list[Node]:
    """Return the operators of a transformation itself, without what is below the marks of its sources."""
    marks = set(markers)
    found: list[Node] = []
    waiting = [root]
    while waiting:
        node = waiting.pop()
        found.append(node)
        if any(is_mark(node, mark) for mark in marks):
            continue
        waiting += (*node.children, *node.subplans)
    return found

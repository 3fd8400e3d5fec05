"""Look at what a transformation does, and choose how little of it has to be done again.

In: what a transformation gives on its whole sources. Out: `PlanShape`, what it is, with a `Reach` for each source: by
which key columns it works on that, so that rows of one key make rows of that key alone; and the choice: row by row
from the changes, the keys that they affect, or all of it and why. Only what the analyzed plan shows is relied on: a
function of a user's, a value of the moment, a read of something else, and an operator that is not known each mean all
of it. That a key column comes out unchanged is not enough: a limit, or a window over all rows, leaves keys as they are
and lets rows of other keys decide. An equal column of a join's other side stands for the key where no row of the
source comes out itself.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from mirrorlib.derived.strategy.determinism import moment_dependence, trouble_of
from mirrorlib.derived.strategy.fingerprint import hash_plan
from mirrorlib.identifiers import quote
from mirrorlib.keys.tracing.columns import Followed, declared_columns, find_marked, selected_numbers
from mirrorlib.keys.tracing.outputs import NUMBER, TYPE, Column, closed, outputs_of, split
from mirrorlib.keys.tracing.plan import Node, UnreadablePlanError, is_mark, read_plan, walk
from mirrorlib.keys.tracing.rules import judge

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from mirrorlib.derived.frames import Framed

How = Literal["row-wise", "affected keys", "full", "nothing new"]
_LIST = re.compile(r"\[([^\[\]]*)\]")
_ATTRIBUTE = re.compile(rf"(.+?)#(\d+){TYPE}", re.DOTALL)
# Spark prints some operations without parentheses, `-x#1`, `NOT x#1`, `x#1 + y#2`: they look like odd names.
_EQUAL = re.compile(rf"(\w+)#(\d+){TYPE} (?:=|<=>) (\w+)#(\d+){TYPE}")


@dataclass(slots=True, kw_only=True)
class Reach:
    """How the rows of a source reach the result."""

    # Key columns of the source, and which columns of the result have their values.
    columns: dict[str, str] = field(default_factory=dict)
    by_row: bool = True  # every row is transformed by itself
    # Every row of the result has the key of a row of the source, so that fewer rows make fewer.
    own: bool = True
    why: str = ""  # what does not work by key; "" where everything does


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanShape:
    """What a transformation does, as far as its plan shows."""

    fingerprint: str  # the same for the same transformation; "" where it cannot be read
    reaches: tuple[Reach, ...] = ()  # how each source reaches the result
    why: str = ""  # why nothing of it may be left undone; "" where something may
    # Why it may give something else though no source has a new version; "" where it gives the same.
    moves: str = ""


def shape_of(result: DataFrame, framed: Sequence[Framed]) -> PlanShape:
    """Look at a transformation's result."""
    names, marks = result.columns, [one.marker for one in framed]
    try:
        root = read_plan(result.select(*map(quote, names)))
        outputs = dict(zip(selected_numbers(root, names), names, strict=True))
        nodes = list(walk(root, marks=marks))
        above = [node for node in nodes if not is_mark(node, marks)]
        moves = moment_dependence(above)
        return PlanShape(
            fingerprint=hash_plan(result, root, marks),
            reaches=tuple(_reach(root, one, nodes, outputs) for one in framed),
            why=moves or trouble_of(result, root, above) or _hidden(nodes, framed),
            moves=moves,
        )
    except UnreadablePlanError as exc:
        why = f"its plan cannot be relied on: {exc}"
        return PlanShape(fingerprint="", why=why, moves=why)


def fingerprint_of(result: DataFrame, framed: Sequence[Framed]) -> str:
    """Hash what a transformation has done, as `PlanShape.fingerprint` is; "" where its plan cannot be read."""
    try:
        root = read_plan(result.select(*map(quote, result.columns)))
        return hash_plan(result, root, [one.marker for one in framed])
    except UnreadablePlanError:
        return ""


def choose(shape: PlanShape, framed: Sequence[Framed], changed: Sequence[int]) -> tuple[How, str]:
    """Choose how to bring a table up to date, of whose sources some have changed, and say why all of it is done."""
    if shape.why:
        return "full", shape.why
    for place in changed:
        reach = shape.reaches[place]
        if not reach.columns:
            why = reach.why or "the key columns do not come out"
            return "full", f"{framed[place].source.place.shown}: {why}"
    first, reach = framed[changed[0]], shape.reaches[changed[0]]
    by_row = reach.by_row and first.one_row and reach.columns.keys() == set(first.key_columns)
    return ("row-wise" if by_row and len(changed) == 1 else "affected keys"), ""


def _hidden(nodes: Sequence[Node], framed: Sequence[Framed]) -> str:
    """Say whether a transformation reads a column that only files have: the rows of a feed have others, or none."""
    for one in framed:
        marked = [node for node in nodes if is_mark(node, [one.marker])]
        if any(len(outputs_of(node.children[0])) > len(one.frame.columns) for node in marked):
            return f"it reads a hidden column of {one.source.place.shown}, such as _metadata"
    return ""


def _reach(root: Node, source: Framed, nodes: Iterable[Node], outputs: Mapping[str, str]) -> Reach:
    """Follow a source from its mark to the end of a plan, and name its keys by the first columns with their values."""
    marked = find_marked(root, source.marker)
    if len(marked) != 1:
        return Reach(why=f"the source is {'read more than once' if marked else 'not read'}")
    way = marked[0].way
    if marked[0].inner:
        return Reach(why="the source is read inside an expression")
    if not source.key_columns:
        return Reach(why="the source has no keys")
    if why := _picked(nodes, {id(node) for node, _ in way}):
        return Reach(why=why)
    kinds = dict(source.frame.dtypes)
    columns = declared_columns(marked[0].node.children[0], source.key_columns)
    followed = {name: Followed(column, kinds[name]) for name, column in columns.items()}
    reach = Reach()
    above = [*(node for node, _ in way[1:]), None]
    for (node, side), following in zip(way, above, strict=False):
        for column in followed.values():
            column.go_through(node, following)
        why = _step(node, side, followed, reach)
        if why or not followed:
            return Reach(
                why=why or f"{judge(node, side).label} brings rows of several keys together"
            )
    for name, column in followed.items():
        ends = [to for number, to in outputs.items() if number in column.numbers]
        if ends and column.lost_at is None:
            reach.columns[name] = ends[0]
    return reach


def _picked(nodes: Iterable[Node], way: Container[int]) -> str:
    """Say what beside a source's way picks rows: what is there of other keys was made of the last pick."""
    for node in nodes:
        everything = node.operator == "Window" and not _listed(node)
        if id(node) in way or not (everything or judge(node, 0).picks):
            continue
        outputs = outputs_of(node)
        if node.operator == "Deduplicate" and outputs and {n for _, n in outputs} <= _listed(node):
            continue  # by all columns: there is nothing to pick
        return f"{judge(node, 0).label} may pick other rows each time of what it is joined with"
    return ""


def _step(node: Node, side: int, followed: dict[str, Followed], reach: Reach) -> str:
    """Take one operator; drop the columns by which it does not work; say why where it works by none at all."""
    works = judge(node, side).works
    reach.by_row = reach.by_row and works == "row"
    if works == "list":
        listed = _listed(node)
        for name, column in list(followed.items()):
            if column.lost_at is not None or not listed & column.numbers:
                del followed[name]
    if works != "unknown":
        return ""
    if node.operator == "Union":
        reach.own = False
        return _union(node, side, followed)
    if node.operator == "Join" and len(node.children) == 2:  # noqa: PLR2004  # sides
        return _join(node, side, followed, reach)
    return f"what {judge(node, side).label} does is not known to work by key"


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
        if became := [to for to, was in zip(first, own, strict=True) if was in column.columns]:
            followed[name] = Followed(became[0], column.kind)
        else:
            del followed[name]
    return ""


def _join(node: Node, side: int, followed: dict[str, Followed], reach: Reach) -> str:
    kind, _, condition = node.text.strip().partition(", ")
    equal = list(_equalities(condition))
    effects = [judge(node, one) for one in (0, 1)]
    kept = [one for one, effect in enumerate(effects) if effect.passes and effect.partition]
    if not kept:
        return f"a join ({kind}) gives rows that have no key of the source"
    if kept == [0, 1]:
        for column in followed.values():
            column.equals(_partners(column, equal))
    if side in kept:
        return ""
    reach.own = False
    mine = {number for one in walk(node.children[side]) for number in NUMBER.findall(one.text)}
    for name, column in list(followed.items()):
        # One of its own side is NULL, too, where nothing matches.
        partners = sorted(one for one in _partners(column, equal) if one[1] not in mine)
        if partners:  # one of several: in rows without a match they need not be equal
            followed[name] = Followed(partners[0], column.kind)
        else:
            del followed[name]
    return "" if followed else f"a join ({kind}) is not by the source's keys"


def _partners(column: Followed, equal: Sequence[tuple[Column, Column]]) -> set[Column]:
    pairs = [*equal, *((right, left) for left, right in equal)]
    numbers = column.numbers
    return {right for left, right in pairs if left[1] in numbers and right[1] not in numbers}


def _equalities(condition: str) -> Iterator[tuple[Column, Column]]:
    """Give the pairs of columns, by names that are words, that have to be equal for a condition to be true."""
    text = condition.strip()
    if not text or closed(text, "()") != len(text):
        return
    inner = text[1:-1]
    parts = split(inner, " AND ")
    if len(parts) > 1:
        for part in parts:
            yield from _equalities(part)
        return
    if found := _EQUAL.fullmatch(inner):
        yield (found[1], found[2]), (found[3], found[4])

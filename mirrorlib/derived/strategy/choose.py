"""Look at what a transformation does, and choose how little of it has to be done again.

In: a transformation's result on the whole sources. Out: `Shape`, what it is; and `Choice`: row by row from the
changes, the keys that they affect, or all of it and why. Only what the analyzed plan shows is relied on: a
function of a user's, a value of the moment, a read of something else, and an operator that is not known each mean
all of it.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from mirrorlib.delta.sessions import read_conf
from mirrorlib.derived.strategy.determinism import motion_of, trouble_of
from mirrorlib.derived.strategy.literals import literals_of
from mirrorlib.derived.strategy.locality import Reach, is_mark, nodes_above, reach_of
from mirrorlib.identifiers import quote
from mirrorlib.keys.tracing.columns import selected_numbers
from mirrorlib.keys.tracing.outputs import outputs_of
from mirrorlib.keys.tracing.plan import Node, UnreadablePlanError, join_ctes, read_plan, walk

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

    from mirrorlib.derived.frames import Framed

How = Literal["row-wise", "affected keys", "full", "nothing new"]
# What a session sets that no plan prints, and by which the same rows become others.
_SETTINGS = (
    "spark.sql.session.timeZone",
    "spark.sql.ansi.enabled",
    "spark.sql.legacy.timeParserPolicy",
)
_NUMBER = re.compile(r"#\d+")
# Columns by an alias, variables of lambdas, queries in expressions.
_GIVEN = re.compile(
    r"(?: AS .*?|lambda \w+|[- ](?:subquery|exists|list))#(\d+)(?=L?(?:-T\d+ms)?(?:, |[\],) ]|$))",
    re.DOTALL,
)
_RANGE = re.compile(r"\bid(#\d+)")  # what a range calls its column, without printing it itself
# Operators in which texts may stand; others list columns.
_TEXTS = frozenset(
    {
        "Aggregate",
        "Filter",
        "Generate",
        "Join",
        "Project",
        "RepartitionByExpression",
        "Sort",
        "Window",
    }
)
_NAMED = re.compile(r"mirrorlib_keyed_\w+|\b[xyz]_\d+(?=#)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a transformation does, as far as its plan shows.

    Attributes:
        fingerprint: a hash of the plan above the sources, and of what the session sets; the same for the same
            transformation. "" where it cannot be read.
        reaches: how each source reaches the result.
        outputs: the result's columns by their numbers.
        why: why nothing of it may be left undone; "" where something may.
        moves: why it may give something else though no source has a new version; "" where it gives the same.

    """

    fingerprint: str
    reaches: tuple[Reach, ...] = ()
    outputs: tuple[tuple[str, str], ...] = ()
    why: str = ""
    moves: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """How a derived table is brought up to date.

    Attributes:
        how: row by row, by the affected keys, or in full.
        why: the reason for doing all of it.
        columns: for each source that has changed, its key columns and what they are called in the result.

    """

    how: How
    why: str = ""
    columns: tuple[tuple[int, tuple[tuple[str, str], ...]], ...] = ()


def shape_of(result: DataFrame, framed: Sequence[Framed]) -> Shape:
    """Look at a transformation's result."""
    names = result.columns
    try:
        root = join_ctes(read_plan(result.select(*map(quote, names))))
        numbers = selected_numbers(root, names)
        nodes = nodes_above(root, [one.marker for one in framed])
        fingerprint = _hash(result, root, framed)
        marks = [one.marker for one in framed]
        above = [node for node in nodes if not any(is_mark(node, mark) for mark in marks)]
        moves = motion_of(above)
        why = moves or trouble_of(result, root, above) or _hidden(nodes, framed)
        reaches = tuple(reach_of(root, one.marker, _kinds(one), nodes) for one in framed)
    except UnreadablePlanError as exc:
        why = f"its plan cannot be relied on: {exc}"
        return Shape(fingerprint="", why=why, moves=why)
    outputs = tuple(zip(numbers, names, strict=True))
    return Shape(fingerprint=fingerprint, reaches=reaches, outputs=outputs, why=why, moves=moves)


def _hidden(nodes: Sequence[Node], framed: Sequence[Framed]) -> str:
    """Say whether a transformation reads a column that only files have: the rows of a feed have others, or none."""
    for one in framed:
        marked = [node for node in nodes if is_mark(node, one.marker)]
        if any(len(outputs_of(node.children[0])) > len(one.frame.columns) for node in marked):
            return f"it reads a hidden column of {one.shown}, such as _metadata"
    return ""


def _kinds(source: Framed) -> dict[str, str]:
    schema = source.frame.schema
    return {name: schema[name].dataType.simpleString() for name in source.key_columns}


def fingerprint_of(result: DataFrame, framed: Sequence[Framed]) -> str:
    """Hash what a transformation has done, as `Shape.fingerprint` is; "" where its plan cannot be read."""
    try:
        plan = read_plan(result.select(*map(quote, result.columns)))
        return _hash(result, join_ctes(plan), framed)
    except UnreadablePlanError:
        return ""


def choose(shape: Shape, framed: Sequence[Framed], changed: Sequence[int]) -> Choice:
    """Choose how to bring a table up to date, of whose sources some have changed."""
    if shape.why:
        return Choice(how="full", why=shape.why)
    columns = []
    for place in changed:
        reach = shape.reaches[place]
        found = _named(reach, shape)
        if not found:
            why = reach.why or "the key columns do not come out"
            return Choice(how="full", why=f"{framed[place].shown}: {why}")
        columns.append((place, found))
    how: How = "affected keys"
    if len(changed) == 1:
        (place, found), source = columns[0], framed[changed[0]]
        every = {name for name, _ in found} == set(source.key_columns)
        if shape.reaches[place].whole and every and source.one_row:
            how = "row-wise"
    return Choice(how=how, columns=tuple(columns))


def _named(reach: Reach, shape: Shape) -> tuple[tuple[str, str], ...]:
    """Name the key columns that come out, and as what: the first column that has a key's values."""
    found = []
    for column, numbers in reach.columns.items():
        name = next((name for number, name in shape.outputs if number in numbers), None)
        if name is not None:
            found.append((column, name))
    return tuple(found)


def _given(root: Node) -> set[str]:
    """Return the numbers that Spark has given; others, as in `'order #7'`, are part of a text."""
    nodes = list(walk(root))
    ranges = any(node.operator == "Range" for node in nodes)
    found: set[str] = set()
    for node in nodes:
        if node.operator not in _TEXTS:
            found.update(_NUMBER.findall(node.text))
        if node.operator == "Generate":
            found.update(_NUMBER.findall(node.text.rpartition("[")[2]))
        if ranges:
            found.update(_RANGE.findall(node.text))
        found.update(f"#{number}" for number in _GIVEN.findall(node.text))
    return found


def _used(source: Node, numbers: Mapping[str, str]) -> str:
    """Say which columns of a source the operators above it use, so that no two are taken for one another.

    Raises:
        UnreadablePlanError: they cannot be told apart.

    """
    outputs = outputs_of(source)
    if not outputs:
        msg = "the columns of a source cannot be told apart"
        raise UnreadablePlanError(msg)
    return ", ".join(
        f"{name}{numbers[mark]}" for name, number in outputs if (mark := f"#{number}") in numbers
    )


def _hash(result: DataFrame, root: Node, framed: Sequence[Framed]) -> str:
    """Hash a plan as it would be on any other rows: numbers by the order in which they come."""
    numbers: dict[str, str] = {}
    given = _given(root)
    marks = {one.marker: str(place) for place, one in enumerate(framed)}
    lines = [f"{name} {read_conf(result.sparkSession, name)}" for name in _SETTINGS]
    lines += literals_of(result, marks)
    waiting = [(root, 0)]
    while waiting:
        node, depth = waiting.pop()
        mark = node.text.strip() if node.operator == "SubqueryAlias" else ""
        if mark in marks:
            lines.append(f"{depth} source {marks[mark]} {_used(node.children[0], numbers)}")
            continue
        text = _NAMED.sub("", f"{node.operator}{node.text}")
        if node.operator == "CTERelationRef":  # the session counts them; what it means is below
            text = text.partition(",")[2]
        text = _NUMBER.sub(
            lambda m: numbers.setdefault(m[0], f"#{len(numbers)}") if m[0] in given else m[0], text
        )
        lines.append(f"{depth} {text}")
        waiting += [(child, depth + 1) for child in (*node.subplans, *node.children)][::-1]
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass")).hexdigest()[:32]

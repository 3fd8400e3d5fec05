"""Say what every operator does to rows and their keys: the rule table, as far as it goes by operators.

Partition key, order of arrival and primary key are judged apart. Whatever Spark does, or may do, by a shuffle
leaves no order of arrival: a join with a table shuffles unless Spark finds that small. What is not in these
tables leaves no key: a new operator of Spark, a platform's own, Python, a stateful one. What still tells the order
of a key's rows is never more than the weakest link from their source on. What happens to single columns is in
`columns.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from mirrorlib.keys.tracing.plan import Node, walk

Order = Literal["arrival", "inputs", "columns", "none"]
"""What still tells the order of a key's rows: their arrival; that, inside each input; their order columns; nothing."""

ORDERS: tuple[Order, ...] = ("none", "columns", "inputs", "arrival")  # the weakest first

Works = Literal["row", "group", "list", "unknown"]
"""On what an operator works: a row by itself; rows equal in what comes out, or in what it lists; nobody knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What an operator does to the rows that go through it, and to their keys."""

    label: str  # the operator, as users say it
    partition: bool = True  # whether the partition key outlives it
    primary: bool = True  # whether the primary key does
    order: Order = "arrival"  # how much of the order of arrival is left, at best
    why: str = ""
    passes: bool = True  # whether any row or column of that input comes out at all
    works: Works = "unknown"  # on which rows it works at once
    # Whether it may give other rows another time, of rows that nothing has changed.
    picks: bool = False


def _row_by_row(label: str) -> Effect:
    return Effect(label=label, works="row")


def _shuffled(label: str) -> Effect:
    return Effect(label=label, order="columns", why=_SHUFFLED, works="row")


def _no_primary(label: str, why: str, order: Order = "arrival", works: Works = "unknown") -> Effect:
    return Effect(label=label, primary=False, order=order, why=why, works=works)


def _picking(label: str, why: str, order: Order = "arrival", works: Works = "unknown") -> Effect:
    return replace(_no_primary(label, why, order, works), picks=True)


def nothing(label: str, why: str) -> Effect:
    """Say that no key is left, and nothing that tells the order of rows."""
    return Effect(label=label, partition=False, primary=False, order="none", why=why)


_SHUFFLED = "rows of a key arrive in another order"
_FEWER = "it keeps some rows of a key and not others, perhaps not the newest"
_STATEFUL = "it is stateful: what comes out are no longer all changes of a record"

_UNARY = {
    "Aggregate": _no_primary("aggregate", _STATEFUL, "none", "group"),
    "CTERelationRef": _row_by_row("CTE"),
    "CollectMetrics": _row_by_row("observe"),
    "Deduplicate": _picking("dropDuplicates", _STATEFUL, "columns", "list"),
    "DeduplicateWithinWatermark": _no_primary(
        "dropDuplicatesWithinWatermark", _STATEFUL, "columns"
    ),
    "Distinct": _no_primary("distinct", _STATEFUL, "columns", "group"),
    "EventTimeWatermark": Effect(label="withWatermark"),
    "Filter": _row_by_row("filter"),
    "Generate": _no_primary("explode", "one row becomes several", works="row"),
    "GlobalLimit": _picking("limit", _FEWER, "columns"),
    "LocalLimit": _picking("limit", _FEWER),
    "Offset": _picking("offset", _FEWER, "columns"),
    "PipeOperator": _row_by_row("|>"),
    "Project": _row_by_row("select"),
    "RebalancePartitions": _shuffled("rebalance"),
    "Repartition": _shuffled("repartition"),
    "RepartitionByExpression": _shuffled("repartition"),
    "ResolvedHint": _row_by_row("hint"),
    "Sample": _picking("sample", _FEWER),
    "Sort": _no_primary(
        "sort", "the sort's order takes the place of the arrival's", "columns", "row"
    ),
    "SubqueryAlias": _row_by_row("alias"),
    "View": _row_by_row("view"),
    "Window": _no_primary("window functions", _STATEFUL, "columns", "list"),
    "WithCTE": _row_by_row("CTE"),
}
UDF = "a user-defined function may do anything: keys never go through one"


def judge(node: Node, side: int) -> Effect:
    """Say what an operator does to the keys of its first or a later input."""
    if node.operator in _UNARY and len(node.children) == 1:
        effect = _UNARY[node.operator]
        # Of queries that it looks into Spark makes joins; none of them is a stream.
        weaker = node.subplans and ORDERS.index(effect.order) > ORDERS.index("columns")
        return replace(effect, order="columns") if weaker else effect
    both = len(node.children) == 2  # noqa: PLR2004  # of a binary operator
    if node.operator == "Join" and both:
        return _judge_join(node, side)
    if node.operator in {"Intersect", "Except"} and both:
        label = "intersect" if node.operator == "Intersect" else "except"
        away = Effect(label=label, passes=False)
        return away if side else _no_primary(label, _STATEFUL, "none", "group")
    if node.operator == "Union":
        why = "rows of several inputs come together, and each may mean another thing by its columns"
        return replace(nothing("union", why), order="inputs")
    why = f"what it does to keys is not known (Spark calls it {node.operator})"
    return nothing(node.operator, why)


def _judge_join(node: Node, side: int) -> Effect:
    kind = node.text.strip().partition(",")[0]
    label = f"join ({kind})"
    filters = kind in {"LeftSemi", "LeftAnti"}
    if filters and side:
        return Effect(label=label, passes=False)
    if all(is_streaming(child) for child in node.children):
        return nothing(label, "two streams are joined, and rows wait for each other")
    if filters:
        return Effect(label=label, order="columns", why=_SHUFFLED)
    if kind in {"Inner", "Cross", "RightOuter" if side else "LeftOuter"}:
        return _no_primary(label, "matches multiply rows", "columns")
    return nothing(label, "rows without a match get NULL for their keys")


def is_streaming(root: Node) -> bool:
    """Say whether rows come from a stream."""
    return any(node.streaming or node.operator.startswith("Streaming") for node in walk(root))


def judge_order(marked: Node, way: Sequence[Effect]) -> tuple[Order, str]:
    """Give what still tells the order of a key's rows, from the source on, and the weakest link."""
    source, before = _lineage(marked)
    links = [(effect.label, effect.order) for effect in (*before, *way)]
    if not is_streaming(source):
        links = [("a batch, whose rows have no order of arrival", "columns"), *links]
    label, order = min(links, key=lambda link: ORDERS.index(link[1]), default=("", "arrival"))
    return order, "" if order == "arrival" else label


def _lineage(node: Node) -> tuple[Node, list[Effect]]:
    """Go down to a source; give what does something to order on the way, the first operator first.

    Of a union that is what any of its inputs has gone through, as rows of each come out.
    """
    effects: list[Effect] = []
    while node.children:
        others = node.children[1:] if node.operator == "Union" else []
        before = [effect for other in others for effect in _lineage(other)[1]]
        effects = [*before, judge(node, 0), *effects]
        node = node.children[0]
    return node, effects

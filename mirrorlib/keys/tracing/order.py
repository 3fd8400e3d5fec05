"""Say what still tells the order of a key's rows: never more than the weakest link from their source on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.keys.tracing.plan import Node
from mirrorlib.keys.tracing.rules import ORDERS, Effect, Order, is_streaming, judge

if TYPE_CHECKING:
    from collections.abc import Sequence


def judge_order(marked: Node, way: Sequence[Effect]) -> tuple[Order, str, bool]:
    """Give what still tells the order of a key's rows, from the source on, and the weakest link."""
    source, before = _lineage(marked)
    streaming = is_streaming(source)
    links = [(effect.label, effect.order) for effect in (*before, *way)]
    if not streaming:
        links = [("a batch, whose rows have no order of arrival", "columns"), *links]
    weakest = min(links, key=lambda link: ORDERS.index(link[1]), default=("", "arrival"))
    if weakest[1] == "arrival":
        return "arrival", "", streaming
    return weakest[1], weakest[0], streaming


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

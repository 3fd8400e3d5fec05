"""Say what still tells the order of a key's rows: never more than the weakest link from their source on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.keys.plan import Node
from mirrorlib.keys.rules import ORDERS, Effect, Order, is_streaming, judge

if TYPE_CHECKING:
    from collections.abc import Sequence


def judge_order(marked: Node, way: Sequence[Effect]) -> tuple[Order, str, bool]:
    """Give what still tells the order of a key's rows, from the source on, and the weakest link."""
    source, before = _lineage(marked)
    streaming = is_streaming(source)
    links = [(effect.told, effect.order) for effect in (*before, *way)]
    if not streaming:
        links = [("a batch, whose rows have no order of arrival", "columns"), *links]
    weakest = min(links, key=lambda link: ORDERS.index(link[1]), default=("", "arrival"))
    if weakest[1] == "arrival":
        return "arrival", "", streaming
    return weakest[1], weakest[0], streaming


def _lineage(node: Node) -> tuple[Node, list[Effect]]:
    """Go down to a source; give what does something to order on the way, the first operator first."""
    effects: list[Effect] = []
    while node.children:
        effects.insert(0, judge(node, 0))
        node = node.children[0]
    return node, effects

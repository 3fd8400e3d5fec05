"""Say which columns of its sources each column of a derived table is made of, as far as its plan shows.

In: what a transformation gives, and the frames that it was given. Out: columns by the address of their table. It is
for people and catalogs, nothing rests on it: what cannot be followed has no origin, and what only chooses rows is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mirrorlib.identifiers import quote
from mirrorlib.keys.tracing.columns import selected_numbers
from mirrorlib.keys.tracing.outputs import NUMBER, outputs_of, selected, split
from mirrorlib.keys.tracing.plan import UnreadablePlanError, is_mark, read_plan, walk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from mirrorlib.derived.frames import Framed

_MAKING, _RENUMBERING = frozenset({"Generate", "Window"}), frozenset({"CTERelationRef", "Union"})


def origins_of(result: DataFrame, framed: Sequence[Framed]) -> dict[str, list[tuple[str, str]]]:
    """Return the sources' columns, by address and name, that the value of each column is made of."""
    marks = {one.marker: one.source.place.ref.address for one in framed}
    try:
        root = read_plan(result.select(*map(quote, result.columns)))
        ends = zip(result.columns, selected_numbers(root, result.columns), strict=True)
    except UnreadablePlanError:
        return {}
    nodes = list(walk(root, marks=marks))
    origins = {
        number: {(marks[node.text.strip()], name)}
        for node in nodes
        if is_mark(node, marks)
        for name, number in outputs_of(node.children[0])
    }
    # From the sources up: a number that is not known is made of those beside it.
    for node in reversed(nodes):
        for child in node.children if node.operator in _RENUMBERING else ():
            for (_, new), (_, old) in zip(outputs_of(node), outputs_of(child), strict=False):
                origins[new] = origins.get(new, set()) | origins.get(old, set())
        for part in [node.text] if node.operator in _MAKING else split(selected(node), ", "):
            numbers = NUMBER.findall(part)
            made_of = set[tuple[str, str]]().union(*(origins.get(one, ()) for one in numbers))
            for one in numbers:
                origins.setdefault(one, made_of)
    return {name: sorted(origins.get(number, ())) for name, number in ends}

"""Tell which columns an operator gives, in their order, by what Spark prints of it.

In: a node of a plan. Out: columns, or that they cannot be told apart: a name or a literal may hold commas and
parentheses, too, and what is not certain is nothing.
"""

from __future__ import annotations

import re

from mirrorlib.keys.tracing.plan import Node

Column = tuple[str, str]  # a name, and its number
TYPE = r"L?(?:-T\d+ms)?"  # Spark marks long integers, and a watermark's delay
NUMBER = re.compile(r"#(\d+)")  # of a column, in an operator's text
_OUTPUT = re.compile(rf"(?:.* AS )?(.+?)#(\d+){TYPE}", re.DOTALL)
_REFERENCE = re.compile(r"\s*\d+, \w+, (?=\[)")
_SAME_COLUMNS = re.compile(
    "Deduplicate|Distinct|Filter|GlobalLimit|LocalLimit|Offset|RebalancePartitions|Repartition|"
    "RepartitionByExpression|ResolvedHint|Sample|Sort|SubqueryAlias|Union|WithCTE"
)


def outputs_of(node: Node) -> list[Column]:
    """Return the columns that an operator gives, in their order; none where they cannot be told."""
    while _SAME_COLUMNS.fullmatch(node.operator) and node.children:
        node = node.children[0]
    listed = _referred(node) if node.operator == "CTERelationRef" else selected(node)
    found = [_OUTPUT.fullmatch(part) for part in split(listed, ", ")]
    return [(one[1], one[2]) for one in found if one is not None] if all(found) else []


def selected(node: Node) -> str:
    """Return what a select or an aggregate gives, without what it groups by; "" where that cannot be told."""
    text = node.text.strip()
    if node.operator == "Aggregate":
        grouping = closed(text)
        if not text.startswith(", [", grouping):
            return ""
        text = text[grouping + len(", ") :]
    elif node.operator != "Project":
        return ""
    # A select is one list, whatever its names are; of an aggregate's two the second ends with the text.
    whole = node.operator == "Project" or closed(text) == len(text)
    return text[1:-1] if whole and text.startswith("[") and text.endswith("]") else ""


def _referred(node: Node) -> str:
    """Return the columns of a common table expression as they are called where it is used."""
    if (begin := _REFERENCE.match(node.text)) is None:
        return ""
    text = node.text[begin.end() :]
    end = closed(text)
    return text[1 : end - 1] if end else ""


def closed(text: str, pair: str = "[]") -> int:
    """Return where the bracket closes, of a pair, with which a text begins; 0 where it does not."""
    depth = 0
    for place, sign in enumerate(text if text.startswith(pair[0]) else ""):
        depth += (sign == pair[0]) - (sign == pair[1])
        if depth == 0:
            return place + 1
    return 0


def split(text: str, separator: str) -> list[str]:
    """Take a text apart where no parenthesis is open."""
    parts, depth, start = [], 0, 0
    for place, sign in enumerate(text):
        depth += (sign in "([{") - (sign in ")]}")
        if depth == 0 and text.startswith(separator, place):
            parts.append(text[start:place])
            start = place + len(separator)
    return [*parts, text[start:]]


def is_closed(text: str) -> bool:
    """Say whether a text leaves no parenthesis open."""
    return all(text.count(one) == text.count(other) for one, other in ("()", "[]", "{}"))

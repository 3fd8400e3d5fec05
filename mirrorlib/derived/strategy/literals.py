"""Tell the literals of a transformation one by one: the text of a plan says neither where they end nor their types.

In: what a transformation gives, and the marks of its sources. Out: texts, the same for the same literals. What is
below a mark is left out. `IN (a,b)` may be one text or two; here it is one or two.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from mirrorlib.keys.tracing.plan import UnreadablePlanError

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from google.protobuf.message import Message  # type: ignore[import-untyped]  # its types come apart from it
    from pyspark.sql import DataFrame

_LITERAL = "org.apache.spark.sql.catalyst.expressions.Literal"
_ALIAS = "org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias"
# What a client sends as it was written, for the server to read.
_WRITTEN = {"SQL": "query", "ExpressionString": "expression"}


def literals_of(result: DataFrame, markers: Container[str]) -> list[str]:
    """Return the literals of a plan, and of a Spark Connect client the SQL in it, in an order that stays.

    Raises:
        UnreadablePlanError: Spark cannot write the plan down.

    """
    plan = vars(result).get("_plan")
    if plan is not None:  # a Spark Connect client, which sends literals with their types
        return list(_sent(plan.to_proto(result.sparkSession.client), markers))
    # The same plan as `read_plan` reads; only as JSON does it tell a literal's bounds and type.
    analyzed = result._jdf.queryExecution().analyzed()  # noqa: SLF001  # no other way to it
    try:
        nodes = json.loads(str(analyzed.toJSON()))
    except ValueError as exc:
        msg = "Spark cannot write the plan down"
        raise UnreadablePlanError(msg) from exc
    return list(_listed(nodes, markers))


def _listed(part: object, markers: Container[str]) -> Iterator[str]:
    """Give the literals in JSON, in which a tree is the list of its nodes, each before those below it."""
    if isinstance(part, dict):
        if part.get("class") == _LITERAL:
            kind = part.get("dataType")
            # Of bytes JSON tells where Java keeps them, another place each time; the plan's text has them.
            yield json.dumps([kind, None if kind == "binary" else part.get("value")])
        for inner in part.values():
            yield from _listed(inner, markers)
    below = 0  # nodes below a mark that are still to come
    for inner in part if isinstance(part, list) else ():
        children = inner.get("num-children", 0) if isinstance(inner, dict) else 0
        if below:
            below += children - 1
        elif _is_mark(inner, markers):
            below = children
        else:
            yield from _listed(inner, markers)


def _is_mark(node: object, markers: Container[str]) -> bool:
    if not isinstance(node, dict) or node.get("class") != _ALIAS:
        return False
    named = node.get("identifier")
    return isinstance(named, dict) and named.get("name") in markers


def _sent(plan: Message, markers: Container[str]) -> Iterator[str]:
    """Give the literals in a message, and the SQL."""
    waiting = [plan]
    while waiting:
        message = waiting.pop()
        kind = message.DESCRIPTOR.name
        if kind == "SubqueryAlias" and getattr(message, "alias", None) in markers:
            continue
        if kind == "Literal":
            yield message.SerializeToString(deterministic=True).hex()
            continue
        if kind in _WRITTEN:
            yield getattr(message, _WRITTEN[kind])
        waiting += list(_inside(message))[::-1]


def _inside(message: Message) -> Iterator[Message]:
    for _, value in message.ListFields():
        if hasattr(value, "items"):
            inner = [value[key] for key in sorted(value)]
        else:
            inner = list(value) if hasattr(value, "append") else [value]
        yield from (one for one in inner if hasattr(one, "ListFields"))

"""Hash what a transformation does: the same for the same one on any rows, another for another one.

In: what a transformation gives, its plan, and its sources. Out: the hash of the plan above the sources, of its
literals, and of what the session sets. The text of a plan says neither where literals end nor their types: `IN (a,b)`
may be one text or two. So they are told one by one, too.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from mirrorlib.delta.sessions import read_conf
from mirrorlib.keys.tracing.outputs import outputs_of
from mirrorlib.keys.tracing.plan import Node, UnreadablePlanError, is_mark

if TYPE_CHECKING:
    from google.protobuf.message import Message  # type: ignore[import-untyped]  # its types come apart from it
    from pyspark.sql import DataFrame

# What a session sets that no plan prints, and by which the same rows become others.
_SETTINGS = (
    "spark.sql.session.timeZone",
    "spark.sql.ansi.enabled",
    "spark.sql.legacy.timeParserPolicy",
)
_NUMBER = re.compile(r"#\d+")
_NAMED = re.compile(r"mirrorlib_keyed_\w+|\b[xyz]_\d+(?=#)")
# Access to nested fields, whose names may look like a column's number in the text.
_FIELDS = frozenset({"GetStructField", "GetArrayStructFields"})
_OFFSETS = frozenset({"Lag", "Lead"})  # in the text they do not say whether they ignore NULLs
_ALIAS = "org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias"
# What a client sends as it was written, for the server to read.
_WRITTEN = {"SQL": "query", "ExpressionString": "expression"}


def hash_plan(result: DataFrame, root: Node, markers: Sequence[str]) -> str:
    """Hash a plan as it would be on any other rows: numbers by the order in which they come.

    Raises `UnreadablePlanError` where columns cannot be told apart, or Spark cannot write the plan down.
    """
    numbers: dict[str, str] = {}
    marks = {marker: str(place) for place, marker in enumerate(markers)}
    session = result.sparkSession
    lines = [session.version]  # another one may write a number otherwise
    lines += [f"{name} {read_conf(session, name, meant=True)}" for name in _SETTINGS]
    lines += _literals(result, marks)
    waiting = [(root, 0)]
    while waiting:
        node, depth = waiting.pop()
        if is_mark(node, marks):
            place, used = marks[node.text.strip()], _used(node.children[0], numbers)
            lines.append(f"{depth} source {place} {used}")
            continue
        text = _NAMED.sub("", f"{node.operator}{node.text}")
        if node.operator == "CTERelationRef":  # the session counts them; what it means is below
            text = text.partition(",")[2]
        # That of a text, as in `'order #7'`, is told by its literal, too.
        text = _NUMBER.sub(lambda m: numbers.setdefault(m[0], f"#{len(numbers)}"), text)
        lines.append(f"{depth} {text}")
        waiting += [(child, depth + 1) for child in (*node.subplans, *node.children)][::-1]
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _used(source: Node, numbers: Mapping[str, str]) -> str:
    """Say which columns of a source the operators above it use, so that no two are taken for one another."""
    if not (outputs := outputs_of(source)):
        msg = "the columns of a source cannot be told apart"
        raise UnreadablePlanError(msg)
    return ", ".join(
        f"{name}{numbers[mark]}" for name, number in outputs if (mark := f"#{number}") in numbers
    )


def _literals(result: DataFrame, markers: Container[str]) -> list[str]:
    """Return the literals above the sources, and of a Spark Connect client the SQL in it, in an order that stays."""
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
    """Give what the text leaves out in JSON, in which a tree is the list of its nodes, each before those below it."""
    if isinstance(part, dict):
        expression = str(part.get("class")).rpartition(".")[2]
        if expression in _FIELDS:
            yield json.dumps(part.get("ordinal"))
        if expression == "Literal":
            kind = part.get("dataType")
            # Of bytes JSON tells where Java keeps them, another place each time; the plan's text has them.
            yield json.dumps([kind, None if kind == "binary" else part.get("value")])
        if expression in _OFFSETS and part.get("ignoreNulls"):
            yield "ignore nulls"
        for inner in part.values():
            yield from _listed(inner, markers)
    below = 0  # nodes below a mark that are still to come
    for inner in part if isinstance(part, list) else ():
        node = inner if isinstance(inner, dict) else {}
        named = node.get("identifier")
        if below:
            below += node.get("num-children", 0) - 1
        elif (
            node.get("class") == _ALIAS and isinstance(named, dict) and named.get("name") in markers
        ):
            below = node.get("num-children", 0)
        else:
            yield from _listed(inner, markers)


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
        inside: list[Message] = []
        for _, value in message.ListFields():
            if hasattr(value, "items"):
                inside += [value[key] for key in sorted(value)]
            else:
                inside += list(value) if hasattr(value, "append") else [value]
        waiting += [one for one in inside if hasattr(one, "ListFields")][::-1]

"""Read a DataFrame's analyzed plan as a tree, on classic Spark and on Spark Connect alike.

In: a DataFrame. Out: the root `Node`. The text that Spark prints is all that both kinds of Spark show, and
it shows what is behind views, SQL and CTEs too. It is read strictly, as a grammar: what does not parse to the
last line, or was cut or redacted on the way, raises `UnreadablePlanError`, and whoever asks claims nothing.
Names and literals may hold line breaks, even ones that look like plan lines: those are put together again, or
refused. No job runs, and the session's configuration is left as it was.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_WIDTH = "spark.sql.debug.maxToStringFields"  # Spark cuts lists of more than 25 parts otherwise
_LOCKS: WeakKeyDictionary[SparkSession, threading.Lock] = WeakKeyDictionary()
_BRANCH = re.compile(r"((?:   |:  )*)(:- |\+- )(.*)", re.DOTALL)
_OPERATOR = re.compile(r"(~?)!?([A-Z]\w*)(.*)", re.DOTALL)
_CUT = re.compile(r"\.\.\. \d+ more (?:fields|characters)|Truncated plan of \d+")
_MOST = 500_000  # steps of a walk through all operators
REDACTED = "*(redacted)"  # what Spark has left out of a text
_ANALYZED, _OPTIMIZED = "== Analyzed Logical Plan ==\n", "\n== Optimized Logical Plan =="


class UnreadablePlanError(Exception):
    """The plan's text is not one that can be relied on."""


@dataclass(slots=True, kw_only=True, eq=False)
class Node:
    """An operator of the plan."""

    operator: str  # Spark's name for it: "Project", "Join"
    text: str
    streaming: bool = False  # whether Spark printed it as part of a stream (from Spark 4.0 on)
    children: list[Node] = field(default_factory=list)  # where its rows come from
    subplans: list[Node] = field(default_factory=list)  # queries inside its expressions


def read_plan(df: DataFrame) -> Node:
    """Return the analyzed plan, with every common table expression where it is referred to.

    Raises `UnreadablePlanError` where it was cut short, or its text is ambiguous, as all of these functions do.
    """
    with _wide(df.sparkSession):
        text = _analyzed(df)
    return join_ctes(parse_plan(text))


def _analyzed(df: DataFrame) -> str:
    from pyspark.errors import PySparkException

    if (explain := getattr(type(df), "_explain_string", None)) is None:
        # The text of `explain(True)` without optimizing and planning, which may take seconds.
        return str(df._jdf.queryExecution().analyzed().treeString())  # noqa: SLF001  # no other way to it
    # A Spark Connect client has no other way than what `explain(True)` prints. Its server plans the query before it
    # prints, and so may run into what is wrong with its data.
    try:
        explained: str = explain(df, extended=True)
    except PySparkException as exc:
        msg = "the Spark Connect server cannot plan the query"
        raise UnreadablePlanError(msg) from exc
    explained = explained.partition(_ANALYZED)[2].partition(_OPTIMIZED)[0]
    # Before it is the schema, in one line or, with odd names, in several.
    return explained[explained.find("Project [") :]


@contextlib.contextmanager
def _wide(spark: SparkSession) -> Iterator[None]:
    """Let Spark print whole lists; one thread of a session at a time, so that each puts back what was there."""
    from pyspark.errors import PySparkException

    with _LOCKS.setdefault(spark, threading.Lock()):
        try:
            before = spark.conf.get(_WIDTH, None)
            spark.conf.set(_WIDTH, str(2**31 - 1))
        except PySparkException:  # a platform that forbids it: what is cut is seen as such
            yield
            return
        try:
            yield
        finally:
            if before is None:
                spark.conf.unset(_WIDTH)
            else:
                spark.conf.set(_WIDTH, before)


def parse_plan(text: str) -> Node:
    """Read the text of a plan."""
    if _CUT.search(text):
        msg = "Spark has cut the plan's text short"
        raise UnreadablePlanError(msg)
    first, *lines = text.rstrip("\n").split("\n")
    root = _node(first)
    path, drawn = [(root, 0)], [""]
    for line in lines:
        found = _BRANCH.fullmatch(line)
        if found is None:  # a line break inside a name or a literal
            path[-1][0].text += "\n" + line
            continue
        node, depth = _node(found[3]), len(found[1]) // 3 + 1
        while path[-1][1] >= depth:
            path.pop()
        parent, above = path[-1]
        (parent.children if depth == above + 1 else parent.subplans).append(node)
        path.append((node, depth))
        drawn.append(found[1] + found[2])
    if drawn != list(_branches(root)):
        msg = "a line of the plan does not stand where it can, or one is missing"
        raise UnreadablePlanError(msg)
    return root


def _branches(root: Node) -> Iterator[str]:
    """Give what Spark draws before each operator, the root first: queries in one come first, a step further in."""
    waiting = [(root, "", "")]  # with what is drawn before it, and what before all that is below it
    while waiting:
        node, branch, before = waiting.pop()
        yield branch
        inner = before + (":  " if node.children else "   ")
        waiting += [*_drawn(node.subplans, inner), *_drawn(node.children, before)][::-1]


def _drawn(nodes: Sequence[Node], before: str) -> Iterator[tuple[Node, str, str]]:
    for place, node in enumerate(nodes, 1):
        last = place == len(nodes)
        yield node, before + ("+- " if last else ":- "), before + ("   " if last else ":  ")


def _node(line: str) -> Node:
    if (found := _OPERATOR.fullmatch(line)) is None:
        msg = "a line of the plan names no operator"
        raise UnreadablePlanError(msg)
    return Node(operator=found[2], text=found[3], streaming=bool(found[1]))


def is_mark(node: Node, marks: Collection[str]) -> bool:
    """Say whether a node is the alias by which a place in the plan is known."""
    return node.operator == "SubqueryAlias" and node.text.strip() in marks


def walk(*roots: Node, marks: Collection[str] = ()) -> Iterator[Node]:
    """Give nodes, all their children and all their subplans, but for what is below some marks."""
    waiting = list(roots)
    while waiting:
        node = waiting.pop()
        yield node
        if not is_mark(node, marks):
            waiting += (*node.children, *node.subplans)


def join_ctes(root: Node) -> Node:
    """Put every common table expression where it is referred to, so that one used twice is there twice.

    One that refers to itself is refused, and so are queries that use others twice, which use others twice, and so on.
    """
    nodes = list(walk(root))
    defined = {_number(node): node.children for node in nodes if node.operator == "CTERelationDef"}
    if not defined:
        return root
    for node in nodes:
        if node.operator == "CTERelationRef":
            if _number(node) not in defined:
                msg = "a common table expression is not defined"
                raise UnreadablePlanError(msg)
            node.children = defined[_number(node)]
        elif node.operator == "WithCTE":
            node.children = node.children[-1:]  # before it the definitions
    if any(seen > _MOST for seen, _ in enumerate(walk(root))):
        msg = "the plan has too many operators, or a common table expression refers to itself"
        raise UnreadablePlanError(msg)
    return root


def _number(node: Node) -> str:
    return node.text.strip().partition(",")[0]

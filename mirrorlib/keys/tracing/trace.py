"""Find what is left of declared keys: the one way through a plan from where they were declared to its end.

In: a DataFrame. Out: `Trace`: the keys, and every step that took something from them. A key column is claimed
only where three things agree: the rules let keys through every operator on the way, the column still has its
tag, and its number in the plan leads back to the declaration. Whatever is unclear claims nothing.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mirrorlib.identifiers import fold_name, quote
from mirrorlib.keys.tags import MARKER, STALE, Tagged, read_tags
from mirrorlib.keys.tracing import functions, rules
from mirrorlib.keys.tracing.columns import (
    Followed,
    Marked,
    columns_end,
    declared_columns,
    find_marked,
    follow,
    follow_unnamed,
    selected_numbers,
)
from mirrorlib.keys.tracing.plan import REDACTED, Node, UnreadablePlanError, read_plan
from mirrorlib.keys.value import Keys, left_under

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_Tags = list[tuple[str, Tagged]]  # by the numbers of their columns
_TWICE = "both of its inputs have keys, and neither is the result's"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysStep:
    """A step that took something from the keys.

    Attributes:
        operator: what it is: "dropDuplicates", "join (LeftOuter)".
        lost: "partition key", "primary key", or the columns.
        why: the reason.

    """

    operator: str
    lost: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Trace:
    """What became of keys.

    Attributes:
        keys: what is left.
        declared: what was declared; None where nothing was, or it cannot be found.
        origin: which function declared it.
        steps: what took something from it, in the order of the data's way.
        names: what the declared columns are called now, None for one that is lost; none where nobody can tell.
        order: "arrival", "inputs" (inside each input of a union), "columns" (only what order columns tell) or "none".
        weakest_link: what in the lineage leaves no more order than that; "" for nothing.
        unclear: why nothing is claimed, where that is not known better.

    """

    keys: Keys = field(default_factory=Keys)
    declared: Keys | None = None
    origin: str = ""
    steps: tuple[KeysStep, ...] = ()
    names: Mapping[str, str | None] = field(default_factory=dict)
    order: rules.Order = "none"
    weakest_link: str = ""
    unclear: str = ""


def trace_keys(df: DataFrame) -> Trace:
    """Find out what became of the keys of a DataFrame; runs no job, at the price that `keys_of` tells."""
    schema = df.schema
    count = Counter(map(fold_name, schema.names))
    tags = [tag for tag in read_tags(schema) if count[fold_name(tag.name)] == 1]
    names = [tag.name for tag in tags]
    try:
        root = read_plan(df.select(*map(quote, names)) if names else df.select("*"))
        numbers = selected_numbers(root, names) if names else ()
        trace = _trace(df.sparkSession, root, list(zip(numbers, tags, strict=True)))
    except UnreadablePlanError as exc:
        return Trace(unclear=f"the plan cannot be relied on: {exc}")
    if trace.origin == "union_keyed" and trace.order == "arrival":
        return replace(trace, order="inputs", weakest_link="union")
    return trace


def _trace(spark: SparkSession, root: Node, tagged: _Tags) -> Trace:
    # Those whose rows or columns come out at the end.
    marked = [
        one
        for one in find_marked(root, MARKER)
        if not one.inner and all(rules.judge(node, side).passes for node, side in one.way)
    ]
    if not marked:
        why = "no keys were declared where the plan can see it"
        if find_marked(root, STALE):
            why = "the keys that the table's property names are columns which it no longer has, or nobody can tell"
        return Trace(unclear=why)
    judged = [(one, _judge_way(spark, root, one)) for one in marked]
    alive = [(one, way) for one, way in judged if all(effect.partition for effect in way)]
    if not alive:
        return _claim(*judged[0], tagged)
    meetings = list[Node]()
    for chosen, way in alive:
        # Where its keys first meet others.
        found = (_meeting(chosen, one, its) for one, its in judged if one is not chosen)
        meeting = next((node for node in found if node is not None), None)
        if meeting is None:
            return _claim(chosen, way, tagged)
        meetings.append(meeting)
    loss = rules.nothing(rules.judge(meetings[0], 0).label, _TWICE)
    return _lost(Trace(steps=_steps([loss]), weakest_link=loss.label), alive[0][0], tagged)


def _meeting(one: Marked, other: Marked, effects: list[rules.Effect]) -> Node | None:
    """Return where keys meet others that are keys there, too; None where those are lost before.

    The same declaration on both ways is too much even then: its tags could come from either.
    """
    shared = {id(node) for node, _ in one.way}
    place = next(place for place, (node, _) in enumerate(other.way) if id(node) in shared)
    lost = next((at for at, effect in enumerate(effects) if not effect.partition), len(effects))
    if one.id != other.id and min(lost, columns_end(other)) < place:
        return None
    return other.way[place][0]


def _judge_way(spark: SparkSession, root: Node, marked: Marked) -> list[rules.Effect]:
    """Judge every operator of a way: what it is, and which functions it calls."""
    effects = [rules.judge(node, side) for node, side in marked.way]
    if not all(effect.partition for effect in effects):
        return effects  # it is lost already: no need to look functions up
    nodes = [node for node, _ in marked.way]
    names = [functions.called(node) for node in nodes]
    defined = functions.defined_columns(root)
    foreign = functions.user_defined(spark, set().union(*names))
    for place, node in enumerate(nodes):
        unknown = names[place] & foreign or REDACTED in node.text
        if unknown or functions.calls_python(node, defined):
            effects[place] = rules.nothing(f"function in {effects[place].label}", rules.UDF)
    return effects


def _steps(effects: Iterable[rules.Effect]) -> tuple[KeysStep, ...]:
    """Tell the operators that took keys as a whole."""
    lost = [one for one in effects if not (one.partition and one.primary)]
    whole = {True: "primary key", False: "partition key and primary key"}
    return tuple(KeysStep(operator=e.label, lost=whole[e.partition], why=e.why) for e in lost)


def _lost(trace: Trace, marked: Marked, tagged: _Tags) -> Trace:
    """Say of keys that are lost as a whole what was declared, and what is left of its columns."""
    mine = [(number, tag) for number, tag in tagged if tag.id == marked.id]
    if not mine:
        return trace
    names: Mapping[str, str | None] = {}
    with contextlib.suppress(UnreadablePlanError):
        names = _names(_followed(marked, mine), mine)
    return replace(trace, declared=mine[0][1].keys, origin=mine[0][1].origin, names=names)


def _claim(marked: Marked, way: list[rules.Effect], tagged: _Tags) -> Trace:
    """Claim the keys that a way leaves, of the columns that lead back to its declaration."""
    order, weakest = rules.judge_order(marked.node, way)
    trace = Trace(steps=_steps(way), order=order, weakest_link=weakest)
    mine = [(number, tag) for number, tag in tagged if tag.id == marked.id]
    if not mine:
        gone = follow_unnamed(marked)
        return replace(trace, steps=(*trace.steps, *_column_losses(marked, gone)))
    if not all(effect.partition for effect in way):
        return _lost(trace, marked, mine)
    declared = mine[0][1]
    followed = _followed(marked, mine)
    names = _names(followed, mine)
    gone = {was: column for was, column in followed.items() if names[was] is None}
    return replace(
        trace,
        keys=left_under(declared.keys, names, primary=all(effect.primary for effect in way)),
        declared=declared.keys,
        origin=declared.origin,
        steps=(*trace.steps, *_column_losses(marked, gone)),
        names=names,
    )


def _followed(marked: Marked, mine: _Tags) -> dict[str, Followed]:
    columns = declared_columns(marked.node.children[0], mine[0][1].keys.columns)
    return follow(marked, columns, {tag.was: tag.kind for _, tag in mine})


def _names(followed: Mapping[str, Followed], mine: _Tags) -> dict[str, str | None]:
    """Say what columns are called now: as they were, else as the first of their copies; None when they are lost."""
    names: dict[str, str | None] = {}
    for was, column in followed.items():
        numbers = column.numbers
        found = [tag.name for number, tag in mine if tag.was == was and number in numbers]
        names[was] = was if was in found else next(iter(found), None)
    return names


def _column_losses(marked: Marked, gone: Mapping[str, Followed]) -> Iterator[KeysStep]:
    lost: dict[int, tuple[Node, list[str]]] = {}
    for was, column in gone.items():
        node = column.lost_at or (marked.way[-1][0] if marked.way else marked.node)
        lost.setdefault(id(node), (node, []))[1].append(was)
    for node, columns in lost.values():
        label, what = rules.judge(node, 0).label, f"column {', '.join(columns)}"
        yield KeysStep(operator=label, lost=what, why="dropped or overwritten")

"""Find what is left of declared keys: the one way through a plan from where they were declared to its end.

In: a DataFrame. Out: `Trace`: the keys, and every step that took something from them. A key column is claimed
only where three things agree: the rules let keys through every operator on the way, the column still has its
tag, and its number in the plan leads back to the declaration. Whatever is unclear claims nothing.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mirrorlib.identifiers import fold_name, quote
from mirrorlib.keys.tags import STALE, Declared, Tagged, read_tags
from mirrorlib.keys.tracing.columns import (
    Followed,
    declared_columns,
    marked_columns,
    selected_numbers,
)
from mirrorlib.keys.tracing.functions import (
    called,
    calls_python,
    defined_columns,
    shared_until,
    user_defined,
)
from mirrorlib.keys.tracing.order import judge_order
from mirrorlib.keys.tracing.plan import (
    Node,
    UnreadablePlanError,
    is_redacted,
    join_ctes,
    read_plan,
    walk,
)
from mirrorlib.keys.tracing.rules import (
    Effect,
    Order,
    judge,
    judge_functions,
    keyed_twice,
)
from mirrorlib.keys.tracing.ways import Marked, Step, columns_end, find_marked, follow
from mirrorlib.keys.value import Keys

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Something that an operator took.

    Attributes:
        effect: what the operator does.
        columns: the columns that it took, by their declared names; none when it takes keys as a whole.

    """

    effect: Effect
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What became of keys.

    Attributes:
        keys: what is left.
        declared: what was there; None where keys never were, or cannot be found.
        losses: what took something, in the order of the data's way.
        names: what the declared columns are called now, None for one that is lost; none where nobody can tell.
        order: what still tells the order of a key's rows.
        weakest: what in the whole lineage, from the source on, leaves no more than that; "" for nothing.
        streaming: whether rows come from a stream, so that there is an arrival.
        unclear: why nothing can be said, "" when something can.

    """

    keys: Keys
    declared: Declared | None = None
    losses: tuple[Loss, ...] = ()
    names: Mapping[str, str | None] = field(default_factory=dict)
    order: Order = "none"
    weakest: str = ""
    streaming: bool = False
    unclear: str = ""


def trace_keys(df: DataFrame) -> Trace:
    """Find out what became of the keys of a DataFrame; runs no job.

    On classic Spark this costs the time to print the plan; a Spark Connect server optimizes it, too.
    """
    tags = _usable_tags(df)
    names = [tagged.name for tagged in tags]
    try:
        root = join_ctes(read_plan(df.select(*map(quote, names)) if names else df.select("*")))
        numbers = selected_numbers(root, names) if names else ()
        return _trace(df.sparkSession, root, dict(zip(numbers, tags, strict=True)))
    except UnreadablePlanError as exc:
        return Trace(keys=Keys(), unclear=f"the plan cannot be relied on: {exc}")


def _usable_tags(df: DataFrame) -> list[Tagged]:
    """Return the tagged columns whose names mean one column."""
    schema = df.schema
    count = Counter(fold_name(name) for name in schema.names)
    return [
        tagged
        for tags in read_tags(schema).values()
        for tagged in tags
        if count[fold_name(tagged.name)] == 1
    ]


def _trace(spark: SparkSession, root: Node, tagged: dict[str, Tagged]) -> Trace:
    marked = find_marked(root)
    if not marked:
        return Trace(keys=Keys(), unclear=_why_none(root))
    effects = [_judge_way(spark, root, one.way) for one in marked]
    alive = [
        (one, way)
        for one, way in zip(marked, effects, strict=True)
        if all(effect.partition for effect in way)
    ]
    if not alive:
        return _claim(marked[0], effects[0], list(tagged.items()))
    judged = list(zip(marked, effects, strict=True))
    meetings = list[Node]()
    for chosen, way in alive:
        meeting = _first_meeting(chosen, judged)
        if meeting is None:
            return _claim(chosen, way, list(tagged.items()))
        meetings.append(meeting)
    return _twice(meetings[0], alive[0][0], tagged)


def _why_none(root: Node) -> str:
    """Say why nothing was declared."""
    if any(n.operator == "SubqueryAlias" and n.text.strip() == STALE for n in walk(root)):
        return "the keys that the table's property names are columns which it no longer has"
    return "no keys were declared where the plan can see it"


def _first_meeting(one: Marked, judged: Sequence[tuple[Marked, list[Effect]]]) -> Node | None:
    """Return where keys first meet others; None where no others are left when they meet."""
    found = (_meeting(one, other, its) for other, its in judged if other is not one)
    return next((meeting for meeting in found if meeting is not None), None)


def _meeting(one: Marked, other: Marked, effects: list[Effect]) -> Node | None:
    """Return where keys meet others that are keys there, too; None where those are lost before.

    The same declaration on both ways is too much even then: its tags could come from either.
    """
    shared = {id(node) for node, _ in one.way}
    place = next(place for place, (node, _) in enumerate(other.way) if id(node) in shared)
    lost = next((at for at, effect in enumerate(effects) if not effect.partition), len(effects))
    if one.id != other.id and min(lost, columns_end(other)) < place:
        return None
    return other.way[place][0]


def _judge_way(spark: SparkSession, root: Node, way: tuple[Step, ...]) -> list[Effect]:
    """Judge every operator of a way: what it is, and which functions it calls."""
    defined = defined_columns(root)
    names = {name for node, _ in way for name in called(node)}
    effects = [judge(node, side) for node, side in way]
    if not all(effect.partition for effect in effects):
        return effects  # it is lost already: no need to look functions up
    foreign = user_defined(spark, sorted(names))
    shared = shared_until(spark, [node for node, _ in way])

    def calls(place: int, node: Node) -> bool:
        names = called(node)
        unknown = bool(names) if place < shared else bool(names & foreign)
        return unknown or is_redacted(node.text) or calls_python(node, defined)

    return [
        judge_functions(node) if calls(place, node) else effect
        for place, ((node, _), effect) in enumerate(zip(way, effects, strict=True))
    ]


def _twice(meeting: Node, first: Marked, tagged: dict[str, Tagged]) -> Trace:
    """Say that two inputs of one operator have keys."""
    loss = Loss(effect=keyed_twice(meeting))
    trace = Trace(keys=Keys(), losses=(loss,), weakest=loss.effect.label)
    return _lost(trace, first, [(n, t) for n, t in tagged.items() if t.declared.id == first.id])


def _lost(trace: Trace, marked: Marked, mine: list[tuple[str, Tagged]]) -> Trace:
    """Say of keys that are lost as a whole what was declared, and what is left of its columns."""
    if not mine:
        return trace
    names: Mapping[str, str | None] = {}
    with contextlib.suppress(UnreadablePlanError):
        names = _names(_followed(marked, mine), mine)
    return replace(trace, declared=mine[0][1].declared, names=names)


def _claim(marked: Marked, way: list[Effect], tagged: list[tuple[str, Tagged]]) -> Trace:
    """Claim the keys that a way leaves, of the columns that lead back to its declaration."""
    order, weakest, streaming = judge_order(marked.node, way)
    trace = Trace(keys=Keys(), order=order, weakest=weakest, streaming=streaming)
    losses = [Loss(effect=e) for e in way if not (e.partition and e.primary)]
    mine = [(number, tag) for number, tag in tagged if tag.declared.id == marked.id]
    if not mine:
        gone = follow(marked, marked_columns(marked.node.children[0]), {})
        losses += _column_losses(marked, gone, {n: n for n, c in gone.items() if c.lost_at is None})
        return replace(trace, losses=tuple(losses))
    if not all(effect.partition for effect in way):
        return _lost(replace(trace, losses=tuple(losses)), marked, mine)
    declared = mine[0][1].declared
    followed = _followed(marked, mine)
    names = _names(followed, mine)
    losses += _column_losses(marked, followed, names)
    primary = all(effect.primary for effect in way)
    keys = _left(declared.keys, names, primary=primary)
    return replace(trace, keys=keys, declared=declared, losses=tuple(losses), names=names)


def _followed(marked: Marked, mine: list[tuple[str, Tagged]]) -> dict[str, Followed]:
    columns = declared_columns(marked.node.children[0], mine[0][1].declared.keys.columns)
    return follow(marked, columns, {tag.was: tag.kind for _, tag in mine})


def _names(
    followed: Mapping[str, Followed], mine: list[tuple[str, Tagged]]
) -> dict[str, str | None]:
    return {
        was: _name_of(was, column, [(number, tag) for number, tag in mine if tag.was == was])
        for was, column in followed.items()
    }


def _name_of(was: str, column: Followed, tags: list[tuple[str, Tagged]]) -> str | None:
    """Return what a column is called now: as it was, else the first of its copies; None when it is lost."""
    numbers = {number for _, number in column.columns}
    names = [tagged.name for number, tagged in tags if number in numbers]
    return was if was in names else next(iter(names), None)


def _column_losses(
    marked: Marked, followed: Mapping[str, Followed], names: Mapping[str, str | None]
) -> list[Loss]:
    lost: dict[int, tuple[Node, list[str]]] = {}
    for was, column in followed.items():
        if names.get(was) is None:
            node = column.lost_at or (marked.way[-1][0] if marked.way else marked.node)
            lost.setdefault(id(node), (node, []))[1].append(was)
    return [
        Loss(effect=replace(judge(node, 0), why="dropped or overwritten"), columns=tuple(columns))
        for node, columns in lost.values()
    ]


def _left(keys: Keys, names: dict[str, str | None], *, primary: bool) -> Keys:
    """Give what is left of keys: of what identifies, what is there; of how to resolve, all or nothing."""
    partition = tuple(name for was in keys.partition if (name := names[was]) is not None)
    if not partition:
        return Keys()
    lost = (*keys.lost, *(was for was in keys.partition if names[was] is None))
    order = tuple(name for was in keys.order_by if (name := names[was]) is not None)
    deleted = None if keys.deleted is None else names[keys.deleted]
    resolves = (deleted is None) == (keys.deleted is None) and len(order) == len(keys.order_by)
    if not (primary and keys.primary and resolves):
        return Keys(partition=partition, lost=lost)
    return Keys(
        partition=partition,
        primary=partition,
        deleted=deleted,
        order_by=order,
        lost=lost,
        unique=keys.unique and not lost,
    )

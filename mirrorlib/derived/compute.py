"""Compute what a derived table has to become: as little as is certain to be enough.

In: a round, and the table as its last commit left it. Out: `Computed`: the rows that are there now and may have to
go, the rows that have to be there instead, and how and why. Nothing runs here; whatever is unclear is computed in
full, and what a part of the sources gives is taken only if the transformation did the same on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mirrorlib.delta.address import find_feed_table
from mirrorlib.delta.columns import in_its_order
from mirrorlib.derived.frames import (
    Framed,
    Transform,
    can_fold,
    changed_keys,
    changed_rows,
    frame_source,
    rows_of_keys,
    transformed,
    with_rows,
)
from mirrorlib.derived.sources import Round, Source
from mirrorlib.derived.strategy.choose import Choice, How, Shape, choose, fingerprint_of, shape_of
from mirrorlib.derived.windows import open_windows
from mirrorlib.derived.write import added_columns, can_differ, check_columns
from mirrorlib.feed.read import read_rows
from mirrorlib.identifiers import quote
from mirrorlib.keys.read import KeysReport, explain_keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from mirrorlib.derived.place import Place
    from mirrorlib.feed.window import Window

MOVES = "moves"  # in what a commit says: why it is to be followed by another without a new version
_AFRESH = "the transformation or the session's time zone, ANSI mode or time parser is another one than in the last run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A derived table as it is.

    Attributes:
        schema: its columns.
        version: its newest version.
        facts: what its last round's commit says.

    """

    schema: StructType
    version: int
    facts: Mapping[str, Any]

    @property
    def moves(self) -> bool:
        """Say whether it may have to become something else though no source has a new version; not told is perhaps."""
        return self.facts.get(MOVES) != ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """What a derived table has to become.

    Attributes:
        how: by which part of the sources it was computed.
        why: why by all of them.
        result: the transformation's result on all of them, for its columns.
        fingerprint: the transformation, hashed; "" where its plan cannot be read.
        moves: why it may give something else though no source has a new version; "" where it gives the same.
        keys: what became of the keys.
        new: rows that have to be there.
        old: rows that are there in their place; None for all that are, columns too.
        added: columns that the table lacks.
        changed: for each source whether rows have changed; None where that was not asked.

    """

    how: How
    why: str
    result: DataFrame
    fingerprint: str
    moves: str
    keys: KeysReport
    new: DataFrame
    old: DataFrame | None
    added: tuple[str, ...]
    changed: tuple[bool | None, ...]


def compute(
    spark: SparkSession,
    sources: Sequence[Source],
    planned: Round,
    transform: Transform,
    place: Place,
    held: Held | None,
    *,
    rebuild: bool,
) -> Computed:
    """Compute a round.

    Raises:
        FeedExpiredError: the sources cannot be read any more as they were when the round was planned.
        KeysError: the transformation gives no DataFrame.
        SchemaError: it gives columns that no table can have.

    """
    framed = [
        frame_source(spark, one, plan) for one, plan in zip(sources, planned.plans, strict=True)
    ]
    result = transformed(transform, framed)
    check_columns(place, result)
    shape = shape_of(result, framed)
    work = _Work(
        spark=spark,
        sources=sources,
        planned=planned,
        transform=transform,
        place=place,
        held=held,
        framed=framed,
        result=result,
        shape=shape,
    )
    windows = _windows(work, rebuild=rebuild)
    if isinstance(windows, str):
        return _in_full(work, windows, None)
    changed = tuple(window.changes for window in windows)
    if not any(changed):
        return _computed(work, "nothing new", "", result.limit(0), result.limit(0), changed)
    choice = choose(shape, framed, [place for place, one in enumerate(changed) if one])
    if choice.how == "full":
        return _in_full(work, choice.why, changed)
    return _in_part(work, choice, windows, changed)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    spark: SparkSession
    sources: Sequence[Source]
    planned: Round
    transform: Transform
    place: Place
    held: Held | None
    framed: Sequence[Framed]
    result: DataFrame
    shape: Shape

    @property
    def added(self) -> list[str] | None:
        """Name the columns that the table lacks; None where it cannot become what the result is."""
        return None if self.held is None else added_columns(self.held.schema, self.result)

    def there(self, columns: Sequence[str]) -> DataFrame:
        """Return the table's rows; NULL for columns that it lacks."""
        from pyspark.sql import functions as f

        table = find_feed_table(self.spark, self.place.address, shown=self.place.shown)
        rows = read_rows(self.spark, table, self.held.version if self.held else 0)
        lacks = self.added or ()
        kinds = self.result.schema
        return rows.select(
            *[
                f.lit(None).cast(kinds[name].dataType).alias(name)
                if name in lacks
                else f.col(quote(name))
                for name in columns
            ]
        )


def _windows(work: _Work, *, rebuild: bool) -> tuple[Window, ...] | str:
    """Open the windows that lead on from what the table holds, or say why all has to be computed."""
    if work.held is None:
        return "it is made for the first time"
    if rebuild:
        return "that was asked for"
    windows = open_windows(work.sources, work.planned, work.held.facts.get("sources", ()))
    if isinstance(windows, str):
        return windows
    if work.shape.fingerprint != work.held.facts.get("plan"):
        return _AFRESH
    if work.shape.why and (work.shape.moves or any(window.changes for window in windows)):
        return work.shape.why
    if work.added != []:
        return "its columns change"
    if not can_differ(work.result):
        return "a column of it is of a type that cannot be compared"
    return windows


def _in_full(work: _Work, why: str, changed: tuple[bool | None, ...] | None) -> Computed:
    """Compute all rows; those that stay the same are left alone where rows can be compared."""
    changed = changed or tuple(None for _ in work.sources)
    old = None
    if work.added is not None and can_differ(work.result):
        old = work.there(work.result.columns)
    return _computed(work, "full", why, work.result, old, changed)


def _in_part(
    work: _Work, choice: Choice, windows: Sequence[Window], changed: tuple[bool, ...]
) -> Computed:
    """Compute the rows of the keys that have changed."""
    how = choice.how
    given = list(work.framed)
    at, named = choice.columns[0]
    if how == "row-wise" and can_fold(given[at]):
        values, rows = changed_rows(work.spark, given[at], windows[at])
        keys = [(values, _outputs(named, given[at].key_columns))]
        given[at] = with_rows(given[at], work.planned.plans[at], rows)
    else:
        how = "affected keys"
        keys = [
            (
                changed_keys(
                    work.spark, work.sources[one], windows[one], [name for name, _ in columns]
                ),
                [output for _, output in columns],
            )
            for one, columns in choice.columns
        ]
        if len(keys) == 1:
            plan, rows = work.planned.plans[at], given[at].frame
            few = rows_of_keys(rows, [(keys[0][0], [name for name, _ in named])])
            given[at] = with_rows(given[at], plan, few)
    part = transformed(work.transform, given)
    if fingerprint_of(part, given) != work.shape.fingerprint:
        # Anew: a temporary view that it has made means the part by now, for a Spark Connect client.
        again = replace(work, result=transformed(work.transform, work.framed))
        return _in_full(
            again, "the transformation looks at the rows to choose what it does", changed
        )
    if len(keys) > 1 or not work.shape.reaches[at].own:
        part = rows_of_keys(part, keys)
    old = rows_of_keys(work.there(work.result.columns), keys)
    return _computed(work, how, "", part, old, changed)


def _outputs(named: Sequence[tuple[str, str]], columns: Sequence[str]) -> list[str]:
    outputs = dict(named)
    return [outputs[name] for name in columns]


def _computed(
    work: _Work,
    how: How,
    why: str,
    new: DataFrame,
    old: DataFrame | None,
    changed: Sequence[bool | None],
) -> Computed:
    if work.held is not None and work.added is not None:
        new = in_its_order(new, work.held.schema)
    return Computed(
        how=how,
        why=why,
        result=work.result,
        fingerprint=work.shape.fingerprint,
        moves=work.shape.moves,
        keys=explain_keys(work.result),
        new=new,
        old=old,
        added=tuple(work.added or ()),
        changed=tuple(changed),
    )

"""Give a transformation its sources: keyed DataFrames of one version each, each with a mark in the plan.

In: rows of sources. Out: `Framed`, and the result of the transformation on such frames. The same transformation is
called on whole sources, to see what it does, and on parts of them, to do it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from mirrorlib.derived.sources import SourceTable
from mirrorlib.errors import KeysError
from mirrorlib.feed.declared_keys import declare_stored
from mirrorlib.feed.net import INSERT, KIND, POST, Helpers, fold_net, is_comparable
from mirrorlib.feed.owners import is_one_row
from mirrorlib.feed.read import read_window
from mirrorlib.feed.window import Window
from mirrorlib.identifiers import quote
from mirrorlib.journal.streams import WindowPlan
from mirrorlib.keys.tags import MARKER, read_tags
from mirrorlib.nested import is_free_of

Transform = Callable[..., "DataFrame"]
_FLOATS = frozenset({"double", "float"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Framed:
    """A source as a transformation is given it."""

    source: SourceTable
    frame: DataFrame  # its rows, or some of them, with their keys
    marker: str  # the alias that marks them in a plan
    # The partition key; none where there is none, or a part of it was lost.
    key_columns: tuple[str, ...]
    one_row: bool  # each key occurs once, in this version and in the one before the window


def frame_rows(source: SourceTable, plan: WindowPlan, rows: DataFrame) -> Framed:
    """Frame rows of a source as of the end of a window."""
    commits = source.table.commits
    frame = declare_stored(rows, commits, plan.until)
    tags = read_tags(frame.schema)
    columns: tuple[str, ...] = ()
    if tags:
        marker, keys = f"{MARKER}{tags[0].id}", tags[0].keys
        columns = () if keys.lost else keys.partition
    else:
        marker = f"mirrorlib_source_{uuid.uuid4().hex[:12]}"
        # By a select, as with keys: what is below the mark says which columns there are.
        frame = frame.select(*map(quote, frame.columns)).alias(marker)
    return Framed(
        source=source,
        frame=frame,
        marker=marker,
        key_columns=columns,
        one_row=all(is_one_row(commits, version, columns) for version in (plan.until, plan.after)),
    )


def transformed(transform: Transform, framed: Sequence[Framed]) -> DataFrame:
    """Call a transformation."""
    given = {one.source.name: one.frame for one in framed if one.source.name}
    result = transform(*[one.frame for one in framed if not one.source.name], **given)
    if getattr(result, "isStreaming", True):
        msg = "the transformation gives no DataFrame, or a stream"
        step = "Make it of the frames that it is given, and return it."
        raise KeysError(msg, found=type(result).__name__, next_step=step)
    return result


def can_differ(rows: DataFrame) -> bool:
    """Say whether rows can be compared, so that only those that are different need be told."""
    return all(is_comparable(field.dataType) for field in rows.schema.fields)


def changed_rows(spark: SparkSession, one: Framed, window: Window) -> tuple[DataFrame, DataFrame]:
    """Return the keys of the rows that a window has changed, and what is there of them at its end."""
    rows = read_window(spark, one.source.table, window)
    fields = rows.schema.fields
    if floats := [field.name for field in fields if not is_free_of(field.dataType, _FLOATS)]:
        # 0.0 and -0.0 are two values: Spark compares them as one, but a transformation may tell them apart.
        texts = [f.col(quote(name)).cast("string") for name in floats]
        rows = rows.withColumn(Helpers(rows.columns).sign, f.array(*texts))
    net = fold_net(rows, one.key_columns, one.source.place.shown)
    keys = net.select(*map(quote, one.key_columns)).distinct()
    return keys, net.where(f.col(KIND).isin(INSERT, POST)).select(*map(quote, one.frame.columns))

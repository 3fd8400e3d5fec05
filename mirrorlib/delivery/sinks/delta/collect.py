"""Take a window of few rows into this process: Spark would take longer to plan its way than to go it.

In: a window. Out: its rows as an Arrow table, or none when there are more, or values that Arrow does not
carry as they are; and such rows folded by key. Source: Spark hands a DataFrame to Arrow from version 4 on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from mirrorlib.commit.staged import DROP, FRESH, OP, PUT, WRONG
from mirrorlib.delta.columns import to_columns
from mirrorlib.delta.sessions import ARROW_FRAMES, SMALL_COMMIT, configured, spark_generation
from mirrorlib.feed.files.small_window import WINDOW_BYTES, WINDOW_ROWS
from mirrorlib.feed.net import FEED_COLUMNS, INSERT, KIND, POST, VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirrorlib.delivery.sinks.delta.work import Work

_KEYS = (pa.types.is_integer, pa.types.is_string, pa.types.is_binary, pa.types.is_boolean)


def collect_changes(work: Work) -> Work:
    """Take the rows of a window of changes, when they are few."""
    frame = work.delivery.frame
    if work.delivery.few is not None:
        return replace(work, few=work.delivery.few)
    fields = frame.schema.fields
    plain = to_columns((field.name, field.dataType.simpleString()) for field in fields)
    if (
        work.plan.kind == "snapshot"
        or work.stream.net  # the first row of net changes costs as much as all of them
        or (work.delivery.told_rows or 0) > WINDOW_ROWS  # so do the first rows of very many
        or spark_generation() < ARROW_FRAMES
        or len(plain) < len(fields)
    ):
        return work
    known = work.delivery.told_rows is not None  # to look for more than few costs another stage
    with configured(work.spark, {}, SMALL_COMMIT):
        rows = (frame if known else frame.limit(WINDOW_ROWS + 1)).toArrow()
    return (
        replace(work, few=rows)
        if len(rows) <= WINDOW_ROWS and rows.nbytes <= WINDOW_BYTES
        else work
    )


def fold_collected(rows: pa.Table, keys: Sequence[str], upto: int = -1) -> pa.Table | None:
    """Fold rows by key as `last_states` does; None for keys that Python may compare in another way than Spark."""
    if not all(any(is_kind(rows.schema.field(key).type) for is_kind in _KEYS) for key in keys):
        return None
    comes = [kind in {INSERT, POST} for kind in rows.column(KIND).to_pylist()]
    versions = rows.column(VERSION).to_pylist()
    values = key_values(rows, keys)
    first: dict[object, bool] = {}
    last: dict[object, int] = {}
    doubled: list[int] = []
    # What goes in a version goes before what comes.
    for place in sorted(range(len(values)), key=lambda place: (versions[place], comes[place])):
        key = values[place]
        if comes[place] and key in last and comes[last[key]]:
            doubled.append(place)
        first.setdefault(key, comes[place] and versions[place] > upto)
        last[key] = place
    places = [*last.values(), *doubled]
    ops = [PUT if comes[place] else DROP for place in last.values()] + [WRONG] * len(doubled)
    fresh = [first[values[place]] for place in places]
    kept = rows.drop_columns(list(FEED_COLUMNS)).take(pa.array(places, pa.int64()))
    kept = kept.append_column(OP, pa.array(ops, pa.int8()))
    return kept.append_column(FRESH, pa.array(fresh, pa.bool_()))


def key_values(rows: pa.Table, keys: Sequence[str]) -> list[tuple[object, ...]]:
    """Give each row's key; text as bytes, as Spark's need not be UTF-8."""
    columns = [rows.column(key) for key in keys]
    columns_as_bytes = (
        one.cast(pa.binary()) if pa.types.is_string(one.type) else one for one in columns
    )
    return list(zip(*(one.to_pylist() for one in columns_as_bytes), strict=True))

"""Take a window of few rows into this process: Spark would take longer to plan its way than to go it.

In: a window. Out: its rows as an Arrow table, or none when there are more, or values that Arrow does not
carry as they are; such rows folded by key; and what one commit needs, staged as a part of the plan where the window
has few rows, else as files. Source: Spark hands a DataFrame to Arrow from version 4 on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from mirrorlib.commit.stage import stage_frame, staged_table
from mirrorlib.commit.staged import DROP, FRESH, OP, PUT, WRONG, Staged
from mirrorlib.delta.columns import to_columns
from mirrorlib.delta.sessions import ARROW_FRAMES, SMALL_COMMIT, configured, spark_generation
from mirrorlib.feed.files.small_window import WINDOW_BYTES, WINDOW_ROWS, frame_of
from mirrorlib.feed.net import FEED_COLUMNS, INSERT, KIND, POST, VERSION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from mirrorlib.delivery.sinks.delta.work import WindowWork

_KEYS = (pa.types.is_integer, pa.types.is_string, pa.types.is_binary, pa.types.is_boolean)


def collect_changes(work: WindowWork) -> pa.Table | None:
    """Take the rows of a window of changes, when they are few."""
    told, frame = work.delivery.told_rows, work.delivery.frame
    if work.delivery.few is not None:
        return work.delivery.few
    fields = frame.schema.fields
    if (
        work.plan.kind == "snapshot"
        or work.stream.net  # the first row of net changes costs as much as all of them
        or (told or 0) > WINDOW_ROWS  # so do the first rows of very many
        or spark_generation() < ARROW_FRAMES
        or len(to_columns((one.name, one.dataType.simpleString()) for one in fields)) < len(fields)
    ):
        return None
    with configured(work.spark, {}, SMALL_COMMIT):
        # To look for more than few, where nobody has told that there are none, costs another stage.
        rows = (frame.limit(WINDOW_ROWS + 1) if told is None else frame).toArrow()
    return rows if len(rows) <= WINDOW_ROWS and rows.nbytes <= WINDOW_BYTES else None


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


def stage_rows(
    work: WindowWork, frame: DataFrame, name: str, keys: Sequence[str], ops: Iterable[int]
) -> Staged:
    """Compute a frame with `OP`, of the values *ops*, and stage it under a name of this delivery's own.

    Rows will be matched by *keys*.
    """
    if work.few is not None:
        return stage_table(work, frame.toArrow(), frame.schema, keys)
    path = f"{work.delivery.folder}/{name}"
    return stage_frame(work.spark, work.delivery.scratch, path, frame, keys, ops)


def stage_table(
    work: WindowWork, rows: pa.Table, schema: StructType, keys: Sequence[str]
) -> Staged:
    """Make few rows a part of the plan."""
    return staged_table(frame_of(work.spark, rows, schema), rows, keys)

"""Fold a window of few rows in this process: Spark would take longer to plan than to do it.

In: a window. Out: `Staged`, as a part of the plan; None when there are more rows, or values that Arrow
and Python do not carry as they are. Source: Spark hands a DataFrame to Arrow from version 4 on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mirrorlib.apply.columns import to_columns
from mirrorlib.apply.fold import DROP, OP, PUT
from mirrorlib.apply.generation import ARROW_FRAMES, spark_generation
from mirrorlib.apply.sessions import SMALL_COMMIT, configured
from mirrorlib.apply.stage import Staged
from mirrorlib.export.sinks.delta.merge import FRESH
from mirrorlib.export.sinks.delta.stage import WRONG
from mirrorlib.export.sinks.delta.types import to_ddl
from mirrorlib.feed.net import FEED_COLUMNS, INSERT, KIND, POST, VERSION
from mirrorlib.landing.names import quote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirrorlib.export.sinks.delta.work import Work

_FEW = 2_000  # rows that travel inside the plan: a file costs 40 ms more
_KEYS = frozenset({"boolean", "tinyint", "smallint", "int", "bigint", "string", "binary"})


def fold_few(work: Work) -> Staged | None:
    """Fold a window by key as `fold_keys` does, if it is small."""
    schema = work.frame.schema
    columns = [field for field in schema.fields if field.name not in FEED_COLUMNS]
    plain = to_columns([(field.name, field.dataType.simpleString()) for field in columns])
    keyed = all(schema[key].dataType.simpleString() in _KEYS for key in work.keys)
    if (
        spark_generation() < ARROW_FRAMES
        or len(plain) < len(columns)
        or not keyed
        or work.stream.net
    ):
        return None
    with configured(work.spark, SMALL_COMMIT):
        rows: Any = work.frame.limit(_FEW + 1).toArrow()
    if len(rows) > _FEW:
        return None
    folded = _fold(rows, work.keys)
    ddl = [f"{quote(field.name)} {to_ddl(field.dataType)}" for field in columns]
    ddl += [f"{OP} tinyint", f"{FRESH} boolean"]
    # In one piece: Spark takes an Arrow batch without rows for the end.
    frame = work.spark.createDataFrame(folded.combine_chunks(), ", ".join(ddl))
    ops = folded.column(OP).unique().to_pylist()
    return Staged(
        frame=frame,
        plain=False,
        ops=frozenset(ops),
        rows=len(folded),
        null_keys=any(folded.column(key).null_count for key in work.keys),
        bytes=folded.nbytes,
        private=True,
    )


def _fold(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    comes = [kind in {INSERT, POST} for kind in rows.column(KIND).to_pylist()]
    versions = rows.column(VERSION).to_pylist()
    values = list(zip(*(rows.column(key).to_pylist() for key in keys), strict=True))
    first: dict[object, bool] = {}
    last: dict[object, int] = {}
    doubled: list[int] = []
    # What goes in a version goes before what comes.
    for place in sorted(range(len(values)), key=lambda place: (versions[place], comes[place])):
        key = values[place]
        if key in last and comes[place] and comes[last[key]]:
            doubled.append(place)
        first.setdefault(key, comes[place])
        last[key] = place
    places = [*last.values(), *doubled]
    ops = [PUT if comes[place] else DROP for place in last.values()] + [WRONG] * len(doubled)
    fresh = [first[values[place]] for place in places]
    kept = rows.drop_columns(list(FEED_COLUMNS)).take(pa.array(places, pa.int64()))
    kept = kept.append_column(OP, pa.array(ops, pa.int8()))
    return kept.append_column(FRESH, pa.array(fresh, pa.bool_()))

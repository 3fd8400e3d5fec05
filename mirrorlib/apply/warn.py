"""Tell what a publisher may not have meant: NULL keys, and updates that lack columns.

In: a prepared batch. Out: sentences, each once a table. Nothing here stops anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from mirrorlib.apply.read import UPDATE, UPSERT

if TYPE_CHECKING:
    from mirrorlib.apply.prepare import Prepared
    from mirrorlib.apply.read import Landed, Source

_NAMED = 3


def warnings_of(source: Source, prepared: Prepared) -> tuple[str, ...]:
    """Look at a batch's key columns and at the columns of its updates."""
    told = []
    for landed in prepared.landed:
        nulls = sum(_null_keys(source, landed, key) for key in source.policies.keys)
        if nulls:
            told.append(
                f"{landed.file.name} has {nulls} NULL key values; NULL is a key like any other here"
            )
        missing = [c.name for c in prepared.growth.columns if landed.schema.column(c.name) is None]
        if missing and landed.counts[UPDATE] + landed.counts[UPSERT]:
            named = ", ".join(missing[:_NAMED]) + (" …" if len(missing) > _NAMED else "")
            told.append(
                f"updates lack columns of the table, which become NULL in the updated rows: {named}"
            )
    return tuple(dict.fromkeys(told))


def _null_keys(source: Source, landed: Landed, key: str) -> int:
    """Count NULLs of one key column: in memory, or by the footer's statistics as far as it has any."""
    column = landed.schema.column(key)
    if column is None:
        return 0
    if landed.rows is not None:
        return int(landed.rows.column(column.name).null_count)
    with source.zone.open_file(landed.file.path) as handle:
        metadata = pq.ParquetFile(handle).metadata
    place = next(
        (i for i in range(metadata.num_columns) if metadata.schema.column(i).path == column.name),
        None,
    )
    if place is None:
        return 0
    statistics = [
        metadata.row_group(i).column(place).statistics for i in range(metadata.num_row_groups)
    ]
    return sum(one.null_count for one in statistics if one is not None and one.has_null_count)

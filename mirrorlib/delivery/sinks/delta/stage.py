"""Stage what one commit needs: as a part of the plan where the window has few rows, else as files.

In: a frame. Out: `Staged`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.commit.stage import stage_frame, staged_table
from mirrorlib.feed.files.small_window import frame_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from mirrorlib.commit.staged import Staged
    from mirrorlib.delivery.sinks.delta.work import Work


def stage_rows(
    work: Work, frame: DataFrame, name: str, keys: Sequence[str], ops: Iterable[int]
) -> Staged:
    """Compute a frame and write it under a name of this delivery's own.

    Args:
        work: the window.
        frame: its columns, and `OP`.
        name: of the folder.
        keys: the columns that rows will be matched by.
        ops: the values that `OP` may have.

    """
    if work.few is not None:
        return stage_table(work, frame.toArrow(), frame.schema, keys)
    path = f"{work.delivery.folder}/{name}"
    return stage_frame(work.spark, work.delivery.scratch, path, frame, keys, ops)


def stage_table(work: Work, rows: pa.Table, schema: StructType, keys: Sequence[str]) -> Staged:
    """Make few rows a part of the plan."""
    return staged_table(frame_of(work.spark, rows, schema), rows, keys)

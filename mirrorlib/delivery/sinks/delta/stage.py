"""Write what one commit needs to a private place first, so that MERGE may read it as often as it likes.

In: a frame. Out: `Staged`, as the applier's MERGE takes it: a part of the plan where the window has few
rows, else files. What their footers tell (rows, ops, NULL keys, the range of the first key) costs no job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirrorlib.commit.staged import OP, Staged
from mirrorlib.delta.sessions import file_reader
from mirrorlib.feed.files.few import frame_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from mirrorlib.delivery.sinks.delta.work import Work
    from mirrorlib.store import Store, StoredFile

WRONG = 0  # an op that nothing can carry out: the rows are not what the target goes by
_RANGED = frozenset({"tinyint", "smallint", "int", "bigint"})  # Parquet, Arrow and Spark agree


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
    scratch = work.delivery.scratch
    path = f"{work.delivery.folder}/{name}"
    frame.write.parquet(scratch.uri(path))
    folder = scratch.list_folder(path)
    files = [file for file in (folder.files if folder else ()) if file.name.endswith(".parquet")]
    told = [_Footer(scratch, file) for file in files]
    ends = _range(told, OP)
    kind = frame.schema[keys[0]].dataType.simpleString()
    rows = sum(footer.rows for footer in told)
    return Staged(
        frame=_read(work, frame, scratch.uri(path)),
        plain=False,
        ops=frozenset(op for op in ops if rows and (ends is None or ends[0] <= op <= ends[1])),
        rows=rows,
        null_keys=any(footer.may_be_null(key) for footer in told for key in keys),
        bytes=sum(file.size for file in files),
        private=True,
        key_range=_range(told, keys[0]) if kind in _RANGED else None,
    )


def stage_table(work: Work, rows: pa.Table, schema: StructType, keys: Sequence[str]) -> Staged:
    """Make few rows a part of the plan."""
    kind = schema[keys[0]].dataType.simpleString()
    ends: Any = pc.min_max(rows.column(keys[0])) if kind in _RANGED else {"min": pa.scalar(None)}
    return Staged(
        frame=frame_of(work.spark, rows, schema),
        plain=False,
        ops=frozenset(rows.column(OP).unique().to_pylist()),
        rows=len(rows),
        null_keys=any(rows.column(key).null_count for key in keys),
        bytes=rows.nbytes,
        private=True,
        key_range=(ends["min"].as_py(), ends["max"].as_py()) if ends["min"].is_valid else None,
    )


def _read(work: Work, frame: DataFrame, uri: str) -> DataFrame:
    """Read staged files with their schema given, which saves Spark a job."""
    return file_reader(work.spark, frame.schema).parquet(uri)


class _Footer:
    """What the footer of a staged file tells."""

    def __init__(self, store: Store, file: StoredFile) -> None:
        with store.open_file(file.path) as handle:
            self._metadata: Any = pq.ParquetFile(handle).metadata

    @property
    def rows(self) -> int:
        return int(self._metadata.num_rows)

    def may_be_null(self, name: str) -> bool:
        """Say whether a column may hold NULL."""
        return any(
            told is None or not told.has_null_count or told.null_count for told in self.told(name)
        )

    def told(self, name: str) -> Iterator[Any]:
        """Give the statistics of a column, a row group at a time; None for none."""
        for place in range(self._metadata.num_row_groups):
            group = self._metadata.row_group(place)
            columns = [group.column(number) for number in range(group.num_columns)]
            yield next((c.statistics for c in columns if c.path_in_schema == name), None)


def _range(footers: Sequence[_Footer], name: str) -> tuple[Any, Any] | None:
    """Return a column's smallest and largest value; None where some file does not tell."""
    told = [one for footer in footers if footer.rows for one in footer.told(name)]
    if not told or any(one is None or not one.has_min_max for one in told):
        return None
    return min(one.min for one in told), max(one.max for one in told)

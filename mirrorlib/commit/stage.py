"""Write what one commit needs to a private place first, so that MERGE may read it as often as it likes.

In: a frame. Out: `Staged`. What the footers of the written files tell (rows, ops, NULL keys, the range of the first
key) costs no job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from mirrorlib.commit.staged import OP, Staged
from mirrorlib.delta.sessions import file_reader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from mirrorlib.store import Store, StoredFile

RANGED = frozenset({"tinyint", "smallint", "int", "bigint"})  # Parquet, Arrow and Spark agree


def stage_frame(
    spark: SparkSession,
    store: Store,
    path: str,
    frame: DataFrame,
    keys: Sequence[str],
    ops: Iterable[int],
) -> Staged:
    """Compute a frame and write it.

    Args:
        spark: what the staged rows will be read with.
        store: where to.
        path: a folder that nobody else knows.
        frame: the table's columns, and `OP`, unless all rows are to be inserted.
        keys: the columns that rows will be matched by.
        ops: the values that `OP` may have.

    """
    from pyspark.sql import types as t

    frame.write.parquet(store.uri(path))
    folder = store.list_folder(path)
    files = [file for file in (folder.files if folder else ()) if file.name.endswith(".parquet")]
    footers = [_Footer(store, file) for file in files]
    fields, ends = frame.schema.fields, _range(footers, OP)
    kinds = {field.name: field.dataType.simpleString() for field in fields}
    rows = sum(footer.rows for footer in footers)
    bare = t.StructType([t.StructField(field.name, field.dataType) for field in fields])
    return Staged(
        frame=file_reader(spark, bare).parquet(store.uri(path)),
        plain=OP not in kinds,
        ops=frozenset(op for op in ops if rows and (ends is None or ends[0] <= op <= ends[1])),
        rows=rows,
        null_keys=any(footer.may_be_null(key) for footer in footers for key in keys),
        bytes=sum(file.size for file in files),
        private=True,
        key_range=_range(footers, keys[0]) if keys and kinds[keys[0]] in RANGED else None,
    )


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
            chunk is None or not chunk.has_null_count or chunk.null_count
            for chunk in self.chunks_of(name)
        )

    def chunks_of(self, name: str) -> Iterator[Any]:
        """Give the statistics of a column, a row group at a time; None for none."""
        for place in range(self._metadata.num_row_groups):
            group = self._metadata.row_group(place)
            columns = (group.column(number) for number in range(group.num_columns))
            found = [column for column in columns if column.path_in_schema == name]
            # A field b of a column a has the path of a column a.b.
            yield found[0].statistics if len(found) == 1 else None


def _range(footers: Sequence[_Footer], name: str) -> tuple[Any, Any] | None:
    """Return a column's smallest and largest value; None where some file does not tell."""
    chunks = [one for footer in footers if footer.rows for one in footer.chunks_of(name)]
    if not chunks or any(one is None or not one.has_min_max for one in chunks):
        return None
    return min(one.min for one in chunks), max(one.max for one in chunks)

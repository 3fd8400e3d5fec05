"""Changes as a commit takes them, written to a private place first, so that MERGE may read them as often as it likes.

In: a frame, or rows in memory, and a `Stage` for files: at most one row for each key that matches, and what to do with
it in `OP`. Whoever writes a Delta table folds to this: the marker fold of a batch, the net changes of a window. Out:
`Staged`. What the footers of the written files tell (rows, ops, NULL keys, ranges of keys) costs no job.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from mirrorlib.delta.sessions import file_reader
from mirrorlib.errors import StoreError
from mirrorlib.identifiers import quote
from mirrorlib.journal.entries import new_attempt
from mirrorlib.store import Store, contents

OP = "_mirror_op"
SET = "_mirror_set"  # by place, which columns an update sets
FRESH = "_mirror_fresh"  # no row of the key was there before the window, nor in what the target has of it
# nothing can carry it out: the rows are not what the target goes by · delete · update or insert · update only ·
# insert without a look
WRONG, DROP, PUT, CHANGE, ADD = 0, 1, 2, 3, 4
_RANGED = frozenset({"tinyint", "smallint", "int", "bigint"})  # Parquet, Arrow and Spark agree


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """A batch's changes, ready to be committed."""

    frame: DataFrame  # the table's columns, plus `OP` unless every row is to be inserted
    # Which ops occur, as far as known; all that markers allow for a large batch.
    ops: frozenset[int]
    rows: int  # how many rows, at most
    bytes: int  # how many bytes were staged, 0 when the change files themselves are read
    keys: Sequence[str] = ()  # the columns by which rows of the table are found, as it spells them
    null_keys: bool = False  # some key may be NULL
    private: bool = True  # the frame reads staged files, not the landing zone
    # The column whose value has to be greater for an update to count; None where all count.
    conditional: str | None = None
    partial: bool = False  # updates set those columns alone of which `SET` says so
    # Smallest and largest value of key columns that have whole numbers, where known; of no use where a key is NULL.
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    # Rows by marker name, where they are not those of the files.
    counts: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Where one attempt stages: a folder that nobody else knows."""

    spark: SparkSession
    state: Store
    folder: str = ""  # for nothing to be written to: files are read as they lie


@contextlib.contextmanager
def staging(
    spark: SparkSession, state: Store, place: str, *, tidies: bool = False
) -> Iterator[Stage]:
    """Lend a stage in a place of the state folder, and remove what was staged.

    One that *tidies* the place, where nobody else does, removes what runs that were killed before yesterday have left.
    """
    today = datetime.now(UTC).date()
    # No run takes longer than a day, and a clock may be ahead at midnight.
    recent = {str(today + timedelta(days=days)) for days in (-1, 0, 1)}
    for left in contents(state, place).folders if tidies else ():
        if left[: len(str(today))] not in recent:
            with contextlib.suppress(StoreError):
                state.delete_folder(f"{place}/{left}")
    stage = Stage(spark=spark, state=state, folder=f"{place}/{today}-{new_attempt()}")
    try:
        yield stage
    finally:
        with contextlib.suppress(StoreError):  # what was done is done, or has an error of its own
            state.delete_folder(stage.folder)


def stage_frame(
    stage: Stage, name: str, frame: DataFrame, keys: Sequence[str], ops: Iterable[int]
) -> Staged:
    """Compute a frame and stage it under a name.

    It has the table's columns, and `OP` with one of *ops*, unless all rows are to be inserted. Rows will be matched
    by *keys*.
    """
    store, path = stage.state, f"{stage.folder}/{name}"
    frame.write.parquet(store.uri(path))
    files = [file for file in contents(store, path).files if file.name.endswith(".parquet")]
    footers = []
    for file in files:
        with store.open_file(file.path) as handle:
            footers.append(pq.ParquetFile(handle).metadata)
    rows = sum(footer.num_rows for footer in footers)
    ends = _range(_column_statistics(footers, OP))
    of_keys = {key: _column_statistics(footers, key) for key in keys}
    fields = frame.schema.fields
    kinds = {field.name: field.dataType.simpleString() for field in fields}
    bare = t.StructType([t.StructField(field.name, field.dataType) for field in fields])
    return Staged(
        frame=file_reader(stage.spark, bare).parquet(store.uri(path)),
        ops=frozenset(op for op in ops if rows and (ends is None or ends[0] <= op <= ends[1])),
        rows=rows,
        bytes=sum(file.size for file in files),
        keys=keys,
        null_keys=any(
            one is None or not one.has_null_count or one.null_count
            for key in keys
            for one in of_keys[key]
        ),
        ranges={
            key: known for key in keys if kinds[key] in _RANGED and (known := _range(of_keys[key]))
        },
    )


def _column_statistics(footers: Iterable[Any], name: str) -> list[Any]:
    """Return the statistics of a column, a row group at a time; None for none."""
    found: list[Any] = []
    for footer in footers:
        paths = [footer.schema.column(number).path for number in range(len(footer.schema))]
        # A field b of a column a has the path of a column a.b.
        number = paths.index(name) if paths.count(name) == 1 else None
        for place in range(footer.num_row_groups if footer.num_rows else 0):
            group = footer.row_group(place)
            found.append(None if number is None else group.column(number).statistics)
    return found


def _range(statistics: Sequence[Any]) -> tuple[Any, Any] | None:
    """Return a column's smallest and largest value; None where some file does not tell."""
    if not statistics or any(one is None or not one.has_min_max for one in statistics):
        return None
    return min(one.min for one in statistics), max(one.max for one in statistics)


def staged_table(
    frame: DataFrame, rows: pa.Table, keys: Sequence[str], size: int | None = None
) -> Staged:
    """Tell what is known of a frame over rows that are in memory, with `OP` unless all are to be inserted.

    *size* are the bytes of the file that they lie in; None where they travel with the plan.
    """
    ops = [ADD] if len(rows) else []
    if OP in rows.column_names:
        ops = rows.column(OP).unique().to_pylist()
    whole = [key for key in keys if len(rows) and pa.types.is_integer(rows.column(key).type)]
    ends = {key: pc.min_max(rows.column(key)).as_py() for key in whole}
    return Staged(
        frame=frame,
        ops=frozenset(ops),
        rows=len(rows),
        bytes=rows.nbytes if size is None else size,
        keys=keys,
        null_keys=any(rows.column(key).null_count for key in keys),
        ranges={key: (known["min"], known["max"]) for key, known in ends.items()},
    )


def count_doubles(rows: DataFrame, keys: Sequence[str]) -> int:
    """Count the keys that are there more than once."""
    copies = f.count(f.lit(1)).alias("_mirror_copies")  # a key may be called "count"
    return rows.groupBy(*map(quote, keys)).agg(copies).where("_mirror_copies > 1").count()

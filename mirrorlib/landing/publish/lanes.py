"""Split rows into partition folders, Hive-style: `Region=eu/Day=2026-01-28`. One folder is one lane.

In: rows and the columns to split by. Out: each lane's path, relative to the table folder, with its
rows in their order. Numbers are counted per lane. The columns stay in the files: a reader that takes
them from the path finds the same values. Escapes are Hive's and Spark's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlib.errors import SchemaError
from mirrorlib.landing.publish.rows import Rows, missing_column
from mirrorlib.names import NO_VALUE, is_ignored

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f") | {chr(code) for code in range(1, 32)}
_LONGEST = 255  # bytes: what every file system takes as one name


def split_lanes(rows: Rows, columns: Sequence[str], *, table: str) -> tuple[tuple[str, Rows], ...]:
    """Split rows by the values of some columns, each lane's rows in their order; sorted by path.

    Without columns there is one lane, `""`. Rows that are none have no lane to lie in then.

    Raises:
        SchemaError: a column is missing, or its values cannot be the name of a folder.

    """
    if not columns:
        return (("", rows),)
    steps = [_steps(rows.data, name, table) for name in columns]
    paths = pc.binary_join_element_wise(*steps, "/").combine_chunks().dictionary_encode()
    if isinstance(paths, pa.ChunkedArray):  # pyarrow 14 combines to a chunked array of one chunk
        paths = paths.combine_chunks()
    order = pc.sort_indices(paths.indices)  # stable
    names = paths.dictionary.to_pylist()
    data, codes = rows.data.take(order), paths.indices.take(order)
    markers = None if rows.markers is None else rows.markers.take(order)
    lanes = [
        (
            names[code],
            Rows(
                data=data.slice(start, count),
                markers=None if markers is None else markers.slice(start, count),
            ),
        )
        for code, start, count in _runs(codes)
    ]
    return tuple(sorted(lanes, key=lambda lane: lane[0]))


def check_partition_names(columns: Sequence[str], *, table: str) -> None:
    """Refuse a partition column whose folder every reader would ignore.

    Raises:
        SchemaError: its name begins with `_` or `.`.

    """
    for name in columns:
        if is_ignored(name):
            msg = "readers ignore folders whose name begins with _ or ."
            step = "Rename the column, or partition by another."
            raise SchemaError(msg, table=table, column=name, next_step=step)


def _steps(data: pa.Table, name: str, table: str) -> pa.ChunkedArray:
    """Give each row's step of the path: `name=value`."""
    if name not in data.column_names:
        raise missing_column(name, table)
    kind = data.schema.field(name).type
    if not _has_plain_text(kind):
        msg = "values of this type cannot name a partition folder"
        step = "Partition by text, whole numbers, dates or booleans."
        raise SchemaError(msg, table=table, column=name, found=str(kind), next_step=step)
    texts = data[name].cast(pa.string()).combine_chunks().dictionary_encode(null_encoding="encode")
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    steps = [
        f"{_escaped(name)}={_escaped(text or '') or NO_VALUE}"
        for text in texts.dictionary.to_pylist()
    ]
    for step in steps:
        if len(step.encode()) > _LONGEST:
            msg = f"a value is too long for a partition folder of {_LONGEST} bytes"
            advice = "Partition by another column."
            raise SchemaError(msg, table=table, column=name, next_step=advice)
    return pa.chunked_array([pa.array(steps, pa.string()).take(texts.indices)], pa.string())


def _has_plain_text(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_string(kind)
        or types.is_integer(kind)
        or types.is_date32(kind)
        or types.is_boolean(kind)
    )


def _escaped(text: str) -> str:
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED else char for char in text)


def _runs(codes: pa.Array) -> Iterator[tuple[int, int, int]]:
    """Give value, start and length of each run of equal values; the values are sorted."""
    start = 0
    for item in pc.value_counts(codes).to_pylist():  # in the order of first appearance: run by run
        yield item["values"], start, item["counts"]
        start += item["counts"]

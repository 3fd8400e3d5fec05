"""Read a file of a window by Arrow, with the values that Spark gives.

In: a data or change file that was read from the log. Out: its rows as an Arrow table, or None where Arrow may
not read them as Spark does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa

from mirrorlib.feed.net import INSERT, KIND
from mirrorlib.identifiers import find_name
from mirrorlib.landing.footer import WRITER, old_calendar
from mirrorlib.landing.parquet import open_parquet
from mirrorlib.landing.types import INSTANT, WALL_CLOCK

if TYPE_CHECKING:
    from mirrorlib.delta.actions import ChangeFile
    from mirrorlib.delta.columns import Columns


def read_file(
    source: BinaryIO, file: ChangeFile, columns: Columns, *, most: int | None = None
) -> pa.Table | None:
    """Read columns of a file in the table's types, and of what kind each row's change is.

    Args:
        source: the file's content.
        file: what the log says of it.
        columns: of the table.
        most: rows; None where the file has more.

    """
    try:
        parquet = open_parquet(source)
        facts = parquet.metadata.metadata or {}
        if WRITER not in facts or old_calendar(facts):
            return None
        if most is not None and parquet.metadata.num_rows > most:
            return None
        there = parquet.schema_arrow.names
        wanted = [one.name for one in columns] + [KIND] * file.images
        rows = parquet.read(columns=wanted)
        values = {one.name: _as_spark(rows, there, one.name, one.type) for one in columns}
        kinds = rows.column(KIND) if file.images else pa.repeat(INSERT, len(rows))
    except (pa.ArrowException, OSError, KeyError):
        return None
    return pa.table({**values, KIND: kinds.cast(pa.string())})


def _as_spark(
    rows: pa.Table, there: list[str], name: str, kind: pa.DataType
) -> pa.ChunkedArray | pa.Array:
    """Give a column in the type of the table's.

    Raises:
        pa.ArrowTypeError: the file has another one.
        KeyError: the file spells the column in another way, or has it twice.

    """
    if find_name(there, name) is None:
        return pa.nulls(len(rows), kind)
    column = rows.column(name)
    if column.type == kind:
        return column
    if (column.type, kind) == (WALL_CLOCK, INSTANT):  # of 96 bits, which mean UTC
        return column.cast(kind)
    msg = f"{name} is {column.type}, not {kind}"
    raise pa.ArrowTypeError(msg)

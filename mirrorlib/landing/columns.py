"""Columns: what a change file says of itself, in a footer or a header, and which names it may use.

Also what a row marker is, however it is typed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlib.errors import SchemaError
from mirrorlib.identifiers import find_named, fold_name, with_twins
from mirrorlib.names import find_key

MARKER = "__rowmarker__"  # compared in lower case: Snowflake's publisher writes __ROWMARKER__ (Q3)
RESERVED = frozenset({"_change_type", "_commit_version", "_commit_timestamp", "_metadata"})
OURS = "_mirror_"
_LONGEST_NAME = 255
_UNCARRIABLE = "the column's name cannot be carried: it is too long or has a control character"
MOST_COLUMNS = 30_000  # as SQL Server's widest tables; a file with more is a damaged one, or meant to cost memory
LONGEST_ROW = 128 << 20  # bytes; Spark needs ten times as much memory for one
INSERT, UPDATE, DELETE, UPSERT = KNOWN_MARKERS = (0, 1, 2, 4)
MARKER_NAMES = {INSERT: "insert", UPDATE: "update", DELETE: "delete", UPSERT: "upsert"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FileColumn:
    """One data column of a change file."""

    name: str  # as the file spells it
    stored: pa.DataType  # the Arrow type that pyarrow reads
    type: pa.DataType  # the mirror type; `pa.null()` when the file does not say
    native: bool  # Spark's own Parquet reader gives the same values for it, but where it is moved
    # Its old values are counted in Spark's old calendar, which Spark's reader alone moves to today's.
    moved: bool = False
    # Every row's value, when a partition folder states it and the file does not; else None.
    given: pa.Scalar | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSchema:
    """What a footer or a header says of a file."""

    columns: tuple[FileColumn, ...]  # its data columns, in file order
    marker: str | None  # the marker column's name, None without one
    marker_type: pa.DataType | None
    rows: int = -1  # how many there are; -1 while nobody knows, as text has no footer
    decoded_bytes: int = -1  # their size in memory, at least; -1 while nobody knows
    # Data columns of delimited text that `SchemaDefinition` does not list.
    undeclared: tuple[str, ...] = ()

    @property
    def own(self) -> FileSchema:
        """Return what is in the file itself."""
        return replace(self, columns=tuple(c for c in self.columns if c.given is None))

    def column(self, name: str) -> FileColumn | None:
        """Find a column as Delta does, without regard to case."""
        return find_named(self.columns, name)

    def key(self, name: str) -> FileColumn | None:
        """Find a key column, see `find_key`."""
        found = find_key((column.name for column in self.columns), name)
        return None if found is None else self.column(found)


def text_columns(kinds: Mapping[str, pa.DataType]) -> tuple[FileColumn, ...]:
    """Give the columns of a file that is text, which Spark's own Parquet reader does not read."""
    return tuple(
        FileColumn(name=name, stored=kind, type=kind, native=False) for name, kind in kinds.items()
    )


def split_marker(names: Collection[str], *, table: str, file: str) -> tuple[list[str], str | None]:
    """Tell a file's data columns from its marker, None without one; both can be carried to a Delta table."""
    data = [name for name in names if name.lower() != MARKER]
    markers = [name for name in names if name.lower() == MARKER]
    if len(markers) > 1:
        msg = "the file has two row marker columns"
        raise SchemaError(msg, table=table, file=file, found=", ".join(markers))
    check_names(data, table=table, file=file)
    return data, markers[0] if markers else None


def check_names(names: Sequence[str], *, table: str, file: str) -> None:
    """See that a file's data columns can be carried to a Delta table."""
    step = "Rename the column at its publisher."
    if len(names) > MOST_COLUMNS:
        msg, found = f"the file has more than {MOST_COLUMNS:,} columns", f"{len(names):,}"
        step = "See whether it is what was meant to be published; split the table."
        raise SchemaError(msg, table=table, file=file, found=found, next_step=step)
    for name, first in with_twins(names):
        if first == name:
            msg = "two columns have the same name"
            raise SchemaError(msg, table=table, file=file, column=name)
        if first is not None:
            msg = "two columns differ only by case, which Delta cannot hold"
            raise SchemaError(msg, table=table, file=file, column=name, found=f"{first} and {name}")
        msg = refusal_of(name)
        if msg:
            shown = ascii(name)[1:-1][:80] if msg == _UNCARRIABLE else name
            raise SchemaError(msg, table=table, file=file, column=shown or None, next_step=step)


def refusal_of(name: str) -> str:
    """Say why a column's name cannot be carried; "" when it can."""
    # A control character, or half of a character, which JSON can write.
    if len(name) > _LONGEST_NAME or any(
        (c < " " and c not in "\n\t") or "\ud800" <= c <= "\udfff" for c in name
    ):
        return _UNCARRIABLE
    if "`" in name:  # Delta's own MERGE does not quote it, see packedCdc in ClassicMergeExecutor
        return "Delta cannot carry a backtick in a column's name"
    if fold_name(name) in RESERVED or fold_name(name).startswith(OURS):
        return "the column's name is reserved"
    return "" if name else "a column has no name"


def show_marker(values: pa.ChunkedArray, row: int) -> str:
    """Show one marker for a message; its type where it is a moment: pyarrow shows such by pandas, or not at all."""
    if pa.types.is_temporal(values.type):
        return f"a {values.type}"
    return str(values[row].as_py())[:20]


def judge_markers(values: pa.ChunkedArray) -> tuple[pa.ChunkedArray, ...]:
    """Give markers as int8, which of them mean nothing, and which are NULL."""
    markers, null = small_markers(values), pc.is_null(values)
    known = pc.is_in(markers, value_set=pa.array(KNOWN_MARKERS, pa.int8()))
    return markers, pc.invert(pc.or_(known, null)), null


def missing_in(rows: pa.Table, markers: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Tell where a column has NULL in what is more than a delete, which needs its key alone."""
    kept = pc.fill_null(pc.not_equal(markers, DELETE), fill_value=True)
    return pc.and_(pc.is_null(rows.column(name)), kept)


def small_markers(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Give markers as int8; -1 stands for what is no small whole number."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        return small_markers(values.cast(kind.value_type))
    if str(kind) in {"string", "large_string", "string_view"}:  # pyarrow 14 cannot ask for the last
        text = pc.utf8_trim_whitespace(values.cast(pa.string()))
        return pc.if_else(pc.match_substring_regex(text, r"^[0-9]$"), text, "-1").cast(pa.int8())
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        return pc.if_else(pc.is_valid(values), pa.scalar(-1, pa.int8()), pa.scalar(None, pa.int8()))
    number = values.cast(pa.float64(), safe=False)
    digits = pc.is_in(number, value_set=pa.array([float(marker) for marker in KNOWN_MARKERS]))
    return pc.if_else(pc.or_(digits, pc.is_null(number)), number, -1.0).cast(pa.int8())

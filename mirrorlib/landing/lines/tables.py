"""JSON lines: an object on every line, from the bytes of a file to typed Arrow tables, in the order of its lines.

In: an open file and its listing. Out: a `FileSchema`, which takes a pass over the whole file as there
is no footer, and tables whose columns have its types. Promises: no value is guessed, and
none rounded, but that a column of numbers with a point or an exponent has the nearest doubles, as
readers of JSON do; memory is bounded by the blocks and the longest line; what has no place in a table
fails the file with its line, never with its content. How lines are parsed: `objects`; how a value is
written as text: `literals`.

Types are JSON's own, by all values of a column in a file: `true` is a boolean, digits are a bigint
(a decimal beyond that), a number with a point or an exponent is a double. Objects and arrays are
JSON text, and so is every value but text in a column that no other type holds; numbers stand there
as they were written. Text stays text.
pyarrow.json is faster, but reads 2^53 + 1 beside 1.5 as 2^53, 2^64 as a double, text that looks like
a date as a timestamp, and no array of several types.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, BinaryIO

import pyarrow as pa

from mirrorlib.errors import FileChangedError
from mirrorlib.landing.columns import MARKER, FileColumn, FileSchema, check_names
from mirrorlib.landing.delimited.text import BLOCK_BYTES, Origin
from mirrorlib.landing.lines.literals import Number, json_text, reason_against
from mirrorlib.landing.lines.objects import Objects, iter_objects
from mirrorlib.landing.types import MAX_PRECISION
from mirrorlib.store import StoredFile

_EXACT_IN_DOUBLE = 1 << 53
_LARGE = pa.decimal128(MAX_PRECISION, 0)


@dataclass(slots=True)
class _Kinds:
    """Of what types a column's values are, and between which numbers its integers lie."""

    types: set[type] = field(default_factory=set)
    low: int = 0
    high: int = 0

    def add(self, values: list[Any]) -> None:
        """Take note of more values."""
        found = set(map(type, values))
        self.types |= found
        if int in found:
            integers = [value for value in values if type(value) is int]
            self.low, self.high = min(self.low, *integers), max(self.high, *integers)

    def arrow(self) -> pa.DataType:
        """Return the type that holds every value as it is."""
        types = self.types - {type(None)}
        if not types:
            return pa.null()
        if types == {bool}:
            return pa.bool_()
        largest = max(self.high, -self.low)
        if types == {int} and largest < 10**MAX_PRECISION:
            return pa.int64() if self.low >= -(1 << 63) and self.high < 1 << 63 else _LARGE
        numbers = types in ({Number}, {Number, int})
        return pa.float64() if numbers and largest <= _EXACT_IN_DOUBLE else pa.string()


def read_line_schema(
    handle: BinaryIO, file: StoredFile, *, table: str, block_bytes: int = BLOCK_BYTES
) -> FileSchema:
    """Read a file to its end for its columns, in the order in which they come, their types, and its rows.

    Raises:
        ChangeFileError: it is empty, cut short, or a line is no JSON object.
        SchemaError: a column's name cannot be mirrored.

    """
    origin = Origin(table, file.name)
    kinds: dict[str, _Kinds] = {}
    rows = 0
    for piece in iter_objects(handle, file, origin, block_bytes, once=True):
        for name in piece.names():
            values = piece.values(name)
            _check_values(piece, name, values, origin)
            kinds.setdefault(name, _Kinds()).add(values)
        rows += len(piece.rows)
    names = [name for name in kinds if name.lower() != MARKER]
    markers = [name for name in kinds if name.lower() == MARKER]
    check_names(names, markers, table=table, file=file.name)
    return FileSchema(
        columns=tuple(_column(name, kinds[name].arrow()) for name in names),
        marker=markers[0] if markers else None,
        marker_type=kinds[markers[0]].arrow() if markers else None,
        rows=rows,
        decoded_bytes=-1,
    )


def iter_line_tables(
    handle: BinaryIO,
    file: StoredFile,
    schema: FileSchema,
    *,
    table: str,
    block_bytes: int = BLOCK_BYTES,
) -> Iterator[pa.Table]:
    """Give a file's rows as typed tables; a file without lines gives one empty table.

    Args:
        handle: the open file; it is left open.
        file: its listing.
        schema: what `read_line_schema` said.
        table: the table's name, for messages.
        block_bytes: how much is read at a time; it changes nothing but memory and speed.

    Raises:
        ChangeFileError: as `read_line_schema`.
        FileChangedError: the values are others than *schema* says.

    """
    origin = Origin(table, file.name)
    types = pa.schema([(column.name, column.type) for column in schema.columns])
    some = False
    for piece in iter_objects(handle, file, origin, block_bytes, once=False):
        some = True
        yield _typed(piece, types, origin)
    if not some:
        yield types.empty_table()


def _typed(piece: Objects, types: pa.Schema, origin: Origin) -> pa.Table:
    try:
        columns = [_array(piece.values(field.name), field.type) for field in types]
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as exc:
        msg = "the change file has other values than before"
        step = "Leave it in place; the next run reads it as it is then."
        raise FileChangedError(msg, table=origin.table, file=origin.file, next_step=step) from exc
    # A table without columns would forget how many rows it has.
    counted = pa.table([pa.nulls(len(piece.rows)), *columns], names=["", *types.names])
    return counted.select(types.names)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_string(kind):
        values = [v if v is None or type(v) is str else json_text(v) for v in values]
    elif pa.types.is_decimal(kind):
        values = [None if value is None else Decimal(value) for value in values]
    return pa.array(values, kind)


def _check_values(piece: Objects, name: str, values: list[Any], origin: Origin) -> None:
    """Refuse what is JSON and has no place in a table: numbers beyond a double, text that is not Unicode."""
    if not set(map(type, values)) & {Number, str, dict, list}:
        return
    for line, value in zip(piece.lines, values, strict=True):
        reason = reason_against(value)
        if reason is not None:
            raise origin.fault(reason, column=name, line=line)


def _column(name: str, kind: pa.DataType) -> FileColumn:
    return FileColumn(name=name, stored=kind, type=kind, native=False)

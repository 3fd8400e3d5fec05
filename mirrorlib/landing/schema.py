"""Types: what a Parquet change file holds, what its table makes of it, and whether every value survives.

In: a footer and columns, as pyarrow shows them. Out: the *mirror type* of each column (one of
twelve Arrow types that Delta has too), values cast to a table's types, and the first row that does
not fit. Promises: nothing is ever rounded, cut or wrapped; what does not fit is named. Rules:
design §6, landing-zone quirks Q9-Q19.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirrorlib.errors import ChangeFileError, SchemaError

if TYPE_CHECKING:
    from typing import BinaryIO

    from mirrorlib.store import StoredFile

NtzPolicy = Literal["utc", "keep"]

MARKER = "__rowmarker__"  # compared in lower case: Snowflake's publisher writes __ROWMARKER__ (Q3)
RESERVED = frozenset({"_change_type", "_commit_version", "_commit_timestamp", "_metadata"})
OURS = "_mirror_"
INSTANT = pa.timestamp("us", "UTC")
WALL_CLOCK = pa.timestamp("us")
MAX_PRECISION = 38
# What Delta asks of a decimal that an integer column is widened to in place
# (TypeWidening.isTypeChangeSupported).
_INT_DIGITS = {pa.int8(): 10, pa.int16(): 10, pa.int32(): 10, pa.int64(): 20}
_INTEGERS = tuple(_INT_DIGITS)
_SPARK_CODECS = ("UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD", "LZ4")
_LONGEST_NAME = 255
_EXACT_IN_DOUBLE = (pa.int8(), pa.int16(), pa.int32(), pa.float32())


@dataclass(frozen=True, slots=True, kw_only=True)
class FileColumn:
    """One data column of a change file.

    Attributes:
        name: as the file spells it.
        stored: the Arrow type that pyarrow reads.
        type: the mirror type; `pa.null()` when the file does not say.
        native: Spark's own Parquet reader gives the same values for it.

    """

    name: str
    stored: pa.DataType
    type: pa.DataType
    native: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSchema:
    """What a footer or a header says of a file.

    Attributes:
        columns: its data columns, in file order.
        marker: the marker column's name, None without one.
        marker_type: the marker column's type.
        rows: how many there are; -1 while nobody knows, as text has no footer.
        decoded_bytes: their size in memory; -1 while nobody knows.
        undeclared: data columns of delimited text that `SchemaDefinition` does not list.

    """

    columns: tuple[FileColumn, ...]
    marker: str | None
    marker_type: pa.DataType | None
    rows: int
    decoded_bytes: int
    undeclared: tuple[str, ...] = ()

    def column(self, name: str) -> FileColumn | None:
        """Find a column as Delta does, without regard to case."""
        return next(
            (column for column in self.columns if column.name.lower() == name.lower()), None
        )


def open_parquet(source: BinaryIO) -> pq.ParquetFile:
    """Open a Parquet file; INT96 is read to the microsecond, which holds the years 1 to 9999."""
    return pq.ParquetFile(source, coerce_int96_timestamp_unit="us")


def read_footer(source: BinaryIO, file: StoredFile, *, table: str, ntz: NtzPolicy) -> FileSchema:
    """Read what the footer of a Parquet file says about its columns.

    Raises:
        ChangeFileError: the file is empty, cut short or not Parquet.
        SchemaError: a column's name or type cannot be mirrored.

    """
    if file.size == 0:
        msg = "the change file has no bytes; it may be an upload under way"
        raise ChangeFileError(msg, table=table, file=file.name, found="0 bytes")
    try:
        parquet = open_parquet(source)
        arrow, metadata = parquet.schema_arrow, parquet.metadata
    except (pa.ArrowException, OSError) as exc:
        msg = "the change file is not whole Parquet: cut short, damaged or still being written"
        raise ChangeFileError(msg, table=table, file=file.name, found=_brief(exc)) from exc
    physical = _physical_types(metadata)
    decodable = _spark_decodes(metadata)
    names = [name for name in arrow.names if name.lower() != MARKER]
    markers = [name for name in arrow.names if name.lower() == MARKER]
    check_names(names, markers, table=table, file=file.name)
    columns = tuple(
        _file_column(
            arrow.field(name), physical.get(name, ""), table=table, file=file.name, ntz=ntz
        )
        for name in names
    )
    if not decodable:
        columns = tuple(replace(column, native=False) for column in columns)
    decoded = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
    return FileSchema(
        columns=columns,
        marker=markers[0] if markers else None,
        marker_type=arrow.field(markers[0]).type if markers else None,
        rows=metadata.num_rows,
        decoded_bytes=decoded,
    )


def widen_type(table: pa.DataType, file: pa.DataType) -> pa.DataType | None:
    """Return the smallest mirror type that holds every value of both, None when there is none."""
    if table == file or pa.types.is_null(file):
        return table
    if pa.types.is_null(table):
        return file
    if table in _INTEGERS and file in _INTEGERS:
        return max(table, file, key=_INTEGERS.index)
    if _is_binary_float(table) or _is_binary_float(file):
        numbers = all(_is_binary_float(kind) or kind in _INTEGERS for kind in (table, file))
        return pa.float64() if numbers else None
    digits, scale = zip(*(_digits(kind) for kind in (table, file)), strict=True)
    if None not in digits:
        precision = max(digits) + max(scale)
        return pa.decimal128(precision, max(scale)) if precision <= MAX_PRECISION else None
    if {table, file} == {pa.date32(), INSTANT}:
        return INSTANT
    return None


def widens_in_place(table: pa.DataType, wider: pa.DataType) -> bool:
    """Say whether Delta changes a column from *table* to *wider* without rewriting it (PROTOCOL.md, Type Widening)."""
    if table in _INTEGERS and wider in _INTEGERS:
        return True
    if wider == pa.float64():
        return table in _EXACT_IN_DOUBLE
    if pa.types.is_decimal(wider):
        digits, scale = _digits(table)
        return (
            digits is not None and wider.precision - wider.scale >= digits and wider.scale >= scale
        )
    return False


def canonical_values(values: pa.ChunkedArray, kind: pa.DataType, ntz: NtzPolicy) -> pa.ChunkedArray:
    """Cast what pyarrow read to its mirror type *kind*.

    Raises:
        pa.ArrowInvalid: a value has no place in it (a timestamp finer than a microsecond).

    """
    stored = values.type
    if stored == kind:
        return values
    if pa.types.is_time(stored):
        micros = values.cast(pa.time64("us")).cast(pa.int64())
        return clock_text(micros)
    if pa.types.is_timestamp(stored) and stored.tz is None and kind == INSTANT:
        return values.cast(WALL_CLOCK).cast(INSTANT)
    if pa.types.is_dictionary(stored):
        return canonical_values(values.cast(stored.value_type), kind, ntz)
    if isinstance(stored, pa.BaseExtensionType):
        return pa.chunked_array(
            [chunk.storage for chunk in values.chunks], stored.storage_type
        ).cast(kind)
    if pa.types.is_float16(stored):
        return values.cast(pa.float32())
    return values.cast(kind)


def fit_values(values: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    """Cast mirror values to a table's type, value by value without loss.

    Raises:
        pa.ArrowInvalid: some value does not survive; `first_misfit` finds it.

    """
    if values.type == target:
        return values
    if values.null_count == len(values):
        return pa.chunked_array([pa.nulls(len(values), target)])
    if not comparable(values.type, target):
        msg = f"{values.type} values have no place in {target}"
        raise pa.ArrowInvalid(msg)
    cast = _cast(values, target)
    back = _cast(cast, values.type)
    same = pc.equal(back, values)
    if _is_binary_float(values.type) and _is_binary_float(target):
        same = pc.or_(same, pc.and_(pc.is_nan(back), pc.is_nan(values)))
    if not pc.all(same).as_py():
        msg = "a value changes when it is cast"
        raise pa.ArrowInvalid(msg)
    return cast


def first_misfit(values: pa.ChunkedArray, target: pa.DataType) -> int | None:
    """Return the place of the first value that `fit_values` refuses, counted from 0."""

    def fits(count: int) -> bool:
        try:
            fit_values(values.slice(0, count), target)
        except pa.ArrowInvalid:
            return False
        return True

    if fits(len(values)):
        return None
    low, high = 0, len(values)  # values[:low] fits, values[:high] does not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _file_column(
    field: pa.Field, physical: str, *, table: str, file: str, ntz: NtzPolicy
) -> FileColumn:
    stored = pa.timestamp("ns") if physical == "INT96" else field.type
    kind = mirror_type(stored, ntz, instant=physical == "INT96")
    if kind is None:
        msg = "this type has no place in the open mirroring format"
        step = "Publish nested values as a JSON string and numbers with at most 38 digits."
        raise SchemaError(
            msg, table=table, file=file, column=field.name, found=str(field.type), next_step=step
        )
    return FileColumn(
        name=field.name, stored=stored, type=kind, native=_is_native(stored, physical)
    )


def mirror_type(
    stored: pa.DataType, ntz: NtzPolicy, *, instant: bool = False
) -> pa.DataType | None:
    """Return the mirror type of a stored type, None when it has none; *instant* says that it is INT96."""
    types = pa.types
    if types.is_dictionary(stored):
        return mirror_type(stored.value_type, ntz, instant=instant)
    if isinstance(stored, pa.BaseExtensionType):
        return mirror_type(stored.storage_type, ntz, instant=instant)
    if str(stored) in _VIEWS:
        return _VIEWS[str(stored)]
    if types.is_timestamp(stored):
        return WALL_CLOCK if stored.tz is None and ntz == "keep" and not instant else INSTANT
    if types.is_decimal(stored):
        scale = max(stored.scale, 0)
        precision = stored.precision - min(stored.scale, 0)
        return pa.decimal128(precision, scale) if precision <= MAX_PRECISION else None
    for is_kind, kind in _MIRROR_TYPES:
        if is_kind(stored):
            return kind
    return None


_VIEWS = {
    "string_view": pa.string(),
    "binary_view": pa.binary(),
}  # pyarrow 14 has no words for them
_MIRROR_TYPES = (
    (pa.types.is_null, pa.null()),
    (pa.types.is_boolean, pa.bool_()),
    (pa.types.is_int8, pa.int8()),
    (pa.types.is_int16, pa.int16()),
    (pa.types.is_int32, pa.int32()),
    (pa.types.is_int64, pa.int64()),
    (pa.types.is_uint8, pa.int16()),  # unsigned: the next wider signed type, as Spark reads them
    (pa.types.is_uint16, pa.int32()),
    (pa.types.is_uint32, pa.int64()),
    (pa.types.is_uint64, pa.decimal128(20, 0)),
    (pa.types.is_float16, pa.float32()),
    (pa.types.is_float32, pa.float32()),
    (pa.types.is_float64, pa.float64()),
    (pa.types.is_date, pa.date32()),
    (pa.types.is_time, pa.string()),
    (
        pa.types.is_duration,
        pa.int64(),
    ),  # Parquet has no duration: other readers see the plain number too
    (pa.types.is_string, pa.string()),
    (pa.types.is_large_string, pa.string()),
    (pa.types.is_binary, pa.binary()),
    (pa.types.is_large_binary, pa.binary()),
    (pa.types.is_fixed_size_binary, pa.binary()),
)


def _is_native(stored: pa.DataType, physical: str) -> bool:
    """Spark refuses TIME, float16 and nanoseconds, and reads an all-null column as int (landing-zone §2.3)."""
    if pa.types.is_timestamp(stored):
        return stored.unit != "ns" or physical == "INT96"
    if isinstance(stored, pa.BaseExtensionType):
        return False
    return not (pa.types.is_null(stored) or pa.types.is_time(stored) or pa.types.is_float16(stored))


def _spark_decodes(metadata: pq.FileMetaData) -> bool:
    """Say whether Spark's reader has the codecs and encodings; Spark brings no Brotli."""
    group = metadata.row_group(0) if metadata.num_row_groups else None
    chunks = [group.column(i) for i in range(group.num_columns)] if group else []
    return all(
        chunk.compression in _SPARK_CODECS and "BYTE_STREAM_SPLIT" not in chunk.encodings
        for chunk in chunks
    )


def check_names(names: list[str], markers: list[str], *, table: str, file: str) -> None:
    """See that a file's data columns and its marker can be carried to a Delta table.

    Raises:
        SchemaError: a name is missing, reserved, given twice or cannot be written.

    """
    if len(markers) > 1:
        msg = "the file has two row marker columns"
        raise SchemaError(msg, table=table, file=file, found=", ".join(markers))
    seen: dict[str, str] = {}
    for name in names:
        if name.lower() in seen:
            msg = "two columns differ only by case, which Delta cannot hold"
            raise SchemaError(
                msg, table=table, file=file, column=name, found=f"{seen[name.lower()]} and {name}"
            )
        seen[name.lower()] = name
        if len(name) > _LONGEST_NAME or any(c < " " and c not in "\n\t" for c in name):
            msg = "the column's name cannot be carried: it is too long or has a control character"
            shown = ascii(name)[1:-1][:80]
            step = "Rename the column at its publisher."
            raise SchemaError(msg, table=table, file=file, column=shown, next_step=step)
        if (
            "`" in name
        ):  # Delta's own MERGE does not quote it: see packedCdc in ClassicMergeExecutor
            msg = "Delta cannot carry a backtick in a column's name"
            step = "Rename the column at its publisher."
            raise SchemaError(msg, table=table, file=file, column=name, next_step=step)
        if name.lower() in RESERVED or name.lower().startswith(OURS) or not name:
            msg = "the column's name is reserved" if name else "a column has no name"
            raise SchemaError(
                msg,
                table=table,
                file=file,
                column=name,
                next_step="Rename the column at its publisher.",
            )


def _physical_types(metadata: pq.FileMetaData) -> dict[str, str]:
    schema = metadata.schema
    return {schema.column(i).path: schema.column(i).physical_type for i in range(len(schema))}


def comparable(file: pa.DataType, table: pa.DataType) -> bool:
    """Say whether some values of the one mirror type can be values of the other."""

    def family(kind: pa.DataType) -> str:
        if kind in _INTEGERS or _is_binary_float(kind) or pa.types.is_decimal(kind):
            return "number"
        return "time" if kind in (pa.date32(), INSTANT) else str(kind)

    return family(file) == family(table)


def _cast(values: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    """Cast by way of a type from which pyarrow checks values, not just declared precision."""
    if pa.types.is_decimal(target) and values.type in _INTEGERS:
        return values.cast(pa.decimal128(MAX_PRECISION, 0)).cast(_roomy(target)).cast(target)
    if pa.types.is_decimal(target) and _is_binary_float(values.type):
        return values.cast(pa.float64()).cast(target)
    if pa.types.is_decimal(values.type) and _is_binary_float(target):
        # Arrow's own cast is off by a bit: 0.35 becomes 0.35000000000000003.
        return values.cast(pa.string()).cast(target)
    if pa.types.is_decimal(values.type) and target in _INTEGERS:
        return (
            values.cast(pa.decimal128(MAX_PRECISION, values.type.scale))
            .cast(pa.int64())
            .cast(target)
        )
    if pa.types.is_timestamp(values.type) and pa.types.is_date(target):
        return values.cast(WALL_CLOCK).cast(pa.date32(), safe=False)
    if pa.types.is_date(values.type) and target == INSTANT:
        return values.cast(WALL_CLOCK).cast(INSTANT)
    if _is_binary_float(values.type) and _is_binary_float(target):
        return values.cast(target, safe=False)
    return values.cast(target)


def _roomy(target: pa.Decimal128Type) -> pa.DataType:
    return pa.decimal128(MAX_PRECISION, target.scale)


def _digits(kind: pa.DataType) -> tuple[int | None, int]:
    """Return digits before and after the point; None for a type that is no exact number."""
    if pa.types.is_decimal(kind):
        return kind.precision - kind.scale, kind.scale
    return _INT_DIGITS.get(kind), 0


def _is_binary_float(kind: pa.DataType) -> bool:
    return kind in (pa.float32(), pa.float64())


def clock_text(micros: pa.ChunkedArray) -> pa.ChunkedArray:
    """Write a time of day as `HH:mm:ss.ffffff`: Delta has no TIME."""
    return (
        pc.strftime(micros.cast(WALL_CLOCK), format="%H:%M:%S")
        if len(micros)
        else micros.cast(pa.string())
    )


def _brief(exc: Exception) -> str:
    return str(exc).splitlines()[0][:200] if str(exc) else type(exc).__name__

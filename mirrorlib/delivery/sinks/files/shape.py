"""Bring a window's columns into the shape in which a format holds them, without a loss.

In: a frame. Out: the same rows for Spark's writer, and its options. What each format makes of a value:

    Parquet     its own types; instants and wall clocks in microseconds.
    JSON lines  NULL is null. Instants are ISO 8601 with six digits and `Z`, wall clocks the same without
                `Z`. Decimals are strings, as most readers take a number for a double. Bytes are base64.
                NaN and the infinities are the strings "NaN", "Infinity" and "-Infinity".
    CSV         RFC 4180 with a header, UTF-8, lines that end in LF. NULL is nothing at all between two
                commas, empty text is `""`. The rest as in JSON, without quotes. No nested values.

A type that has no place in the format is refused by the column's name.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, TypeAlias

from mirrorlib.errors import SchemaError
from mirrorlib.identifiers import quote
from mirrorlib.nested import map_keys_in, name_of, types_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructField

FileFormat: TypeAlias = Literal["parquet", "jsonl", "csv"]

SPARK_NAMES: Mapping[FileFormat, str] = MappingProxyType(
    {"parquet": "parquet", "jsonl": "json", "csv": "csv"}
)
_TEXT = {
    "compression": "none",  # whatever the cluster's default is, the name says nothing of it
    "encoding": "UTF-8",
    "lineSep": "\n",
    "timeZone": "UTC",
    "dateFormat": "yyyy-MM-dd",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
OPTIONS: Mapping[FileFormat, Mapping[str, str]] = MappingProxyType(
    {
        "parquet": {},
        "jsonl": {**_TEXT, "ignoreNullFields": "false"},
        "csv": {
            **_TEXT,
            "header": "true",
            "quote": '"',
            "escape": '"',  # Spark's default is a backslash
            "nullValue": "",
            "emptyValue": '""',
            "ignoreLeadingWhiteSpace": "false",  # otherwise Spark strips what it writes
            "ignoreTrailingWhiteSpace": "false",
        },
    }
)
_PLAIN = frozenset(
    {
        "boolean",
        "byte",
        "short",
        "integer",
        "long",
        "float",
        "double",
        "decimal",
        "string",
        "char",
        "varchar",
        "binary",
        "date",
        "timestamp",
        "timestamp_ntz",
    }
)
_NESTED = frozenset({"struct", "array", "map"})
_KEYS_IN_JSON = frozenset({"string", "byte", "short", "integer", "long"})


def check_columns(frame: DataFrame, table: str, file_format: FileFormat) -> None:
    """See that every column has a place in the format.

    Raises:
        SchemaError: one has none.

    """
    if file_format == "csv":
        check_plain(frame, table, "CSV")
        return
    for field in frame.schema.fields:
        found = _misfit(field.dataType, file_format)
        if found is not None:
            raise _refused(table, field, file_format, found)


def check_plain(frame: DataFrame, table: str, place: str) -> None:
    """See that every column is of a type that is neither nested nor rare.

    Raises:
        SchemaError: one is not, and has no place where it is to go.

    """
    for field in frame.schema.fields:
        if field.dataType.typeName() not in _PLAIN:
            raise _refused(table, field, place, field.dataType.simpleString())


def shape_rows(frame: DataFrame, file_format: FileFormat) -> DataFrame:
    """Cast what the format's writer would lose or spell otherwise."""
    if file_format == "parquet":
        return frame
    return frame.select(*[_shaped(field, file_format) for field in frame.schema.fields])


def _misfit(kind: DataType, file_format: FileFormat) -> str | None:
    """Name what has no place in a type, at any depth; None when all has."""
    # Spark writes a map's keys as it holds them: a date would be a count of days.
    keys = map_keys_in(kind) if file_format == "jsonl" else []
    odd = [f"a map by {key.simpleString()}" for key in keys if name_of(key) not in _KEYS_IN_JSON]
    inner = (one for one in types_in(kind) if name_of(one) not in {*_PLAIN, *_NESTED})
    return next(iter([*odd, *(one.simpleString() for one in inner)]), None)


def _refused(table: str, field: StructField, place: str, found: str) -> SchemaError:
    msg = f"this type has no place in {place}"
    step = "Make the column text, or export to another kind of receiver."
    return SchemaError(msg, table=table, column=field.name, found=found, next_step=step)


def _shaped(field: StructField, file_format: FileFormat) -> Column:
    from pyspark.sql import functions as f

    column = f.col(quote(field.name))
    wanted = _without_decimals(field.dataType)
    if wanted != field.dataType:
        column = column.cast(wanted)
    elif file_format == "csv" and field.dataType.typeName() == "binary":
        column = f.translate(f.base64(column), "\r\n", "")  # some versions of Spark break the line
    return column.alias(field.name)


def _without_decimals(kind: DataType) -> DataType:
    """Put text in the place of decimals, at any depth."""
    from pyspark.sql import types as t

    if isinstance(kind, t.DecimalType):
        return t.StringType()
    if isinstance(kind, t.ArrayType):
        return t.ArrayType(_without_decimals(kind.elementType), kind.containsNull)
    if isinstance(kind, t.MapType):
        value = _without_decimals(kind.valueType)
        return t.MapType(kind.keyType, value, kind.valueContainsNull)
    if isinstance(kind, t.StructType):
        fields = [
            t.StructField(field.name, _without_decimals(field.dataType), field.nullable)
            for field in kind.fields
        ]
        return t.StructType(fields)
    return kind

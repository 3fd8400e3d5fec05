"""Read a table folder's `_metadata.json`.

In: the file's bytes. Out: `TableMetadata`, with everything that had to be repaired named in it.
Names are compared case-insensitively and values are read as leniently as publishers write them;
what stays ambiguous is refused.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import TypeVar

from mirrorlib.errors import MetadataError
from mirrorlib.identifiers import find_name
from mirrorlib.landing.metadata.declared import (
    DETECTION_NAMES,
    DefinedColumn,
    Detection,
    FileFormat,
    TableMetadata,
    is_partial,
    metadata_error,
)
from mirrorlib.landing.metadata.lenient import Json, Members, NotJsonError, read_lenient

_DETECTIONS: Mapping[str, Detection] = {
    name.casefold(): detection for detection, name in DETECTION_NAMES.items()
}
_FILE_FORMATS: Mapping[str, FileFormat] = {
    "parquet": "parquet",
    "csv": "delimited",
    "delimitedtext": "delimited",
}
PROPERTIES: Mapping[str, str] = {
    name.casefold(): name
    for name in (
        "keyColumns",
        "fileDetectionStrategy",
        "isUpsertDefaultRowMarker",
        "FileFormat",
        "FileExtension",
        "FileFormatTypeProperties",
        "SchemaDefinition",
        "ConditionalUpdateColumn",
        "isPartitionEnabled",
        "partialUpdates",
    )
}
FORMAT_PROPERTIES: Mapping[str, str] = {
    name.casefold(): name
    for name in (
        "FirstRowAsHeader",
        "RowSeparator",
        "ColumnSeparator",
        "QuoteCharacter",
        "EscapeCharacter",
        "NullValue",
        "Encoding",
    )
}

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _Reading:
    """Properties by case-folded name, and where to note repairs."""

    table: str
    values: Mapping[str, Json]
    repairs: list[str]


def parse_metadata(data: bytes, table: str) -> TableMetadata:
    """Read the bytes of a table's `_metadata.json`."""
    members, repaired = _members(data, table)
    repairs = [*repaired]
    reading = _Reading(table, _by_name(members, table, repairs), repairs)
    properties, unknown_properties = _format_properties(reading)
    file_format, assumed = _file_format(reading)
    keys = _key_columns(reading)
    partial = _text(reading, "partialUpdates")  # mirrorlib's own property, and no other reader's
    if partial is not None and partial != "never" and not is_partial(partial):
        msg = "the value of 'partialUpdates' is none of absent, nulls, listed:COLUMN, never"
        raise metadata_error(msg, table, found=partial)
    # Written as text, isPartitionEnabled is as it was seen, and it is documented nowhere.
    return TableMetadata(
        key_columns=tuple(keys),
        blank_keys={name: stated for name, stated in keys.items() if name != stated},
        detection=_choice(reading, "fileDetectionStrategy", _DETECTIONS) or "sequential",
        upsert_default=_flag(reading, "isUpsertDefaultRowMarker"),
        file_format=file_format,
        file_extension=_file_extension(reading),
        format_properties=properties,
        schema_definition=_schema_definition(reading),
        partitioned=_flag(reading, "isPartitionEnabled", text=True),
        conditional_update=_text(reading, "ConditionalUpdateColumn"),
        partial_updates=None if partial == "never" else partial,
        repairs=tuple(repairs),
        assumed=assumed,
        unknown=_unknown(members, PROPERTIES) + unknown_properties,
    )


def _members(data: bytes, table: str) -> tuple[Members, tuple[str, ...]]:
    """Read the object, and name what had to be repaired."""
    if not data.strip():
        msg = "it is empty"
        raise metadata_error(msg, table, next_step="Publish it whole; the next run reads it again.")
    try:
        value, repaired = read_lenient(data)
    except NotJsonError as exc:
        msg = f"it is not JSON: {exc.claim}"
        raise metadata_error(msg, table, found=exc.found) from exc
    if not isinstance(value, tuple):
        msg = "it is not a JSON object"
        raise metadata_error(msg, table, found=_kind(value))
    return value, repaired


def _by_name(members: Members, table: str, repairs: list[str]) -> dict[str, Json]:
    """Give values by case-folded name; a name given twice must say the same twice."""
    values: dict[str, Json] = {}
    for name, value in members:
        folded = name.strip().casefold()
        if folded in values and values[folded] != value:
            msg = f"the property {name!r} is given twice, with different values"
            raise metadata_error(msg, table)
        if folded in values:
            repairs.append(f"the property {name!r} is given twice")
        values[folded] = value
    return values


def _unknown(members: Members, known: Container[str]) -> tuple[str, ...]:
    return tuple(name for name, _ in members if name.strip().casefold() not in known)


def _key_columns(reading: _Reading) -> dict[str, str]:
    """Give the key columns, each by its name without surrounding blanks as it is stated."""
    value = reading.values.get("keycolumns")
    if isinstance(value, str):
        reading.repairs.append("keyColumns is a single string")
        value = [value]
    if value is not None and not isinstance(value, list):
        raise _wrong(reading, "keyColumns", value, "a list of column names")
    names: dict[str, str] = {}
    for item in value or ():
        if not isinstance(item, str):
            raise _wrong(reading, "keyColumns", item, "a list of column names")
        name = item.strip()
        if name != item:
            reading.repairs.append(f"blanks around the key column {name!r}")
        if not name:
            reading.repairs.append("an empty name in keyColumns")
        elif find_name(names, name) is not None:
            reading.repairs.append(f"the key column {name!r} is named twice")
        else:
            names[name] = item
    return names


def _choice(reading: _Reading, name: str, choices: Mapping[str, _T]) -> _T | None:
    value = _text(reading, name)
    if value is not None and value.casefold() not in choices:
        msg = f"the value of {name!r} is not known"
        raise metadata_error(msg, reading.table, found=value)
    return None if value is None else choices[value.casefold()]


def _text(reading: _Reading, name: str) -> str | None:
    """Give a property's text without surrounding blanks; None when it is missing, null or blank."""
    value = reading.values.get(name.casefold())
    if value is None:
        return None
    if not isinstance(value, str):
        raise _wrong(reading, name, value, "a string")
    return value.strip() or None


def _flag(reading: _Reading, name: str, *, text: bool = False) -> bool:
    """Read true or false; written as text it counts as repaired, unless *text* says that this is usual."""
    value = reading.values.get(name.casefold())
    if value is None or isinstance(value, bool):
        return bool(value)
    if isinstance(value, str) and value.strip().casefold() in {"true", "false", ""}:
        if not text:
            reading.repairs.append(f"{name} is a string")
        return value.strip().casefold() == "true"
    raise _wrong(reading, name, value, "true or false")


def _file_format(reading: _Reading) -> tuple[FileFormat | None, tuple[str, ...]]:
    """Give the format, and what was assumed: where delimited text is described it is CSV, Microsoft's default."""
    stated = _choice(reading, "FileFormat", _FILE_FORMATS)
    described = ("SchemaDefinition", "FileFormatTypeProperties")  # which Parquet has no use for
    of_text = [name for name in described if reading.values.get(name.casefold()) is not None]
    if stated or not of_text or (_file_extension(reading) or "").lower() == "parquet":
        return stated, ()
    return "delimited", (f"it states no FileFormat, and {of_text[0]} is of delimited text: CSV",)


def _file_extension(reading: _Reading) -> str | None:
    text = _text(reading, "FileExtension")
    return None if text is None else text.removeprefix("*").removeprefix(".") or None


def _format_properties(reading: _Reading) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """Give the stated format properties by Microsoft's names, and the names that mean nothing."""
    members = _inner(reading, "FileFormatTypeProperties")
    stated: dict[str, str] = {}
    for folded, item in _by_name(members, reading.table, reading.repairs).items():
        name = FORMAT_PROPERTIES.get(folded)
        if name is not None and isinstance(item, str | bool):
            stated[name] = item if isinstance(item, str) else str(item).lower()
        elif name is not None and item is not None:
            raise _wrong(reading, name, item, "a string")
    return stated, _unknown(members, FORMAT_PROPERTIES)


def _schema_definition(reading: _Reading) -> tuple[DefinedColumn, ...]:
    members = _inner(reading, "SchemaDefinition")
    columns = _by_name(members, reading.table, reading.repairs).get("columns")
    if columns is not None and not isinstance(columns, list):
        raise _wrong(reading, "SchemaDefinition.Columns", columns, "a list")
    defined: list[DefinedColumn] = []
    for column in columns or ():
        if not isinstance(column, tuple):
            raise _wrong(reading, "SchemaDefinition.Columns", column, "a list of objects")
        values = _by_name(column, reading.table, reading.repairs)
        inner = _Reading(reading.table, values, reading.repairs)
        name, data_type = values.get("name"), _text(inner, "DataType")
        if not isinstance(name, str) or not name:
            raise _wrong(reading, "SchemaDefinition.Columns.Name", name, "a column name")
        nullable = None if values.get("isnullable") is None else _flag(inner, "IsNullable")
        defined.append(DefinedColumn(name=name, data_type=data_type or "", nullable=nullable))
    return tuple(defined)


def _inner(reading: _Reading, name: str) -> Members:
    """Give the members of a property that is an object; none when it is missing or null."""
    value = reading.values.get(name.casefold())
    if value is not None and not isinstance(value, tuple):
        raise _wrong(reading, name, value, "an object")
    return value or ()


def _wrong(reading: _Reading, name: str, value: Json, expected: str) -> MetadataError:
    msg = f"the property {name!r} is not {expected}"
    return metadata_error(msg, reading.table, found=_kind(value))


def _kind(value: Json) -> str:
    """Name the kind of a JSON value, as JSON does."""
    if isinstance(value, bool):
        return str(value).lower()
    kinds = {str: "a string", float: "a number", list: "an array", tuple: "an object"}
    return kinds.get(type(value), "null")

"""Read a table folder's `_metadata.json`.

In: the file's bytes. Out: `TableMetadata`, with everything that had to be repaired named in it.
Names are compared case-insensitively and values are read as leniently as publishers write them;
what stays ambiguous is refused.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
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


class _Object:
    """A JSON object: its values by case-folded name, and where to note what had to be repaired."""

    def __init__(self, members: Members, table: str, repairs: list[str]) -> None:
        """Take its members; a name given twice must say the same twice."""
        self.members, self.table, self.repairs = members, table, repairs
        self.values: dict[str, Json] = {}
        for name, value in members:
            folded = name.strip().casefold()
            if folded in self.values and self.values[folded] != value:
                msg = f"the property {name!r} is given twice, with different values"
                raise metadata_error(msg, table)
            if folded in self.values:
                repairs.append(f"the property {name!r} is given twice")
            self.values[folded] = value

    def unknown(self, known: Container[str]) -> tuple[str, ...]:
        return tuple(name for name, _ in self.members if name.strip().casefold() not in known)

    def inner(self, name: str) -> _Object:
        """Give a property that is an object; it is empty when it is missing or null."""
        value = self.values.get(name.casefold())
        if value is not None and not isinstance(value, tuple):
            raise self.wrong(value, name, "an object")
        return _Object(value or (), self.table, self.repairs)

    def choice(self, name: str, choices: Mapping[str, _T]) -> _T | None:
        value = self.text(name)
        if value is not None and value.casefold() not in choices:
            msg = f"the value of {name!r} is not known"
            raise metadata_error(msg, self.table, found=value)
        return None if value is None else choices[value.casefold()]

    def text(self, name: str) -> str | None:
        """Give a property's text without surrounding blanks; None when it is missing, null or blank."""
        value = self.values.get(name.casefold())
        if value is None:
            return None
        if not isinstance(value, str):
            raise self.wrong(value, name, "a string")
        return value.strip() or None

    def flag(self, name: str, *, text: bool = False) -> bool:
        """Read true or false; written as text it counts as repaired, unless *text* says that this is usual."""
        value = self.values.get(name.casefold())
        if value is None or isinstance(value, bool):
            return bool(value)
        if isinstance(value, str) and value.strip().casefold() in {"true", "false", ""}:
            if not text:
                self.repairs.append(f"{name} is a string")
            return value.strip().casefold() == "true"
        raise self.wrong(value, name, "true or false")

    def wrong(self, value: Json, name: str, expected: str) -> MetadataError:
        msg = f"the property {name!r} is not {expected}"
        return metadata_error(msg, self.table, found=_kind(value))


def parse_metadata(data: bytes, table: str) -> TableMetadata:
    """Read the bytes of a table's `_metadata.json`."""
    stated = _whole(data, table)
    formats = stated.inner("FileFormatTypeProperties")
    properties = _format_properties(formats)
    file_format, assumed = _file_format(stated)
    keys = _key_columns(stated)
    partial = stated.text("partialUpdates")  # mirrorlib's own property, and no other reader's
    if partial is not None and partial != "never" and not is_partial(partial):
        msg = "the value of 'partialUpdates' is none of absent, nulls, listed:COLUMN, never"
        raise metadata_error(msg, table, found=partial)
    # Written as text, isPartitionEnabled is as it was seen, and it is documented nowhere.
    return TableMetadata(
        key_columns=tuple(keys),
        blank_keys={name: given for name, given in keys.items() if name != given},
        detection=stated.choice("fileDetectionStrategy", _DETECTIONS) or "sequential",
        upsert_default=stated.flag("isUpsertDefaultRowMarker"),
        file_format=file_format,
        delimited_text=(stated.text("FileFormat") or "").casefold() == "delimitedtext",
        file_extension=_file_extension(stated),
        format_properties=properties,
        schema_definition=_schema_definition(stated),
        partitioned=stated.flag("isPartitionEnabled", text=True),
        conditional_update=stated.text("ConditionalUpdateColumn"),
        partial_updates=None if partial == "never" else partial,
        repairs=tuple(stated.repairs),
        assumed=assumed,
        unknown=stated.unknown(PROPERTIES) + formats.unknown(FORMAT_PROPERTIES),
    )


def _whole(data: bytes, table: str) -> _Object:
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
    return _Object(value, table, [*repaired])


def _key_columns(stated: _Object) -> dict[str, str]:
    """Give the key columns, each by its name without surrounding blanks as it is stated."""
    value = stated.values.get("keycolumns")
    if isinstance(value, str):
        stated.repairs.append("keyColumns is a single string")
        value = [value]
    if value is not None and not isinstance(value, list):
        raise stated.wrong(value, "keyColumns", "a list of column names")
    names: dict[str, str] = {}
    for item in value or ():
        if not isinstance(item, str):
            raise stated.wrong(item, "keyColumns", "a list of column names")
        name = item.strip()
        if name != item:
            stated.repairs.append(f"blanks around the key column {name!r}")
        if not name:
            stated.repairs.append("an empty name in keyColumns")
        elif find_name(names, name) is not None:
            stated.repairs.append(f"the key column {name!r} is named twice")
        else:
            names[name] = item
    return names


def _file_format(stated: _Object) -> tuple[FileFormat | None, tuple[str, ...]]:
    """Give the format, and what was assumed: where delimited text is described it is CSV, Microsoft's default."""
    named = stated.choice("FileFormat", _FILE_FORMATS)
    described = ("SchemaDefinition", "FileFormatTypeProperties")  # which Parquet has no use for
    of_text = [name for name in described if stated.values.get(name.casefold()) is not None]
    if named or not of_text or (_file_extension(stated) or "").lower() == "parquet":
        return named, ()
    return "delimited", (f"it states no FileFormat, and {of_text[0]} is of delimited text: CSV",)


def _file_extension(stated: _Object) -> str | None:
    text = stated.text("FileExtension")
    return None if text is None else text.removeprefix("*").removeprefix(".") or None


def _format_properties(stated: _Object) -> Mapping[str, str]:
    """Give the stated format properties by Microsoft's names."""
    found: dict[str, str] = {}
    for folded, item in stated.values.items():
        name = FORMAT_PROPERTIES.get(folded)
        if name is not None and isinstance(item, str | bool):
            found[name] = item if isinstance(item, str) else str(item).lower()
        elif name is not None and item is not None:
            raise stated.wrong(item, name, "a string")
    return found


def _schema_definition(stated: _Object) -> tuple[DefinedColumn, ...]:
    columns = stated.inner("SchemaDefinition").values.get("columns")
    if columns is not None and not isinstance(columns, list):
        raise stated.wrong(columns, "SchemaDefinition.Columns", "a list")
    defined: list[DefinedColumn] = []
    for members in columns or ():
        if not isinstance(members, tuple):
            raise stated.wrong(members, "SchemaDefinition.Columns", "a list of objects")
        column = _Object(members, stated.table, stated.repairs)
        name, data_type = column.values.get("name"), column.text("DataType")
        if not isinstance(name, str) or not name:
            raise stated.wrong(name, "SchemaDefinition.Columns.Name", "a column name")
        nullable = None if column.values.get("isnullable") is None else column.flag("IsNullable")
        defined.append(DefinedColumn(name=name, data_type=data_type or "", nullable=nullable))
    return tuple(defined)


def _kind(value: Json) -> str:
    """Name the kind of a JSON value, as JSON does."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return "a number"
    kinds: dict[type, str] = {str: "a string", list: "an array", tuple: "an object"}
    return kinds.get(type(value), "null")

"""Read a table folder's `_metadata.json`: keys, file detection, what marker-free files mean.

In: the file's bytes. Out: `TableMetadata`, with everything that had to be repaired named in it.
Names are compared case-insensitively and values are read as leniently as publishers write them;
what stays ambiguous is refused. Properties and defaults: Microsoft's "Open mirroring landing zone
requirements and formats".
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal, TypeAlias, TypeVar

from mirrorlib.errors import MetadataError
from mirrorlib.identifiers import fold_name
from mirrorlib.landing.lenient import Json, Members, NotJsonError, read_lenient

METADATA_NAME = "_metadata.json"

Detection: TypeAlias = Literal["sequential", "last_update_time"]
FileFormat: TypeAlias = Literal["parquet", "delimited"]

TEXT_EXTENSIONS = ("csv", "tsv", "psv", "txt")  # of delimited text that states none
PACKED = ("", ".gz", ".zst")  # what stands behind them where content is compressed
TEXT_ENDINGS = tuple(f".{extension}{end}" for extension in TEXT_EXTENSIONS for end in PACKED)
DETECTION_NAMES: Mapping[Detection, str] = {
    "sequential": "SequentialFileName",
    "last_update_time": "LastUpdateTimeFileDetection",
}
_DETECTIONS: Mapping[str, Detection] = {
    name.casefold(): detection for detection, name in DETECTION_NAMES.items()
}
_FILE_FORMATS: Mapping[str, FileFormat] = {
    "parquet": "parquet",
    "csv": "delimited",
    "delimitedtext": "delimited",
}
_PROPERTIES = frozenset(
    {
        "keycolumns",
        "filedetectionstrategy",
        "isupsertdefaultrowmarker",
        "fileformat",
        "fileextension",
        "fileformattypeproperties",
        "schemadefinition",
        "conditionalupdatecolumn",
        "ispartitionenabled",
    }
)
_OF_TEXT = ("SchemaDefinition", "FileFormatTypeProperties")  # which Parquet has no use for
_FORMAT_PROPERTIES: Mapping[str, str] = {
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


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinedColumn:
    """A column as `SchemaDefinition` states it; needed for delimited text only."""

    name: str
    data_type: str
    nullable: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMetadata:
    """What a publisher states about a table.

    Attributes:
        key_columns: The key, in order, without surrounding blanks; empty when none is declared.
        blank_keys: Those of them that are stated with blanks around them, as they are stated.
        detection: How new files are found and ordered.
        upsert_default: Whether files without a marker column are upserts, not inserts.
        file_format: The files' format; None when it is not stated.
        file_extension: The files' extension without its dot, when stated.
        format_properties: How delimited text is written, by Microsoft's names; only what is stated.
        schema_definition: The columns of delimited text, in order.
        partitioned: Whether files lie in Hive-style partition folders.
        conditional_update: The column whose greater value wins, when stated.
        plain: There is none: the folder is read without, see `plain`.
        repairs: What had to be repaired to read it, a phrase each.
        assumed: What it does not state and is taken to mean, a clause each.
        unknown: Properties that mean nothing here and are ignored.
    """

    key_columns: tuple[str, ...] = ()
    blank_keys: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    detection: Detection = "sequential"
    upsert_default: bool = False
    file_format: FileFormat | None = None
    file_extension: str | None = None
    format_properties: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    schema_definition: tuple[DefinedColumn, ...] = ()
    partitioned: bool = False
    conditional_update: str | None = None
    plain: bool = False
    repairs: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def stated_keys(self) -> tuple[str, ...]:
        """Return the key as it is stated: blanks may be a slip, or part of a column's name. See `find_key`."""
        return tuple(self.blank_keys.get(name, name) for name in self.key_columns)

    @property
    def extensions(self) -> tuple[str, ...]:
        """Return the extensions that the table's files may have, in lower case and without a dot."""
        if self.file_format != "delimited":
            return ("parquet",)  # what a table without FileFormat is read as
        return (self.file_extension.lower(),) if self.file_extension else TEXT_EXTENSIONS

    @property
    def numbered(self) -> tuple[str, ...]:
        """Return the extensions of numbered files, in lower case and without a dot.

        Numbered text counts where no format is stated: it is refused then, and not passed over.
        """
        stated = (self.file_extension.lower(),) if self.file_extension else ()
        if self.file_format == "delimited":
            return self.extensions
        return (*self.extensions, *stated, *(() if self.file_format else TEXT_EXTENSIONS))

    @property
    def endings(self) -> tuple[str, ...]:
        """Return how names of change files end, in lower case, where they have no number to be known by."""
        packed = PACKED if self.file_format == "delimited" else ("",)
        return tuple(f".{extension}{end}" for extension in self.extensions for end in packed)


def as_published(metadata: TableMetadata, names: Iterable[str]) -> TableMetadata:
    """Take a table for Parquet whose files all are, though its metadata describes text and states no format.

    Args:
        metadata: what the publisher states.
        names: the files that the table's folder shows.

    """
    lowered = [name.lower() for name in names] if metadata.assumed else []
    if metadata.file_extension or not any(name.endswith(".parquet") for name in lowered):
        return metadata
    if any(name.endswith(TEXT_ENDINGS) for name in lowered):
        return metadata
    told = "it states no FileFormat and describes text, and all files are Parquet: Parquet"
    return replace(metadata, file_format="parquet", assumed=(told,))


@dataclass(frozen=True, slots=True)
class _Reading:
    """Properties by case-folded name, and where to note repairs."""

    table: str
    values: Mapping[str, Json]
    repairs: list[str]


def parse_metadata(data: bytes, table: str) -> TableMetadata:
    """Read the bytes of `_metadata.json`.

    Args:
        data: The whole file.
        table: The table's name, for messages.

    Raises:
        MetadataError: it is empty, no repair makes it JSON, or a property contradicts itself or
            means nothing.
    """
    repairs: list[str] = []
    members = _members(data, table, repairs)
    reading = _Reading(table, _by_name(members, table, repairs), repairs)
    properties, unknown_properties = _format_properties(reading)
    file_format, assumed = _file_format(reading)
    keys = _key_columns(reading)
    return TableMetadata(
        key_columns=tuple(keys),
        blank_keys=MappingProxyType({name: told for name, told in keys.items() if name != told}),
        detection=_choice(reading, "fileDetectionStrategy", _DETECTIONS) or "sequential",
        upsert_default=_flag(reading, "isUpsertDefaultRowMarker"),
        file_format=file_format,
        file_extension=_file_extension(reading),
        format_properties=properties,
        schema_definition=_schema_definition(reading),
        partitioned=_flag(
            reading, "isPartitionEnabled", text=True
        ),  # seen so, and documented nowhere
        conditional_update=_text(reading, "ConditionalUpdateColumn"),
        repairs=tuple(repairs),
        assumed=assumed,
        unknown=_unknown(members, _PROPERTIES) + unknown_properties,
    )


def _members(data: bytes, table: str, repairs: list[str]) -> Members:
    if not data.strip():
        msg = "it is empty"
        raise _refusal(table, msg, next_step="Publish it whole; the next run reads it again.")
    try:
        value, repaired = read_lenient(data)
    except NotJsonError as exc:
        msg = f"it is not JSON: line {exc.line}, column {exc.column}: {exc.reason}"
        raise _refusal(table, msg, found=exc.found) from exc
    if not isinstance(value, tuple):
        msg = "it is not a JSON object"
        raise _refusal(table, msg, found=_kind(value))
    repairs.extend(repaired)
    return value


def _by_name(members: Members, table: str, repairs: list[str]) -> dict[str, Json]:
    """Give values by case-folded name; a name given twice must say the same twice."""
    values: dict[str, Json] = {}
    for name, value in members:
        folded = name.strip().casefold()
        if folded in values and values[folded] != value:
            msg = f"the property {name!r} is given twice, with different values"
            raise _refusal(table, msg)
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
    if value is None:
        return {}
    if not isinstance(value, list):
        raise _wrong(reading, "keyColumns", value, "a list of column names")
    folded: set[str] = set()
    names: dict[str, str] = {}
    for item in value:
        if not isinstance(item, str):
            raise _wrong(reading, "keyColumns", item, "a list of column names")
        name = item.strip()
        if name != item:
            reading.repairs.append(f"blanks around the key column {name!r}")
        if not name:
            reading.repairs.append("an empty name in keyColumns")
        elif fold_name(name) in folded:
            reading.repairs.append(f"the key column {name!r} is named twice")
        else:
            folded.add(fold_name(name))
            names[name] = item
    return names


def _choice(reading: _Reading, name: str, choices: Mapping[str, _T]) -> _T | None:
    value = _text(reading, name)
    if value is None:
        return None
    if value.casefold() not in choices:
        msg = f"the value of {name!r} is not known"
        raise _refusal(reading.table, msg, found=value)
    return choices[value.casefold()]


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
    told = [name for name in _OF_TEXT if reading.values.get(name.casefold()) is not None]
    if stated or not told or (_file_extension(reading) or "").lower() == "parquet":
        return stated, ()
    return "delimited", (f"it states no FileFormat, and {told[0]} is of delimited text: CSV",)


def _file_extension(reading: _Reading) -> str | None:
    text = _text(reading, "FileExtension")
    return None if text is None else text.removeprefix("*").removeprefix(".") or None


def _format_properties(reading: _Reading) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """Give the stated format properties by Microsoft's names, and the names that mean nothing."""
    value = reading.values.get("fileformattypeproperties")
    if value is None:
        return MappingProxyType({}), ()
    if not isinstance(value, tuple):
        raise _wrong(reading, "FileFormatTypeProperties", value, "an object")
    stated: dict[str, str] = {}
    for folded, item in _by_name(value, reading.table, reading.repairs).items():
        if folded in _FORMAT_PROPERTIES and isinstance(item, str | bool):
            stated[_FORMAT_PROPERTIES[folded]] = (
                item if isinstance(item, str) else str(item).lower()
            )
        elif folded in _FORMAT_PROPERTIES and item is not None:
            raise _wrong(reading, _FORMAT_PROPERTIES[folded], item, "a string")
    return MappingProxyType(stated), _unknown(value, _FORMAT_PROPERTIES)


def _schema_definition(reading: _Reading) -> tuple[DefinedColumn, ...]:
    value = reading.values.get("schemadefinition")
    if value is None:
        return ()
    if not isinstance(value, tuple):
        raise _wrong(reading, "SchemaDefinition", value, "an object")
    columns = _by_name(value, reading.table, reading.repairs).get("columns")
    if columns is None:
        return ()
    if not isinstance(columns, list):
        raise _wrong(reading, "SchemaDefinition.Columns", columns, "a list")
    return tuple(_defined_column(reading, column) for column in columns)


def _defined_column(reading: _Reading, column: Json) -> DefinedColumn:
    if not isinstance(column, tuple):
        raise _wrong(reading, "SchemaDefinition.Columns", column, "a list of objects")
    inner = _Reading(
        reading.table, _by_name(column, reading.table, reading.repairs), reading.repairs
    )
    name, data_type = inner.values.get("name"), _text(inner, "DataType")
    if not isinstance(name, str) or not name:
        raise _wrong(reading, "SchemaDefinition.Columns.Name", name, "a column name")
    nullable = None if inner.values.get("isnullable") is None else _flag(inner, "IsNullable")
    return DefinedColumn(name=name, data_type=data_type or "", nullable=nullable)


def _wrong(reading: _Reading, name: str, value: Json, expected: str) -> MetadataError:
    return _refusal(reading.table, f"the property {name!r} is not {expected}", found=_kind(value))


def _refusal(
    table: str, reason: str, *, found: str | None = None, next_step: str | None = None
) -> MetadataError:
    return MetadataError(reason, table=table, file=METADATA_NAME, found=found, next_step=next_step)


def _kind(value: Json) -> str:
    """Name the kind of a JSON value, as JSON does."""
    if isinstance(value, bool):
        return str(value).lower()
    kinds = {str: "a string", float: "a number", list: "an array", tuple: "an object"}
    return kinds.get(type(value), "null")

r"""Declare a table: make its `_metadata.json`, and the zone's `_partnerEvents.json`.

In: what the caller wants and what an earlier publication stated. Out: the `TableMetadata` that holds
from now on, and its bytes; `parse_metadata` reads them back as the same value. Properties that are
at the format's default are left out. Delimited text is always written one way: header, `,`, `"`
doubled inside quotes, `\n`, UTF-8, an empty unquoted field for NULL, `0x` and digits for bytes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, TypeAlias

import pyarrow as pa

from mirrorlib.errors import MetadataError, SchemaError
from mirrorlib.identifiers import fold_name
from mirrorlib.landing.metadata.declared import Detection, TableMetadata
from mirrorlib.landing.types import INSTANT, WALL_CLOCK, mirror_type

if TYPE_CHECKING:
    from collections.abc import Mapping

PublishFormat: TypeAlias = Literal["parquet", "csv"]

CSV_PROPERTIES: Mapping[str, str] = MappingProxyType(
    {
        "FirstRowAsHeader": "true",
        "RowSeparator": "\n",
        "ColumnSeparator": ",",
        "QuoteCharacter": '"',
        "EscapeCharacter": '"',
        "NullValue": "",
        "Encoding": "UTF-8",
    }
)
# How delimited text spells each type; it has no word for decimals. A zone has no place in it: instants are UTC.
_DATA_TYPES: Mapping[pa.DataType, tuple[str, pa.DataType]] = {
    pa.bool_(): ("Boolean", pa.bool_()),
    pa.int8(): ("Int16", pa.int16()),
    pa.int16(): ("Int16", pa.int16()),
    pa.int32(): ("Int32", pa.int32()),
    pa.int64(): ("Int64", pa.int64()),
    pa.float32(): ("Single", pa.float32()),
    pa.float64(): ("Double", pa.float64()),
    pa.string(): ("String", pa.string()),
    pa.binary(): ("ByteArray", pa.binary()),
    pa.date32(): ("IDate", pa.date32()),
    INSTANT: ("DateTime", WALL_CLOCK),
    WALL_CLOCK: ("DateTime", WALL_CLOCK),
}
ARROW_TYPES: Mapping[str, pa.DataType] = {
    **{name.casefold(): kind for name, kind in _DATA_TYPES.values()},
    "itime": pa.string(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the caller says about a table; None where he says nothing."""

    keys: tuple[str, ...] | None = None
    file_format: PublishFormat | None = None
    partition_by: tuple[str, ...] | None = None
    upsert_default: bool | None = None
    detection: Detection | None = None


def published_type(
    stored: pa.DataType, file_format: PublishFormat
) -> tuple[pa.DataType | None, str]:
    """Return the type that a column is published as, None when it has none, and its name in delimited text."""
    kind = mirror_type(stored, "keep")
    if file_format == "parquet" or kind is None or pa.types.is_null(kind):
        return kind, ""
    if pa.types.is_time(stored):
        return pa.string(), "ITime"
    name, kind = _DATA_TYPES.get(kind, ("", None))
    return kind, name


def format_of(metadata: TableMetadata) -> PublishFormat:
    """Say in which format a table's files are, as its metadata has it."""
    delimited = metadata.file_format == "delimited" or metadata.schema_definition
    return "csv" if delimited else "parquet"


def settle_metadata(
    wanted: Wanted, stated: TableMetadata | None, *, table: str, force: bool
) -> TableMetadata:
    """Bring together what is wanted and what is stated already; *force* lets what is wanted win.

    Raises:
        MetadataError: the two contradict each other, or updates by default have no keys.
        SchemaError: the keys would change.

    """
    made = _new(wanted) if stated is None else _kept(wanted, stated, table=table, force=force)
    if made.upsert_default and not made.key_columns:
        msg = "rows are to be upserts by default, and the table has no keys"
        raise MetadataError(msg, table=table, next_step="Declare the table's keys.")
    return made


def metadata_bytes(metadata: TableMetadata) -> bytes:
    """Write `_metadata.json`; what is at its default is left out."""
    value: dict[str, object] = {"keyColumns": list(metadata.key_columns)}
    if metadata.detection == "last_update_time":
        value["fileDetectionStrategy"] = "LastUpdateTimeFileDetection"
    if metadata.upsert_default:
        value["isUpsertDefaultRowMarker"] = True
    if metadata.partitioned:
        value["isPartitionEnabled"] = "true"  # a string: no other spelling was ever seen
    if metadata.conditional_update:
        value["ConditionalUpdateColumn"] = metadata.conditional_update
    if metadata.file_format == "delimited":
        value |= _delimited(metadata)
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def partner_bytes(
    partner: str, source: str, version: str | None, information: Mapping[str, str] | None = None
) -> bytes:
    """Write `_partnerEvents.json`: who publishes, from what kind of source, and what else is to be known of it."""
    info: dict[str, object] = {"sourceType": source}
    if version:
        info["sourceVersion"] = version
    if information:
        info["additionalInformation"] = dict(information)
    value = {"partnerName": partner, "sourceInfo": info}
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def _delimited(metadata: TableMetadata) -> dict[str, object]:
    columns = [
        {"Name": column.name, "DataType": column.data_type, "IsNullable": column.nullable}
        for column in metadata.schema_definition
    ]
    properties: dict[str, object] = dict(metadata.format_properties)
    properties["FirstRowAsHeader"] = True
    return {
        "SchemaDefinition": {"Columns": columns},
        "FileFormat": "CSV",
        "FileExtension": metadata.file_extension,
        "FileFormatTypeProperties": properties,
    }


def _new(wanted: Wanted) -> TableMetadata:
    csv = wanted.file_format == "csv"
    return TableMetadata(
        key_columns=wanted.keys or (),
        detection=wanted.detection or "sequential",
        upsert_default=bool(wanted.upsert_default),
        file_format="delimited" if csv else None,
        file_extension="csv" if csv else None,
        format_properties=CSV_PROPERTIES if csv else MappingProxyType({}),
        partitioned=bool(wanted.partition_by),
    )


def _kept(wanted: Wanted, stated: TableMetadata, *, table: str, force: bool) -> TableMetadata:
    """Keep what is stated; keys may be added to a table that had none."""
    differing = [
        (name, old, new)
        for name, old, new in (
            ("file format", format_of(stated), wanted.file_format),
            ("file detection", stated.detection, wanted.detection),
            ("upsert default", stated.upsert_default, wanted.upsert_default),
            (
                "partitioning",
                stated.partitioned,
                None if wanted.partition_by is None else bool(wanted.partition_by),
            ),
        )
        if new not in {None, old}
    ]
    if differing and not force:
        name, old, new = differing[0]
        msg = f"the table's {name} is {_shown(old)} already and cannot become {_shown(new)}"
        raise MetadataError(msg, table=table, next_step=_begin_anew("Leave it out"))
    if format_of(stated) == "csv" and dict(stated.format_properties) != dict(CSV_PROPERTIES):
        msg = "another publisher declared this table's delimited text in another way than mirrorlib writes it"
        raise MetadataError(msg, table=table, next_step="Publish to a table of your own.")
    made = replace(stated, key_columns=_keys(wanted, stated, table=table, force=force))
    if not differing:
        return made
    forced = _new(replace(wanted, keys=made.key_columns))
    return replace(forced, conditional_update=stated.conditional_update)


def _keys(wanted: Wanted, stated: TableMetadata, *, table: str, force: bool) -> tuple[str, ...]:
    old, new = stated.key_columns, wanted.keys
    if not new or _folded(old) == _folded(new):
        return old
    if old and not force:
        msg = "the table's keys cannot change"
        found = f"{', '.join(new)} instead of {', '.join(old)}"
        raise SchemaError(
            msg, table=table, found=found, next_step=_begin_anew("Use the keys that are declared")
        )
    return new


def _folded(names: tuple[str, ...]) -> frozenset[str]:
    return frozenset(fold_name(name) for name in names)


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _begin_anew(first: str) -> str:
    return (
        f"{first}, or delete the table folder and publish the table anew; force writes it as it is."
    )

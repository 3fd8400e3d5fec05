"""Declare a table: make its `_metadata.json`, and the zone's `_partnerEvents.json`.

In: what the caller wants and what an earlier publication stated. Out: the `TableMetadata` that holds
from now on, and its bytes; `parse_metadata` reads them back as the same value. Delimited text is always written one
way, by `CSV_PROPERTIES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import pyarrow as pa

from mirrorlib.errors import MetadataError, SchemaError
from mirrorlib.identifiers import fold_name
from mirrorlib.landing.delimited.dialect import dialect_of
from mirrorlib.landing.delimited.values import DATA_TYPES
from mirrorlib.landing.metadata.declared import TableMetadata
from mirrorlib.landing.types import INSTANT, WALL_CLOCK, mirror_type, plain_type
from mirrorlib.store.records import json_bytes

PublishFormat: TypeAlias = Literal["parquet", "csv"]
OR_ANEW = "or delete the table folder and publish the table anew; force publishes it as it is."

CSV_PROPERTIES: Mapping[str, str] = {
    "FirstRowAsHeader": "true",
    "RowSeparator": "\n",
    "ColumnSeparator": ",",
    "QuoteCharacter": '"',
    "EscapeCharacter": '"',
    "NullValue": "",
    "Encoding": "UTF-8",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the caller says about a table; None where he says nothing."""

    keys: tuple[str, ...] | None = None
    file_format: PublishFormat | None = None
    partition_by: tuple[str, ...] | None = None
    force: bool = False  # whether it wins over what was published before


def published_type(stored: pa.DataType, *, text: bool) -> tuple[pa.DataType | None, str]:
    """Return the type that a column is published as, None when it has none, and its name in delimited text."""
    # A duration or a period would be a number without its unit, which is not the same with every library.
    bare = (
        pa.types.is_duration(plain_type(stored))
        or getattr(stored, "extension_name", "") == "pandas.period"
    )
    kind = None if bare else mirror_type(stored, "keep")
    if not text or kind is None or pa.types.is_null(kind):
        return kind, ""
    if pa.types.is_time(stored):
        return kind, "ITime"
    # Delimited text has no word for bytes, nor a place for a zone: instants are UTC.
    kind = {pa.int8(): pa.int16(), INSTANT: WALL_CLOCK}.get(kind, kind)
    words = (known.name for known in DATA_TYPES.values() if known.mirror_type("keep") == kind)
    word = next(words, "")
    return kind if word else None, word


def metadata_bytes(metadata: TableMetadata) -> bytes:
    """Write `_metadata.json`; what is at its default is left out."""
    value: dict[str, object] = {"keyColumns": list(metadata.key_columns)}
    if metadata.upsert_default:
        value["isUpsertDefaultRowMarker"] = True
    if metadata.partitioned:
        value["isPartitionEnabled"] = "true"  # a string: no other spelling was ever seen
    if metadata.conditional_update:
        value["ConditionalUpdateColumn"] = metadata.conditional_update
    if metadata.partial_updates:
        value["partialUpdates"] = metadata.partial_updates
    if metadata.is_text:
        columns = [
            {"Name": column.name, "DataType": column.data_type, "IsNullable": column.nullable}
            for column in metadata.schema_definition
        ]
        value["SchemaDefinition"] = {"Columns": columns}
        value["FileFormat"] = "CSV"
        value["FileExtension"] = metadata.file_extension
        properties = {**metadata.format_properties, "FirstRowAsHeader": True}
        value["FileFormatTypeProperties"] = properties
    return json_bytes(value)


def partner_bytes(
    partner: str, source: str, version: str | None, information: Mapping[str, str] | None = None
) -> bytes:
    """Write `_partnerEvents.json`: who publishes, from what kind of source, and what else is to be known of it."""
    info: dict[str, object] = {"sourceType": source}
    if version:
        info["sourceVersion"] = version
    if information:
        info["additionalInformation"] = dict(information)
    return json_bytes({"partnerName": partner, "sourceInfo": info})


def settle_metadata(wanted: Wanted, stated: TableMetadata | None, *, table: str) -> TableMetadata:
    """Bring together what is wanted and what is stated already: that stays, but keys may be added where none are."""
    free, stated = wanted.force or stated is None, stated or TableMetadata()
    named, by = ("parquet", "csv"), wanted.partition_by
    csv = wanted.file_format == "csv" if wanted.file_format else stated.is_text
    partitioned = stated.partitioned if by is None else bool(by)
    for name, old, new in (
        ("file format", named[stated.is_text], named[csv]),
        ("partitioning", stated.partitioned, partitioned),
    ):
        if old != new and not free:
            before, now = str(old).lower(), str(new).lower()  # of true and false, JSON's words
            msg = f"the table's {name} is {before} already and cannot become {now}"
            raise MetadataError(msg, table=table, next_step=f"Leave it out, {OR_ANEW}")
    if stated.detection != "sequential":
        msg = "the table's files are declared to go by time, and mirrorlib publishes numbered files only"
        raise MetadataError(msg, table=table, next_step="Publish to a table of your own.")
    bare = replace(stated, schema_definition=())
    ours = replace(bare, format_properties=CSV_PROPERTIES)
    if stated.is_text and dialect_of(bare, table=table) != dialect_of(ours, table=table):
        msg = "another publisher declared this table's delimited text in another way than mirrorlib writes it"
        raise MetadataError(msg, table=table, next_step="Publish to a table of your own.")
    keys, wished = stated.key_columns, wanted.keys or stated.key_columns
    if set(map(fold_name, keys)) != set(map(fold_name, wished)):
        if keys and not free:
            found = f"{', '.join(wished)} instead of {', '.join(keys)}"
            step = f"Use the keys that are declared, {OR_ANEW}"
            msg = "the table's keys cannot change"
            raise SchemaError(msg, table=table, found=found, next_step=step)
        keys = wished
    if csv != stated.is_text:
        stated = replace(
            stated,
            file_format="delimited" if csv else None,
            file_extension="csv" if csv else None,
            format_properties=CSV_PROPERTIES if csv else {},
            schema_definition=(),  # it is declared with the first file
            assumed=(),
        )
    return replace(stated, key_columns=keys, partitioned=partitioned)

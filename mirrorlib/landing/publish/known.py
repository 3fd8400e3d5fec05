"""Remember a table's schema as it was published: the columns that Fabric's table has by now.

In: a store and a table folder. Out: `KnownSchema` values, one a version, in
`_mirrorlib/schema/<version>.json`. A version is written with put-if-absent before the first file
that needs it: of two writers that bring different columns, one is the first, and the other is
checked against it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from mirrorlib.identifiers import fold_name
from mirrorlib.landing.delimited.dialect import dialect_of
from mirrorlib.landing.footer import read_footer
from mirrorlib.landing.listing import see_below, see_folder
from mirrorlib.landing.metadata.declared import TableMetadata, as_published
from mirrorlib.landing.parquet import open_parquet
from mirrorlib.landing.types import INSTANT
from mirrorlib.names import parse_name, sequence_name
from mirrorlib.store import Store, StoredFile
from mirrorlib.store.records import read_record, record_bytes

STATE = "_mirrorlib"
_DECIMAL = re.compile(r"decimal128\((\d+), (-?\d+)\)")
_LOOKED_AT = 10  # newest files of another publisher: deletes alone say nothing about most columns


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownSchema:
    """Everything that was ever published of a table's columns."""

    version: int = 0  # counted from 1; 0 for a schema that is not written down yet
    # Name, type and whether it may be NULL, in the order in which they appeared; without the marker.
    columns: tuple[pa.Field, ...] = ()
    markers: bool = False  # whether a file had the marker column
    partition_by: tuple[str, ...] | None = None  # the columns that name the partition folders


NOTHING_KNOWN = KnownSchema()


def read_known(
    zone: Store, metadata: TableMetadata | None, known: KnownSchema, *, table: str
) -> KnownSchema:
    """Read the newest version, going on from what is *known*; without any, learn what another publisher began.

    Raises what `read_record` does.
    """
    folder, what = parse_name(table).folder, "the schema that an earlier publication left"
    while later := read_record(zone, _path(folder, known.version + 1), _revived, what):
        known = replace(later, version=known.version + 1)
    if metadata is None or known.version or known.columns:
        return known
    return _adopted(zone, metadata, table)


def told_by_files(zone: Store, metadata: TableMetadata, *, table: str) -> TableMetadata:
    """Take the format as readers do, which the files tell where it is not stated and another publisher began."""
    if not metadata.assumed and zone.stat(_path(parse_name(table).folder, 1)) is not None:
        return metadata
    shown = (file.name for file in _shown(zone, table))
    return as_published(metadata, (at for at in shown if metadata.partitioned or "/" not in at))


def write_known(zone: Store, folder: str, schema: KnownSchema) -> bool:
    """Write a version; False when another writer was first with that number."""
    columns = [
        {"name": column.name, "type": str(column.type), "nullable": column.nullable}
        for column in schema.columns
    ]
    by = list(schema.partition_by or ())
    value = {"columns": columns, "markers": schema.markers, "partitionBy": by}
    path, data = _path(folder, schema.version), record_bytes(value)
    return zone.put_new(path, data) or zone.read(path) == data


def _adopted(zone: Store, metadata: TableMetadata, table: str) -> KnownSchema:
    """Learn what another publisher began, by what he has declared or by footers; no columns without files."""
    if metadata.is_text and metadata.schema_definition:
        dialect = dialect_of(metadata, table=table)
        kinds = [(one, dialect.data_type(one.name).mirror_type("keep")) for one in dialect.columns]
        defined = (pa.field(one.name, kind, one.nullable is not False) for one, kind in kinds)
        return KnownSchema(columns=tuple(defined), markers=True)
    seen = _shown(zone, table)
    files = [file for file in seen if file.name.endswith(".parquet") and file.size]
    files.sort(key=lambda file: (file.modified, file.path))
    columns: dict[str, pa.Field] = {}
    markers = False
    for file in files[: -_LOOKED_AT - 1 : -1]:
        with zone.open_file(file.path) as source:
            schema = read_footer(source, file, table=table, ntz="keep")
            source.seek(0)
            stored = open_parquet(source).schema_arrow  # `FileSchema` has no word for NOT NULL
        markers = markers or schema.marker is not None
        for column in schema.columns:
            if not pa.types.is_null(column.type):
                nullable = stored.field(column.name).nullable
                learnt = pa.field(column.name, column.type, nullable)
                columns.setdefault(fold_name(column.name), learnt)
    return KnownSchema(columns=tuple(columns.values()), markers=markers)


def _shown(zone: Store, table: str) -> tuple[StoredFile, ...]:
    name = parse_name(table)
    return see_below(zone, name, see_folder(zone, name), plain=False).files


def _path(folder: str, version: int) -> str:
    return f"{folder}/{STATE}/schema/{sequence_name(version, 'json')}"


def _revived(value: dict[str, Any]) -> KnownSchema:
    columns = [
        pa.field(item["name"], _type(item["type"]), item["nullable"]) for item in value["columns"]
    ]
    by = tuple(value["partitionBy"])
    return KnownSchema(columns=tuple(columns), markers=value["markers"], partition_by=by)


def _type(text: str) -> pa.DataType:
    if text == str(INSTANT):  # for which Arrow has no alias, nor for decimals
        return INSTANT
    decimal = _DECIMAL.fullmatch(text)
    if decimal is None:
        return pa.type_for_alias(text)
    return pa.decimal128(int(decimal[1]), int(decimal[2]))

"""Remember a table's schema as it was published: the columns that Fabric's table has by now.

In: a store and a table folder. Out: `KnownSchema` values, one a version, in
`_mirrorlib/schema/<version>.json`. A version is written with put-if-absent before the first file
that needs it: of two writers that bring different columns, one is the first, and the other is
checked against it. A zone that another publisher began is known by its newest files' footers, or by
the types in its `_metadata.json`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from mirrorlib.errors import MirrorError, StoreError
from mirrorlib.identifiers import find_named, fold_name
from mirrorlib.landing.footer import read_footer
from mirrorlib.landing.parquet import open_parquet
from mirrorlib.landing.publish.declare import ARROW_TYPES
from mirrorlib.landing.types import INSTANT, WALL_CLOCK
from mirrorlib.names import is_ignored, sequence_name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from mirrorlib.landing.metadata.declared import TableMetadata
    from mirrorlib.store import Store, StoredFile

STATE = "_mirrorlib"
FORMAT = 1
_DECIMAL = re.compile(r"decimal128\((\d+), (-?\d+)\)")
_TYPES = {
    str(kind): kind
    for kind in (
        pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(),
        pa.string(), pa.binary(), pa.date32(), INSTANT, WALL_CLOCK,
    )
}  # fmt: skip
_LOOKED_AT = 10  # newest files of another publisher: deletes alone say nothing about most columns


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownColumn:
    """A column as it was published."""

    name: str
    type: pa.DataType
    nullable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownSchema:
    """Everything that was ever published of a table's columns.

    Attributes:
        version: counted from 1; 0 for a schema that is not written down yet.
        columns: in the order in which they appeared, without the marker.
        markers: whether a file had the marker column.
        partition_by: the columns that name the partition folders.

    """

    version: int = 0
    columns: tuple[KnownColumn, ...] = ()
    markers: bool = False
    partition_by: tuple[str, ...] | None = None

    def column(self, name: str) -> KnownColumn | None:
        """Find a column as Delta does, without regard to case."""
        return find_named(self.columns, name)


def read_known(zone: Store, folder: str, after: KnownSchema | None = None) -> KnownSchema | None:
    """Read the newest version, going on from the one that was read last.

    Raises:
        StoreError: it cannot be read, or a newer mirrorlib wrote it.

    """
    newest = after if after is not None and after.version else None
    number = newest.version if newest else 0
    while (data := zone.read(_path(folder, number + 1))) is not None:
        number += 1
        newest = _from_json(data, number, f"{zone.url}/{_path(folder, number)}")
    return newest


def write_known(zone: Store, folder: str, schema: KnownSchema) -> bool:
    """Write a version; False when another writer was first with that number."""
    data = _to_json(schema)
    path = _path(folder, schema.version)
    return zone.put_new(path, data) or zone.read(path) == data


def adopt_known(
    zone: Store, folder: str, metadata: TableMetadata | None, *, table: str
) -> KnownSchema | None:
    """Learn the schema of a table that another publisher began; None when it has no files yet.

    Raises:
        SchemaError: a published column has no place in the format.
        StoreError: the files cannot be read.

    """
    if metadata is not None and metadata.schema_definition:
        defined = [
            KnownColumn(
                name=column.name,
                type=ARROW_TYPES.get(column.data_type.casefold(), pa.string()),
                nullable=column.nullable is not False,
            )
            for column in metadata.schema_definition
        ]
        return KnownSchema(columns=tuple(defined), markers=True)
    columns: dict[str, KnownColumn] = {}
    markers = False
    for file in _newest(zone, folder):
        with zone.open_file(file.path) as source:
            schema = read_footer(source, file, table=table, ntz="keep")
            fields = _nullability(source)
        markers = markers or schema.marker is not None
        for column in schema.columns:
            if not pa.types.is_null(column.type):
                nullable = fields.get(column.name, True)
                learnt = KnownColumn(name=column.name, type=column.type, nullable=nullable)
                columns.setdefault(fold_name(column.name), learnt)
    return KnownSchema(columns=tuple(columns.values()), markers=markers) if columns else None


def _newest(zone: Store, folder: str) -> list[StoredFile]:
    """Give the newest Parquet files, newest first, partition folders included."""
    found = sorted(_parquet_files(zone, folder), key=lambda file: (file.modified, file.path))
    return found[: -_LOOKED_AT - 1 : -1]


def _parquet_files(zone: Store, folder: str) -> Iterator[StoredFile]:
    listed = zone.list_folder(folder)
    for file in listed.files if listed else ():
        if file.name.endswith(".parquet") and not is_ignored(file.name) and file.size:
            yield file
    for inner in listed.folders if listed else ():
        if "=" in inner and not is_ignored(inner):
            yield from _parquet_files(zone, f"{folder}/{inner}")


def _nullability(source: BinaryIO) -> dict[str, bool]:
    """Say which columns may be NULL, for which `read_footer` has no word."""
    source.seek(0)
    return {field.name: field.nullable for field in open_parquet(source).schema_arrow}


def _path(folder: str, version: int) -> str:
    return f"{folder}/{STATE}/schema/{sequence_name(version, 'json')}"


def _to_json(schema: KnownSchema) -> bytes:
    value = {
        "format": FORMAT,
        "columns": [
            {"name": column.name, "type": str(column.type), "nullable": column.nullable}
            for column in schema.columns
        ],
        "markers": schema.markers,
        "partitionBy": list(schema.partition_by or ()),
    }
    return json.dumps(value, indent=2, ensure_ascii=False).encode()


def _from_json(data: bytes, version: int, place: str) -> KnownSchema:
    try:
        value = json.loads(data)
        if value["format"] != FORMAT:
            raise _unreadable(place, f"format {value['format']}")
        columns = [
            KnownColumn(name=item["name"], type=_type(item["type"]), nullable=item["nullable"])
            for item in value["columns"]
        ]
        return KnownSchema(
            version=version,
            columns=tuple(columns),
            markers=value["markers"],
            partition_by=tuple(value["partitionBy"]),
        )
    except (ValueError, KeyError, TypeError) as exc:
        raise _unreadable(place, type(exc).__name__) from exc


def _type(text: str) -> pa.DataType:
    decimal = _DECIMAL.fullmatch(text)
    return pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal else _TYPES[text]


def _unreadable(place: str, found: str) -> MirrorError:
    msg = f"cannot understand {place}, where an earlier publication left the table's schema"
    step = "Use the mirrorlib version that wrote it, or a newer one; never edit what lies in _mirrorlib."
    return StoreError(msg, found=found, next_step=step)

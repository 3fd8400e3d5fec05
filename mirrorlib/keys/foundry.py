"""Write keys and columns as a Foundry schema document, and read one.

In: a keyed DataFrame, or the JSON. Out: the other. The partition key stands in the fields
(`includeInPartitioning`), without an order of its own; the primary key and how its rows are resolved beside
them. Whatever either side has no word for is refused by name.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame, types

from mirrorlib.errors import KeysError
from mirrorlib.keys.read import keys_of
from mirrorlib.keys.tags import tag_columns
from mirrorlib.keys.value import Keys, check_again

PARTITIONS = "includeInPartitioning"
# A text, which is kept, or a comment, which Foundry's own documentation writes into its examples.
_COMMENT = re.compile(r'(?P<text>"(?:\\.|[^"\\])*")|//[^\n]*')
_FIELD = "a field of the schema document"
_PARTS = (  # of a field; those that say nothing are null
    "type", "name", "nullable", "userDefinedTypeClass", "customMetadata", "arraySubtype", "precision", "scale",
    "mapKeyType", "mapValueType", "subSchemas",
)  # fmt: skip
_PRIMARY = {"BYTE", "SHORT", "INTEGER", "LONG", "STRING", "BOOLEAN", "TIMESTAMP", "DATE"}
_DIGITS = 38  # of a decimal, at most
_SIMPLE = _PRIMARY | {"BINARY", "DOUBLE", "FLOAT"}  # Spark's `typeName`, in capitals


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundrySchema:
    """What a Foundry schema document says: the columns, and the keys among them."""

    schema: types.StructType
    keys: Keys

    def declare(self, df: DataFrame) -> DataFrame:
        """Declare these keys on a DataFrame that has the document's columns.

        Raises:
            KeysError: a key column is missing there, or has a type that it cannot have.

        """
        return tag_columns(df, check_again(df.schema, self.keys), "key_by") if self.keys else df


def to_foundry_schema(df: DataFrame) -> dict[str, Any]:
    """Return the schema document of a DataFrame, with the keys that still hold, as JSON-ready values.

    Raises:
        KeysError: a column's type, or the primary key's, has no counterpart; or a part of the primary key was lost.

    """
    keys = keys_of(df)
    fields = _fields(df.schema)
    for field in fields:
        if field["name"] in keys.partition:
            field["customMetadata"] = {PARTITIONS: True}
    return {
        "fieldSchemaList": fields,
        "primaryKey": _primary_key(keys, df.schema) if keys.primary else None,
        "dataFrameReaderClass": "com.palantir.foundry.spark.input.ParquetDataFrameReader",
        "customMetadata": {"format": "parquet"},
    }


def _primary_key(keys: Keys, schema: types.StructType) -> dict[str, Any]:
    if keys.lost:
        msg = "a part of the primary key was lost, and what is left would merge records"
        raise KeysError(msg, column=keys.lost[0], next_step="Declare it anew with key_by.")
    _check_primary(keys, schema)
    resolution: dict[str, Any] = {"type": "unique", "unique": {}}
    if not keys.unique:
        strategy: dict[str, Any] = {"type": "customStrategy", "customStrategy": {}}
        if keys.order_by:
            strategy = {"type": "latestWins", "latestWins": {"columns": list(keys.order_by)}}
        duplicate: dict[str, Any] = {"resolutionStrategy": strategy}
        if keys.deleted is not None:
            duplicate["deletionColumn"] = keys.deleted
        resolution = {"type": "duplicate", "duplicate": duplicate}
    return {"columns": list(keys.primary), "resolution": resolution}


def _fields(schema: types.StructType, path: str = "") -> list[dict[str, Any]]:
    return [
        {**_written(f.dataType, f"{path}{f.name}", nullable=f.nullable), "name": f.name}
        for f in schema.fields
    ]


def _written(kind: types.DataType, path: str, *, nullable: bool | None) -> dict[str, Any]:
    field: dict[str, Any] = dict.fromkeys(_PARTS)
    field |= {"type": kind.typeName().upper(), "nullable": nullable, "customMetadata": {}}
    if isinstance(kind, types.DecimalType):
        field |= {"precision": kind.precision, "scale": kind.scale}
    elif isinstance(kind, types.ArrayType):
        element = _written(kind.elementType, f"{path}.element", nullable=kind.containsNull)
        field["arraySubtype"] = element
    elif isinstance(kind, types.MapType):
        value = _written(kind.valueType, f"{path}.value", nullable=kind.valueContainsNull)
        key = _written(kind.keyType, f"{path}.key", nullable=False)
        field |= {"mapKeyType": key, "mapValueType": value}
    elif isinstance(kind, types.StructType):
        field["subSchemas"] = _fields(kind, f"{path}.")
    elif field["type"] not in _SIMPLE or " collate " in kind.simpleString():
        msg = "a column's type has no counterpart in a Foundry schema"
        raise KeysError(msg, column=path, found=kind.simpleString(), next_step="Cast or drop it.")
    return field


def from_foundry_schema(document: str | bytes | Mapping[str, Any]) -> FoundrySchema:
    """Read a schema document.

    A primary key whose columns are not marked as partition key gives a warning: order is then not kept. So does a
    partition key with more columns than the primary key has: keys here are one set of columns, and the partition
    key alone is taken, as the order of its rows says nothing of those of a record.

    Raises:
        KeysError: it is no such document, says something that is not known here, or has keys that cannot be.

    """
    known = {"customMetadata", "dataFrameReaderClass", "fieldSchemaList", "primaryKey"}
    parts = _object(_parsed(document), "the schema document", known)
    fields = parts.get("fieldSchemaList", ())
    schema = _read_fields(fields, "the schema document has no fieldSchemaList")
    marked = tuple(field["name"] for field in fields if _is_partition(field))
    partition = check_again(schema, Keys(partition=marked))
    keys = check_again(schema, _parse_primary(parts.get("primaryKey")))
    _check_primary(keys, schema)
    if not keys.primary:
        return FoundrySchema(schema=schema, keys=partition)
    if set(marked) != set(keys.primary):
        wider = set(marked) > set(keys.primary)
        warning = (
            f"The primary key ({', '.join(keys.primary)}) is not the partition key "
            f"({', '.join(marked) or 'none'}): the order of its rows is not kept. "
            f"The {'partition' if wider else 'primary'} key alone is taken."
        )
        warnings.warn(warning, stacklevel=2)
        keys = partition if wider else keys
    return FoundrySchema(schema=schema, keys=keys)


def _parsed(document: str | bytes | Mapping[str, Any]) -> object:
    if isinstance(document, Mapping):
        return document
    try:
        if isinstance(document, bytes):
            document = document.decode(json.detect_encoding(document))
        return json.loads(_COMMENT.sub(lambda found: found["text"] or "", document))
    except ValueError as exc:
        msg, step = "the schema document is not JSON", "Give it as Foundry has it, or parsed."
        raise KeysError(msg, next_step=step) from exc


def _read_fields(fields: object, missing: str, path: str | None = None) -> types.StructType:
    """Read the columns of a document or a struct; *missing* is said where there is no list of them."""
    if not isinstance(fields, list):
        raise KeysError(missing, column=path)
    columns = types.StructType()
    for place, value in enumerate(fields):
        field = _read_field(value, f"field {place}")
        name = field.get("name")
        if not isinstance(name, str):
            msg = f"{_FIELD} has no name"
            raise KeysError(msg, found=f"field {place}")
        if name in columns.names:
            msg = "the schema document has two fields of one name"
            raise KeysError(msg, column=name)
        columns = columns.add(types.StructField(name, _type(field, name), _nullable(field)))
    return columns


def _read_field(value: object, path: str) -> Mapping[str, Any]:
    field = _object(value, _FIELD, set(_PARTS), path)
    if field.get("userDefinedTypeClass") is not None:
        msg = f"{_FIELD} has a type of its user's own"
        raise KeysError(msg, column=path, found=str(field["userDefinedTypeClass"]))
    if field.get("customMetadata") is not None:
        _object(field["customMetadata"], f"the customMetadata of {_FIELD}", None, path)
    return field


def _nullable(field: Mapping[str, Any]) -> bool:
    """Say whether a field may be NULL; one that leaves it open may."""
    return field.get("nullable") is not False


def _type(field: Mapping[str, Any], path: str) -> types.DataType:
    type_name = str(field.get("type"))
    if type_name in _SIMPLE:
        kind: types.DataType = getattr(types, f"{type_name.title()}Type")()
        return kind
    if type_name == "DECIMAL":
        precision, scale = field.get("precision"), field.get("scale")
        if not isinstance(precision, int) or not isinstance(scale, int):
            msg = "a DECIMAL of the schema document lacks precision or scale"
            raise KeysError(msg, column=path)
        if not 0 <= scale <= precision <= _DIGITS:
            msg = "a DECIMAL of the schema document has digits that no type here has"
            raise KeysError(msg, column=path, found=f"{precision}, {scale}")
        return types.DecimalType(precision, scale)
    if type_name == "ARRAY":
        inner = _read_field(field.get("arraySubtype"), f"{path}.element")
        return types.ArrayType(_type(inner, f"{path}.element"), _nullable(inner))
    if type_name == "MAP":
        key = _type(_read_field(field.get("mapKeyType"), f"{path}.key"), f"{path}.key")
        value = _read_field(field.get("mapValueType"), f"{path}.value")
        return types.MapType(key, _type(value, f"{path}.value"), _nullable(value))
    if type_name == "STRUCT":
        msg = "a STRUCT of the schema document has no subSchemas"
        return _read_fields(field.get("subSchemas"), msg, path)
    msg = f"{_FIELD} has a type that is not known"
    raise KeysError(msg, column=path, found=type_name)


def _is_partition(field: Mapping[str, Any]) -> bool:
    marked = (field.get("customMetadata") or {}).get(PARTITIONS)
    if marked is not None and not isinstance(marked, bool):
        msg = f"{PARTITIONS} is neither true nor false"
        raise KeysError(msg, column=field["name"], found=str(marked))
    return marked is True


def _parse_primary(value: object) -> Keys:
    if value is None:
        return Keys()
    primary = _object(value, "primaryKey", {"columns", "resolution"})
    columns = _columns(primary.get("columns"), "primaryKey")
    keys = Keys(partition=columns, primary=columns)
    cases = {"unique": set[str](), "duplicate": {"resolutionStrategy", "deletionColumn"}}
    found = _object(primary.get("resolution"), "resolution", None)
    kind, resolution = _case(found, "resolution", cases)
    if kind == "unique":
        return replace(keys, unique=True)
    deleted = resolution.get("deletionColumn")
    if deleted is not None and not isinstance(deleted, str):
        msg = "the deletion column is not a name"
        raise KeysError(msg, found=type(deleted).__name__)
    strategies = {"latestWins": {"columns"}, "customStrategy": set[str]()}
    union = _object(resolution.get("resolutionStrategy"), "resolutionStrategy", None)
    name, strategy = _case(union, "resolution strategy", strategies)
    order = _columns(strategy.get("columns"), name) if name == "latestWins" else ()
    return replace(keys, deleted=deleted, order_by=order)


def _case(
    union: Mapping[str, Any], what: str, cases: Mapping[str, AbstractSet[str]]
) -> tuple[str, Mapping[str, Any]]:
    """Give a union's type and what it holds: under that name, or, as other interfaces write it, beside `type`."""
    kind = str(union.get("type"))
    if kind not in cases:
        msg = f"the primary key has a {what} that is not known"
        raise KeysError(msg, found=kind)
    inner: object = {name: value for name, value in union.items() if name != "type"}
    if kind in union:
        inner = _object(union, kind, {"type", kind})[kind]
    return kind, _object(inner, kind, cases[kind])


def _object(
    value: object, what: str, known: AbstractSet[str] | None, column: str | None = None
) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        msg = f"{what} is not an object"
        raise KeysError(msg, column=column, found=type(value).__name__)
    if known is not None and (unknown := value.keys() - known):
        msg = f"{what} has a part that is not known"
        raise KeysError(msg, column=column, found=min(unknown))
    return value


def _columns(value: object, what: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(name, str) for name in value):
        msg = f"{what} names no columns"
        raise KeysError(msg)
    return tuple(value)


def _check_primary(keys: Keys, schema: types.StructType) -> None:
    for name in keys.primary:
        kind = schema[name].dataType.typeName().upper()
        if kind not in {*_PRIMARY, "DECIMAL"}:
            msg = "a Foundry primary key cannot have this type"
            raise KeysError(msg, column=name, found=kind, next_step="Cast it before.")

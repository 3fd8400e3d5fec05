"""Write Spark's types as fields of a Foundry schema document, and read them back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mirrorlib.errors import KeysError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_SIMPLE = {  # Spark's `typeName`
    "binary": "BINARY",
    "boolean": "BOOLEAN",
    "byte": "BYTE",
    "date": "DATE",
    "double": "DOUBLE",
    "float": "FLOAT",
    "integer": "INTEGER",
    "long": "LONG",
    "short": "SHORT",
    "string": "STRING",
    "timestamp": "TIMESTAMP",
}
_MEMBERS = frozenset(
    {
        "arraySubtype",
        "customMetadata",
        "mapKeyType",
        "mapValueType",
        "name",
        "nullable",
        "precision",
    }
    | {"scale", "subSchemas", "type", "userDefinedTypeClass"}
)


def fields_of(schema: StructType) -> list[dict[str, Any]]:
    """Write the columns of a schema.

    Raises:
        KeysError: a type has no counterpart.

    """
    return [_field(f.name, f.dataType, nullable=f.nullable, path=f.name) for f in schema.fields]


def _field(name: str | None, kind: DataType, *, nullable: bool | None, path: str) -> dict[str, Any]:
    from pyspark.sql.types import ArrayType, DecimalType, MapType, StructType

    field: dict[str, Any] = {
        "type": "",
        "name": name,
        "nullable": nullable,
        "userDefinedTypeClass": None,
        "customMetadata": {},
        "arraySubtype": None,
        "precision": None,
        "scale": None,
        "mapKeyType": None,
        "mapValueType": None,
        "subSchemas": None,
    }
    simple = _SIMPLE.get(kind.typeName())
    if simple is not None:
        return {**field, "type": simple}
    if isinstance(kind, DecimalType):
        return {**field, "type": "DECIMAL", "precision": kind.precision, "scale": kind.scale}
    if isinstance(kind, ArrayType):
        inner = _field(None, kind.elementType, nullable=kind.containsNull, path=f"{path}.element")
        return {**field, "type": "ARRAY", "arraySubtype": inner}
    if isinstance(kind, MapType):
        key = _field(None, kind.keyType, nullable=False, path=f"{path}.key")
        value = _field(None, kind.valueType, nullable=kind.valueContainsNull, path=f"{path}.value")
        return {**field, "type": "MAP", "mapKeyType": key, "mapValueType": value}
    if isinstance(kind, StructType):
        inside = [
            _field(f.name, f.dataType, nullable=f.nullable, path=f"{path}.{f.name}") for f in kind
        ]
        return {**field, "type": "STRUCT", "subSchemas": inside}
    msg = "a column's type has no counterpart in a Foundry schema"
    raise KeysError(msg, column=path, found=kind.simpleString(), next_step="Cast or drop it.")


def types_of(fields: Sequence[object]) -> StructType:
    """Read the columns of a schema document; a nullability that it leaves open is true.

    Raises:
        KeysError: a field is no field, or has a type that is not known.

    """
    from pyspark.sql.types import StructField, StructType

    columns = StructType()
    for place, value in enumerate(fields):
        field = _checked(value, f"field {place}")
        name = field.get("name")
        if not isinstance(name, str):
            msg = "a field of the schema document has no name"
            raise KeysError(msg, found=f"field {place}")
        if name in columns.names:
            msg = "the schema document has two fields of one name"
            raise KeysError(msg, column=name)
        columns = columns.add(StructField(name, _type(field, name), _nullable(field)))
    return columns


def _checked(value: object, path: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        msg = "a field of the schema document is not an object"
        raise KeysError(msg, column=path)
    unknown = value.keys() - _MEMBERS
    if unknown:
        msg = "a field of the schema document has a part that is not known"
        raise KeysError(msg, column=path, found=min(unknown))
    if value.get("userDefinedTypeClass") is not None:
        msg = "a field of the schema document has a type of its user's own"
        raise KeysError(msg, column=path, found=str(value["userDefinedTypeClass"]))
    if not isinstance(value.get("customMetadata"), Mapping | None):
        msg = "the customMetadata of a field of the schema document is not an object"
        raise KeysError(msg, column=path, found=type(value["customMetadata"]).__name__)
    return value


def _nullable(field: Mapping[str, Any]) -> bool:
    return field.get("nullable") is not False


def _type(field: Mapping[str, Any], path: str) -> DataType:
    from pyspark.sql import types
    from pyspark.sql.types import ArrayType, DecimalType, MapType

    type_name = field.get("type")
    simple = next((name for name, known in _SIMPLE.items() if known == type_name), None)
    if simple is not None:
        kind: DataType = getattr(types, f"{simple.title()}Type")()
        return kind
    if type_name == "DECIMAL":
        precision, scale = field.get("precision"), field.get("scale")
        if not isinstance(precision, int) or not isinstance(scale, int):
            msg = "a DECIMAL of the schema document lacks precision or scale"
            raise KeysError(msg, column=path)
        return DecimalType(precision, scale)
    if type_name == "ARRAY":
        inner = _checked(field.get("arraySubtype"), f"{path}.element")
        return ArrayType(_type(inner, f"{path}.element"), _nullable(inner))
    if type_name == "MAP":
        key = _checked(field.get("mapKeyType"), f"{path}.key")
        value = _checked(field.get("mapValueType"), f"{path}.value")
        return MapType(_type(key, f"{path}.key"), _type(value, f"{path}.value"), _nullable(value))
    if type_name == "STRUCT":
        inside = field.get("subSchemas")
        if not isinstance(inside, list):
            msg = "a STRUCT of the schema document has no subSchemas"
            raise KeysError(msg, column=path)
        return types_of(inside)
    msg = "a field of the schema document has a type that is not known"
    raise KeysError(msg, column=path, found=str(type_name))

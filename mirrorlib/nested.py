"""Look into Spark's types, at any depth."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.types import DataType


def types_in(kind: DataType) -> Iterator[DataType]:
    """Give a type and all types inside it: fields, elements, keys and values; the outer before the inner."""
    from pyspark.sql import types as t

    yield kind
    inner: list[DataType] = []
    if isinstance(kind, t.StructType):
        inner = [field.dataType for field in kind.fields]
    elif isinstance(kind, t.ArrayType):
        inner = [kind.elementType]
    elif isinstance(kind, t.MapType):
        inner = [kind.keyType, kind.valueType]
    for one in inner:
        yield from types_in(one)


def names_in(kind: DataType) -> list[str]:
    """Give the names of all fields."""
    from pyspark.sql.types import StructType

    structs = (one for one in types_in(kind) if isinstance(one, StructType))
    return [name for struct in structs for name in struct.names]


def map_keys_in(kind: DataType) -> list[DataType]:
    """Give the types of the keys of all maps."""
    from pyspark.sql.types import MapType

    return [one.keyType for one in types_in(kind) if isinstance(one, MapType)]


def is_free_of(kind: DataType, types: AbstractSet[str]) -> bool:
    """Say whether a type is none of these, by Spark's `typeName`, and has none of them inside."""
    return all(name_of(one) not in types for one in types_in(kind))


def name_of(kind: DataType) -> str:
    """Return a type's name without what is said in parentheses: `decimal`, `char`."""
    return kind.typeName().partition("(")[0]

"""Go through types that have others inside: structs, arrays and maps.

In: Spark types. Out: texts and names. What the receivers make of them is theirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.identifiers import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql.types import DataType, StructField


def to_ddl(kind: DataType) -> str:
    """Write a type for SQL, whatever names it has in it."""
    return write_type(kind, lambda leaf: leaf.simpleString())


def fields_ddl(fields: Iterable[StructField]) -> str:
    """Write columns, or fields, for SQL."""
    return ", ".join(f"{quote(field.name)} {to_ddl(field.dataType)}" for field in fields)


def write_type(kind: DataType, leaf: Callable[[DataType], str]) -> str:
    """Write a type as SQL does, with *leaf* for what has no type inside."""
    from pyspark.sql import types as t

    if isinstance(kind, t.StructType):
        fields = (f"{quote(one.name)}: {write_type(one.dataType, leaf)}" for one in kind.fields)
        return f"struct<{', '.join(fields)}>"
    if isinstance(kind, t.ArrayType):
        return f"array<{write_type(kind.elementType, leaf)}>"
    if isinstance(kind, t.MapType):
        return f"map<{write_type(kind.keyType, leaf)}, {write_type(kind.valueType, leaf)}>"
    return leaf(kind)


def map_keys_in(kind: DataType) -> Iterator[DataType]:
    """Give the types of the keys of all maps, on every level."""
    from pyspark.sql import types as t

    if isinstance(kind, t.StructType):
        for field in kind.fields:
            yield from map_keys_in(field.dataType)
    elif isinstance(kind, t.ArrayType):
        yield from map_keys_in(kind.elementType)
    elif isinstance(kind, t.MapType):
        yield kind.keyType
        yield from map_keys_in(kind.keyType)
        yield from map_keys_in(kind.valueType)


def names_in(kind: DataType) -> Iterator[str]:
    """Give the names of all fields, on every level."""
    from pyspark.sql import types as t

    if isinstance(kind, t.StructType):
        for field in kind.fields:
            yield field.name
            yield from names_in(field.dataType)
    elif isinstance(kind, t.ArrayType):
        yield from names_in(kind.elementType)
    elif isinstance(kind, t.MapType):
        yield from names_in(kind.keyType)
        yield from names_in(kind.valueType)

"""The columns of a Delta table as Arrow types and as Spark SQL types, and how the two words map.

In: Spark type names, as a schema or the journal writes them. Out: `Column` values and back. Only
the types that a mirror has; a column of any other type (somebody added it by hand) is left out and
stays NULL in new rows. A table that a consumer follows may have any type of Spark's, nested ones too: these are
compared, written for SQL, and searched for names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from mirrorlib.delta.sessions import FULL_WIDENING, spark_generation
from mirrorlib.identifiers import find_named, fold_name, quote
from mirrorlib.landing.types import INSTANT, INTEGERS, WALL_CLOCK, widen_type, widens_in_place
from mirrorlib.names import find_key

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_SQL_TYPES = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    INSTANT: "timestamp",
    WALL_CLOCK: "timestamp_ntz",
}
_ARROW_TYPES = {name: kind for kind, name in _SQL_TYPES.items()}
NO_TYPE_STEP = (  # where no type holds all; whoever starts over meets the same value
    "Publish a corrected file under the same name; or, where files have numbers, a full load as file N, and begin with "
    "that: mirrorlib reset TARGET TABLE --start-at N"
)
_MAPPED = set(" ,;{}()\n\t=")
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_SMALL = INTEGERS[:3]  # what every Delta widens in place


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a mirror: its name as the table spells it, and its mirror type."""

    name: str
    type: pa.DataType

    @property
    def sql_type(self) -> str:
        """Return the Spark SQL name of the type."""
        return sql_type(self.type)

    @property
    def ddl(self) -> str:
        """Return the column's definition for CREATE and ADD COLUMNS."""
        return f"{quote(self.name)} {self.sql_type}"


Columns = tuple[Column, ...]


def needs_mapping(name: str) -> bool:
    """Say whether Delta takes a column of this name only in a table with column mapping."""
    return bool(_MAPPED & set(name))


find_column = find_named  # as Delta does, without regard to case


def find_key_column(columns: Iterable[Column], key: str) -> Column | None:
    """Find a key column, see `find_key`."""
    by_name = {column.name: column for column in columns}
    return by_name.get(find_key(by_name, key) or "")


def spelled_keys(columns: Columns, keys: Iterable[str]) -> tuple[str, ...]:
    """Name the key columns that a table has as it spells them."""
    found = (find_key_column(columns, key) for key in keys)
    return tuple(column.name for column in found if column is not None)


def sql_type(kind: pa.DataType) -> str:
    """Return the Spark SQL name of a mirror type."""
    decimal = pa.types.is_decimal(kind)
    return f"decimal({kind.precision},{kind.scale})" if decimal else _SQL_TYPES[kind]


def to_columns(pairs: Iterable[tuple[str, str]]) -> Columns:
    """Read (name, Spark type) pairs; columns of types that no mirror has are left out."""
    typed = ((name, _arrow_type(text)) for name, text in pairs)
    return tuple(Column(name, kind) for name, kind in typed if kind is not None)


def _arrow_type(text: str) -> pa.DataType | None:
    decimal = _DECIMAL.fullmatch(text)
    return pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal else _ARROW_TYPES.get(text)


def to_pairs(columns: Columns) -> tuple[tuple[str, str], ...]:
    """Write columns as (name, Spark type) pairs."""
    return tuple((column.name, column.sql_type) for column in columns)


def is_same(one: DataType, other: DataType) -> bool:
    """Say whether two types hold the same, whatever the order of their fields and what may be NULL."""
    return extends(one, other) and extends(other, one)


def extends(new: DataType, old: DataType) -> bool:
    """Say whether a type is another one with more fields, or none more."""
    from pyspark.sql import types as t

    if isinstance(old, t.StructType) and isinstance(new, t.StructType):
        has = {fold_name(field.name): field.dataType for field in new.fields}
        return all(
            fold_name(field.name) in has and extends(has[fold_name(field.name)], field.dataType)
            for field in old.fields
        )
    if isinstance(old, t.ArrayType) and isinstance(new, t.ArrayType):
        return extends(new.elementType, old.elementType)
    if isinstance(old, t.MapType) and isinstance(new, t.MapType):
        keys = extends(new.keyType, old.keyType)
        return keys and extends(new.valueType, old.valueType)
    return new.simpleString() == old.simpleString()


def in_place(old: pa.DataType, new: pa.DataType) -> bool:
    """Say whether the Delta at hand changes a column to a wider type without rewriting the table."""
    return widens_in_place(old, new) and (new in _SMALL or spark_generation() >= FULL_WIDENING)


def widening(old: str, new: str) -> tuple[pa.DataType, pa.DataType] | None:
    """Read two Spark types where the new one is that which holds both, as far as values go; None where it is not."""
    before, after = _arrow_type(old), _arrow_type(new)
    if before is None or after is None:
        return None
    return (before, after) if before != after == widen_type(before, after) else None


def write_type(kind: DataType, leaf: Callable[[DataType], str]) -> str:
    """Write a type as SQL does, whatever names it has in it, with *leaf* for what has no type inside."""
    from pyspark.sql import types as t

    if isinstance(kind, t.StructType):
        fields = (f"{quote(one.name)}: {write_type(one.dataType, leaf)}" for one in kind.fields)
        return f"struct<{', '.join(fields)}>"
    if isinstance(kind, t.ArrayType):
        return f"array<{write_type(kind.elementType, leaf)}>"
    if isinstance(kind, t.MapType):
        return f"map<{write_type(kind.keyType, leaf)}, {write_type(kind.valueType, leaf)}>"
    return leaf(kind)
